//! The stored part of an observed object: enough to decide whether Sesame created it and whether it is up to date, plus
//! its addresses and its number of pods.

use std::sync::Arc;

use kube::core::DynamicObject;
use serde_json::Value;
use sesame_model::{CreatedClass, FleetId, GatewayOwner};

use super::addresses::AssignedAddresses;
use super::fingerprint::{self, FIELD_MANAGER, Fingerprint};
use super::kind::ObjectKind;
use super::labels;
use super::names;
use super::spec::FleetsConfig;

/// The namespace of a fleet's objects, and the name of all except those with a [suffix](ObjectKind::suffix). Without a
/// namespace, the name of a GatewayClass.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FleetKey {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

impl FleetKey {
    pub(super) fn new(config: &FleetsConfig, fleet: &FleetId) -> Self {
        let namespace = match fleet {
            FleetId::Gateway { namespace, .. } if !config.own_namespace => Arc::clone(namespace),
            _ => config.namespace.as_str().into(),
        };
        Self {
            namespace,
            name: names::object(fleet).into(),
        }
    }

    /// The key of a GatewayClass that fleets share.
    pub(super) fn of_class(config: &FleetsConfig, class: &CreatedClass) -> Self {
        Self {
            namespace: "".into(),
            name: names::gateway_class(&config.instance, class).into(),
        }
    }

    /// The name of the fleet's object of this kind.
    pub(super) fn object_name(&self, kind: ObjectKind) -> String {
        format!("{}{}", self.name, kind.suffix())
    }

    /// The kind, namespace and name of the fleet's object of this kind, for messages.
    pub(super) fn description(&self, kind: ObjectKind) -> String {
        let name = self.object_name(kind);
        match kind.is_cluster_scoped() {
            true => format!("{} {name}", kind.name()),
            false => format!("{} {}/{name}", kind.name(), self.namespace),
        }
    }
}

/// An observed object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ObservedObject {
    pub(super) uid: String,
    /// The resourceVersion as a number, which increases with each change. 0 if it isn't a number.
    pub(super) version: u64,
    /// Fingerprint of the fields that Sesame manages.
    pub(super) fingerprint: Fingerprint,
    /// Whether it has a deletion timestamp.
    pub(super) deleting: bool,
    /// The Gateway that owns it.
    pub(super) owner: Option<Owner>,
    /// Whether it has the labels that its fleet's objects have.
    pub(super) labelled: bool,
    pub(super) detail: Detail,
}

/// A Gateway that owns an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) name: String,
    pub(super) uid: String,
}

/// The fields that are specific to some kinds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    None,
    /// Of a Service or a Gateway.
    Addresses(AssignedAddresses),
    Workload(WorkloadStatus),
}

/// Status of a Deployment or DaemonSet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WorkloadStatus {
    /// Number of available pods.
    pub(super) available: u32,
    /// The desired number of pods; `None` until the DaemonSet controller has counted the nodes.
    pub(super) replicas: Option<u32>,
    /// Whether Sesame manages `spec.replicas`.
    pub(super) manages_replicas: bool,
    /// Whether this release of Sesame applied it.
    pub(super) current_release: bool,
    pub(super) rollout: Rollout,
}

/// The rollout of a workload's pod template.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Rollout {
    /// Pods are being replaced.
    #[default]
    Progressing,
    /// All pods have the current template and are available.
    Done,
    /// It makes no progress, or all pods have the current template but some aren't available.
    Failed,
}

impl WorkloadStatus {
    /// Whether it has the pods that serve its clients, or needs none.
    pub(super) fn serves(&self) -> bool {
        self.available > 0 || self.replicas == Some(0)
    }
}

