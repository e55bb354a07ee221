//! Names of which the client goes on having an older version than the fleet.
//!
//! In: names whose current version was refused, with the epoch in which what the client has stopped
//! being current. Out: the oldest of these epochs: what went since then may still be in use.
//! It must not know: why a version was refused. Every operation but `retain` costs O(log n).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use crate::resource::Version;

/// One such name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Since {
    /// The epoch in which the version stopped being current; zero where nobody knows.
    pub(super) epoch: u64,
    /// What the client has.
    pub(super) version: Version,
}

/// All such names of a lane.
#[derive(Debug, Default)]
pub(super) struct Stale {
    names: HashMap<Arc<str>, Since>,
    by_epoch: BTreeSet<(u64, Arc<str>)>,
}

impl Stale {
    pub(super) fn get(&self, name: &str) -> Option<Since> {
        self.names.get(name).copied()
    }

    pub(super) fn insert(&mut self, name: &Arc<str>, since: Since) {
        self.remove(name);
        self.by_epoch.insert((since.epoch, Arc::clone(name)));
        self.names.insert(Arc::clone(name), since);
    }

    pub(super) fn remove(&mut self, name: &str) -> Option<u64> {
        let (name, since) = self.names.remove_entry(name)?;
        self.by_epoch.remove(&(since.epoch, name));
        if self.names.is_empty() {
            // A map doesn't give back memory by itself.
            self.names = HashMap::new();
        }
        Some(since.epoch)
    }

    pub(super) fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.names.retain(|name, _| keep(name));
        self.by_epoch.retain(|(_, name)| keep(name));
    }

    /// The oldest epoch since which something that the client still has is out of date.
    pub(super) fn floor(&self) -> Option<u64> {
        self.by_epoch.first().map(|(epoch, _)| *epoch)
    }
}
