//! One fleet: its desired state, its observed objects, and the actions that reconcile them.
//!
//! Pure: no clock, no network.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sesame_model::{FleetId, FleetProblem, FleetState, GatewayOwner};

use super::addresses::{self, Asked};
use super::desired::desired;
use super::fingerprint::{self, Fingerprint};
use super::kind::Kind;
use super::seen::{Detail, FleetKey, Seen, Workload};
use super::spec::{FleetSpec, FleetsConfig};

/// A wanted fleet, or an orphan.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    wanted: Option<Wanted>,
    pub(super) seen: BTreeMap<Kind, Seen>,
    /// The fingerprint last applied, and that of the object as stored. They differ where the API server or a webhook
    /// normalizes a field.
    accepted: BTreeMap<Kind, (Fingerprint, Fingerprint)>,
    /// Why an object can't be written, as a sentence.
    pub(super) problems: BTreeMap<Kind, String>,
}

/// The desired state. Holds fingerprints only; the objects are rebuilt when they have to be written.
#[derive(Debug)]
struct Wanted {
    id: FleetId,
    spec: Arc<FleetSpec>,
    objects: BTreeMap<Kind, Fingerprint>,
    asked: Asked,
}

/// A write to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Applies an object; with the uid of the observed one, if any.
    Apply {
        kind: Kind,
        object: Value,
        said: Fingerprint,
        uid: Option<String>,
    },
    /// Sets `spec.replicas` once.
    Scale(Value),
    /// Deletes the object with this uid.
    Delete { kind: Kind, uid: String },
}

/// The outcome of an [`Action`].
#[derive(Debug)]
pub(super) enum Outcome {
    /// The fingerprint applied, and the object as stored.
    Applied(Kind, Fingerprint, Seen),
    Deleted(Kind),
    Failed(Kind, String),
    /// A transient failure.
    Stumbled(Kind, String),
}

impl Fleet {
    /// Sets the desired state. Returns whether it has changed.
    pub(super) fn want(
        &mut self,
        config: &FleetsConfig,
        wanted: Option<(FleetId, FleetSpec)>,
    ) -> bool {
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
        // Reported again if they persist.
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

    /// `None` for an orphan.
    pub(super) fn id(&self) -> Option<&FleetId> {
        self.wanted.as_ref().map(|wanted| &wanted.id)
    }

    /// The owner of its objects.
    pub(super) fn owner(&self) -> Option<&GatewayOwner> {
        self.wanted.as_ref()?.spec.request.owner.as_ref()
    }

    /// Whether an object of that kind is wanted.
    pub(super) fn wants(&self, kind: Kind) -> bool {
        self.wanted
            .as_ref()
            .is_some_and(|wanted| wanted.objects.contains_key(&kind))
    }

    /// The actions that reconcile the fleet, in order. An object that Sesame didn't create becomes a problem.
    pub(super) fn plan(&mut self, config: &FleetsConfig, key: &FleetKey) -> Vec<Action> {
        let Some(wanted) = &self.wanted else {
            return self.deletions(config, key, |_| true);
        };
        let owner = wanted.spec.request.owner.as_ref();
        let mut stale = Vec::new();
        for (kind, said) in &wanted.objects {
            match self.seen.get(kind) {
                None => stale.push((*kind, *said, None)),
                Some(seen) if !seen.is_ours(owner) => {
                    self.problems.insert(*kind, foreign(*kind, key));
                }
                // Created again once it is gone.
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
                    (Kind::Deployment, Some(first)) => self.scale(key, first),
                    _ => None,
                };
                let seen = uid.is_some();
                let apply = Action::Apply {
                    kind,
                    object,
                    said,
                    uid,
                };
                // Without a manager, `spec.replicas` falls back to 1: the other manager has to take it over first.
                match scale {
                    Some(scale) if seen => actions.extend([scale, apply]),
                    other => actions.extend([apply].into_iter().chain(other)),
                }
            }
        }
        let keep_service = wanted.spec.request.ports.is_empty();
        let replaced = self.is_serving();
        actions.extend(self.deletions(config, key, |kind| match kind {
            Kind::Service => !keep_service,
            kind if kind.is_workload() => replaced,
            _ => true,
        }));
        actions
    }

