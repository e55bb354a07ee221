//! How long a change takes to reach Envoys.
//!
//! In: revisions as they are handed to a fleet, each with the moment at which its change was noticed; acknowledgements.
//! Out: which revisions a fleet has, and after how long. Bounded: a fleet that doesn't answer costs a few entries.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sesame_model::FleetId;

/// Revisions of one fleet that may wait for an answer. Beyond it the oldest are forgotten.
const MOST_WAITING: usize = 64;

/// Revisions on their way. Shared by whoever hands them out and whoever hears the answers.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    waiting: Mutex<BTreeMap<FleetId, VecDeque<(u64, Instant)>>>,
}

impl Progress {
    /// A fleet is about to be given a revision.
    pub(crate) fn sent(&self, fleet: &FleetId, revision: u64, noticed: Instant) {
        let mut waiting = self.lock();
        let queue = waiting.entry(fleet.clone()).or_default();
        queue.push_back((revision, noticed));
        if queue.len() > MOST_WAITING {
            queue.pop_front();
        }
    }

    /// A fleet has this revision and all before it. Returns those that were waiting, oldest first.
    pub(crate) fn acked(
        &self,
        fleet: &FleetId,
        revision: u64,
        now: Instant,
    ) -> Vec<(u64, Duration)> {
        let mut waiting = self.lock();
        let Some(queue) = waiting.get_mut(fleet) else {
            return Vec::new();
        };
        let done = queue.partition_point(|(sent, _)| *sent <= revision);
        let done = queue.drain(..done);
        done.map(|(sent, noticed)| (sent, now.saturating_duration_since(noticed)))
            .collect()
    }

    /// A fleet is gone.
    pub(crate) fn forget(&self, fleet: &FleetId) {
        self.lock().remove(fleet);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FleetId, VecDeque<(u64, Instant)>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_covers_all_before_it_and_the_list_is_bounded() {
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
        assert_eq!(progress.acked(&a, 5000, start).len(), MOST_WAITING);
    }
}
