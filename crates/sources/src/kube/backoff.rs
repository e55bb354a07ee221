//! Delays between retries.

use std::mem::{Discriminant, discriminant};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use backon::{BackoffBuilder as _, ExponentialBackoff, ExponentialBuilder};

use super::error::RequestError;

/// Maximum delay before the first sync unless the server requests a longer one: nothing is served until then.
const MAX_BEFORE_SYNC: Duration = Duration::from_secs(1);

/// Maximum `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// How long to wait before retrying a failed request. Delays double from `first` up to the maximum for the kind of
/// error; up to half of each delay is random. The server's `Retry-After` is a minimum.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RetryDelays {
    /// After the first failure.
    pub first: Duration,
    /// Maximum while the server doesn't respond. Short, since a refused connection costs the server nothing.
    pub unreachable: Duration,
    /// Maximum while the server responds with errors.
    pub refused: Duration,
    /// Maximum while RBAC forbids the request.
    pub forbidden: Duration,
    /// Interval at which the installed kinds are discovered if CRDs can't be watched.
    pub discovery: Duration,
}

impl Default for RetryDelays {
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

impl RetryDelays {
    fn backoff(&self, error: &RequestError) -> ExponentialBackoff {
        let max = match error {
            RequestError::Unreachable(_) | RequestError::Closed => self.unreachable,
            RequestError::Forbidden(_) => self.forbidden,
            RequestError::Missing => self.discovery,
            RequestError::Gone | RequestError::Invalid(_) | RequestError::Refused(..) => {
                self.refused
            }
        };
        // Jitter adds up to 100 %.
        ExponentialBuilder::new()
            .with_min_delay(self.first / 2)
            .with_max_delay(max / 2)
            .without_max_times()
            .with_jitter()
            .build()
    }
}

/// The state of a retried request. Only consecutive errors of one kind form a streak: if an unreachable server
/// comes back and forbids a request, a new streak begins.
#[derive(Debug)]
pub(super) struct Retries {
    delays: RetryDelays,
    synced: Arc<AtomicBool>,
    streak: Option<Streak>,
}

#[derive(Debug)]
struct Streak {
    kind: Discriminant<RequestError>,
    since: Instant,
    backoff: ExponentialBackoff,
}

impl Retries {
    /// `synced` is true once the first sync is complete.
    pub(super) fn new(delays: RetryDelays, synced: Arc<AtomicBool>) -> Self {
        Self {
            delays,
            synced,
            streak: None,
        }
    }

    /// Counts a failure. Returns the delay before the next attempt, and how long requests have been failing in this
    /// way.
    pub(super) fn failed(&mut self, error: &RequestError, now: Instant) -> (Duration, Duration) {
        let kind = discriminant(error);
        let streak = match &mut self.streak {
            Some(streak) if streak.kind == kind => streak,
            streak => streak.insert(Streak {
                kind,
                since: now,
                backoff: self.delays.backoff(error),
            }),
        };
        let mut delay = streak.backoff.next().unwrap_or(self.delays.refused);
        if !self.synced.load(Ordering::Relaxed) {
            delay = delay.min(MAX_BEFORE_SYNC);
        }
        if let RequestError::Refused(_, Some(after)) = error {
            delay = delay.max(*after).min(MAX_RETRY_AFTER);
        }
        (delay, now - streak.since)
    }

    /// Records a success.
    pub(super) fn succeeded(&mut self) {
        self.streak = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn retries(synced: bool) -> Retries {
        Retries::new(RetryDelays::default(), Arc::new(AtomicBool::new(synced)))
    }

    fn delays(retries: &mut Retries, error: &RequestError) -> Vec<Duration> {
        let mut next = || retries.failed(error, Instant::now()).0;
        (0..10).map(|_| next()).collect()
    }

    fn refused(retry_after: Option<u64>) -> RequestError {
        RequestError::Refused("busy".to_owned(), retry_after.map(Duration::from_secs))
    }

    #[test]
    fn delays_double_up_to_a_maximum_that_depends_on_the_error() {
        for (error, max) in [
            (RequestError::Unreachable(String::new()), 2),
            (refused(None), 10),
            (RequestError::Forbidden(String::new()), 15),
        ] {
            let delays = delays(&mut retries(true), &error);
            let mut upper = Duration::from_millis(200);
            for delay in delays {
                assert!(delay >= upper / 2 && delay <= upper, "{delay:?} {upper:?}");
                upper = (upper * 2).min(Duration::from_secs(max));
            }
        }
    }

    #[test]
    fn retry_after_is_honored() {
        let delays = delays(&mut retries(true), &refused(Some(3)));
        assert_eq!(delays[0], Duration::from_secs(3));
        assert!(delays.iter().all(|delay| delay.as_secs() >= 3));
        let (delay, _) = retries(true).failed(&refused(Some(100_000)), Instant::now());
        assert_eq!(delay, MAX_RETRY_AFTER);
    }

    #[test]
    fn no_delay_before_the_first_sync_is_longer_than_a_second() {
        for error in [
            refused(Some(1)),
            refused(None),
            RequestError::Unreachable(String::new()),
            RequestError::Forbidden(String::new()),
            RequestError::Missing,
        ] {
            let all = delays(&mut retries(false), &error);
            let max = Duration::from_secs(1);
            assert!(all.iter().all(|delay| *delay <= max), "{error:?} {all:?}");
        }
    }

    #[test]
    fn only_errors_of_one_kind_form_a_streak() {
        let start = Instant::now();
        let at = |second| start + Duration::from_secs(second);
        let away = || RequestError::Unreachable(String::new());
        let mut retries = retries(true);
        assert_eq!(retries.failed(&away(), at(0)).1, Duration::ZERO);
        assert_eq!(retries.failed(&away(), at(4)).1, Duration::from_secs(4));
        let (delay, failing) = retries.failed(&refused(None), at(5));
        assert_eq!(failing, Duration::ZERO);
        assert!(delay <= Duration::from_millis(200));
        retries.succeeded();
        assert_eq!(retries.failed(&refused(None), at(6)).1, Duration::ZERO);
    }
}
