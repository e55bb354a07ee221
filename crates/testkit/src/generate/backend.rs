//! Services and EndpointSlices.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::json::{
    Json, any_number, any_of, boolean, just, list, may, mostly, must, number, record, unique_list,
};
use super::pool;

/// The namespaces of Services.
const HOMES: &[&str] = &["one", "one", "one", "two", "two", "three"];

/// Most of the possible Services.
pub(super) fn services() -> BoxedStrategy<Vec<Value>> {
    let named = pool::NAMESPACES
        .iter()
        .flat_map(|&namespace| pool::SERVICES.iter().map(move |&name| (namespace, name)));
    let each: Vec<_> = named
        .map(|(namespace, name)| may(0.95, service_of(super::metadata(&[name], &[namespace]))))
        .collect();
    each.prop_map(|each| each.into_iter().flatten().collect())
        .boxed()
}

pub(super) fn service() -> Json {
    service_of(super::metadata(pool::SERVICES, HOMES))
}

fn service_of(metadata: Json) -> Json {
    let protocols = mostly(&["TCP", "UDP"], &["SCTP"]);
    let app_protocol = mostly(
        &[
            "http",
            "https",
            "kubernetes.io/h2c",
            "kubernetes.io/ws",
            "kubernetes.io/wss",
            "h2c",
        ],
        &[
            "HTTP",
            "grpc",
            "tcp",
            "example.net/other",
            "kubernetes.io/new",
            "",
            "ü",
        ],
    );
    let port = record(vec![
        ("name", may(0.6, any_of(pool::PORT_NAMES))),
        ("port", must(any_number(pool::SERVICE_PORTS))),
        ("protocol", may(0.5, protocols)),
        ("appProtocol", may(0.5, app_protocol)),
        ("targetPort", may(0.3, any_number(&[8080, 1]))),
    ]);
    let families = prop_oneof![
        just(json!(["IPv4"])),
        just(json!(["IPv6"])),
        just(json!(["IPv4", "IPv6"])),
        just(json!(["IPv6", "IPv4"])),
    ];
    let selector = just(json!({"app": "a"}));
    let spec = record(vec![
        (
            "type",
            may(0.2, mostly(&["ClusterIP"], &["ExternalName", "NodePort"])),
        ),
        ("clusterIP", may(0.3, any_of(&["None", "10.0.0.1"]))),
        ("externalName", may(0.1, just("example.com"))),
        ("ipFamilies", may(0.4, families.boxed())),
        ("selector", may(0.5, selector)),
        ("ports", may(0.97, list(port, 2..6))),
    ]);
    let annotations = may(0.15, super::ingress::service_annotations());
    (metadata, annotations, prop::option::weighted(0.97, spec))
        .prop_map(|(mut metadata, annotations, spec)| {
            if let Some(annotations) = annotations {
                metadata["annotations"] = annotations;
            }
            let mut service = json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata});
            if let Some(spec) = spec {
                service["spec"] = spec;
            }
            service
        })
        .boxed()
}

pub(super) fn slice() -> Json {
    let port = || {
        record(vec![
            ("name", may(0.6, any_of(pool::PORT_NAMES))),
            ("port", may(0.95, number(1..65_536))),
            ("protocol", may(0.3, mostly(&["TCP"], &["UDP"]))),
        ])
    };
    let of = |family: &'static str, addresses: &'static [&'static str]| {
        record(vec![
            ("addressType", must(just(family))),
            ("endpoints", may(0.95, list(endpoint(addresses), 0..5))),
            ("ports", may(0.95, unique_list(port(), 1..4, "name"))),
        ])
    };
    let body = prop_oneof![
        6 => of("IPv4", V4),
        3 => of("IPv6", V6),
        1 => of("FQDN", &["example.com"]),
    ];
    let owner = prop_oneof![
        7 => any_of(pool::SERVICES).prop_map(|name| json!({"kubernetes.io/service-name": name})),
        1 => any_of(pool::POD_SERVICES).prop_map(|name| json!({"kubernetes.io/service-name": name})),
        2 => any_of(pool::XBACKENDS).prop_map(|name| json!({"projectsesame.io/xbackend": name})),
        1 => just(json!({"app": "a"})),
    ];
    let names = &["e1", "e2", "e3", "e4", "e5"];
    (super::metadata(names, HOMES), owner, body)
        .prop_map(|(mut metadata, labels, mut slice)| {
            metadata["labels"] = labels;
            slice["apiVersion"] = "discovery.k8s.io/v1".into();
            slice["kind"] = "EndpointSlice".into();
            slice["metadata"] = metadata;
            slice
        })
        .boxed()
}

/// Only possible in files: an API server would reject some of these. Health checks connect to them.
const V4: &[&str] = &[
    "127.0.1.1",
    "127.0.1.2",
    "127.0.1.3",
    "127.0.0.1",
    "0.0.0.0",
    "224.0.0.1",
    "255.255.255.255",
    "169.254.1.1",
];
const V6: &[&str] = &[
    "2001:db8::1",
    "2001:db8:0:0::2",
    "::1",
    "::",
    "fe80::1",
    "ff02::1",
    "::ffff:127.0.1.1",
    "::127.0.1.1",
];

fn endpoint(addresses: &'static [&'static str]) -> Json {
    let conditions = record(vec![
        ("ready", may(0.8, boolean())),
        ("serving", may(0.5, boolean())),
        ("terminating", may(0.5, boolean())),
    ]);
    record(vec![
        ("addresses", must(list(any_of(addresses), 1..3))),
        ("conditions", may(0.5, conditions)),
    ])
}
