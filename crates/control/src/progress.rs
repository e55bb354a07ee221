//! Measures how long a change takes to reach Envoys.
//!
//! In: revisions as they are published to a fleet, each with the time at which its change was detected; ACKs. Out: the
//! revisions that a fleet has ACKed, each with its delay. At most `MAX_PENDING` revisions are pending per fleet.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sesame_model::FleetId;

/// Unacknowledged revisions kept per fleet; older ones are dropped.
const MAX_PENDING: usize = 64;

/// Unacknowledged revisions. Shared by the publisher and the receiver of acknowledgements.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    pending: Mutex<BTreeMap<FleetId, VecDeque<(u64, Instant)>>>,
}

impl Progress {
    /// Call before a revision is published to a fleet.
    pub(crate) fn sent(&self, fleet: &FleetId, revision: u64, detected: Instant) {
        let mut pending = self.lock();
        let queue = pending.entry(fleet.clone()).or_default();
        queue.push_back((revision, detected));
        if queue.len() > MAX_PENDING {
            queue.pop_front();
        }
    }

    /// A fleet has acknowledged this revision and all before it. Returns those that were pending, oldest first.
    pub(crate) fn acked(
        &self,
        fleet: &FleetId,
        revision: u64,
        now: Instant,
    ) -> Vec<(u64, Duration)> {
        let mut pending = self.lock();
        let Some(queue) = pending.get_mut(fleet) else {
            return Vec::new();
        };
        let done = queue.partition_point(|(sent, _)| *sent <= revision);
        let done = queue.drain(..done);
        done.map(|(sent, detected)| (sent, now.saturating_duration_since(detected)))
            .collect()
    }

    /// Removes a fleet that is gone.
    pub(crate) fn forget(&self, fleet: &FleetId) {
        self.lock().remove(fleet);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FleetId, VecDeque<(u64, Instant)>>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ack_covers_all_earlier_revisions_and_the_queue_is_bounded() {
        let progress = Progress::default();
        let (a, b) = (FleetId::of_gateway("n", "a"), FleetId::of_gateway("n", "b"));
        let start = Instant::now();
        let after = |ms| start + Duration::from_millis(ms);
        for revision in 1..=3 {
            progress.sent(&a, revision, after(revision));
        }
        progress.sent(&b, 3, start);
        let acked = progress.acked(&a, 2, after(10));
        let expected = [(1, Duration::from_millis(9)), (2, Duration::from_millis(8))];
        assert_eq!(acked, expected);
        assert_eq!(progress.acked(&a, 2, after(11)), []);
        progress.forget(&b);
        assert_eq!(progress.acked(&b, 9, after(11)), []);
        for revision in 10..1000 {
            progress.sent(&a, revision, start);
        }
        assert_eq!(progress.acked(&a, 5000, start).len(), MAX_PENDING);
    }
}