    /// Deletes the unwanted objects that `may_go` accepts.
    fn deletions(
        &self,
        config: &FleetsConfig,
        key: &FleetKey,
        may_go: impl Fn(Kind) -> bool,
    ) -> Vec<Action> {
        self.seen
            .iter()
            .filter(|(kind, seen)| {
                !self.wants(**kind)
                    && !seen.deleting
                    && may_delete(config, key, seen)
                    && may_go(**kind)
            })
            .map(|(kind, seen)| Action::Delete {
                kind: *kind,
                uid: seen.uid.clone(),
            })
            .collect()
    }

    /// Whether the wanted workload carries traffic, so that its predecessor can be deleted.
    fn is_serving(&self) -> bool {
        self.seen.iter().any(|(kind, seen)| {
            let Detail::Workload(workload) = seen.detail else {
                return false;
            };
            self.wants(*kind) && (workload.available > 0 || workload.replicas == Some(0))
        })
    }

    /// Sets `spec.replicas` as another manager than [`fingerprint::FIELD_MANAGER`], until an autoscaler takes over.
    fn scale(&self, key: &FleetKey, first: u32) -> Option<Action> {
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
            "metadata": { "name": &*key.name, "namespace": &*key.namespace },
            "spec": { "replicas": replicas },
        })))
    }

    /// Stores an observed object, unless a newer version is stored.
    pub(super) fn sees(&mut self, kind: Kind, seen: Seen) {
        match self.seen.get(&kind) {
            Some(known) if seen.is_older_than(known) => {}
            _ => drop(self.seen.insert(kind, seen)),
        }
    }

    /// Records an outcome. Returns the kind if the same fingerprint had been applied before: another client has reverted it.
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
                // If a finalizer keeps it, the watch reports it again.
                self.seen.remove(&kind);
            }
            Outcome::Failed(kind, message) | Outcome::Stumbled(kind, message) => {
                self.problems.insert(kind, message);
            }
        }
        None
    }

    /// Its state; `hidden`: kinds that can't be watched, in a namespace or (`None`) in all, and why.
    pub(super) fn state(
        &self,
        key: &FleetKey,
        hidden: &BTreeMap<(Kind, Option<String>), String>,
    ) -> Option<FleetState> {
        let wanted = self.wanted.as_ref()?;
        let given = match self.seen.get(&Kind::Service) {
            Some(Seen {
                detail: Detail::Service(given),
                ..
            }) => Some(given),
            _ => None,
        };
        let mut out = FleetState {
            addresses: given.map(|given| given.addresses()).unwrap_or_default(),
            ..FleetState::default()
        };
        for seen in self.seen.values() {
            if let Detail::Workload(Workload { available, .. }) = seen.detail {
                out.ready |= available > 0;
            }
        }
        let service = format!("{}/{}", key.namespace, key.name);
        let here = |scope: &Option<String>| scope.as_deref().is_none_or(|s| s == &*key.namespace);
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
                    .map(|text| FleetProblem::NoResources(text.clone())),
            )
            .min();
        Some(out)
    }

    /// Whether it is not wanted and has no objects left.
    pub(super) fn is_over(&self) -> bool {
        self.wanted.is_none() && self.seen.is_empty()
    }
}

/// Whether Sesame created an unwanted object: it has our labels, and the namespace and name of its owner's fleet.
fn may_delete(config: &FleetsConfig, key: &FleetKey, seen: &Seen) -> bool {
    let fleet = match &seen.owner {
        Some(owner) => FleetId::of_gateway(Arc::clone(&key.namespace), owner.name.as_str()),
        None => FleetId::Default,
    };
    seen.labelled && FleetKey::of(config, &fleet) == *key
}

/// The problem when an object that Sesame didn't create has the name of a fleet's object.
pub(super) fn foreign(kind: Kind, key: &FleetKey) -> String {
    format!(
        "{} {}/{} exists, but Sesame did not create it: delete it, and Sesame creates its own",
        kind.name(),
        key.namespace,
        key.name
    )
}
