//! One fleet: its desired state, its observed objects, and the writes that reconcile them.
//!
//! Pure: no clock, no network.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sesame_model::{FleetId, FleetProblem, FleetState, GatewayOwner};

use super::addresses::{self, RequestedAddresses, Services};
use super::desired::desired_objects;
use super::fingerprint::{self, Fingerprint};
use super::kind::ObjectKind;
use super::observed::{Detail, FleetKey, ObservedObject, WorkloadStatus};
use super::spec::{FleetSpec, FleetsConfig};

/// A desired fleet, or an orphan.
#[derive(Debug, Default)]
pub(super) struct Fleet {
    desired: Option<DesiredFleet>,
    pub(super) observed: BTreeMap<ObjectKind, ObservedObject>,
    /// The last applied fingerprint, and the stored object's fingerprint. They differ if the API server or a webhook
    /// normalizes a field.
    applied: BTreeMap<ObjectKind, (Fingerprint, Fingerprint)>,
    /// The reasons that objects can't be written, by kind.
    pub(super) problems: BTreeMap<ObjectKind, String>,
}

/// The desired state. Holds only fingerprints; objects are rebuilt for each write.
#[derive(Debug)]
struct DesiredFleet {
    id: FleetId,
    spec: Arc<FleetSpec>,
    objects: BTreeMap<ObjectKind, Fingerprint>,
    requested: RequestedAddresses,
}

impl DesiredFleet {
    /// Whether an object is the Service for addresses inside the cluster, but lacks the requested cluster IP.
    fn lacks_cluster_ip(&self, kind: ObjectKind, observed: &ObservedObject) -> bool {
        match (&observed.detail, self.requested.cluster_ip()) {
            (Detail::Service(assigned), Some(ip)) if kind == ObjectKind::ClusterService => {
                assigned.cluster_ip() != Some(ip)
            }
            _ => false,
        }
    }
}

/// A write to the API server.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Action {
    /// Applies an object, with the UID of the observed one, if any.
    Apply {
        kind: ObjectKind,
        object: Value,
        fingerprint: Fingerprint,
        uid: Option<String>,
    },
    /// Sets `spec.replicas` once.
    Scale(Value),
    /// Deletes the object with this UID.
    Delete { kind: ObjectKind, uid: String },
}

/// The outcome of an [`Action`].
#[derive(Debug)]
pub(super) enum Outcome {
    /// The fingerprint applied, and the object as stored.
    Applied(ObjectKind, Fingerprint, ObservedObject),
    Deleted(ObjectKind),
    Failed(ObjectKind, String),
    /// A transient failure.
    Transient(ObjectKind, String),
}

