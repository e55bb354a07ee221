//! Backoff for an overloaded or unavailable API server.

use std::time::{Duration, Instant};

const MIN: Duration = Duration::from_millis(250);
const MAX: Duration = Duration::from_secs(15);
/// Maximum `Retry-After` that is honored.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// Blocks writes until a given time. After that, one write at a time is sent until the server responds.
#[derive(Debug, Default)]
pub(super) struct ServerBackoff {
    until: Option<Instant>,
    failures: u32,
}

impl ServerBackoff {
    /// Ends the backoff, since the server responded.
    pub(super) fn reset(&mut self) {
        *self = Self::default();
    }

    /// Records a failed write. During a backoff, failures of writes that were already in flight don't extend it.
    pub(super) fn fail(&mut self, retry_after: Option<Duration>, now: Instant) {
        let until = self.until.filter(|until| *until > now).unwrap_or_else(|| {
            let wait = MIN * 2u32.pow(self.failures.min(6));
            self.failures = self.failures.saturating_add(1);
            now + wait.min(MAX)
        });
        let retry_after = retry_after.map(|after| now + after.min(MAX_RETRY_AFTER));
        self.until = Some(retry_after.map_or(until, |at| at.max(until)));
    }

    /// Whether another write may start.
    pub(super) fn allows(&self, in_flight: usize, now: Instant) -> bool {
        self.until
            .is_none_or(|until| until <= now && in_flight == 0)
    }

    /// When the next write may start, if backing off.
    pub(super) fn retry_at(&self) -> Option<Instant> {
        self.until
    }
}
