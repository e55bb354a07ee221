//! GRPCRoutes.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::filter::grpc_filter;
use super::json::{Json, any_of, list, may, mostly, must, record};
use super::route::{backend, header_matches, regex, repaired, route, session};

pub(super) fn grpc_route() -> Json {
    route("GRPCRoute", rule())
}

fn rule() -> Json {
    record(vec![
        ("name", may(0.3, any_of(&["n1", "n2"]))),
        ("matches", may(0.85, list(call(), 0..4))),
        ("filters", may(0.4, list(grpc_filter(), 0..4))),
        ("backendRefs", may(0.93, list(backend(grpc_filter()), 0..4))),
        ("sessionPersistence", may(0.2, session())),
    ])
    .prop_map(repaired)
    .boxed()
}

/// A match for gRPC calls.
fn call() -> Json {
    let exact = prop_oneof![
        any_of(&["a.B", "a.b.C", ".a.B"]).prop_map(|service| json!({"service": service})),
        any_of(&["Get", "Put"]).prop_map(|method| json!({"method": method})),
        (any_of(&["a.B", "B"]), any_of(&["Get", "Put"]))
            .prop_map(|(service, method)| json!({"service": service, "method": method})),
    ];
    let pattern = record(vec![
        ("type", must(mostly(&["RegularExpression"], &["Glob"]))),
        ("service", must(regex().prop_map(Value::from).boxed())),
        ("method", may(0.5, regex().prop_map(Value::from).boxed())),
    ]);
    record(vec![
        (
            "method",
            may(0.8, prop_oneof![4 => exact, 1 => pattern].boxed()),
        ),
        ("headers", may(0.3, header_matches())),
    ])
}
