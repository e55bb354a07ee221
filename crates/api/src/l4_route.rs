//! TLSRoute, TCPRoute and UDPRoute: where connections and datagrams go.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::meta::Meta;
use crate::reference::ParentReference;
use crate::route::{BackendRef, DefaultScope, RouteStatus, impl_route};

/// Declares one of the three kinds, which differ in their hostnames only.
macro_rules! l4_route {
    ($(#[$meta:meta])* $name:ident) => {
        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        pub struct $name {
            /// The metadata.
            #[serde(rename = "metadata")]
            pub meta: Meta,
            /// What is wanted.
            pub spec: L4RouteSpec,
            /// What became of it, per parent.
            #[serde(default, skip_serializing_if = "RouteStatus::is_empty")]
            pub status: RouteStatus,
        }

        impl_route!($name);
    };
}

l4_route! {
    /// A TLSRoute: TLS connections, chosen by the name that the client asks for.
    TLSRoute
}
l4_route! {
    /// A TCPRoute: all connections of a port.
    TCPRoute
}
l4_route! {
    /// A UDPRoute: all datagrams of a port.
    UDPRoute
}

/// What a TLSRoute, TCPRoute or UDPRoute wants.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct L4RouteSpec {
    /// What the route attaches to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parent_refs: Vec<ParentReference>,
    /// Which default Gateways it attaches to besides (experimental).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub use_default_gateways: Option<DefaultScope>,
    /// The hostnames of a TLSRoute, exact or with `*.` in front; always empty for the other two.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<Arc<str>>,
    /// The rules; exactly one.
    pub rules: Vec<L4RouteRule>,
}

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
