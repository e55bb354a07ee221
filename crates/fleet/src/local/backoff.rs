//! The delay before a crashed process is restarted.

use std::time::Duration;

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};

/// The delays between restarts: none after the first crash, then `min`, doubling each time up to `max`. Jitter shortens
/// each delay by up to half, so that fleets that crash together don't restart together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RestartBackoff {
    /// The first non-zero delay.
    pub min: Duration,
    /// The longest delay.
    pub max: Duration,
    /// A process that has run this long is stable: its next crash counts as the first.
    pub stable_after: Duration,
}

impl Default for RestartBackoff {
    /// 0.2 s up to 30 s; stable after 10 s.
    fn default() -> Self {
        Self {
            min: Duration::from_millis(200),
            max: Duration::from_secs(30),
            stable_after: Duration::from_secs(10),
        }
    }
}

/// The crashes of one process since it was last stable.
#[derive(Debug)]
pub(super) struct Crashes {
    backoff: RestartBackoff,
    /// `None` before the first crash.
    delays: Option<ExponentialBackoff>,
}

impl Crashes {
    pub(super) fn new(backoff: RestartBackoff) -> Self {
        Self {
            backoff,
            delays: None,
        }
    }

    /// The delay after a crash. `uptime`: how long the process ran; zero if it didn't start.
    pub(super) fn delay(&mut self, uptime: Duration) -> Duration {
        let stable = uptime >= self.backoff.stable_after;
        if let Some(delays) = self.delays.as_mut().filter(|_| !stable) {
            return delays.next().unwrap_or(self.backoff.max);
        }
        // Jitter adds up to the same amount again.
        let builder = ExponentialBuilder::new()
            .with_min_delay(self.backoff.min / 2)
            .with_max_delay(self.backoff.max / 2)
            .without_max_times()
            .with_jitter();
        self.delays = Some(builder.build());
        Duration::ZERO
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EARLY: Duration = Duration::from_millis(1);

    #[test]
    fn delays_double_up_to_the_maximum_with_jitter() {
        let mut crashes = Crashes::new(RestartBackoff::default());
        assert_eq!(crashes.delay(EARLY), Duration::ZERO);
        let doubled = [200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000];
        for max in doubled.into_iter().chain([30_000; 100]) {
            let delay = crashes.delay(EARLY).as_millis();
            assert!((max / 2..=max).contains(&delay), "{delay} of {max}");
        }
    }

    #[test]
    fn a_stable_run_resets_the_backoff() {
        let mut crashes = Crashes::new(RestartBackoff::default());
        for _ in 0..5 {
            crashes.delay(EARLY);
        }
        assert_eq!(crashes.delay(Duration::from_secs(10)), Duration::ZERO);
        assert!(crashes.delay(EARLY) <= Duration::from_millis(200));
    }
}
