//! The writer's counters.

use std::sync::atomic::{AtomicU64, Ordering};

use sesame_api::Kind;

/// Counters since startup.
#[derive(Debug, Default)]
pub struct Counters {
    writes: [[AtomicU64; WriteResult::ALL.len()]; Kind::ALL.len()],
    comparisons: AtomicU64,
    waiting: AtomicU64,
}

/// The result of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteResult {
    /// The status was written.
    Written,
    /// Another client wrote first.
    Conflict,
    /// The object doesn't exist.
    NotFound,
    /// The API server rejected the write.
    Rejected,
    /// The API server is unavailable or failed.
    Failed,
}

impl WriteResult {
    /// All results, in order.
    pub const ALL: [WriteResult; 5] = [
        WriteResult::Written,
        WriteResult::Conflict,
        WriteResult::NotFound,
        WriteResult::Rejected,
        WriteResult::Failed,
    ];

    /// The label value in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            WriteResult::Written => "written",
            WriteResult::Conflict => "conflict",
            WriteResult::NotFound => "not_found",
            WriteResult::Rejected => "rejected",
            WriteResult::Failed => "failed",
        }
    }
}

impl Counters {
    /// The number of writes to objects of this kind that had this result.
    pub fn writes(&self, kind: Kind, result: WriteResult) -> u64 {
        self.writes[kind as usize][result as usize].load(Ordering::Relaxed)
    }

    /// The total number of writes.
    pub fn sent(&self) -> u64 {
        let all = self.writes.iter().flatten();
        all.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// The number of comparisons of live and desired statuses.
    pub fn comparisons(&self) -> u64 {
        self.comparisons.load(Ordering::Relaxed)
    }

    /// The number of objects whose write is currently waiting or in flight.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    pub(crate) fn count(&self, kind: Kind, result: WriteResult) {
        self.writes[kind as usize][result as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn compared(&self) {
        self.comparisons.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn set_waiting(&self, objects: usize) {
        self.waiting.store(objects as u64, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_counted_by_kind_and_result() {
        let counters = Counters::default();
        for kind in Kind::ALL {
            for result in WriteResult::ALL {
                counters.count(kind, result);
                assert_eq!(
                    counters.writes(kind, result),
                    1,
                    "{kind} {}",
                    result.as_str()
                );
            }
        }
        assert_eq!(
            counters.sent(),
            (Kind::ALL.len() * WriteResult::ALL.len()) as u64
        );
    }
}