impl Fleet {
    /// Sets the desired state. Returns whether it has changed.
    pub(super) fn set_desired(
        &mut self,
        config: &FleetsConfig,
        desired: Option<(FleetId, FleetSpec)>,
    ) -> bool {
        let Some((id, spec)) = desired else {
            self.problems.clear();
            return self.desired.take().is_some();
        };
        if let Some(known) = &self.desired
            && known.id == id
            && *known.spec == spec
        {
            return false;
        }
        let objects = desired_objects(config, &id, &spec).objects;
        // Reported again if they persist.
        self.problems.clear();
        self.desired = Some(DesiredFleet {
            requested: RequestedAddresses::of(&spec),
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
        self.desired.as_ref().map(|desired| &desired.id)
    }

    /// The owner of the fleet's objects.
    pub(super) fn owner(&self) -> Option<&GatewayOwner> {
        self.desired.as_ref()?.spec.request.owner.as_ref()
    }

    /// Whether an object of that kind is desired.
    pub(super) fn is_desired(&self, kind: ObjectKind) -> bool {
        self.desired
            .as_ref()
            .is_some_and(|desired| desired.objects.contains_key(&kind))
    }

    /// The status of its workload, if Sesame manages it.
    pub(super) fn workload(&self) -> Option<WorkloadStatus> {
        let desired = self.desired.as_ref()?;
        if desired.spec.parameters.managed == Some(false) {
            return None;
        }
        let owner = desired.spec.request.owner.as_ref();
        let (_, observed) = self
            .observed
            .iter()
            .find(|(kind, _)| kind.is_workload() && desired.objects.contains_key(kind))?;
        match observed.detail {
            Detail::Workload(status) if observed.is_ours(owner) && !observed.deleting => {
                Some(status)
            }
            _ => None,
        }
    }

    /// The fingerprint of the desired workload.
    pub(super) fn desired_workload(&self) -> Option<(ObjectKind, Fingerprint)> {
        let objects = &self.desired.as_ref()?.objects;
        let mut objects = objects.iter().map(|(kind, desired)| (*kind, *desired));
        objects.find(|(kind, _)| kind.is_workload())
    }

    /// The actions that reconcile the fleet, in order. An object that Sesame didn't create becomes a problem. While the
    /// fleet's upgrade `must_wait`, its pod template and the files of its pods don't change.
    pub(super) fn plan(
        &mut self,
        config: &FleetsConfig,
        key: &FleetKey,
        must_wait: bool,
    ) -> Vec<Action> {
        let Some(desired) = &self.desired else {
            return self.deletions(config, key, |_| true);
        };
        if desired.spec.parameters.managed == Some(false) {
            return Vec::new();
        }
        let owner = desired.spec.request.owner.as_ref();
        let (mut stale, mut actions) = (Vec::new(), Vec::new());
        for (kind, fingerprint) in &desired.objects {
            match self.observed.get(kind) {
                None => stale.push((*kind, *fingerprint, None)),
                Some(observed) if !observed.is_ours(owner) => {
                    self.problems.insert(*kind, foreign_message(*kind, key));
                }
                // Pods that restart in the meantime read the files that belong to their template.
                Some(_) if must_wait && (kind.is_workload() || *kind == ObjectKind::ConfigMap) => {}
                // Recreated once it is gone.
                Some(observed) if observed.deleting => {}
                // A cluster IP can't change.
                Some(observed) if desired.lacks_cluster_ip(*kind, observed) => {
                    let uid = observed.uid.clone();
                    actions.push(Action::Delete { kind: *kind, uid });
                }
                Some(observed) => {
                    let normalized =
                        Some(&(*fingerprint, observed.fingerprint)) == self.applied.get(kind);
                    if observed.fingerprint == *fingerprint || normalized {
                        self.problems.remove(kind);
                    } else {
                        stale.push((*kind, *fingerprint, Some(observed.uid.clone())));
                    }
                }
            }
        }
        if !stale.is_empty() {
            let mut built = desired_objects(config, &desired.id, &desired.spec);
            for (kind, fingerprint, uid) in stale {
                let Some(object) = built.objects.remove(&kind) else {
                    continue;
                };
                let scale = match (kind, built.initial_replicas) {
                    (ObjectKind::Deployment, Some(initial)) => self.scale(key, initial),
                    _ => None,
                };
                let exists = uid.is_some();
                let apply = Action::Apply {
                    kind,
                    object,
                    fingerprint,
                    uid,
                };
                // `spec.replicas` falls back to 1 when it loses its manager, so on an existing object the scale action
                // must take it over first.
                match scale {
                    Some(scale) if exists => actions.extend([scale, apply]),
                    other => actions.extend([apply].into_iter().chain(other)),
                }
            }
        }
        let keep_service = desired.spec.request.ports.is_empty();
        let old_workload_unneeded = self.is_serving();
        actions.extend(self.deletions(config, key, |kind| match kind {
            ObjectKind::Service | ObjectKind::ClusterService => !keep_service,
            kind if kind.is_workload() => old_workload_unneeded,
            _ => true,
        }));
        actions
    }

    /// Deletes objects that are not desired, if `deletable` accepts their kind.
    fn deletions(
        &self,
        config: &FleetsConfig,
        key: &FleetKey,
        deletable: impl Fn(ObjectKind) -> bool,
    ) -> Vec<Action> {
        self.observed
            .iter()
            .filter(|(kind, observed)| {
                !self.is_desired(**kind)
                    && !observed.deleting
                    && may_delete(config, key, observed)
                    && deletable(**kind)
            })
            .map(|(kind, observed)| Action::Delete {
                kind: *kind,
                uid: observed.uid.clone(),
            })
            .collect()
    }

    /// Whether the desired workload has available pods (or zero replicas), so that the previous one can be deleted.
    fn is_serving(&self) -> bool {
        self.observed.iter().any(|(kind, observed)| {
            let Detail::Workload(workload) = observed.detail else {
                return false;
            };
            self.is_desired(*kind) && workload.serves()
        })
    }

    /// Sets `spec.replicas` under a manager other than [`fingerprint::FIELD_MANAGER`], until an autoscaler takes over.
    fn scale(&self, key: &FleetKey, initial: u32) -> Option<Action> {
        let replicas = match self.observed.get(&ObjectKind::Deployment) {
            None => initial,
            Some(ObservedObject {
                detail: Detail::Workload(workload),
                ..
            }) if workload.manages_replicas => workload.replicas.unwrap_or(initial).max(initial),
            Some(_) => return None,
        };
        Some(Action::Scale(json!({
            "apiVersion": ObjectKind::Deployment.api_version(),
            "kind": ObjectKind::Deployment.name(),
            "metadata": { "name": &*key.name, "namespace": &*key.namespace },
            "spec": { "replicas": replicas },
        })))
    }

    /// Stores an observed object, unless a newer version is stored.
    pub(super) fn observe(&mut self, kind: ObjectKind, observed: ObservedObject) {
        match self.observed.get(&kind) {
            Some(known) if observed.is_older_than(known) => {}
            _ => drop(self.observed.insert(kind, observed)),
        }
    }

    /// Records an outcome. Returns the kind if the same fingerprint had already been applied, which means that another
    /// client has reverted it.
    pub(super) fn done(&mut self, outcome: Outcome) -> Option<ObjectKind> {
        match outcome {
            Outcome::Applied(kind, fingerprint, observed) => {
                self.problems.remove(&kind);
                let previous = self
                    .applied
                    .insert(kind, (fingerprint, observed.fingerprint));
                self.observe(kind, observed);
                return previous
                    .is_some_and(|(previous, _)| previous == fingerprint)
                    .then_some(kind);
            }
            Outcome::Deleted(kind) => {
                self.problems.remove(&kind);
                // If a finalizer keeps the object, the watch reports it again.
                self.observed.remove(&kind);
            }
            Outcome::Failed(kind, message) | Outcome::Transient(kind, message) => {
                self.problems.insert(kind, message);
            }
        }
        None
    }

    /// The fleet's state. `unwatchable` maps each kind that can't be watched, in a namespace or (`None`) in all, to the
    /// reason.
    pub(super) fn state(
        &self,
        key: &FleetKey,
        unwatchable: &BTreeMap<(ObjectKind, Option<String>), String>,
    ) -> Option<FleetState> {
        let desired = self.desired.as_ref()?;
        let owner = desired.spec.request.owner.as_ref();
        let service = |kind| {
            let observed = self.observed.get(&kind)?;
            match &observed.detail {
                Detail::Service(assigned) if observed.is_ours(owner) => Some(assigned),
                _ => None,
            }
        };
        let in_cluster = service(ObjectKind::ClusterService);
        let mut out = FleetState::default();
        let services = Services {
            name: &format!("{}/{}", key.namespace, key.name),
            service: service(ObjectKind::Service),
            in_cluster,
            failure: self
                .problems
                .get(&ObjectKind::ClusterService)
                .map(String::as_str),
        };
        addresses::assign(&mut out, &desired.requested, services);
        for observed in self.observed.values() {
            if let Detail::Workload(WorkloadStatus { available, .. }) = observed.detail {
                out.ready |= available > 0;
            }
        }
        let here = |scope: &Option<String>| scope.as_deref().is_none_or(|s| s == &*key.namespace);
        let unwatchable = unwatchable
            .iter()
            .find(|((kind, scope), _)| self.is_desired(*kind) && here(scope))
            .map(|(_, message)| message);
        let mut problems = self.problems.iter();
        // A failure of this Service affects only requests for addresses inside the cluster.
        let affects_all =
            |kind: ObjectKind| kind != ObjectKind::ClusterService || in_cluster.is_some();
        let unwritten = problems.find(|(kind, _)| affects_all(**kind));
        let unwritten = unwritten.map(|(_, message)| message);
        out.problem = out
            .problem
            .into_iter()
            .chain(
                unwritten
                    .or(unwatchable)
                    .map(|text| FleetProblem::NoResources(text.clone())),
            )
            .min();
        Some(out)
    }

    /// Whether the fleet isn't desired and has no objects.
    pub(super) fn is_empty(&self) -> bool {
        self.desired.is_none() && self.observed.is_empty()
    }
}

/// Whether Sesame created the object: it has our labels, and the namespace and name of its owner's fleet.
fn may_delete(config: &FleetsConfig, key: &FleetKey, observed: &ObservedObject) -> bool {
    let fleet = match &observed.owner {
        Some(owner) => FleetId::of_gateway(Arc::clone(&key.namespace), owner.name.as_str()),
        None => FleetId::Default,
    };
    observed.labelled && FleetKey::new(config, &fleet) == *key
}

/// The message for a foreign object with the name of a fleet's object.
pub(super) fn foreign_message(kind: ObjectKind, key: &FleetKey) -> String {
    format!(
        "{} {}/{} already exists and was not created by Sesame; delete it so that Sesame can create its own",
        kind.name(),
        key.namespace,
        key.object_name(kind)
    )
}
