//! What is kept of an object that stands in the cluster: enough to tell whether it is ours, whether it is as it should
//! be, and what it says about addresses and Envoys.

use std::sync::Arc;

use kube::core::DynamicObject;
use serde_json::Value;

use super::addresses::Given;
use super::fingerprint::{self, FIELD_MANAGER, Fingerprint};
use super::kind::Kind;
use super::labels;
use super::names;
use super::spec::Config;

/// Where a fleet's objects are: a namespace, and the name that they share.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Place {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
}

/// An object that stands in the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) uid: String,
    /// The resource version: the greater one of an object is the newer one (Kubernetes compares them as numbers, too).
    /// 0 if it is no number.
    pub(super) version: u64,
    /// What Sesame has said about it.
    pub(super) fingerprint: Fingerprint,
    /// It is about to go.
    pub(super) deleting: bool,
    /// The Gateway that owns it.
    pub(super) owner: Option<Owner>,
    /// Whether it has the labels that all objects of its fleet have.
    pub(super) labelled: bool,
    pub(super) detail: Detail,
}

/// A Gateway that owns an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) name: String,
    pub(super) uid: String,
}

/// What else matters, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Detail {
    Nothing,
    Service(Given),
    Workload(Workload),
}

/// What a Deployment or DaemonSet says about its pods.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Workload {
    /// Pods that are ready.
    pub(super) available: u32,
    /// Pods that there should be; `None` while nobody has counted the nodes.
    pub(super) replicas: Option<u32>,
    /// Whether it is Sesame that says how many there should be.
    pub(super) counted_by_us: bool,
}

impl Seen {
    /// An object of a kind, and its place; `None` if it has no name or namespace.
    pub(super) fn of(kind: Kind, object: DynamicObject, config: &Config) -> Option<(Place, Self)> {
        let place = Place {
            namespace: object.metadata.namespace.as_deref()?.into(),
            name: object.metadata.name.as_deref()?.into(),
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
            && label(labels::FLEET) == Some(&*place.name);
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
        // Our own metadata is read above; what follows wants the whole.
        let whole = whole(object);
        let seen = Self {
            uid,
            version,
            fingerprint: fingerprint::of_observed(&whole, managed.as_ref()),
            deleting,
            owner,
            labelled,
            detail: detail(kind, &whole, managed.as_ref()),
        };
        Some((place, seen))
    }

    /// Whether this is an earlier state of the same object. Answers to requests and what a watch tells overtake each other.
    pub(super) fn is_older_than(&self, other: &Seen) -> bool {
        self.uid == other.uid && self.version < other.version
    }

    /// Whether it is for us to write, for the Gateway of that name and uid. A Gateway that was deleted and made anew takes
    /// over what its predecessor left.
    pub(super) fn is_ours(&self, gateway: &str, uid: &str) -> bool {
        match &self.owner {
            Some(owner) if owner.uid == uid => true,
            Some(owner) => self.labelled && owner.name == gateway,
            // Somebody took our mark off.
            None => self.labelled,
        }
    }
}

/// The object with its metadata, but for the record of who manages what.
fn whole(mut object: DynamicObject) -> Value {
    object.metadata.managed_fields = None;
    let metadata = serde_json::to_value(&object.metadata).unwrap_or_default();
    let mut whole = object.data;
    if let Value::Object(fields) = &mut whole {
        fields.insert("metadata".to_owned(), metadata);
    }
    whole
}

fn detail(kind: Kind, object: &Value, managed: Option<&Value>) -> Detail {
    let number = |path: &str| {
        let number = object.pointer(path).and_then(Value::as_u64);
        number.and_then(|number| u32::try_from(number).ok())
    };
    match kind {
        Kind::Service => Detail::Service(Given::of(object)),
        Kind::Deployment => Detail::Workload(Workload {
            available: number("/status/availableReplicas").unwrap_or(0),
            replicas: number("/spec/replicas"),
            counted_by_us: managed.is_some_and(|fields| fields["f:spec"]["f:replicas"].is_object()),
        }),
        Kind::DaemonSet => Detail::Workload(Workload {
            available: number("/status/numberAvailable").unwrap_or(0),
            replicas: number("/status/desiredNumberScheduled").filter(|_| {
                // The API server says 0 before the controller has looked at it.
                number("/status/observedGeneration").is_some_and(|generation| generation > 0)
            }),
            counted_by_us: false,
        }),
        _ => Detail::Nothing,
    }
}
