//! ReferenceGrants, either valid or with a single mismatch.

use proptest::prelude::*;
use serde_json::json;

use super::json::{Json, any_of, just, list, may, mostly, must, record};
use super::pool;

const GATEWAY_API: &str = "gateway.networking.k8s.io";

pub(super) fn grant() -> Json {
    let from = record(vec![
        (
            "group",
            must(mostly(
                &[GATEWAY_API, GATEWAY_API, "gateway.networking.x-k8s.io"],
                &["", "example.net"],
            )),
        ),
        (
            "kind",
            must(mostly(
                &[
                    "HTTPRoute",
                    "GRPCRoute",
                    "TLSRoute",
                    "TCPRoute",
                    "UDPRoute",
                    "Gateway",
                    "ListenerSet",
                    "XListenerSet",
                    "XBackend",
                ],
                &["Service"],
            )),
        ),
        ("namespace", must(any_of(pool::NAMESPACES))),
    ]);
    let policy = record(vec![
        ("group", must(just("gateway.networking.x-k8s.io"))),
        ("kind", must(just("XTelemetryPolicy"))),
        ("namespace", must(any_of(pool::NAMESPACES))),
    ]);
    let from = prop_oneof![7 => from, 1 => policy].boxed();
    let names = || any_of(&["s1", "s2", "c1", "c2", "ca1", "missing"]);
    let to = record(vec![
        ("group", must(mostly(&[""], &["example.net"]))),
        (
            "kind",
            must(mostly(&["Service", "Secret", "ConfigMap"], &["Gateway"])),
        ),
        ("name", may(0.3, names())),
    ]);
    let spec = record(vec![
        ("from", must(list(from, 1..4))),
        ("to", must(list(to, 1..3))),
    ]);
    let version = prop_oneof![
        just("gateway.networking.k8s.io/v1"),
        just("gateway.networking.k8s.io/v1beta1")
    ];
    let metadata = super::metadata(&["g1", "g2"], pool::NAMESPACES);
    (version, metadata, spec)
        .prop_map(|(version, metadata, spec)| {
            json!({"apiVersion": version, "kind": "ReferenceGrant", "metadata": metadata, "spec": spec})
        })
        .boxed()
}
