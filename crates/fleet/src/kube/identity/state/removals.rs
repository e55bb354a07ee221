//! Secrets of fleets that are gone, until they are gone too.
//!
//! Each has its own appointments: one that can't be deleted holds up neither the others nor anybody's certificate.

use std::collections::BTreeMap;

use jiff::Timestamp;
use sesame_model::FleetId;

use super::{Place, later, pause};
use crate::kube::identity::FleetOwner;

#[derive(Debug)]
struct Removal {
    owner: FleetOwner,
    failures: u32,
    /// Not before; `None`: now.
    due: Option<Timestamp>,
}

/// What is to be removed.
#[derive(Debug, Default)]
pub(super) struct Removals {
    all: BTreeMap<FleetId, Removal>,
}

impl Removals {
    pub(super) fn add(&mut self, id: FleetId, owner: FleetOwner) {
        let removal = Removal {
            owner,
            failures: 0,
            due: None,
        };
        self.all.insert(id, removal);
    }

    /// The Secret has gone, or isn't ours.
    pub(super) fn done(&mut self, id: &FleetId) {
        self.all.remove(id);
    }

    /// What stands in a place is to stay after all, or has gone.
    pub(super) fn forget(&mut self, place: &Place) {
        self.all.retain(|_, removal| {
            (&removal.owner.namespace, &removal.owner.secret_name) != (&place.0, &place.1)
        });
    }

    pub(super) fn failed(&mut self, now: Timestamp, id: &FleetId) {
        if let Some(removal) = self.all.get_mut(id) {
            removal.due = Some(later(now, pause(removal.failures)));
            removal.failures = removal.failures.saturating_add(1);
        }
    }

    /// The next one whose time has come.
    pub(super) fn next(&self, now: Timestamp) -> Option<(&FleetId, &FleetOwner)> {
        let due = |removal: &Removal| removal.due.is_none_or(|due| due <= now);
        let mut all = self.all.iter();
        let (id, removal) = all.find(|(_, removal)| due(removal))?;
        Some((id, &removal.owner))
    }

    /// When one that failed is due again.
    pub(super) fn next_look(&self) -> Option<Timestamp> {
        self.all.values().filter_map(|removal| removal.due).min()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }
}
