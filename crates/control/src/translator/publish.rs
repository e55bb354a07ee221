//! Publishes resources.
//!
//! In: changed resources of all fleets. Out: an update of the registry for each fleet with changes.

use std::collections::BTreeMap;

use sesame_envoy::ResourceChange;
use sesame_model::FleetId;
use sesame_xds as xds;

use super::{Translator, Turn};
use crate::core::Step;

impl Translator {
    /// Updates the registry: resources, and which fleets exist.
    pub(super) fn publish(&mut self, changes: Vec<ResourceChange>, revision: u64, turn: &Turn) {
        let registry = &self.outputs.registry;
        let mut updates: BTreeMap<FleetId, xds::Update> = BTreeMap::new();
        for change in changes {
            let Some(resource_type) = xds::ResourceType::from_type_url(change.type_url) else {
                continue;
            };
            let update = updates.entry(change.fleet.clone()).or_default();
            match change.message() {
                Some(body) => {
                    let variant = change.message_with_module();
                    let mut resource = xds::Resource::new(change.name, body);
                    if let Some(variant) = variant {
                        resource = resource.with_variant(variant);
                    }
                    update.upserts.push((resource_type, resource));
                }
                None => update.removals.push((resource_type, change.name.into())),
            }
        }
        for fleet in &turn.fleets {
            if self.requests.contains_key(fleet) {
                if self.published.insert(fleet.clone()) {
                    // A fleet without resources is also published; otherwise its Envoys would wait.
                    updates.entry(fleet.clone()).or_default();
                }
            } else {
                updates.remove(fleet);
                if self.published.remove(fleet) {
                    // Its Envoys drain with their last resources.
                    self.outputs.progress.forget(fleet);
                    registry.remove_fleet(&xds_fleet(fleet));
                }
            }
        }
        for (fleet, update) in updates {
            if !self.published.contains(&fleet) {
                continue;
            }
            if let Some(detected) = turn.detected {
                self.outputs.progress.sent(&fleet, revision, detected);
            }
            registry.apply(&xds_fleet(&fleet), xds::Update { revision, ..update });
        }
    }
}

/// The fleet's name in the registry.
pub(crate) fn xds_fleet(fleet: &FleetId) -> xds::FleetId {
    xds::FleetId::new(fleet.to_string())
}

/// The last change to each resource, from `before` followed by the steps, sorted by fleet, type and name.
pub(super) fn merged(before: Vec<ResourceChange>, steps: &mut [Step]) -> Vec<ResourceChange> {
    let steps = steps.iter_mut();
    let steps = steps.map(|step| std::mem::take(&mut step.resources));
    let all = std::iter::once(before).chain(steps);
    let mut all = all.filter(|changes| !changes.is_empty());
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
