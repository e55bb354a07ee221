//! One fleet: what is wanted, what is seen, and what is to be done about it.
//!
//! Pure: no clock, no network.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sesame_model::FleetId;

use super::addresses::{self, Asked};
use super::desired::desired;
use super::fingerprint::{self, Fingerprint};
use super::kind::Kind;
use super::seen::{Detail, Place, Seen, Workload};
use super::spec::{Config, FleetSpec, Observation, Problem};

/// A fleet, wanted or left over.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    wanted: Option<Wanted>,
    pub(super) seen: BTreeMap<Kind, Seen>,
    /// What the API server made of what we wrote, where that is not the same: it, or a webhook, has a form of its own for
    /// something.
    accepted: BTreeMap<Kind, (Fingerprint, Fingerprint)>,
    /// What can't be written, each a sentence.
    pub(super) problems: BTreeMap<Kind, String>,
}

/// What is wanted. The objects are made anew when they are to be written; in between their hashes are enough.
#[derive(Debug)]
struct Wanted {
    id: FleetId,
    spec: Arc<FleetSpec>,
    objects: BTreeMap<Kind, Fingerprint>,
    asked: Asked,
}

/// Something to do.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// To write an object; with its uid, if it was seen.
    Apply {
        kind: Kind,
        object: Value,
        said: Fingerprint,
        uid: Option<String>,
    },
    /// To say once how many Envoys there are.
    Scale(Value),
    /// To take away the object with this uid.
    Delete { kind: Kind, uid: String },
}

/// What came of it.
#[derive(Debug)]
pub(super) enum Outcome {
    /// What was said, and what stands there now.
    Applied(Kind, Fingerprint, Seen),
    Deleted(Kind),
    Failed(Kind, String),
    /// It failed, and may not the next time.
    Stumbled(Kind, String),
}

impl Fleet {
    /// Sets what is wanted. True if that is something else than before.
    pub(super) fn want(&mut self, config: &Config, wanted: Option<(FleetId, FleetSpec)>) -> bool {
        let Some((id, spec)) = wanted else {
            self.problems.clear();
            return self.wanted.take().is_some();
        };
        if let Some(known) = &self.wanted
            && known.id == id
            && *known.spec == spec
        {
            return false;
        }
        let objects = desired(config, &id, &spec).objects;
        // Said anew, if they are still true.
        self.problems.clear();
        self.wanted = Some(Wanted {
            asked: addresses::asked_for(&spec),
            objects: objects
                .iter()
                .map(|(kind, object)| (*kind, fingerprint::of_desired(object)))
                .collect(),
            id,
            spec: Arc::new(spec),
        });
        true
    }

    /// Who wants it.
    pub(super) fn id(&self) -> Option<&FleetId> {
        self.wanted.as_ref().map(|wanted| &wanted.id)
    }

    /// The Gateway's name and uid.
    pub(super) fn gateway(&self) -> Option<(Arc<str>, String)> {
        let spec = &self.wanted.as_ref()?.spec;
        Some((spec.gateway.name.clone(), spec.gateway_uid.clone()))
    }

    /// Whether an object of that kind should be there.
    pub(super) fn wants(&self, kind: Kind) -> bool {
        self.wanted
            .as_ref()
            .is_some_and(|wanted| wanted.objects.contains_key(&kind))
    }

    /// What is to be done, in this order. What is foreign becomes a problem.
    pub(super) fn plan(&mut self, config: &Config, place: &Place) -> Vec<Action> {
        let Some(wanted) = &self.wanted else {
            return self.deletions(place, |_| true);
        };
        let (gateway, uid) = (&*wanted.spec.gateway.name, &*wanted.spec.gateway_uid);
        let mut stale = Vec::new();
        for (kind, said) in &wanted.objects {
            match self.seen.get(kind) {
                None => stale.push((*kind, *said, None)),
                Some(seen) if !seen.is_ours(gateway, uid) => {
                    self.problems.insert(*kind, foreign(*kind, place));
                }
                // Its place is free when it has gone.
                Some(seen) if seen.deleting => {}
                Some(seen) => {
                    let accepted = Some(&(*said, seen.fingerprint)) == self.accepted.get(kind);
                    if seen.fingerprint == *said || accepted {
                        self.problems.remove(kind);
                    } else {
                        stale.push((*kind, *said, Some(seen.uid.clone())));
                    }
                }
            }
        }
        let mut actions = Vec::new();
        if !stale.is_empty() {
            let mut desired = desired(config, &wanted.id, &wanted.spec);
            for (kind, said, uid) in stale {
                let Some(object) = desired.objects.remove(&kind) else {
                    continue;
                };
                let scale = match (kind, desired.first_replicas) {
                    (Kind::Deployment, Some(first)) => self.scale(place, first),
                    _ => None,
                };
                let seen = uid.is_some();
                let apply = Action::Apply {
                    kind,
                    object,
                    said,
                    uid,
                };
                // A number that nobody manages any more falls back to 1, so somebody else has to hold it first.
                match scale {
                    Some(scale) if seen => actions.extend([scale, apply]),
                    other => actions.extend([apply].into_iter().chain(other)),
                }
            }
        }
        let keep_service = wanted.spec.ports.is_empty();
        let replaced = self.is_serving();
        actions.extend(self.deletions(place, |kind| match kind {
            Kind::Service => !keep_service,
            kind if kind.is_workload() => replaced,
            _ => true,
        }));
        actions
    }

