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
            FleetId::Gateway { namespace, .. } => Arc::clone(namespace),
            FleetId::Default | FleetId::Unmanaged => config.namespace.as_str().into(),
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
            detail: detail(kind, &object, managed.as_ref()),
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

fn detail(kind: ObjectKind, object: &Value, managed: Option<&Value>) -> Detail {
    let number = |path: &str| {
        let number = object.pointer(path).and_then(Value::as_u64);
        number.and_then(|number| u32::try_from(number).ok())
    };
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
        }),
        ObjectKind::DaemonSet => Detail::Workload(WorkloadStatus {
            available: number("/status/numberAvailable").unwrap_or(0),
            replicas: number("/status/desiredNumberScheduled").filter(|_| {
                // The number is 0 until the controller has observed the DaemonSet.
                number("/status/observedGeneration").is_some_and(|generation| generation > 0)
            }),
            manages_replicas: false,
        }),
        _ => Detail::None,
    }
}
