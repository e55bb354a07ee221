//! Forwarding of connections.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{HttpProxyService, LoadBalancerPolicy, TcpHealthCheckPolicy};

/// The destination of connections: Services, or the `tcpproxy` of another HTTPProxy.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct TcpProxy {
    /// How an endpoint of a Service is chosen. Strategies that read requests don't apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_policy: Option<Box<LoadBalancerPolicy>>,
    /// The Services that connections are forwarded to, in proportion to their weights.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 32)))]
    pub services: Vec<HttpProxyService>,
    /// The HTTPProxy whose `tcpproxy` applies instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include: Option<Box<TcpProxyInclude>>,
    /// Old spelling of `include`. If both are set, `include` takes precedence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub includes: Option<Box<TcpProxyInclude>>,
    /// TCP health checks of the Services' endpoints; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check_policy: Option<Box<TcpHealthCheckPolicy>>,
}

/// The inclusion of another HTTPProxy's `tcpproxy`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct TcpProxyInclude {
    /// The name of the included HTTPProxy.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Arc<str>,
    /// The namespace of the included HTTPProxy; by default, the namespace of the including HTTPProxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 63)))]
    pub namespace: Option<Arc<str>>,
}
