//! Composes the next response for a type.

use std::sync::Arc;
use std::time::Instant;

use super::{InFlight, SendLimits, Sent, TypeState};
use crate::fleet::{Fleet, Lookup};
use crate::ordering::Watermark;
use crate::pending::Age;
use crate::resource::ResourceType;
use crate::session::Response;
use crate::wire;

/// What a resource counts towards the size of a response, and what a removed name does, in bytes: a response that isn't read
/// keeps them in memory.
const UPSERT: usize = 256;
const REMOVAL: usize = 1 << 10;
/// The maximum number of newlines that distinguish a probed secret.
const MAX_NEWLINES: u64 = 64;

impl TypeState {
    /// The next response, if there is something to send within the limits. Call it only if none is in flight.
    pub(crate) fn next_response(
        &mut self,
        fleet: &Fleet,
        limits: SendLimits,
        nonce: String,
        now: Instant,
    ) -> Option<Response> {
        let mut response = Response {
            ty: self.ty,
            nonce,
            upserts: Vec::new(),
            removals: Vec::new(),
        };
        let mut sent = Vec::new();
        let mut watermark = Watermark::default();
        if self.probe_next {
            sent = self.add_probe(fleet, &mut response);
        }
        if sent.is_empty() {
            sent = self.add_upserts(fleet, limits, &mut response);
            watermark.removals = self.add_removals(fleet, limits, &mut response);
            self.probe_next = true;
        } else {
            self.probe_next = false;
        }
        if sent.is_empty() && response.removals.is_empty() {
            sent = self.add_probe(fleet, &mut response);
            // The empty initial response is not due while upserts are pending, since they will be the first response.
            if sent.is_empty() && !(self.initial_response_due && self.upserts.len() == 0) {
                return None;
            }
            self.probe_next = false;
        }
        self.initial_response_due = false;
        watermark.upserts = sent.iter().map(|sent| sent.epochs.first).min();
        self.sent += sent.len() as u64;
        self.in_flight = Some(InFlight {
            nonce: response.nonce.clone(),
            upserts: sent,
            watermark,
            since: now,
        });
        Some(response)
    }

    fn add_upserts(
        &mut self,
        fleet: &Fleet,
        limits: SendLimits,
        response: &mut Response,
    ) -> Vec<Sent> {
        let mut sent = Vec::new();
        let mut bytes = 0;
        while bytes < limits.bytes {
            let Some((name, epochs)) = self.upserts.pop_below(limits.upserts, self.next) else {
                break;
            };
            self.next = match self.next {
                Age::Oldest if self.upserts.len() > 0 => Age::Newest,
                _ => Age::Oldest,
            };
            self.examined += 1;
            let before = self.versions.get(&name).copied();
            match self.lookup(fleet, &name) {
                Lookup::Serve(resource, _) => {
                    let resource = self.form(resource).into_owned();
                    let version = resource.version();
                    let forced = self.resend.remove(&name);
                    if forced || before != Some(version) {
                        bytes += UPSERT + name.len() + resource.body().len();
                        response.upserts.push(resource);
                        self.versions.insert(Arc::clone(&name), version);
                        sent.push(Sent {
                            name,
                            version,
                            epochs,
                            before,
                        });
                    }
                }
                // Another client has rejected this version since it became pending.
                Lookup::Keep | Lookup::Missing => self.refresh(fleet, &name, Some(epochs.first)),
            }
        }
        sent
    }

    /// Adds removals; returns the oldest epoch that they complete.
    fn add_removals(
        &mut self,
        fleet: &Fleet,
        limits: SendLimits,
        response: &mut Response,
    ) -> Option<u64> {
        let mut oldest: Option<u64> = None;
        let mut bytes = 0;
        while bytes < limits.bytes {
            let Some((name, epochs)) = self.removals.pop_below(limits.removals) else {
                break;
            };
            self.examined += 1;
            bytes += REMOVAL + name.len();
            oldest = oldest.into_iter().chain([epochs.first]).min();
            self.versions.remove(&name);
            if self.subscription.has_name(&name) {
                self.reported_missing.insert(Arc::clone(&name));
            }
            response.removals.push(name);
        }
        while bytes < limits.bytes {
            let Some(name) = self.missing.pop_first() else {
                break;
            };
            self.examined += 1;
            if matches!(self.lookup(fleet, &name), Lookup::Serve(..)) {
                // The client that rejected this resource has disconnected since.
                self.refresh(fleet, &name, None);
            } else if self.waits_for(&name) {
                bytes += REMOVAL + name.len();
                self.removals.remove(&name);
                self.versions.remove(&name);
                self.reported_missing.insert(Arc::clone(&name));
                response.removals.push(name);
            }
        }
        oldest
    }

    /// Adds the next part of a rejected response that is still current.
    fn add_probe(&mut self, fleet: &Fleet, response: &mut Response) -> Vec<Sent> {
        while let Some(group) = self.probes.pop_front() {
            let mut sent = Vec::new();
            for item in group {
                self.examined += 1;
                match self.lookup(fleet, &item.name) {
                    Lookup::Serve(resource, _)
                        if resource.version() == item.version
                            && self.subscription.covers(&item.name) =>
                    {
                        // A secret that is probed again has been rejected once more since.
                        let newlines = 1 + self.nacks % MAX_NEWLINES;
                        let varied = match self.ty {
                            ResourceType::Secret => wire::with_newlines(resource, newlines),
                            _ => None,
                        };
                        let resource = varied.unwrap_or_else(|| resource.clone());
                        response.upserts.push(resource);
                        self.versions.insert(Arc::clone(&item.name), item.version);
                        sent.push(item);
                    }
                    _ => self.refresh(fleet, &item.name, Some(item.epochs.first)),
                }
            }
            if !sent.is_empty() {
                return sent;
            }
        }
        Vec::new()
    }
}
