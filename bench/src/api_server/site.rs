//! Objects in the API server, and changes to them.
//!
//! In: numbers and addresses. Out: objects, changes, and the expected responses before and after.

use std::net::SocketAddr;
use std::ops::Range;

use serde_json::{Value, json};
use sesame_testkit::many;

use super::cluster::Write;
use crate::probe::Response;

pub(crate) const BLUE: &str = "blue";
pub(crate) const GREEN: &str = "green";

/// Namespace for changes to the baseline server: Sesame sees them, but they belong to no Gateway.
pub(crate) const FLOOR: &str = "floor";

/// Sesame's own namespace.
pub(crate) const SYSTEM: &str = "sesame-system";

/// A route that alternates between two Services.
const SWAPPED: &str = "swapped";
/// A route to a Service whose endpoint changes.
const MOVED: &str = "moved";

/// Number of permanent routes.
pub(crate) const EXTRAS: usize = 4;
/// Number of their Services.
pub(crate) const EXTRA_SERVICES: usize = 3;

/// An expected response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// 404.
    Nothing,
    /// 200, from the backend with this name.
    By(&'static str),
}

impl Shown {
    pub(crate) fn is(self, response: &Response) -> bool {
        match self {
            Self::Nothing => response.status == 404,
            Self::By(name) => response.status == 200 && response.backend().as_deref() == Some(name),
        }
    }
}

/// Kinds of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    NewRoute,
    Backend,
    Endpoint,
    Deleted,
}

impl Kind {
    pub(crate) const ALL: [Self; 4] =
        [Self::NewRoute, Self::Backend, Self::Endpoint, Self::Deleted];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::NewRoute => "new route",
            Self::Backend => "backend changed",
            Self::Endpoint => "endpoint changed",
            Self::Deleted => "route deleted",
        }
    }
}

/// A change, and the host whose response it changes.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) write: Write,
    pub(crate) host: String,
    pub(crate) before: Shown,
    pub(crate) after: Shown,
}

/// The namespaces and the GatewayClass.
pub(crate) fn ground() -> Vec<Value> {
    let mut all: Vec<Value> = [many::NAMESPACE, FLOOR, SYSTEM]
        .iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}))
        .collect();
    all.push(json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": {"name": "sesame"},
        "spec": {"controllerName": "projectsesame.io/gateway-controller"},
    }));
    all
}

/// Permanent routes, with Services and EndpointSlices.
pub(crate) fn extras([blue, green]: [SocketAddr; 2]) -> Vec<Value> {
    let mut all = Vec::new();
    for (name, address) in [(BLUE, blue), (GREEN, green), (MOVED, blue)] {
        all.extend([
            many::route(name, &host(name), &[(name, 1)]),
            many::service(name),
            many::slice(name, address),
        ]);
    }
    all.push(many::route(SWAPPED, &host(SWAPPED), &[(BLUE, 1)]));
    all
}

/// The objects of [`extras`] that are changed for the baseline server; all others exist only in its Envoy.
pub(crate) fn floor_extras(backends: [SocketAddr; 2]) -> Vec<Value> {
    let mut all = extras(backends);
    let changed = [json!(SWAPPED), json!(format!("{MOVED}-1"))];
    all.retain(|value| changed.contains(&value["metadata"]["name"]));
    all
}

/// A host of [`extras`].
pub(crate) fn host(name: &str) -> String {
    format!("{name}.example.com")
}

/// The Services and EndpointSlices for apps.
pub(crate) fn services(apps: Range<usize>, backend: SocketAddr) -> Vec<Value> {
    apps.flat_map(|index| {
        let [_, service, slice] = many::app(index, backend);
        [service, slice]
    })
    .collect()
}

/// The routes for apps.
pub(crate) fn routes(apps: Range<usize>, backend: SocketAddr) -> Vec<Value> {
    apps.map(|index| {
        let [route, _, _] = many::app(index, backend);
        route
    })
    .collect()
}

/// The Services and EndpointSlices for the routes that rounds create.
pub(crate) fn prepared(rounds: usize, backend: SocketAddr) -> Vec<Value> {
    let names = (0..rounds).map(new);
    names
        .flat_map(|name| [many::service(&name), many::slice(&name, backend)])
        .collect()
}

fn new(round: usize) -> String {
    format!("new-{round}")
}

/// The change in a round. Each kind counts its rounds from 0. Create a round's route before deleting it.
pub(crate) fn step(kind: Kind, round: usize, [blue, green]: [SocketAddr; 2]) -> Step {
    let name = new(round);
    let route = || many::route(&name, &host(&name), &[(&name, 1)]);
    let colours = [(BLUE, blue), (GREEN, green)];
    let (from, to) = (colours[round % 2], colours[(round + 1) % 2]);
    let swap = (Shown::By(from.0), Shown::By(to.0));
    let (write, host, (before, after)) = match kind {
        Kind::NewRoute => {
            let shown = (Shown::Nothing, Shown::By(BLUE));
            (Write::Create(route()), host(&name), shown)
        }
        Kind::Deleted => {
            let shown = (Shown::By(BLUE), Shown::Nothing);
            (Write::Delete(route()), host(&name), shown)
        }
        Kind::Backend => {
            let value = many::route(SWAPPED, &host(SWAPPED), &[(to.0, 1)]);
            (Write::Change(value), host(SWAPPED), swap)
        }
        Kind::Endpoint => {
            let value = many::slice(MOVED, to.1);
            (Write::Change(value), host(MOVED), swap)
        }
    };
    Step {
        write,
        host,
        before,
        after,
    }
}

/// The object to write: with `proxies`, an HTTPRoute becomes an HTTPProxy with the same name, host and rules.
/// HTTPProxies for the baseline server have another class, so that Sesame doesn't serve them.
pub(crate) fn form(value: Value, proxies: bool) -> Value {
    if !proxies || value["kind"] != "HTTPRoute" {
        return value;
    }
    let class = match value["metadata"]["namespace"] == FLOOR {
        true => FLOOR,
        false => "sesame",
    };
    let mut spec = json!({"ingressClassName": class});
    if let Some(host) = value["spec"]["hostnames"].get(0) {
        spec["virtualhost"] = json!({"fqdn": host});
    }
    if let Some(rules) = value["spec"]["rules"].as_array() {
        let route = |rule: &Value| {
            let mut route = json!({
                "conditions": [{"prefix": rule["matches"][0]["path"]["value"]}],
                "services": rule["backendRefs"],
            });
            if let Some(filter) = rule["filters"].get(0) {
                route["responseHeadersPolicy"] = filter["responseHeaderModifier"].clone();
            }
            route
        };
        spec["routes"] = rules.iter().map(route).collect();
    }
    json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": value["metadata"],
        "spec": spec,
    })
}

/// The same object in another namespace.
pub(crate) fn within(namespace: &str, mut value: Value) -> Value {
    value["metadata"]["namespace"] = json!(namespace);
    value
}
