//! Names that wait to be sent, ordered by the change that made them wait.
//!
//! In: names with the epochs (numbers of a fleet's updates) in which they changed. Out: the oldest
//! epoch that is still waiting, and the names that may go, oldest first.
//! It must not know: what the names stand for. Every operation costs O(log n).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// When a waiting name changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stamps {
    /// The first change that the client hasn't got: until the name is sent, the client lacks this epoch.
    /// Zero where the client has nothing at all of it.
    pub(crate) first: u64,
    /// The latest change: what would be sent now is of this epoch.
    pub(crate) last: u64,
}

impl Stamps {
    pub(crate) fn merge(self, other: Stamps) -> Stamps {
        Stamps {
            first: self.first.min(other.first),
            last: self.last.max(other.last),
        }
    }
}

/// A set of waiting names. Later changes of a name that waits already merge into it.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    names: HashMap<Arc<str>, Stamps>,
    by_first: BTreeSet<(u64, Arc<str>)>,
    by_last: BTreeSet<(u64, Arc<str>)>,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn add(&mut self, name: &Arc<str>, stamps: Stamps) {
        let stamps = match self.remove(name) {
            Some(earlier) => earlier.merge(stamps),
            None => stamps,
        };
        self.by_first.insert((stamps.first, Arc::clone(name)));
        self.by_last.insert((stamps.last, Arc::clone(name)));
        self.names.insert(Arc::clone(name), stamps);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Stamps> {
        let (name, stamps) = self.names.remove_entry(name)?;
        self.by_first.remove(&(stamps.first, Arc::clone(&name)));
        self.by_last.remove(&(stamps.last, name));
        if self.names.is_empty() {
            // At the start everything waits, and never again: a map doesn't give back memory by itself.
            self.names = HashMap::new();
        }
        Some(stamps)
    }

    /// The oldest epoch that is incomplete for want of these names.
    pub(crate) fn floor(&self) -> Option<u64> {
        self.by_first.first().map(|(first, _)| *first)
    }

    /// The epoch of the next name that [`Pending::pop_below`] would give.
    pub(crate) fn next(&self) -> Option<u64> {
        self.by_last.first().map(|(last, _)| *last)
    }

    /// Takes the name whose latest change is the oldest, if that is before `limit`.
    pub(crate) fn pop_below(&mut self, limit: u64) -> Option<(Arc<str>, Stamps)> {
        let (last, name) = self.by_last.first()?;
        if *last >= limit {
            return None;
        }
        let name = Arc::clone(name);
        let stamps = self.remove(&name)?;
        Some((name, stamps))
    }

    /// Keeps only the names that `keep` says.
    pub(crate) fn retain(&mut self, keep: impl Fn(&Arc<str>) -> bool) {
        self.names.retain(|name, _| keep(name));
        self.by_first.retain(|(_, name)| keep(name));
        self.by_last.retain(|(_, name)| keep(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(first: u64, last: u64) -> Stamps {
        Stamps { first, last }
    }

    #[test]
    fn changes_of_one_name_merge() {
        let mut pending = Pending::default();
        let a: Arc<str> = "a".into();
        pending.add(&a, stamps(3, 3));
        pending.add(&a, stamps(7, 7));
        pending.add(&"b".into(), stamps(5, 5));
        assert_eq!(pending.floor(), Some(3));
        assert_eq!(
            pending.next(),
            Some(5),
            "b's latest change is older than a's"
        );
        assert_eq!(pending.pop_below(5), None);
        assert_eq!(pending.pop_below(8), Some(("b".into(), stamps(5, 5))));
        assert_eq!(pending.pop_below(8), Some((a, stamps(3, 7))));
        assert_eq!((pending.len(), pending.floor()), (0, None));
    }

    #[test]
    fn what_is_removed_or_not_retained_is_gone_from_every_order() {
        let mut pending = Pending::default();
        for name in ["a", "b", "c"] {
            pending.add(&name.into(), stamps(1, 2));
        }
        assert_eq!(pending.remove("a"), Some(stamps(1, 2)));
        assert_eq!(pending.remove("a"), None);
        pending.retain(|name| &**name == "c");
        assert_eq!(
            pending.pop_below(u64::MAX).map(|(n, _)| n),
            Some("c".into())
        );
        assert_eq!(
            (pending.len(), pending.floor(), pending.next()),
            (0, None, None)
        );
    }
}
