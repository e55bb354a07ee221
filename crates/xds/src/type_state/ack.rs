//! ACKs and NACKs.

use std::sync::Arc;

use super::{Sent, TypeState};
use crate::fleet::Fleet;
use crate::nack::{self, Blame};
use crate::resource::Version;

impl TypeState {
    /// Processes an ACK, or a NACK with its error. Returns the names of the response's upserts, or nothing if the nonce
    /// is stale.
    pub(crate) fn on_ack(
        &mut self,
        fleet: &mut Fleet,
        nonce: &str,
        error: Option<&str>,
    ) -> Vec<Arc<str>> {
        let Some(response) = self.in_flight.take_if(|sent| sent.nonce == nonce) else {
            return Vec::new();
        };
        let sent = response.upserts.iter();
        let names = sent.map(|sent| Arc::clone(&sent.name)).collect();
        match error {
            None => self.accept(fleet, response.upserts),
            Some(message) => {
                self.nacks += 1;
                self.on_nack(fleet, response.upserts, message);
            }
        }
        names
    }

    fn accept(&mut self, fleet: &mut Fleet, sent: Vec<Sent>) {
        for sent in sent {
            fleet.acked(self.ty, &sent.name, sent.version);
            self.rejected.remove(&sent.name);
        }
        self.shrink();
    }

    fn on_nack(&mut self, fleet: &mut Fleet, mut sent: Vec<Sent>, message: &str) {
        if sent.len() <= 1 {
            if let Some(sent) = sent.pop() {
                let reason = nack::reason(self.ty, message, &sent.name);
                self.reject(fleet, sent, reason);
            }
            return;
        }
        let names: Vec<&Arc<str>> = sent.iter().map(|sent| &sent.name).collect();
        match nack::blame(self.ty, message, &names) {
            Some(Blame {
                culprit,
                reason,
                suspects,
            }) => {
                let mut applied = Vec::new();
                for (index, sent) in sent.into_iter().enumerate() {
                    if index == culprit {
                        self.reject(fleet, sent, reason);
                    } else if suspects.binary_search(&index).is_ok() {
                        self.forget_version(&sent);
                        self.probes.push_back(vec![sent]);
                    } else {
                        applied.push(sent);
                    }
                }
                self.accept(fleet, applied);
            }
            None => {
                // Bisect.
                for sent in &sent {
                    self.forget_version(sent);
                }
                let second = sent.split_off(sent.len() / 2);
                self.probes.push_front(second);
                self.probes.push_front(sent);
            }
        }
        self.probe_next = true;
    }

    /// Forgets the client's version, which may be this one or the previous one.
    fn forget_version(&mut self, sent: &Sent) {
        if self.versions.get(&sent.name) == Some(&sent.version) {
            self.versions
                .insert(Arc::clone(&sent.name), Version::UNKNOWN);
        }
    }

    /// Records that the resource is invalid; the client keeps its previous version.
    fn reject(&mut self, fleet: &mut Fleet, sent: Sent, reason: &str) {
        fleet.rejected(self.client, self.ty, &sent.name, sent.version, reason);
        if !self.subscription.covers(&sent.name) {
            return;
        }
        if self.versions.get(&sent.name) == Some(&sent.version) {
            match sent.before {
                Some(version) => self.versions.insert(Arc::clone(&sent.name), version),
                None => self.versions.remove(&sent.name),
            };
        }
        if let Some(changed) = fleet.changed(self.ty, &sent.name) {
            let rejected = (sent.version, changed);
            self.rejected.insert(Arc::clone(&sent.name), rejected);
        }
        self.refresh(fleet, &sent.name, Some(sent.epochs.first));
    }
}
