//! Changes and statuses waiting to be sent, at most one per object.

use std::collections::BTreeMap;
use std::mem::take;
use std::time::Instant;

use sesame_api::{LiveStatus, Object, ObjectKey};

use super::ChangeSet;
use crate::change::Change;

/// Changes and statuses not yet sent.
#[derive(Debug, Default)]
pub(super) struct Outbox {
    changes: BTreeMap<ObjectKey, Change>,
    statuses: BTreeMap<ObjectKey, Option<LiveStatus>>,
    detected: Option<Instant>,
    /// Whether the first change set was sent.
    synced: bool,
}

impl Outbox {
    pub(super) fn upsert(&mut self, object: Object, at: Instant) {
        self.detect(at);
        self.changes.insert(object.key(), Change::Upsert(object));
    }

    pub(super) fn remove(&mut self, key: ObjectKey, at: Instant) {
        if self.synced {
            self.detect(at);
            self.changes.insert(key.clone(), Change::Remove(key));
        } else {
            self.changes.remove(&key);
        }
    }

    /// Queues a status; `None` if the object was deleted.
    pub(super) fn status(&mut self, key: ObjectKey, status: Option<LiveStatus>) {
        self.statuses.insert(key, status);
    }

    fn detect(&mut self, at: Instant) {
        self.detected = Some(self.detected.map_or(at, |first| first.min(at)));
    }

    pub(super) fn take_statuses(&mut self) -> Option<Vec<(ObjectKey, Option<LiveStatus>)>> {
        let statuses = take(&mut self.statuses);
        (!statuses.is_empty()).then(|| statuses.into_iter().collect())
    }

    /// The next change set. The first one is due once all kinds are `ready`, even if it is empty.
    pub(super) fn take_changes(&mut self, ready: bool) -> Option<ChangeSet> {
        if !self.pending_changes(ready) {
            return None;
        }
        self.synced = true;
        Some(ChangeSet {
            changes: take(&mut self.changes).into_values().collect(),
            detected: self.detected.take().unwrap_or_else(Instant::now),
        })
    }

    /// Whether anything can be sent.
    pub(super) fn pending(&self, ready: bool) -> bool {
        !self.statuses.is_empty() || self.pending_changes(ready)
    }

    fn pending_changes(&self, ready: bool) -> bool {
        match self.synced {
            true => !self.changes.is_empty(),
            false => ready,
        }
    }

    /// Whether the first change set was sent.
    pub(super) fn synced(&self) -> bool {
        self.synced
    }
}
