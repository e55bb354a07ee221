//! How long to wait before asking again.

use std::mem::{Discriminant, discriminant};
use std::time::Duration;

use super::failure::Failure;

/// How long to wait before asking again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pace {
    /// After the first failure; doubles with each further one.
    pub first: Duration,
    /// The most to wait for a server that does not answer. Short: what changes while it is away is to be served soon after its
    /// return, and a connection that is refused costs it nothing.
    pub unreachable: Duration,
    /// The most to wait where the server answers that it can't.
    pub refused: Duration,
    /// The most to wait where RBAC forbids it.
    pub forbidden: Duration,
    /// Between two looks at which kinds there are, where CRDs can't be watched.
    pub discovery: Duration,
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(200),
            unreachable: Duration::from_secs(2),
            refused: Duration::from_secs(10),
            forbidden: Duration::from_secs(15),
            discovery: Duration::from_secs(5),
        }
    }
}

impl Pace {
    /// How long to wait after the nth failure in a row, from 1. Different `spread`s wait differently, up to a quarter less, so that
    /// not all who wait ask at once.
    pub(super) fn after(&self, failure: &Failure, attempts: u32, spread: u64) -> Duration {
        let most = match failure {
            Failure::Unreachable(_) => self.unreachable,
            Failure::Forbidden(_) => self.forbidden,
            Failure::Missing => self.discovery,
            Failure::Gone | Failure::Invalid(_) | Failure::Refused(_) => self.refused,
        };
        let doubled = 1_u32 << attempts.saturating_sub(1).min(16);
        let wait = self.first.saturating_mul(doubled).min(most);
        let less = (spread.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u32;
        wait - wait / 4 * less / 256
    }
}

/// Failures of one sort in a row. A server that was away and now forbids has forbidden once, however long it was away: what is
/// believed after some answers is not believed after one.
#[derive(Debug, Default)]
pub(super) struct Row {
    sort: Option<Discriminant<Failure>>,
    number: u32,
}

impl Row {
    /// One more. Gives how many that makes.
    pub(super) fn failed(&mut self, failure: &Failure) -> u32 {
        let sort = Some(discriminant(failure));
        self.number = match self.sort == sort {
            true => self.number.saturating_add(1),
            false => 1,
        };
        self.sort = sort;
        self.number
    }

    /// It went well.
    pub(super) fn ends(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_failures_of_one_sort_add_up() {
        let away = || Failure::Unreachable(String::new());
        let forbidden = || Failure::Forbidden(String::new());
        let mut row = Row::default();
        let told = [away(), away(), away(), forbidden(), forbidden(), away()];
        assert_eq!(told.map(|failure| row.failed(&failure)), [1, 2, 3, 1, 2, 1]);
        row.ends();
        assert_eq!(row.failed(&away()), 1);
    }

    #[test]
    fn waits_grow_to_a_bound_that_depends_on_the_failure() {
        let pace = Pace::default();
        let away = Failure::Unreachable(String::new());
        let waits: Vec<_> = (1..7)
            .map(|n| pace.after(&away, n, 0).as_millis())
            .collect();
        assert_eq!(waits, [200, 400, 800, 1600, 2000, 2000]);
        let forbidden = Failure::Forbidden(String::new());
        assert_eq!(pace.after(&forbidden, u32::MAX, 0), pace.forbidden);
        for spread in 0..100 {
            let wait = pace.after(&away, 9, spread);
            assert!(wait <= pace.unreachable && wait >= pace.unreachable * 3 / 4);
        }
        assert_ne!(pace.after(&away, 9, 1), pace.after(&away, 9, 2));
    }
}
