//! How long to wait before a crashed process is started again.
//!
//! In: how long it lived, and chance. Out: a pause. It must know neither clocks nor processes.

use std::time::Duration;

/// The pauses between restarts: none after the first crash, then `first`, doubled each time up to `longest`, until
/// a process lives for `stable`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause that is not zero.
    pub first: Duration,
    /// No pause is longer.
    pub longest: Duration,
    /// A process that lives this long is taken to be sound: its crash is a first crash again.
    pub stable: Duration,
}

impl Default for Backoff {
    /// 0.2 s up to 30 s; stable after 10 s.
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            longest: Duration::from_secs(30),
            stable: Duration::from_secs(10),
        }
    }
}

/// The crashes of one process so far.
#[derive(Debug)]
pub(super) struct Crashes {
    backoff: Backoff,
    /// Since the process was last stable.
    count: u32,
}

impl Crashes {
    pub(super) fn new(backoff: Backoff) -> Self {
        Self { backoff, count: 0 }
    }

    /// The pause after a process ended that lived for `uptime` (zero: it couldn't even be started).
    ///
    /// `chance` takes up to half of the pause away, so that fleets that crash together don't start together.
    pub(super) fn pause(&mut self, uptime: Duration, chance: u32) -> Duration {
        if uptime >= self.backoff.stable {
            self.count = 0;
        }
        let doublings = self.count.checked_sub(1);
        self.count = self.count.saturating_add(1);
        let Some(doublings) = doublings else {
            return Duration::ZERO;
        };
        let factor = 1_u32.checked_shl(doublings).unwrap_or(u32::MAX);
        let whole = self
            .backoff
            .first
            .saturating_mul(factor)
            .min(self.backoff.longest);
        whole - (whole / 2).mul_f64(f64::from(chance) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: Duration = Duration::from_millis(1);

    fn pauses(crashes: &mut Crashes, number: usize, chance: u32) -> Vec<u128> {
        (0..number)
            .map(|_| crashes.pause(EARLY, chance).as_millis())
            .collect()
    }

    #[test]
    fn doubles_from_nothing_to_the_longest() {
        let mut crashes = Crashes::new(Backoff::default());
        assert_eq!(
            pauses(&mut crashes, 11, 0),
            [
                0, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000
            ]
        );
        for _ in 0..100 {
            assert_eq!(crashes.pause(EARLY, 0), Duration::from_secs(30));
        }
    }

    #[test]
    fn chance_takes_at_most_half() {
        let mut crashes = Crashes::new(Backoff::default());
        assert_eq!(pauses(&mut crashes, 4, u32::MAX), [0, 100, 200, 400]);
    }

    #[test]
    fn a_stable_life_starts_anew() {
        let mut crashes = Crashes::new(Backoff::default());
        pauses(&mut crashes, 5, 0);
        assert_eq!(crashes.pause(Duration::from_secs(10), 0), Duration::ZERO);
        assert_eq!(crashes.pause(EARLY, 0), Duration::from_millis(200));
    }
}
