//! How often a Secret is written: what somebody spoils is mended at once, and less and less often if he does it again and
//! again. Two Sesames that take the same fleet for theirs would otherwise write as fast as an API server can.

use std::time::Duration;

use jiff::Timestamp;

use super::{later, pause};

/// Whoever has left a Secret alone for so long starts anew. Longer than the longest pause.
const CALM: Duration = Duration::from_secs(600);

/// How often, so that the first two times nobody waits: it is made, and its owner's marks change.
const FREE: u32 = 2;

/// The latest writes of one Secret.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pace {
    last: Option<Timestamp>,
    /// In a row.
    writes: u32,
}

impl Pace {
    pub(super) fn wrote(&mut self, now: Timestamp) {
        let goes_on = self.last.is_some_and(|last| now < later(last, CALM));
        self.writes = if goes_on {
            self.writes.saturating_add(1)
        } else {
            1
        };
        self.last = Some(now);
    }

    /// When it may be written again; `None`: now.
    pub(super) fn until(&self, now: Timestamp) -> Option<Timestamp> {
        let further = self.writes.checked_sub(FREE + 1)?;
        let at = later(self.last?, pause(further));
        (now < at).then_some(at)
    }
}
