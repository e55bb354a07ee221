//! Finds the hosts and filter chains that Envoys reject, so that changes to the others of their table or listener take
//! effect.
//!
//! In: rejections of route tables and listeners with the suspected parts, and acknowledgements. Out: parts to hold and to
//! release. Pure.
//!
//! A single suspect is the cause. If there are several, all are held, so that the resource is accepted without them. They are
//! divided into groups, which are released one at a time. If the resource is rejected again, the group contains a cause and
//! is divided further.

use std::collections::{BTreeMap, BTreeSet};

use sesame_envoy::{Part, Suspect};
use sesame_model::FleetId;
use sesame_translate::fleet::Rejected;

use crate::core::Input;

/// The parts that Envoys reject, and the searches for them.
#[derive(Debug, Default)]
pub(crate) struct Containment {
    /// By table, shard or listener.
    searches: BTreeMap<Rejected, Search>,
    found: BTreeSet<Part>,
}

#[derive(Debug, Default)]
struct Search {
    /// Held parts, to be released a group at a time.
    groups: Vec<Vec<Suspect>>,
    /// The revision with the last held or released parts; `None` if it hasn't been sent.
    sent: Option<u64>,
}

impl Containment {
    /// Reacts to the rejection of a resource, with the parts that may be its cause.
    pub(crate) fn rejected(
        &mut self,
        resource: &Rejected,
        suspects: Vec<Suspect>,
        message: &str,
    ) -> Vec<Input> {
        if suspects.is_empty() {
            // No part is the cause. Held ones stay so until they or their resource's settings change.
            self.searches.remove(resource);
            return Vec::new();
        }
        let search = self.searches.entry(resource.clone()).or_default();
        search.sent = None;
        let mut message = Some(message.to_owned());
        match &*suspects {
            [one] => _ = self.found.insert(one.part.clone()),
            several => {
                message = None;
                let half = several.len() / 2;
                search
                    .groups
                    .extend(several.chunks(half).map(<[_]>::to_vec));
            }
        }
        let hold = |suspect| Input::Hold(suspect, message.clone());
        suspects.into_iter().map(hold).collect()
    }

    /// All inputs so far have been sent in this revision.
    pub(crate) fn sent(&mut self, revision: u64) {
        for search in self.searches.values_mut() {
            search.sent.get_or_insert(revision);
        }
    }

    /// Reacts to an Envoy's acknowledgement of a revision: resources that haven't been rejected are accepted.
    pub(crate) fn acked(&mut self, fleet: &FleetId, revision: u64) -> Vec<Input> {
        let mut released = Vec::new();
        self.searches.retain(|resource, search| {
            if resource.fleet != *fleet || search.sent.is_none_or(|sent| sent > revision) {
                return true;
            }
            let group = search.groups.pop();
            search.sent = None;
            let more = group.is_some();
            released.extend(group.into_iter().flatten());
            more
        });
        let parts = released.into_iter().map(|suspect| suspect.part);
        parts.map(Input::ReleasePart).collect()
    }

    /// A held part has changed, so it is no longer held.
    pub(crate) fn changed(&mut self, part: &Part) {
        self.found.remove(part);
    }

    /// The rejected parts.
    pub(crate) fn found(&self) -> &BTreeSet<Part> {
        &self.found
    }

    /// Ends the searches of a fleet that is gone.
    pub(crate) fn forget(&mut self, fleet: &FleetId) {
        self.searches.retain(|resource, _| resource.fleet != *fleet);
        self.found.retain(|part| part.fleet() != fleet);
    }
}

#[cfg(test)]
mod tests;
