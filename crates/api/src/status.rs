//! What an object is told, and what stands in the cluster.

use std::sync::Arc;

use serde_json::value::RawValue;

use crate::backend_tls_policy::PolicyStatus;
use crate::gateway::GatewayStatus;
use crate::gateway_class::GatewayClassStatus;
use crate::listener_set::ListenerSetStatus;
use crate::route::RouteStatus;

/// A status that Sesame gives to an object: its own part, without the times at which conditions changed.
#[derive(Clone, Debug, PartialEq)]
pub enum ObjectStatus {
    /// Of a GatewayClass.
    GatewayClass(Arc<GatewayClassStatus>),
    /// Of a Gateway.
    Gateway(Arc<GatewayStatus>),
    /// Of a ListenerSet.
    ListenerSet(Arc<ListenerSetStatus>),
    /// Of a route of any kind: one entry for each of its parents that is ours.
    Route(Arc<RouteStatus>),
    /// Of a policy: one entry for each of its ancestors that is ours.
    Policy(Arc<PolicyStatus>),
}

/// What stands in the cluster, as last seen.
#[derive(Clone, Debug)]
pub struct LiveStatus {
    /// The object's unique id: another one is another object, even of the same name.
    pub uid: Box<str>,
    /// The version of the object that was seen.
    pub resource_version: Box<str>,
    /// How often the object's spec has changed.
    pub generation: i64,
    /// `status` as it stands, everybody's entries in it; absent: none.
    pub status: Option<Box<RawValue>>,
}
