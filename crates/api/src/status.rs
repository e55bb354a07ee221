//! Statuses: the part that Sesame owns, as produced by translation and as stored in an API server.

use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::condition::{Condition, ConditionsStatus};
use crate::gateway::GatewayStatus;
use crate::gateway_class::GatewayClassStatus;
use crate::http_proxy::HttpProxyStatus;
use crate::ingress::IngressStatus;
use crate::listener::ListenerStatus;
use crate::listener_set::ListenerSetStatus;
use crate::policy_status::PolicyStatus;
use crate::reference::ParentReference;
use crate::route::RouteStatus;

/// The part of a kind's status that one controller owns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusOwner {
    /// The whole status, except conditions of types that the API does not define.
    Whole {
        /// The condition types that the API defines.
        conditions: &'static [&'static str],
    },
    /// The list entries with the controller's name.
    Entries(StatusEntries),
}

/// A status list with an entry for each reference and controller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusEntries {
    /// The field with the list.
    pub list: &'static str,
    /// The field of an entry that holds the reference.
    pub reference: &'static str,
    /// The maximum number of entries that an API server accepts.
    pub limit: usize,
    /// The condition types that the API defines.
    pub conditions: &'static [&'static str],
}

/// The part of an object's status that Sesame writes, without transition times of conditions. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ObjectStatus {
    /// The status of a GatewayClass.
    GatewayClass(Arc<GatewayClassStatus>),
    /// The status of a Gateway.
    Gateway(Arc<GatewayStatus>),
    /// The status of a ListenerSet.
    ListenerSet(Arc<ListenerSetStatus>),
    /// The status of a route of any kind: one entry for each parent that Sesame serves.
    Route(Arc<RouteStatus>),
    /// The status of a policy: one entry for each ancestor that Sesame serves.
    Policy(Arc<PolicyStatus>),
    /// The status of an HTTPProxy.
    HttpProxy(Arc<HttpProxyStatus>),
    /// The status of an Ingress.
    Ingress(Arc<IngressStatus>),
    /// The status of a kind with only conditions, such as ExtensionService and TLSCertificateDelegation.
    Conditions(Arc<ConditionsStatus>),
}

/// A field of a status.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusField<'a> {
    /// `conditions` of the object itself.
    Conditions(&'a [Condition]),
    /// `listeners`.
    Listeners(&'a [ListenerStatus]),
    /// A list with an entry for each reference: its name, and the entries of this controller.
    Entries(&'static str, Vec<StatusEntry<'a>>),
    /// Any other field, by name; `None` if absent.
    Value(&'static str, Option<Value>),
}

/// An entry of a status list.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StatusEntry<'a> {
    /// The reference, as in the object's spec.
    pub reference: &'a ParentReference,
    /// The conditions.
    pub conditions: &'a [Condition],
}

impl ObjectStatus {
    /// Whether there is nothing to write, because the addresses of an Ingress are unknown. An empty list would remove
    /// the addresses that a previous controller or version has written.
    pub fn is_unknown(&self) -> bool {
        matches!(self, ObjectStatus::Ingress(status) if status.is_empty())
    }

    /// The fields, in a fixed order.
    pub fn fields(&self) -> Vec<StatusField<'_>> {
        match self {
            ObjectStatus::GatewayClass(status) => vec![
                StatusField::Conditions(&status.conditions),
                list("supportedFeatures", &status.supported_features),
            ],
            ObjectStatus::Gateway(status) => vec![
                list("addresses", &status.addresses),
                StatusField::Conditions(&status.conditions),
                StatusField::Listeners(&status.listeners),
                StatusField::Value(
                    "attachedListenerSets",
                    status.attached_listener_sets.map(Value::from),
                ),
            ],
            ObjectStatus::ListenerSet(status) => vec![
                StatusField::Conditions(&status.conditions),
                StatusField::Listeners(&status.listeners),
            ],
            ObjectStatus::Route(status) => {
                let entries = status.parents.iter().map(|parent| StatusEntry {
                    reference: &parent.parent_ref,
                    conditions: &parent.conditions,
                });
                vec![StatusField::Entries("parents", entries.collect())]
            }
            ObjectStatus::Policy(status) => {
                let entries = status.ancestors.iter().map(|ancestor| StatusEntry {
                    reference: &ancestor.ancestor_ref,
                    conditions: &ancestor.conditions,
                });
                vec![StatusField::Entries("ancestors", entries.collect())]
            }
            ObjectStatus::HttpProxy(status) => {
                let mut fields = vec![
                    value("currentStatus", status.current_status.as_ref()),
                    value(
                        "description",
                        Some(&status.description).filter(|text| !text.is_empty()),
                    ),
                    StatusField::Conditions(&status.conditions),
                ];
                // Unknown addresses leave the stored ones unchanged, as for an Ingress.
                let addresses = status.load_balancer.as_ref();
                if addresses.is_none_or(|addresses| !addresses.ingress.is_empty()) {
                    fields.push(value("loadBalancer", addresses));
                }
                fields
            }
            ObjectStatus::Ingress(status) => {
                vec![value("loadBalancer", Some(&status.load_balancer))]
            }
            ObjectStatus::Conditions(status) => vec![StatusField::Conditions(&status.conditions)],
        }
    }
}

fn list<T: Serialize>(name: &'static str, list: &[T]) -> StatusField<'static> {
    value(name, Some(list).filter(|list| !list.is_empty()))
}

fn value<T: Serialize + ?Sized>(name: &'static str, value: Option<&T>) -> StatusField<'static> {
    let text = "statuses are plain data with string keys";
    StatusField::Value(
        name,
        value.map(|value| serde_json::to_value(value).expect(text)),
    )
}

/// The status of an object as stored in an API server.
#[derive(Clone, Debug)]
pub struct LiveStatus {
    /// The object's UID, which changes when the object is recreated.
    pub uid: Box<str>,
    /// The resource version of the object with this status.
    pub resource_version: Box<str>,
    /// `metadata.generation`, incremented when the spec changes.
    pub generation: i64,
    /// `status` with the entries of all controllers; `None` if absent.
    pub status: Option<Box<RawValue>>,
}