impl ObservedObject {
    /// Reads an object with its fleet and its kind, including the port; `None` if it has no valid name or no namespace.
    pub(super) fn read(
        kind: ObjectKind,
        object: DynamicObject,
        config: &FleetsConfig,
    ) -> Option<(FleetKey, ObjectKind, Self)> {
        let (kind, name) = kind.parse(object.metadata.name.as_deref()?)?;
        let namespace = match kind.is_cluster_scoped() {
            true => "",
            false => object.metadata.namespace.as_deref()?,
        };
        let key = FleetKey {
            namespace: namespace.into(),
            name: name.into(),
        };
        let managed = object
            .metadata
            .managed_fields
            .iter()
            .flatten()
            .find(|entry| {
                entry.manager.as_deref() == Some(FIELD_MANAGER)
                    && entry.operation.as_deref() == Some("Apply")
                    && entry.subresource.as_deref().unwrap_or("").is_empty()
            })
            .and_then(|entry| entry.fields_v1.as_ref())
            .map(|fields| fields.0.clone());
        let label = |key: &str| {
            let labels = object.metadata.labels.as_ref()?;
            labels.get(key).map(String::as_str)
        };
        let labelled = label(labels::MANAGED_BY) == Some(labels::SESAME)
            && label(labels::INSTANCE) == Some(&*names::label_value(&config.instance))
            && label(labels::FLEET) == Some(&*key.name);
        let owner = object
            .metadata
            .owner_references
            .iter()
            .flatten()
            .find(|owner| owner.kind == "Gateway" && owner.controller == Some(true))
            .map(|owner| Owner {
                name: owner.name.clone(),
                uid: owner.uid.clone(),
            });
        let deleting = object.metadata.deletion_timestamp.is_some();
        let uid = object.metadata.uid.clone().unwrap_or_default();
        let version = object.metadata.resource_version.as_deref();
        let version = version.and_then(|v| v.parse().ok()).unwrap_or(0);
        let object = to_json(object);
        let observed = Self {
            uid,
            version,
            fingerprint: fingerprint::of_observed(&object, managed.as_ref()),
            deleting,
            owner,
            labelled,
            detail: detail(kind, &object, managed.as_ref(), config),
        };
        Some((key, kind, observed))
    }

    /// Whether this is an earlier version of the same object. Responses and watch events can arrive out of order.
    pub(super) fn is_older_than(&self, other: &ObservedObject) -> bool {
        self.uid == other.uid && self.version < other.version
    }

    /// Whether Sesame may write it for a fleet with this owner. A recreated Gateway adopts its predecessor's objects.
    pub(super) fn is_ours(&self, desired: Option<&GatewayOwner>) -> bool {
        match (&self.owner, desired) {
            (Some(owner), Some(desired)) if owner.uid == desired.uid => true,
            (Some(owner), Some(desired)) => self.labelled && *owner.name == *desired.name,
            (Some(_), None) => false,
            // Another client may have removed the owner reference.
            (None, _) => self.labelled,
        }
    }
}

/// The object as JSON, without `managedFields`.
fn to_json(mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    let metadata = serde_json::to_value(&object.metadata).unwrap_or_default();
    let mut json = object.data;
    if let Value::Object(fields) = &mut json {
        fields.insert("metadata".to_owned(), metadata);
    }
    json
}

fn detail(
    kind: ObjectKind,
    object: &Value,
    managed: Option<&Value>,
    config: &FleetsConfig,
) -> Detail {
    let number = |path: &str| {
        let number = object.pointer(path).and_then(Value::as_u64);
        number.and_then(|number| u32::try_from(number).ok())
    };
    let release = &object["metadata"]["annotations"][labels::RELEASE];
    let current_release = release.as_str() == Some(&*config.release);
    match kind {
        ObjectKind::Service | ObjectKind::ClusterService => {
            Detail::Addresses(AssignedAddresses::of(object))
        }
        ObjectKind::Gateway => Detail::Addresses(AssignedAddresses::of_gateway(object)),
        ObjectKind::Deployment => Detail::Workload(WorkloadStatus {
            available: number("/status/availableReplicas").unwrap_or(0),
            replicas: number("/spec/replicas"),
            manages_replicas: managed
                .is_some_and(|fields| fields["f:spec"]["f:replicas"].is_object()),
            current_release,
            rollout: deployment_rollout(object, number),
        }),
        ObjectKind::DaemonSet => Detail::Workload(WorkloadStatus {
            available: number("/status/numberAvailable").unwrap_or(0),
            replicas: number("/status/desiredNumberScheduled").filter(|_| {
                // The number is 0 until the controller has observed the DaemonSet.
                number("/status/observedGeneration").is_some_and(|generation| generation > 0)
            }),
            manages_replicas: false,
            current_release,
            rollout: daemon_set_rollout(number),
        }),
        _ => Detail::None,
    }
}

