//! One fleet: its desired state, its observed objects, and the writes that reconcile them.
//!
//! Pure: no clock, no network.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use sesame_model::{FleetId, FleetProblem, FleetState, GatewayOwner};

use super::addresses::{self, RequestedAddresses, Services};
use super::desired::{DesiredObjects, class_objects, class_spec, created_class, desired_objects};
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

/// What the objects are for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Subject {
    /// A fleet.
    Fleet(FleetId),
    /// A GatewayClass that fleets share. The spec has only the class, and whether it is managed.
    Class,
}

impl Subject {
    fn objects(&self, config: &FleetsConfig, spec: &FleetSpec) -> DesiredObjects {
        match self {
            Self::Fleet(id) => desired_objects(config, id, spec),
            Self::Class => class_objects(config, spec),
        }
    }
}

/// The desired state. Holds only fingerprints; objects are rebuilt for each write.
#[derive(Debug)]
struct DesiredFleet {
    subject: Subject,
    spec: Arc<FleetSpec>,
    objects: BTreeMap<ObjectKind, Fingerprint>,
    requested: RequestedAddresses,
}

impl DesiredFleet {
    /// The owner of its objects.
    fn owner(&self) -> Option<&GatewayOwner> {
        match self.subject {
            Subject::Fleet(_) => self.spec.request.owner.as_ref(),
            Subject::Class => None,
        }
    }

    /// Whether a watch of this kind observes one of its objects.
    fn has_watched(&self, kind: ObjectKind) -> bool {
        self.objects.keys().any(|of| of.watched() == kind)
    }

    /// Whether an object is the Service for addresses inside the cluster, but lacks the requested cluster IP.
    fn lacks_cluster_ip(&self, kind: ObjectKind, observed: &ObservedObject) -> bool {
        match (&observed.detail, self.requested.cluster_ip()) {
            (Detail::Addresses(assigned), Some(ip)) if kind == ObjectKind::ClusterService => {
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
        desired: Option<(Subject, Arc<FleetSpec>)>,
    ) -> bool {
        let Some((subject, spec)) = desired else {
            self.problems.clear();
            return self.desired.take().is_some();
        };
        if let Some(known) = &self.desired
            && known.subject == subject
            && known.spec == spec
        {
            return false;
        }
        let objects = subject.objects(config, &spec).objects;
        // Reported again if they persist.
        self.problems.clear();
        self.desired = Some(DesiredFleet {
            requested: RequestedAddresses::of(&spec),
            objects: objects
                .iter()
                .map(|(kind, object)| (*kind, fingerprint::of_desired(object)))
                .collect(),
            subject,
            spec,
        });
        true
    }

    /// `None` for an orphan and for a GatewayClass.
    pub(super) fn id(&self) -> Option<&FleetId> {
        match &self.desired.as_ref()?.subject {
            Subject::Fleet(id) => Some(id),
            Subject::Class => None,
        }
    }

    /// Whether its objects are orphans.
    pub(super) fn is_orphan(&self) -> bool {
        self.desired.is_none()
    }

    /// The owner of the fleet's objects.
    pub(super) fn owner(&self) -> Option<&GatewayOwner> {
        self.desired.as_ref()?.owner()
    }

    /// Whether Sesame writes the objects.
    pub(super) fn is_managed(&self) -> bool {
        let desired = self.desired.as_ref();
        desired.is_some_and(|desired| desired.spec.parameters.managed != Some(false))
    }

    /// The GatewayClass that is created for the fleet.
    pub(super) fn class(&self, config: &FleetsConfig) -> Option<FleetKey> {
        self.id()?;
        let class = created_class(&self.desired.as_ref()?.spec)?;
        Some(FleetKey::of_class(config, class))
    }

    /// The spec of that GatewayClass.
    pub(super) fn class_spec(&self, managed: bool) -> Option<FleetSpec> {
        let class = created_class(&self.desired.as_ref()?.spec)?;
        Some(class_spec(class.clone(), managed))
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
        if !self.is_managed() {
            return Vec::new();
        }
        let owner = desired.owner();
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
            let mut built = desired.subject.objects(config, &desired.spec);
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
        let keep_ports = desired.spec.request.ports.is_empty();
        let old_workload_unneeded = self.is_serving();
        actions.extend(self.deletions(config, key, |kind| match kind {
            kind if kind.has_ports() => !keep_ports,
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
                    && may_delete(config, key, **kind, observed)
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

    /// The fleet's state; `None` for an orphan and for a GatewayClass. `unwatchable` maps each kind that can't be watched, in
    /// a namespace or (`None`) in all, to the reason; `class_problem` is why the fleet's GatewayClass can't be written.
    pub(super) fn state(
        &self,
        key: &FleetKey,
        unwatchable: &BTreeMap<(ObjectKind, Option<String>), String>,
        class_problem: Option<&String>,
    ) -> Option<FleetState> {
        self.id()?;
        let desired = self.desired.as_ref()?;
        let owner = desired.owner();
        let assigned = |kind| {
            let observed = self.observed.get(&kind)?;
            match &observed.detail {
                Detail::Addresses(assigned) if observed.is_ours(owner) => Some(assigned),
                _ => None,
            }
        };
        let in_cluster = assigned(ObjectKind::ClusterService);
        let mut out = FleetState::default();
        let source = desired.requested.source();
        let services = Services {
            source: &key.description(source),
            cluster_service: &key.description(ObjectKind::ClusterService),
            assigned: assigned(source),
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
            .find(|((kind, scope), _)| desired.has_watched(*kind) && here(scope))
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
                    .or(class_problem)
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

/// Whether Sesame created the object: it has our labels, and the namespace and name of its owner's fleet. Without an owner,
/// it is in Sesame's namespace.
fn may_delete(
    config: &FleetsConfig,
    key: &FleetKey,
    kind: ObjectKind,
    observed: &ObservedObject,
) -> bool {
    if kind == ObjectKind::GatewayClass {
        return observed.labelled;
    }
    let place = match &observed.owner {
        Some(owner) => {
            let fleet = FleetId::of_gateway(Arc::clone(&key.namespace), owner.name.as_str());
            FleetKey::new(config, &fleet) == *key
        }
        // The Gateway can't be derived from the name, which has a hash.
        None => *key.namespace == *config.namespace,
    };
    observed.labelled && place
}

/// The message for a foreign object with the name of a fleet's object.
pub(super) fn foreign_message(kind: ObjectKind, key: &FleetKey) -> String {
    format!(
        "{} already exists and was not created by Sesame; delete it so that Sesame can create its own",
        key.description(kind)
    )
}
