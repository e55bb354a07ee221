//! What goes out next on a lane.
//!
//! In: what waits, and how much of it may go. Out: one batch, with the note of what is then under way.
//! It must not know: why something may not go yet.

use std::sync::Arc;
use std::time::Instant;

use super::{Allowance, Batch, InFlight, Item, Lane};
use crate::fleet::{Fleet, Offer};
use crate::ordering::Floor;

impl Lane {
    /// The next response, if there is something that may go. Only when [`Lane::idle`].
    pub(crate) fn compose(
        &mut self,
        fleet: &mut Fleet,
        allowance: Allowance,
        nonce: &str,
        now: Instant,
    ) -> Option<Batch> {
        let mut batch = Batch::default();
        let mut items = Vec::new();
        let mut floor = Floor::default();
        if self.probe_first {
            items = self.compose_probe(fleet, &mut batch);
        }
        if batch.upserts.is_empty() {
            items = self.compose_changes(fleet, allowance, &mut batch);
            floor.unmake = self.compose_removals(fleet, allowance, &mut batch);
            self.probe_first = true;
        } else {
            self.probe_first = false;
        }
        if batch.upserts.is_empty() && batch.removals.is_empty() {
            items = self.compose_probe(fleet, &mut batch);
            // What waits will be the first response.
            if items.is_empty() && !(self.owed && self.make.len() == 0) {
                return None;
            }
            self.probe_first = false;
        }
        self.owed = false;
        floor.make = items.iter().map(|item| item.stamps.first).min();
        self.sent += items.len() as u64;
        self.in_flight = Some(InFlight {
            nonce: nonce.to_owned(),
            upserts: items,
            floor,
            since: now,
        });
        Some(batch)
    }

    fn compose_changes(
        &mut self,
        fleet: &mut Fleet,
        allowance: Allowance,
        batch: &mut Batch,
    ) -> Vec<Item> {
        let mut items = Vec::new();
        let mut bytes = 0;
        while bytes < allowance.bytes {
            let Some((name, stamps)) = self.make.pop_below(allowance.make) else {
                break;
            };
            self.examined += 1;
            let before = self.held.get(&name).copied();
            match self.offer(fleet, &name) {
                Offer::Serve(resource, _) => {
                    let resource = resource.clone();
                    let version = resource.version();
                    let forced = self.force.remove(&name);
                    if forced || before != Some(version) {
                        bytes += name.len() + resource.body().len();
                        batch.upserts.push(resource);
                        self.held.insert(Arc::clone(&name), version);
                        items.push(Item {
                            name,
                            version,
                            stamps,
                            before,
                        });
                    }
                }
                // Rejected by somebody since it was marked.
                Offer::Keep | Offer::Absent => self.consider(fleet, &name, Some(stamps.first)),
            }
        }
        items
    }

    /// Adds removals; gives the oldest epoch that they complete.
    fn compose_removals(
        &mut self,
        fleet: &Fleet,
        allowance: Allowance,
        batch: &mut Batch,
    ) -> Option<u64> {
        let mut floor: Option<u64> = None;
        let mut bytes = 0;
        while bytes < allowance.bytes {
            let Some((name, stamps)) = self.unmake.pop_below(allowance.unmake) else {
                break;
            };
            self.examined += 1;
            bytes += name.len();
            floor = Some(floor.map_or(stamps.first, |floor| floor.min(stamps.first)));
            self.held.remove(&name);
            if self.subscription.named(&name) {
                self.told.insert(Arc::clone(&name));
            }
            batch.removals.push(name);
        }
        while bytes < allowance.bytes {
            let Some(name) = self.absent.pop_first() else {
                break;
            };
            self.examined += 1;
            let nothing = !matches!(self.offer(fleet, &name), Offer::Serve(..));
            if nothing && self.waits_for(&name) {
                bytes += name.len();
                self.unmake.remove(&name);
                self.held.remove(&name);
                self.told.insert(Arc::clone(&name));
                batch.removals.push(name);
            }
        }
        floor
    }

    /// The next part of a rejected response that is still what the client should get.
    fn compose_probe(&mut self, fleet: &mut Fleet, batch: &mut Batch) -> Vec<Item> {
        while let Some(group) = self.probes.pop_front() {
            let mut items = Vec::new();
            for item in group {
                self.examined += 1;
                match self.offer(fleet, &item.name) {
                    Offer::Serve(resource, _)
                        if resource.version() == item.version
                            && self.subscription.wants(&item.name) =>
                    {
                        batch.upserts.push(resource.clone());
                        self.held.insert(Arc::clone(&item.name), item.version);
                        items.push(item);
                    }
                    _ => self.consider(fleet, &item.name, Some(item.stamps.first)),
                }
            }
            if !items.is_empty() {
                return items;
            }
        }
        Vec::new()
    }
}
