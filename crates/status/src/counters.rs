//! What the writer did, in numbers.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use sesame_api::Kind;

/// Upper bounds of the buckets of [`Latency`], in seconds.
pub const BOUNDS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Counts since the start, written by the writer and read by whoever shows them.
#[derive(Debug, Default)]
pub struct Counters {
    writes: [[AtomicU64; Sent::ALL.len()]; Kind::ALL.len()],
    looks: AtomicU64,
    waiting: AtomicU64,
    latency: [AtomicU64; BOUNDS.len()],
    latency_count: AtomicU64,
    latency_micros: AtomicU64,
}

/// How a write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sent {
    /// The status stands there.
    Written,
    /// Somebody else was faster.
    Conflict,
    /// The object was gone.
    Gone,
    /// The API server would not have it.
    Refused,
    /// No answer, or one that the API server couldn't do it now.
    Failed,
}

/// How long it took from when a status was asked for until it was written.
#[derive(Clone, Debug, PartialEq)]
pub struct Latency {
    /// How many took at most as long as the bound of the same place in [`BOUNDS`], those of smaller bounds included.
    pub buckets: [u64; BOUNDS.len()],
    /// How many there were.
    pub count: u64,
    /// How long all took together, in seconds.
    pub sum: f64,
}

impl Sent {
    /// Every end, in order.
    pub const ALL: [Sent; 5] = [
        Sent::Written,
        Sent::Conflict,
        Sent::Gone,
        Sent::Refused,
        Sent::Failed,
    ];

    /// As the value of a label.
    pub const fn as_str(self) -> &'static str {
        match self {
            Sent::Written => "written",
            Sent::Conflict => "conflict",
            Sent::Gone => "gone",
            Sent::Refused => "refused",
            Sent::Failed => "failed",
        }
    }
}

impl Counters {
    /// Writes sent of a kind that ended so.
    pub fn writes(&self, kind: Kind, sent: Sent) -> u64 {
        self.writes[kind as usize][sent as usize].load(Ordering::Relaxed)
    }

    /// Writes sent, whatever came of them.
    pub fn sent(&self) -> u64 {
        let all = self.writes.iter().flatten();
        all.map(|count| count.load(Ordering::Relaxed)).sum()
    }

    /// How often a status was compared with what it should say.
    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    /// How many objects wait to be written or are being written, now.
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How long statuses took.
    pub fn latency(&self) -> Latency {
        Latency {
            buckets: std::array::from_fn(|n| self.latency[n].load(Ordering::Relaxed)),
            count: self.latency_count.load(Ordering::Relaxed),
            sum: self.latency_micros.load(Ordering::Relaxed) as f64 / 1e6,
        }
    }

    pub(crate) fn count(&self, kind: Kind, sent: Sent) {
        self.writes[kind as usize][sent as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn looked(&self) {
        self.looks.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn wait(&self, objects: usize) {
        self.waiting.store(objects as u64, Ordering::Relaxed);
    }

    pub(crate) fn took(&self, time: Duration) {
        let seconds = time.as_secs_f64();
        for (bound, bucket) in BOUNDS.iter().zip(&self.latency) {
            if seconds <= *bound {
                bucket.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.latency_count.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.latency_micros.fetch_add(micros, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_hold_all_that_took_no_longer() {
        let counters = Counters::default();
        counters.took(Duration::from_millis(5));
        counters.took(Duration::from_millis(300));
        counters.took(Duration::from_secs(60));
        let latency = counters.latency();
        assert_eq!(latency.buckets, [1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2]);
        assert_eq!((latency.count, latency.sum), (3, 60.305));
    }

    #[test]
    fn writes_are_counted_by_kind_and_end() {
        let counters = Counters::default();
        for kind in Kind::ALL {
            for sent in Sent::ALL {
                counters.count(kind, sent);
                assert_eq!(counters.writes(kind, sent), 1, "{kind} {}", sent.as_str());
            }
        }
        assert_eq!(counters.sent(), (Kind::ALL.len() * Sent::ALL.len()) as u64);
    }
}
