//! XTelemetryPolicies, valid and invalid.

use proptest::prelude::*;
use serde_json::json;

use super::json::{Json, any_of, just, may, mostly, must, record, unique_list};

pub(super) fn policy() -> Json {
    let target = record(vec![
        (
            "group",
            must(mostly(&["gateway.networking.k8s.io"], &["example.net"])),
        ),
        ("kind", must(mostly(&["Gateway"], &["ListenerSet"]))),
        ("name", must(mostly(&["web", "other"], &["missing"]))),
    ]);
    let spec = record(vec![
        ("targetRefs", must(unique_list(target, 1..3, "name"))),
        (
            "tracing",
            must(
                prop_oneof![
                    4 => enabled(),
                    1 => mostly(&["Disabled", "ImplementationDefault"], &["Sometimes"])
                        .prop_map(|mode| json!({"mode": mode})),
                    1 => just(json!({})),
                ]
                .boxed(),
            ),
        ),
    ]);
    let metadata = super::metadata(&["t1", "t2", "t3"], &["one", "one", "two"]);
    (metadata, spec)
        .prop_map(|(metadata, spec)| {
            json!({
                "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
                "kind": "XTelemetryPolicy",
                "metadata": metadata,
                "spec": spec,
            })
        })
        .boxed()
}

fn enabled() -> Json {
    let header = record(vec![
        (
            "name",
            must(mostly(&["authorization", "x-tenant"], &["host", "te"])),
        ),
        ("value", must(any_of(&["Bearer abc", "50%", "%REQ(x)%"]))),
    ]);
    let provider = record(vec![
        ("backendRef", must(super::route::backend_object())),
        ("headers", may(0.3, unique_list(header, 1..3, "name"))),
    ]);
    record(vec![
        ("mode", must(just(json!("Enabled")))),
        ("provider", must(provider)),
        ("samplingRate", may(0.5, fraction())),
        ("parentBasedSampling", may(0.5, parents())),
        ("serviceName", may(0.3, any_of(&["web", "a.b/c:d"]))),
        ("spanName", may(0.3, any_of(&["ingress", "two words"]))),
        (
            "attributes",
            may(0.5, unique_list(attribute(), 1..5, "name")),
        ),
    ])
}

fn parents() -> Json {
    prop_oneof![
        3 => record(vec![
            ("mode", must(just(json!("Enabled")))),
            ("samplingRate", may(0.7, fraction())),
        ]),
        1 => mostly(&["Disabled", "ImplementationDefault"], &["Sometimes"])
            .prop_map(|mode| json!({"mode": mode})),
    ]
    .boxed()
}

fn fraction() -> Json {
    prop_oneof![
        (0..=100u32).prop_map(|part| json!({"numerator": part})),
        any_of(&["0/1", "1/1", "1/3", "1/2000000000", "7/10000"]).prop_map(|text| {
            let text = text.as_str().unwrap_or_default();
            let (part, whole) = text.split_once('/').unwrap_or_default();
            let parse = |text: &str| text.parse::<u32>().unwrap_or_default();
            json!({"numerator": parse(part), "denominator": parse(whole)})
        }),
    ]
    .boxed()
}

fn attribute() -> Json {
    let source = prop_oneof![
        3 => any_of(&["x-user", "X-Test", "a%b", "!#$%&'*+-.^_`|~"])
            .prop_map(|name| json!({"sourceType": "Header", "headerName": name})),
        3 => any_of(&["production", "50%", "%REQ(x)%", "\"{}", "ü\n"])
            .prop_map(|value| json!({"sourceType": "Literal", "literalValue": value})),
        6 => any_of(KEYS).prop_map(|key| json!({"sourceType": "Attribute", "attributeKey": key})),
        1 => just(json!({"sourceType": "Cookie"})),
    ];
    (any_of(&["a", "b.c", "http.method", "d/e:f"]), source)
        .prop_map(|(name, mut source)| {
            source["name"] = name;
            source
        })
        .boxed()
}

/// Attribute keys, most of them supported.
const KEYS: &[&str] = &[
    "client.address",
    "http.request.body.size",
    "http.request.header.x-user",
    "http.request.method",
    "http.response.body.size",
    "http.response.header.server",
    "http.response.status_code",
    "network.local.address",
    "network.local.port",
    "network.peer.address",
    "network.peer.port",
    "network.protocol.name",
    "network.transport",
    "url.full",
    "url.path",
    "url.scheme",
    "user_agent.original",
    "gen_ai.tool.name",
    "http.request.header.",
];
