//! What waits to be told.
//!
//! In: changes and statuses, one by one. Out: everything that came since the last time, at most one entry for each object. So what
//! waits is never more than there are objects, however slow the listener.

use std::collections::BTreeMap;
use std::time::Instant;

use sesame_api::{LiveStatus, Object, ObjectKey};

use super::ChangeSet;
use crate::change::Change;

/// Changes and statuses that were not told yet.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    changes: BTreeMap<ObjectKey, Change>,
    live: BTreeMap<ObjectKey, Option<LiveStatus>>,
    detected: Option<Instant>,
    /// The first set was told.
    started: bool,
}

impl Outbox {
    /// The object is new or changed.
    pub(super) fn upsert(&mut self, object: Object, at: Instant) {
        self.detect(at);
        self.changes.insert(object.key(), Change::Upsert(object));
    }

    /// The object is gone.
    pub(super) fn remove(&mut self, key: ObjectKey, at: Instant) {
        if self.started {
            self.detect(at);
            self.changes.insert(key.clone(), Change::Remove(key));
        } else {
            // Nobody ever heard of it.
            self.changes.remove(&key);
        }
    }

    /// What stands in an object's status.
    pub(super) fn live(&mut self, key: ObjectKey, live: Option<LiveStatus>) {
        self.live.insert(key, live);
    }

    fn detect(&mut self, at: Instant) {
        self.detected = Some(self.detected.map_or(at, |first| first.min(at)));
    }

    /// The statuses that were not told yet.
    pub(super) fn take_live(&mut self) -> Option<Vec<(ObjectKey, Option<LiveStatus>)>> {
        let live = std::mem::take(&mut self.live);
        (!live.is_empty()).then(|| live.into_iter().collect())
    }

    /// The changes that were not told yet.
    pub(super) fn take_changes(&mut self) -> Option<ChangeSet> {
        if !self.started || self.changes.is_empty() {
            return None;
        }
        Some(self.take_set(Instant::now()))
    }

    /// Everything there is, even if that is nothing; from here on there are changes.
    pub(super) fn start(&mut self, now: Instant) -> ChangeSet {
        self.started = true;
        self.take_set(now)
    }

    fn take_set(&mut self, now: Instant) -> ChangeSet {
        ChangeSet {
            changes: std::mem::take(&mut self.changes).into_values().collect(),
            detected: self.detected.take().unwrap_or(now),
        }
    }

    /// Whether something can be told.
    pub(super) fn pending(&self) -> bool {
        !self.live.is_empty() || (self.started && !self.changes.is_empty())
    }

    /// Whether the first set was told.
    pub(super) fn started(&self) -> bool {
        self.started
    }
}
