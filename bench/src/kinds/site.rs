//! A Gateway with many routes of one kind, or many HTTPProxies or Ingresses.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::{Value, json};
use sesame_testkit::many::{self, GATEWAY, NAMESPACE, SERVICE_PORT};

use super::Kind;
use crate::local;
use crate::objects;

/// The port of the Gateway's only listener or of the default fleet. TCP routes use the ports above it.
const PORT: u16 = 10_000;
/// Listeners per ListenerSet.
const IN_A_SET: usize = 64;
/// Apps per file.
const IN_A_FILE: usize = 100;
/// The gRPC service that is called.
pub(super) const CALLED: &str = "shop.Users";

/// The offset added to the default fleet's ports, which are below 1024.
pub(super) fn port_offset(kind: Kind) -> u16 {
    match kind {
        Kind::Proxy | Kind::Ingress | Kind::Child => PORT - 80,
        Kind::Http | Kind::Grpc | Kind::Tls | Kind::Tcp => 0,
    }
}

/// The address on which the route `index` is served.
pub(super) fn address(kind: Kind, index: usize) -> SocketAddr {
    match kind {
        // The default fleet gets the first address that isn't used by a Gateway.
        Kind::Proxy | Kind::Ingress | Kind::Child => {
            SocketAddr::new(Ipv4Addr::LOCALHOST.into(), PORT)
        }
        Kind::Http | Kind::Grpc | Kind::Tls | Kind::Tcp => {
            SocketAddr::new(local::ADDRESS, port(kind, index))
        }
    }
}

/// The port of the route `index`.
fn port(kind: Kind, index: usize) -> u16 {
    match kind {
        Kind::Tcp => PORT + 1 + index as u16,
        _ => PORT,
    }
}

/// The Service of the new route. Each round has its own: Sesame keeps an unused cluster for a second, so the next round
/// would otherwise not need a new cluster.
fn service(round: usize) -> String {
    format!("new-{round}")
}

/// Files with a Gateway, `count` routes with their Services, and the Services for another route.
pub(super) fn files(
    kind: Kind,
    count: usize,
    rounds: usize,
    endpoint: SocketAddr,
) -> Vec<(String, Vec<Value>)> {
    let mut shared = Vec::from_iter(gateway(kind));
    if kind == Kind::Tcp {
        shared.extend(listener_sets(count + 1));
    }
    if kind == Kind::Child {
        shared.push(objects::root(count + 1));
    }
    for name in (0..rounds).map(service) {
        let mut service = many::service(&name);
        // For all kinds, so that they are compared with equal clusters: gRPC needs HTTP/2.
        service["spec"]["ports"][0]["appProtocol"] = "kubernetes.io/h2c".into();
        shared.extend([service, many::slice(&name, endpoint)]);
    }
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
pub(super) fn route(kind: Kind, index: usize, round: usize) -> Value {
    of(kind, &many::name(index), index, &service(round))
}

/// The replacement for [`route`] in each round; `None` if the route is removed instead.
pub(super) fn other(kind: Kind, index: usize) -> Option<Value> {
    let mut other = (kind == Kind::Child).then(|| route(kind, index, 0))?;
    other["spec"]["routes"] = json!([{"directResponsePolicy": {"statusCode": 404}}]);
    Some(other)
}

fn gateway(kind: Kind) -> Option<Value> {
    let listener = match kind {
        Kind::Proxy | Kind::Ingress | Kind::Child => return None,
        Kind::Http | Kind::Grpc => json!({"name": "http", "protocol": "HTTP", "port": PORT}),
        Kind::Tls => {
            json!({"name": "tls", "protocol": "TLS", "port": PORT, "tls": {"mode": "Passthrough"}})
        }
        Kind::Tcp => json!({"name": "tcp", "protocol": "TCP", "port": PORT}),
    };
    Some(local::gateway(&[listener]))
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
    let metadata = json!({"namespace": NAMESPACE, "name": name});
    match kind {
        Kind::Proxy | Kind::Child => {
            let mut proxy = objects::child(name, service);
            if kind == Kind::Proxy {
                proxy["spec"]["virtualhost"] = json!({"fqdn": many::host(index)});
            }
            return proxy;
        }
        Kind::Ingress => {
            let port = json!({"number": SERVICE_PORT});
            let path = json!({
                "path": "/",
                "pathType": "Prefix",
                "backend": {"service": {"name": service, "port": port}},
            });
            return json!({
                "apiVersion": "networking.k8s.io/v1",
                "kind": kind.name(),
                "metadata": metadata,
                "spec": {
                    "ingressClassName": "sesame",
                    "rules": [{"host": many::host(index), "http": {"paths": [path]}}],
                },
            });
        }
        Kind::Http | Kind::Grpc | Kind::Tls | Kind::Tcp => {}
    }
    let mut route = many::route(name, &many::host(index), &[(service, 1)]);
    route["kind"] = kind.name().into();
    let spec = &mut route["spec"];
    match kind {
        // The same paths as the gRPC calls.
        Kind::Http => spec["rules"][0]["matches"][0]["path"]["value"] = format!("/{CALLED}").into(),
        Kind::Grpc => spec["rules"][0]["matches"] = json!([{"method": {"service": CALLED}}]),
        _ => {
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