/// Whether the controller has observed the current generation. Before that, its counts are those of an earlier template.
fn is_observed(number: impl Fn(&str) -> Option<u32>) -> bool {
    number("/status/observedGeneration") >= number("/metadata/generation")
}

fn deployment_rollout(object: &Value, number: impl Fn(&str) -> Option<u32>) -> Rollout {
    let count = |path| number(path).unwrap_or(0);
    let desired = number("/spec/replicas").unwrap_or(1);
    let updated = count("/status/updatedReplicas");
    let late = |condition: &Value| {
        condition["type"] == "Progressing" && condition["reason"] == "ProgressDeadlineExceeded"
    };
    let conditions = object["status"]["conditions"].as_array();
    if !is_observed(&number) {
        Rollout::Progressing
    } else if updated >= desired && count("/status/replicas") <= updated {
        finished(count("/status/availableReplicas") >= desired)
    } else if conditions.into_iter().flatten().any(late) {
        Rollout::Failed
    } else {
        Rollout::Progressing
    }
}

/// The rollout of a DaemonSet, which has no deadline. A node counts as updated once its old pod is gone.
fn daemon_set_rollout(number: impl Fn(&str) -> Option<u32>) -> Rollout {
    let count = |path| number(path).unwrap_or(0);
    let desired = count("/status/desiredNumberScheduled");
    if !is_observed(&number) || count("/status/updatedNumberScheduled") < desired {
        Rollout::Progressing
    } else {
        finished(count("/status/numberAvailable") >= desired)
    }
}

/// The rollout of a workload without old pods.
fn finished(available: bool) -> Rollout {
    match available {
        true => Rollout::Done,
        false => Rollout::Failed,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::testing;

    fn status(kind: ObjectKind, object: &Value) -> WorkloadStatus {
        match detail(kind, object, None, &testing::config()) {
            Detail::Workload(status) => status,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_deployment_is_rolled_out_once_all_pods_are_new_and_available() {
        let rollout = |generation: u32, [replicas, updated, available]: [u32; 3], reason: &str| {
            let object = json!({
                "metadata": {"generation": 2},
                "spec": {"replicas": 2},
                "status": {
                    "observedGeneration": generation,
                    "replicas": replicas,
                    "updatedReplicas": updated,
                    "availableReplicas": available,
                    "conditions": [{"type": "Progressing", "reason": reason}],
                },
            });
            status(ObjectKind::Deployment, &object).rollout
        };
        let (progress, deadline) = ("ReplicaSetUpdated", "ProgressDeadlineExceeded");
        assert_eq!(rollout(2, [2, 2, 2], progress), Rollout::Done);
        assert_eq!(rollout(1, [2, 2, 2], progress), Rollout::Progressing);
        assert_eq!(rollout(1, [3, 1, 2], deadline), Rollout::Progressing);
        assert_eq!(rollout(2, [3, 2, 3], progress), Rollout::Progressing);
        assert_eq!(rollout(2, [3, 1, 2], progress), Rollout::Progressing);
        assert_eq!(rollout(2, [2, 2, 1], progress), Rollout::Failed);
        assert_eq!(rollout(2, [3, 1, 2], deadline), Rollout::Failed);
    }

    #[test]
    fn a_daemon_set_is_rolled_out_once_all_nodes_have_a_new_pod() {
        let rollout = |generation: u32, updated: u32, available: u32| {
            let object = json!({
                "metadata": {"generation": 2},
                "status": {
                    "observedGeneration": generation,
                    "desiredNumberScheduled": 3,
                    "updatedNumberScheduled": updated,
                    "numberAvailable": available,
                },
            });
            status(ObjectKind::DaemonSet, &object).rollout
        };
        assert_eq!(rollout(2, 3, 3), Rollout::Done);
        assert_eq!(rollout(1, 3, 3), Rollout::Progressing);
        assert_eq!(rollout(2, 2, 3), Rollout::Progressing);
        assert_eq!(rollout(2, 3, 2), Rollout::Failed);
    }

    #[test]
    fn an_annotation_has_the_release() {
        let current = |release: Value| {
            let object =
                json!({"metadata": {"annotations": {"projectsesame.io/release": release}}});
            status(ObjectKind::Deployment, &object).current_release
        };
        assert!(current(json!("1")));
        assert!(!current(json!("2")) && !current(Value::Null));
    }
}
