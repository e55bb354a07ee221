//! A coalescing queue of fleet updates for the translator.
//!
//! In: the state of a fleet, whenever it changes. Out: the latest state of each fleet. Bounded: one entry per fleet.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use sesame_model::FleetId;

/// The latest update of each fleet, until it is taken. `None` means that the fleet is gone.
#[derive(Debug)]
pub(super) struct FleetUpdates<T> {
    updates: Mutex<BTreeMap<FleetId, Option<T>>>,
}

impl<T> Default for FleetUpdates<T> {
    fn default() -> Self {
        Self {
            updates: Mutex::default(),
        }
    }
}

impl<T> FleetUpdates<T> {
    /// Adds an update, which replaces an earlier one for the same fleet.
    pub(super) fn put(&self, fleet: FleetId, update: Option<T>) {
        self.with(|all| drop(all.insert(fleet, update)));
    }

    /// Takes all updates.
    pub(super) fn take(&self) -> BTreeMap<FleetId, Option<T>> {
        self.with(std::mem::take)
    }

    // The lock guards plain inserts: a panic elsewhere leaves a consistent state.
    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<FleetId, Option<T>>) -> R) -> R {
        f(&mut self.updates.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
