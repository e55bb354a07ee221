//! Updates of fleets for the thread that translates.
//!
//! In: the state of a fleet, as often as it changes. Out: the latest state of each fleet. Bounded: one entry for each fleet.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use sesame_model::FleetId;

/// The latest update of each fleet that hasn't been taken. `None`: the fleet is gone.
#[derive(Debug)]
pub(super) struct FleetUpdates<T> {
    news: Mutex<BTreeMap<FleetId, Option<T>>>,
}

impl<T> Default for FleetUpdates<T> {
    fn default() -> Self {
        Self {
            news: Mutex::default(),
        }
    }
}

impl<T> FleetUpdates<T> {
    /// Puts an update, replacing an older one of the same fleet.
    pub(super) fn put(&self, fleet: FleetId, news: Option<T>) {
        self.with(|all| drop(all.insert(fleet, news)));
    }

    /// Takes all updates.
    pub(super) fn take(&self) -> BTreeMap<FleetId, Option<T>> {
        self.with(std::mem::take)
    }

    // The lock guards plain inserts: a panic elsewhere leaves a consistent state.
    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<FleetId, Option<T>>) -> R) -> R {
        f(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