    /// The objects that are not wanted, if they may go.
    fn deletions(&self, place: &Place, may_go: impl Fn(Kind) -> bool) -> Vec<Action> {
        self.seen
            .iter()
            .filter(|(kind, seen)| {
                !self.wants(**kind)
                    && !seen.deleting
                    && self.may_delete(place, seen)
                    && may_go(**kind)
            })
            .map(|(kind, seen)| Action::Delete {
                kind: *kind,
                uid: seen.uid.clone(),
            })
            .collect()
    }

    /// Whether an object that isn't wanted is one that Sesame has made: it has our labels, and the name that its owner's
    /// fleet has.
    fn may_delete(&self, place: &Place, seen: &Seen) -> bool {
        let made_for = |gateway: &str| {
            let fleet = FleetId::of_gateway(&place.namespace, gateway);
            super::names::object(&fleet) == *place.name
        };
        seen.labelled
            && seen
                .owner
                .as_ref()
                .is_some_and(|owner| made_for(&owner.name))
    }

    /// Whether the workload that is wanted carries traffic, so that another one may go.
    fn is_serving(&self) -> bool {
        self.seen.iter().any(|(kind, seen)| {
            let Detail::Workload(workload) = seen.detail else {
                return false;
            };
            self.wants(*kind) && (workload.available > 0 || workload.replicas == Some(0))
        })
    }

    /// Has somebody else than [`fingerprint::FIELD_MANAGER`] say how many Envoys there are, until an autoscaler does.
    fn scale(&self, place: &Place, first: u32) -> Option<Action> {
        let replicas = match self.seen.get(&Kind::Deployment) {
            None => first,
            Some(Seen {
                detail: Detail::Workload(workload),
                ..
            }) if workload.counted_by_us => workload.replicas.unwrap_or(first).max(first),
            Some(_) => return None,
        };
        Some(Action::Scale(json!({
            "apiVersion": Kind::Deployment.api_version(),
            "kind": Kind::Deployment.name(),
            "metadata": { "name": &*place.name, "namespace": &*place.namespace },
            "spec": { "replicas": replicas },
        })))
    }

    /// Takes in how an object stands, unless that is known better.
    pub(super) fn sees(&mut self, kind: Kind, seen: Seen) {
        match self.seen.get(&kind) {
            Some(known) if seen.is_older_than(known) => {}
            _ => drop(self.seen.insert(kind, seen)),
        }
    }

    /// Takes in what came of an action. The kind, if the same had been said of it before: somebody has undone it since.
    pub(super) fn done(&mut self, outcome: Outcome) -> Option<Kind> {
        match outcome {
            Outcome::Applied(kind, said, seen) => {
                self.problems.remove(&kind);
                let before = self.accepted.insert(kind, (said, seen.fingerprint));
                self.sees(kind, seen);
                return before
                    .is_some_and(|(before, _)| before == said)
                    .then_some(kind);
            }
            Outcome::Deleted(kind) => {
                self.problems.remove(&kind);
                // If it lingers, the watch tells so.
                self.seen.remove(&kind);
            }
            Outcome::Failed(kind, message) | Outcome::Stumbled(kind, message) => {
                self.problems.insert(kind, message);
            }
        }
        None
    }

    /// What has become of it; `hidden` are the kinds that can't be looked at, in a namespace or in all.
    pub(super) fn observation(
        &self,
        place: &Place,
        hidden: &BTreeMap<(Kind, Option<String>), String>,
    ) -> Option<Observation> {
        let wanted = self.wanted.as_ref()?;
        let given = match self.seen.get(&Kind::Service) {
            Some(Seen {
                detail: Detail::Service(given),
                ..
            }) => Some(given),
            _ => None,
        };
        let mut out = Observation {
            addresses: given.map(|given| given.addresses()).unwrap_or_default(),
            ..Observation::default()
        };
        for (kind, seen) in &self.seen {
            if let Detail::Workload(Workload {
                available,
                replicas,
                ..
            }) = seen.detail
            {
                out.available += available;
                if self.wants(*kind) {
                    out.replicas = replicas.unwrap_or(0);
                }
            }
        }
        let service = format!("{}/{}", place.namespace, place.name);
        let here = |scope: &Option<String>| scope.as_deref().is_none_or(|s| s == &*place.namespace);
        let hindered = hidden
            .iter()
            .find(|((kind, scope), _)| self.wants(*kind) && here(scope))
            .map(|(_, message)| message);
        let unwritten = self.problems.values().next();
        out.problem = addresses::problem(&wanted.asked, given, &service)
            .into_iter()
            .chain(
                unwritten
                    .or(hindered)
                    .map(|text| Problem::NoResources(text.clone())),
            )
            .min();
        Some(out)
    }

    /// Whether there is nothing left to know.
    pub(super) fn is_over(&self) -> bool {
        self.wanted.is_none() && self.seen.is_empty()
    }
}

/// That something else has the name.
pub(super) fn foreign(kind: Kind, place: &Place) -> String {
    format!(
        "{} {}/{} is there and Sesame has not made it: delete it, and Sesame makes the one that this Gateway needs",
        kind.name(),
        place.namespace,
        place.name
    )
}
