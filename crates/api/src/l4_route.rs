//! TLSRoute, TCPRoute and UDPRoute: where connections and datagrams go.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::route::{BackendRef, RouteSpec, Rule, route_kind};

route_kind! {
    /// A TLSRoute: TLS connections, chosen by the name that the client asks for.
    TLSRoute { spec: L4RouteSpec }
}
route_kind! {
    /// A TCPRoute: all connections of a port.
    TCPRoute { spec: L4RouteSpec }
}
route_kind! {
    /// A UDPRoute: all datagrams of a port.
    UDPRoute { spec: L4RouteSpec }
}

/// What a TLSRoute, TCPRoute or UDPRoute wants, by exactly one rule.
pub type L4RouteSpec = RouteSpec<L4RouteRule>;

impl Rule for L4RouteRule {}

/// Where everything goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct L4RouteRule {
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The backends; their `filters` are always empty.
    #[serde(default)]
    pub backend_refs: Vec<BackendRef>,
}
