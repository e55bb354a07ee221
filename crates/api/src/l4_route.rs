//! TLSRoute, TCPRoute and UDPRoute: routing of connections and datagrams.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check::{self, Check};
use crate::decode::{DecodeError, typed};
use crate::object::resource;
use crate::route::{BackendRef, RouteSpec, RouteView, Rule, route_kind};

route_kind! {
    /// A TLSRoute: TLS connections by server name (SNI).
    TLSRoute { spec: L4RouteSpec }
}
route_kind! {
    /// A TCPRoute: all connections on a port.
    TCPRoute { spec: L4RouteSpec }
}
route_kind! {
    /// A UDPRoute: all datagrams on a port.
    UDPRoute { spec: L4RouteSpec }
}

resource! { TLSRoute {
    fn as_route(&self) -> Option<RouteView<'_>> {
        Some(RouteView::of(self))
    }

    fn check(&self) -> Check {
        check::at("spec", check::route::tls_route(&self.spec))
    }

    fn from_value(mut value: Value) -> Result<Box<Self>, DecodeError> {
        drop_backend_filters(&mut value);
        typed(value)
    }
} }

resource! { TCPRoute {
    fn as_route(&self) -> Option<RouteView<'_>> {
        Some(RouteView::of(self))
    }

    fn check(&self) -> Check {
        check::at("spec", check::route::l4_route(&self.spec))
    }

    fn from_value(mut value: Value) -> Result<Box<Self>, DecodeError> {
        drop_backend_filters(&mut value);
        drop_hostnames(&mut value);
        typed(value)
    }
} }

resource! { UDPRoute {
    fn as_route(&self) -> Option<RouteView<'_>> {
        Some(RouteView::of(self))
    }

    fn check(&self) -> Check {
        check::at("spec", check::route::l4_route(&self.spec))
    }

    fn from_value(mut value: Value) -> Result<Box<Self>, DecodeError> {
        drop_backend_filters(&mut value);
        drop_hostnames(&mut value);
        typed(value)
    }
} }

/// Removes `filters` from backends: [`BackendRef`] has the field, but these kinds do not.
fn drop_backend_filters(value: &mut Value) {
    let rules = value
        .pointer_mut("/spec/rules")
        .and_then(Value::as_array_mut);
    for rule in rules.into_iter().flatten() {
        let backends = rule.get_mut("backendRefs").and_then(Value::as_array_mut);
        for backend in backends
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            backend.remove("filters");
        }
    }
}

/// Removes `hostnames`, a field that only TLSRoute has.
fn drop_hostnames(value: &mut Value) {
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("hostnames");
    }
}

/// The spec of a TLSRoute, TCPRoute or UDPRoute, with exactly one rule.
pub type L4RouteSpec = RouteSpec<L4RouteRule>;

impl Rule for L4RouteRule {}

/// The rule.
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
