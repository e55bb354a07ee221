//! TLSRoutes, TCPRoutes and UDPRoutes.

use proptest::prelude::*;
use serde_json::Value;

use super::json::{Json, any_of, list, may, must, record};
use super::pool;
use super::route::{backend, route};

pub(super) fn tls_route() -> Json {
    let hostnames = list(any_of(pool::DOMAINS), 1..4);
    (route("TLSRoute", rule()), hostnames)
        .prop_map(|(mut route, mut hostnames)| {
            if let Some(names) = hostnames.as_array_mut() {
                names.retain(|name| name != "127.0.0.1");
                if names.is_empty() {
                    names.push("example.com".into());
                }
            }
            route["spec"]["hostnames"] = hostnames;
            one_rule(route)
        })
        .boxed()
}

pub(super) fn tcp_route() -> Json {
    of_port("TCPRoute")
}

pub(super) fn udp_route() -> Json {
    of_port("UDPRoute")
}

/// A route for all traffic on a port.
fn of_port(kind: &'static str) -> Json {
    route(kind, rule())
        .prop_map(|mut route| {
            if let Some(spec) = route["spec"].as_object_mut() {
                spec.remove("hostnames");
            }
            one_rule(route)
        })
        .boxed()
}

fn rule() -> Json {
    let backend = backend(Just(Value::Array(Vec::new())).boxed()).prop_map(|mut backend| {
        if let Some(fields) = backend.as_object_mut() {
            fields.remove("filters");
        }
        backend
    });
    record(vec![
        ("name", may(0.3, any_of(&["n1", "n2"]))),
        ("backendRefs", must(list(backend.boxed(), 1..4))),
    ])
}

/// These kinds have exactly one rule.
fn one_rule(mut route: Value) -> Value {
    let rules = &mut route["spec"]["rules"];
    match rules.as_array_mut() {
        Some(rules) => rules.truncate(1),
        None => *rules = serde_json::json!([{"backendRefs": [{"name": "s1", "port": 80}]}]),
    }
    route
}
