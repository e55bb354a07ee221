//! Names waiting to be sent, ordered by epoch (the number of the fleet's update). Every operation costs O(log n).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The epochs in which a pending name changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Epochs {
    /// The first change that the client lacks; zero if it doesn't have the resource. This epoch is incomplete until the
    /// name is sent.
    pub(crate) first: u64,
    /// The latest change.
    pub(crate) last: u64,
}

/// Which of the pending names comes next.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Age {
    #[default]
    Oldest,
    Newest,
}

/// A set of pending names. Later changes to a pending name are merged into its entry.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    names: HashMap<Arc<str>, Epochs>,
    by_first: BTreeSet<(u64, Arc<str>)>,
    /// By latest change, then by first: of the names that one epoch changes, the newest is one that wasn't pending before.
    by_last: BTreeSet<(u64, u64, Arc<str>)>,
}

impl Pending {
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn add(&mut self, name: &Arc<str>, mut epochs: Epochs) {
        if let Some(earlier) = self.remove(name) {
            epochs.first = epochs.first.min(earlier.first);
            epochs.last = epochs.last.max(earlier.last);
        }
        self.by_first.insert((epochs.first, Arc::clone(name)));
        self.by_last
            .insert((epochs.last, epochs.first, Arc::clone(name)));
        self.names.insert(Arc::clone(name), epochs);
    }

    pub(crate) fn remove(&mut self, name: &str) -> Option<Epochs> {
        let (name, epochs) = self.names.remove_entry(name)?;
        self.by_first.remove(&(epochs.first, Arc::clone(&name)));
        self.by_last.remove(&(epochs.last, epochs.first, name));
        if self.names.is_empty() {
            // At the start of a stream all names are pending, and a map doesn't free memory on its own.
            self.names = HashMap::new();
        }
        Some(epochs)
    }

    /// The oldest incomplete epoch.
    pub(crate) fn watermark(&self) -> Option<u64> {
        self.by_first.first().map(|(first, _)| *first)
    }

    /// The epoch of the oldest name that [`Pending::pop_below`] returns.
    pub(crate) fn next(&self) -> Option<u64> {
        self.by_last.first().map(|(last, ..)| *last)
    }

    /// Removes the name whose latest change is oldest or newest among those before `limit`.
    pub(crate) fn pop_below(&mut self, limit: u64, age: Age) -> Option<(Arc<str>, Epochs)> {
        let oldest = self.by_last.first().filter(|(last, ..)| *last < limit)?;
        let (.., name) = match age {
            Age::Oldest => oldest,
            Age::Newest => self
                .by_last
                .range(..(limit, 0, Arc::from("")))
                .next_back()?,
        };
        let name = Arc::clone(name);
        let epochs = self.remove(&name)?;
        Some((name, epochs))
    }

    pub(crate) fn retain(&mut self, keep: impl Fn(&Arc<str>) -> bool) {
        self.names.retain(|name, _| keep(name));
        self.by_first.retain(|(_, name)| keep(name));
        self.by_last.retain(|(.., name)| keep(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn epochs(first: u64, last: u64) -> Epochs {
        Epochs { first, last }
    }

    #[test]
    fn changes_of_one_name_merge() {
        let mut pending = Pending::default();
        let a: Arc<str> = "a".into();
        pending.add(&a, epochs(3, 3));
        pending.add(&a, epochs(7, 7));
        pending.add(&"b".into(), epochs(5, 5));
        assert_eq!(pending.watermark(), Some(3));
        assert_eq!(
            pending.next(),
            Some(5),
            "b's latest change is older than a's"
        );
        assert_eq!(pending.pop_below(5, Age::Oldest), None);
        assert_eq!(pending.pop_below(5, Age::Newest), None);
        let b = Some(("b".into(), epochs(5, 5)));
        assert_eq!(pending.pop_below(7, Age::Newest), b);
        assert_eq!(pending.pop_below(8, Age::Oldest), Some((a, epochs(3, 7))));
        assert_eq!((pending.len(), pending.watermark()), (0, None));
    }

    /// Otherwise a change would wait for others that were already pending, and of names that all epochs change, one could
    /// wait forever.
    #[test]
    fn of_names_with_the_same_latest_change_the_first_change_decides() {
        let mut pending = Pending::default();
        for (name, first) in [("a", 3), ("b", 7), ("c", 1), ("d", 5)] {
            pending.add(&name.into(), epochs(first, 7));
        }
        let mut pop = |age| pending.pop_below(8, age).map(|(name, _)| name);
        assert_eq!(pop(Age::Newest), Some("b".into()));
        assert_eq!(pop(Age::Oldest), Some("c".into()));
        assert_eq!(pop(Age::Newest), Some("d".into()));
        assert_eq!(pop(Age::Oldest), Some("a".into()));
    }

    #[test]
    fn names_removed_or_not_retained_leave_all_indexes() {
        let mut pending = Pending::default();
        for name in ["a", "b", "c"] {
            pending.add(&name.into(), epochs(1, 2));
        }
        assert_eq!(pending.remove("a"), Some(epochs(1, 2)));
        assert_eq!(pending.remove("a"), None);
        pending.retain(|name| &**name == "c");
        assert_eq!(
            pending.pop_below(u64::MAX, Age::Oldest).map(|(n, _)| n),
            Some("c".into())
        );
        assert_eq!(
            (pending.len(), pending.watermark(), pending.next()),
            (0, None, None)
        );
    }
}
