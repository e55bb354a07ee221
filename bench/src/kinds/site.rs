//! A Gateway with many routes of one kind.

use std::net::SocketAddr;

use serde_json::{Value, json};
use sesame_testkit::many::{self, GATEWAY, NAMESPACE, SERVICE_PORT};

use super::Kind;
use crate::local;

/// The port of the Gateway's only listener, or of the first route.
const PORT: u16 = 10_000;
/// Listeners of a ListenerSet.
const IN_A_SET: usize = 64;
/// Apps per file.
const IN_A_FILE: usize = 100;
/// The gRPC service that is called.
pub(super) const CALLED: &str = "shop.Users";
/// The Service of the new route.
const SERVICE: &str = "new";

/// The port of the route `index`.
pub(super) fn port(kind: Kind, index: usize) -> u16 {
    match kind {
        Kind::Tcp => PORT + 1 + index as u16,
        Kind::Http | Kind::Grpc | Kind::Tls => PORT,
    }
}

/// Files with a Gateway, `count` routes with their Services, and a Service for another route.
pub(super) fn files(kind: Kind, count: usize, endpoint: SocketAddr) -> Vec<(String, Vec<Value>)> {
    let mut shared = vec![gateway(kind)];
    if kind == Kind::Tcp {
        shared.extend(listener_sets(count + 1));
    }
    shared.extend([many::service(SERVICE), many::slice(SERVICE, endpoint)]);
    let mut files = vec![("gateway.yaml".to_owned(), shared)];
    let indexes: Vec<usize> = (0..count).collect();
    for (number, some) in indexes.chunks(IN_A_FILE).enumerate() {
        let apps = some.iter().flat_map(|index| {
            let name = many::name(*index);
            let route = of(kind, &name, *index, &name);
            [route, many::service(&name), many::slice(&name, endpoint)]
        });
        files.push((format!("apps-{number}.yaml"), apps.collect()));
    }
    files
}

/// The route `index`, which isn't in [`files`].
pub(super) fn route(kind: Kind, index: usize) -> Value {
    of(kind, &many::name(index), index, SERVICE)
}

fn gateway(kind: Kind) -> Value {
    let listener = match kind {
        Kind::Http | Kind::Grpc => json!({"name": "http", "protocol": "HTTP", "port": PORT}),
        Kind::Tls => {
            json!({"name": "tls", "protocol": "TLS", "port": PORT, "tls": {"mode": "Passthrough"}})
        }
        Kind::Tcp => json!({"name": "tcp", "protocol": "TCP", "port": PORT}),
    };
    local::gateway(&[listener])
}

/// ListenerSets with a TCP listener for each route.
fn listener_sets(routes: usize) -> Vec<Value> {
    let indexes: Vec<usize> = (0..routes).collect();
    let set = |(number, some): (usize, &[usize])| {
        let listener = |index: &usize| {
            let port = port(Kind::Tcp, *index);
            json!({"name": format!("tcp-{port}"), "protocol": "TCP", "port": port})
        };
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "ListenerSet",
            "metadata": {"namespace": NAMESPACE, "name": set_name(number)},
            "spec": {
                "parentRef": {"name": GATEWAY},
                "listeners": Vec::from_iter(some.iter().map(listener)),
            },
        })
    };
    indexes.chunks(IN_A_SET).enumerate().map(set).collect()
}

fn set_name(number: usize) -> String {
    format!("set-{number}")
}

fn of(kind: Kind, name: &str, index: usize, service: &str) -> Value {
    let mut route = many::route(name, &many::host(index), &[(service, 1)]);
    route["kind"] = kind.name().into();
    let spec = &mut route["spec"];
    match kind {
        // The same paths as those of the calls.
        Kind::Http => spec["rules"][0]["matches"][0]["path"]["value"] = format!("/{CALLED}").into(),
        Kind::Grpc => spec["rules"][0]["matches"] = json!([{"method": {"service": CALLED}}]),
        Kind::Tls | Kind::Tcp => {
            spec["rules"] = json!([{"backendRefs": [{"name": service, "port": SERVICE_PORT}]}]);
        }
    }
    if kind == Kind::Tcp {
        spec["hostnames"] = Value::Null;
        spec["parentRefs"] = json!([{
            "kind": "ListenerSet",
            "name": set_name(index / IN_A_SET),
            "sectionName": format!("tcp-{}", port(kind, index)),
        }]);
    }
    route
}
