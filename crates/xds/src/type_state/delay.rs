//! Delays removals at a client beyond the point where they would be safe to send.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(crate) struct RemovalDelay {
    delay: Duration,
    /// Removals before this epoch may be sent at this time.
    running: Option<(u64, Instant)>,
    /// Removals before this epoch have waited long enough.
    released: u64,
}

impl RemovalDelay {
    pub(super) fn new(delay: Duration) -> RemovalDelay {
        RemovalDelay {
            delay,
            running: None,
            released: 0,
        }
    }

    pub(crate) fn expire(&mut self, now: Instant) {
        if let Some((before, _)) = self.running.take_if(|(_, until)| now >= *until) {
            self.released = self.released.max(before);
        }
    }

    /// Applies the delay to `limit`, the epoch before which removals could otherwise be sent. `next` is the epoch of
    /// the oldest removal.
    pub(super) fn limit(&mut self, next: Option<u64>, limit: u64, epoch: u64, now: Instant) -> u64 {
        if self.delay.is_zero() {
            return limit;
        }
        let waits = next.is_some_and(|next| next < limit && next >= self.released);
        if self.running.is_none() && waits {
            self.running = Some((limit.min(epoch + 1), now + self.delay));
        }
        limit.min(self.released)
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.running.map(|(_, until)| until)
    }
}
