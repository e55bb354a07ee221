//! What a client says of a response.
//!
//! In: acknowledgements and rejections. Out: verdicts on single resources, for the fleet, and parts of
//! a rejected response that are to be tried by themselves.
//! It must not know: how texts accuse (that is `nack`), or what follows from a verdict for others.

use std::sync::Arc;

use super::{Item, Lane};
use crate::fleet::Fleet;
use crate::nack::{self, Accused};
use crate::resource::Version;

impl Lane {
    /// The client's word on the response with this nonce: acknowledged, or rejected with a message.
    /// Gives the names of the additions it was about; nothing if it was not the one under way.
    pub(crate) fn verdict(
        &mut self,
        fleet: &mut Fleet,
        nonce: &str,
        rejection: Option<&str>,
    ) -> Vec<Arc<str>> {
        let Some(flight) = self.in_flight.take_if(|flight| flight.nonce == nonce) else {
            return Vec::new();
        };
        let names: Vec<Arc<str>> = flight
            .upserts
            .iter()
            .map(|item| Arc::clone(&item.name))
            .collect();
        match rejection {
            None => self.accept(fleet, flight.upserts),
            Some(message) => {
                self.nacks += 1;
                self.reject(fleet, flight.upserts, message);
            }
        }
        names
    }

    fn accept(&mut self, fleet: &mut Fleet, items: Vec<Item>) {
        for item in items {
            fleet.acked(self.ty, &item.name, item.version);
            self.refused.remove(&item.name);
        }
        self.tighten();
    }

    fn reject(&mut self, fleet: &mut Fleet, mut items: Vec<Item>, message: &str) {
        if items.len() <= 1 {
            if let Some(item) = items.pop() {
                let reason = nack::reason(self.ty, message, &item.name);
                self.convict(fleet, item, reason);
            }
            return;
        }
        let names: Vec<&Arc<str>> = items.iter().map(|item| &item.name).collect();
        match nack::accused(self.ty, message, &names) {
            Accused::These {
                culprit,
                reason,
                suspects,
            } => {
                let mut applied = Vec::new();
                for (index, item) in items.into_iter().enumerate() {
                    if index == culprit {
                        self.convict(fleet, item, reason);
                    } else if suspects.binary_search(&index).is_ok() {
                        self.doubt(&item);
                        self.probes.push_back(vec![item]);
                    } else {
                        applied.push(item);
                    }
                }
                self.accept(fleet, applied);
            }
            Accused::Unknown => {
                for item in &items {
                    self.doubt(item);
                }
                let second = items.split_off(items.len() / 2);
                self.probes.push_front(second);
                self.probes.push_front(items);
            }
        }
        self.probe_first = true;
    }

    /// It isn't known which version the client has now.
    fn doubt(&mut self, item: &Item) {
        if self.held.get(&item.name) == Some(&item.version) {
            self.held.insert(Arc::clone(&item.name), Version::UNKNOWN);
        }
    }

    /// This one is at fault: the client goes on having what it had.
    fn convict(&mut self, fleet: &mut Fleet, item: Item, reason: &str) {
        fleet.rejected(self.client, self.ty, &item.name, item.version, reason);
        if !self.subscription.wants(&item.name) {
            return;
        }
        if self.held.get(&item.name) == Some(&item.version) {
            match item.before {
                Some(version) => self.held.insert(Arc::clone(&item.name), version),
                None => self.held.remove(&item.name),
            };
        }
        if let Some(changed) = fleet.changed(self.ty, &item.name) {
            let refused = (item.version, changed);
            self.refused.insert(Arc::clone(&item.name), refused);
        }
        self.consider(fleet, &item.name, Some(item.stamps.first));
    }
}
