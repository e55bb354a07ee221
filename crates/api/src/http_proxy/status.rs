//! The status of an HTTPProxy, and addresses in statuses.

use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::open_enum::open_enum;

/// The status of an HTTPProxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HttpProxyStatus {
    /// `valid`, `invalid` or `orphaned`; `NotReconciled` until Sesame has read the HTTPProxy. An orphaned HTTPProxy has
    /// no host and isn't included by another HTTPProxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(with = "Option<String>"))]
    pub current_status: Option<HttpProxyState>,
    /// The status as a sentence.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// Where clients reach the host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer: Option<LoadBalancerStatus>,
    /// The `Valid` condition, with all errors and warnings.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])))]
    pub conditions: Vec<Condition>,
}

impl HttpProxyStatus {
    /// Whether every field is empty.
    pub fn is_empty(&self) -> bool {
        *self == HttpProxyStatus::default()
    }
}

open_enum! {
    /// The state of an HTTPProxy.
    pub enum HttpProxyState {
        /// The entire object is in effect.
        Valid = "valid",
        /// At least part of the object isn't in effect.
        Invalid = "invalid",
        /// The HTTPProxy has no host, and no other HTTPProxy includes it.
        Orphaned = "orphaned",
        /// Sesame hasn't read the object yet.
        NotReconciled = "NotReconciled",
    }
}

/// Where clients reach a host.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadBalancerStatus {
    /// The addresses of the load balancer.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ingress: Vec<LoadBalancerIngress>,
}

/// An address of a load balancer: an IP address or a hostname.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct LoadBalancerIngress {
    /// The IP address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip: Option<String>,
    /// The hostname.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<String>,
    /// How the load balancer delivers traffic, `VIP` or `Proxy`, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
    /// The state of the load balancer's ports, if known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<LoadBalancerPortStatus>,
}

/// The state of a load balancer's port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct LoadBalancerPortStatus {
    /// The port.
    pub port: i32,
    /// The protocol: `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The reason why the port doesn't work, as one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
