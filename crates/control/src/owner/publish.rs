//! What leaves for Envoys.
//!
//! In: changed resources of all fleets. Out: an update for each fleet that is concerned, and which fleets should have an
//! Envoy at all.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use sesame_envoy::ResourceChange;
use sesame_model::FleetId;
use sesame_xds as xds;

use super::{Order, Owner};
use crate::core::Step;

impl Owner {
    /// Hands each fleet what is new for it.
    pub(super) fn publish(
        &mut self,
        changes: Vec<ResourceChange>,
        revision: u64,
        noticed: Option<Instant>,
    ) {
        let registry = &self.outlets.registry;
        let mut updates: BTreeMap<FleetId, xds::Update> = BTreeMap::new();
        for change in changes {
            let Some(resource_type) = xds::ResourceType::from_type_url(change.type_url) else {
                continue;
            };
            let update = updates.entry(change.fleet.clone()).or_default();
            match change.message() {
                Some(body) => {
                    let resource = xds::Resource::new(change.name, body);
                    update.upserts.push((resource_type, resource));
                }
                None => update.removals.push((resource_type, change.name.into())),
            }
        }
        for fleet in self.requests.keys() {
            let update = match updates.remove(fleet) {
                Some(update) => update,
                // Even one that has nothing is known, or its Envoys would wait.
                None if !self.published.contains(fleet) => xds::Update::default(),
                None => continue,
            };
            if let Some(noticed) = noticed {
                self.outlets.progress.sent(fleet, revision, noticed);
            }
            self.published.insert(fleet.clone());
            registry.apply(&xds_fleet(fleet), xds::Update { revision, ..update });
        }
        // Envoys of a fleet that is gone are drained with what they have.
        let gone = |fleet: &FleetId| !self.requests.contains_key(fleet);
        for fleet in self.published.extract_if(.., gone) {
            self.outlets.progress.forget(&fleet);
            registry.remove_fleet(&xds_fleet(&fleet));
        }
    }

    /// An Envoy starts when it has something to listen on, and stays for as long as its Gateway.
    pub(super) fn update_wanted(&self) {
        self.outlets.wanted.send_if_modified(|wanted| {
            let new: BTreeSet<FleetId> = self
                .requests
                .keys()
                .filter(|fleet| wanted.contains(*fleet) || self.ports.has_any(fleet))
                .cloned()
                .collect();
            // Nobody takes orders when all is about to end.
            for fleet in wanted.difference(&new) {
                let _ = self.outlets.orders.send(Order::Stop(fleet.clone()));
            }
            for fleet in new.difference(wanted) {
                let _ = self.outlets.orders.send(Order::Start(fleet.clone()));
            }
            let differs = new != *wanted;
            *wanted = new;
            differs
        });
    }
}

/// As the registry names it.
pub(crate) fn xds_fleet(fleet: &FleetId) -> xds::FleetId {
    xds::FleetId::new(Arc::clone(&fleet.0))
}

/// The resource changes of all steps, the last of each resource, in the order of its fleet, type and name.
pub(super) fn merged(steps: &mut [Step]) -> Vec<ResourceChange> {
    let mut all = steps
        .iter_mut()
        .map(|step| std::mem::take(&mut step.resources));
    let first = all.next().unwrap_or_default();
    let mut last = BTreeMap::new();
    for later in all {
        for change in later {
            let key = (change.fleet.clone(), change.type_url, change.name.clone());
            last.insert(key, change);
        }
    }
    if last.is_empty() {
        return first;
    }
    for change in first {
        let key = (change.fleet.clone(), change.type_url, change.name.clone());
        last.entry(key).or_insert(change);
    }
    last.into_values().collect()
}
