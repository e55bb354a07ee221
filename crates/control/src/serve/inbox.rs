//! News of fleets, on their way to the thread that translates.
//!
//! In: what is known of a fleet, as often as it changes. Out: the newest of each, to be taken all at once. Bounded: one
//! entry a fleet.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use sesame_model::FleetId;

/// The newest of each fleet that nobody has taken yet. `None`: nothing is known of it any more.
#[derive(Debug)]
pub(super) struct Inbox<T> {
    news: Mutex<BTreeMap<FleetId, Option<T>>>,
}

impl<T> Default for Inbox<T> {
    fn default() -> Self {
        Self {
            news: Mutex::default(),
        }
    }
}

impl<T> Inbox<T> {
    /// Puts one in.
    pub(super) fn put(&self, fleet: FleetId, news: Option<T>) {
        self.with(|all| drop(all.insert(fleet, news)));
    }

    /// Takes all.
    pub(super) fn take(&self) -> BTreeMap<FleetId, Option<T>> {
        self.with(std::mem::take)
    }

    // The lock guards plain inserts.
    fn with<R>(&self, f: impl FnOnce(&mut BTreeMap<FleetId, Option<T>>) -> R) -> R {
        f(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
