//! Whether the server can take writes at all.

use std::time::{Duration, Instant};

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST: Duration = Duration::from_secs(15);
/// However long a server asks us to wait.
const ASKED_AT_MOST: Duration = Duration::from_secs(60);

/// Open, or closed until some time; then one write may try, and all may when that was answered.
#[derive(Debug, Default)]
pub(super) struct Gate {
    closed_until: Option<Instant>,
    failures: u32,
}

impl Gate {
    /// The server answered.
    pub(super) fn open(&mut self) {
        *self = Self::default();
    }

    /// The server can't take more. Many writes that were under way together count as one.
    pub(super) fn close(&mut self, asked: Option<Duration>, now: Instant) {
        let closed = self.closed_until.filter(|until| *until > now);
        let asked = asked.map(|asked| now + asked.min(ASKED_AT_MOST));
        let until = match closed {
            Some(until) => until,
            None => {
                let wait = SHORTEST * 2u32.pow(self.failures.min(6));
                self.failures = self.failures.saturating_add(1);
                now + wait.min(LONGEST)
            }
        };
        self.closed_until = Some(asked.map_or(until, |asked| asked.max(until)));
    }

    /// Whether a write may start while so many are under way.
    pub(super) fn lets(&self, in_flight: usize, now: Instant) -> bool {
        self.closed_until
            .is_none_or(|until| until <= now && in_flight == 0)
    }

    /// When a write may try again, if it is closed.
    pub(super) fn opens(&self) -> Option<Instant> {
        self.closed_until
    }
}
