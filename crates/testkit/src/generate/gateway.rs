//! GatewayClasses, Namespaces and Gateways.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::filter::listener_filter;
use super::json::{
    Json, any_number, any_of, dedup, just, list, may, mostly, must, record, unique_list,
};
use super::{backend_tls, configuration, pool};

/// A class for each name: ours, ours but not accepted, or another controller's. Rarely, the controllers are swapped.
pub(super) fn class() -> Json {
    let controller = prop_oneof![
        9 => Just(None),
        1 => Just(Some("example.net/other")),
        1 => Just(Some("projectsesame.io/gateway-controller")),
    ];
    let names = prop::sample::select(pool::CLASSES[..4].to_vec());
    (names, controller, any::<bool>())
        .prop_map(|(name, controller, described)| {
            let usual = match name {
                "foreign" => "example.net/other",
                _ => "projectsesame.io/gateway-controller",
            };
            let mut class = json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "GatewayClass",
                "metadata": {"name": name},
                "spec": {"controllerName": controller.unwrap_or(usual)},
            });
            if name == "refused" {
                class["spec"]["parametersRef"] =
                    json!({"group": "example.net", "kind": "Parameters", "name": "p"});
            }
            if described {
                class["spec"]["description"] = "for tests".into();
            }
            class
        })
        .boxed()
}

pub(super) fn namespace() -> Json {
    let labels = record(vec![
        ("team", may(0.7, any_of(&["red", "blue"]))),
        (
            "kubernetes.io/metadata.name",
            may(0.2, any_of(pool::NAMESPACES)),
        ),
    ]);
    let names = prop::sample::select(pool::NAMESPACES.to_vec());
    (names, labels)
        .prop_map(|(name, labels)| {
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}})
        })
        .boxed()
}

/// Most of the possible Gateways.
pub(super) fn gateways() -> BoxedStrategy<Vec<Value>> {
    let each: Vec<_> = pool::GATEWAYS
        .iter()
        .map(|&(namespace, name)| may(0.85, gateway_of(super::metadata(&[name], &[namespace]))))
        .collect();
    each.prop_map(|each| each.into_iter().flatten().collect())
        .boxed()
}

pub(super) fn gateway() -> Json {
    let each = pool::GATEWAYS
        .iter()
        .map(|&(namespace, name)| gateway_of(super::metadata(&[name], &[namespace])));
    prop::strategy::Union::new(each).boxed()
}

fn gateway_of(metadata: Json) -> Json {
    let class = prop_oneof![8 => just("sesame"), 2 => any_of(pool::CLASSES)].boxed();
    let spec = record(vec![
        ("gatewayClassName", must(class)),
        ("listeners", must(list(listener(), 1..7))),
        ("addresses", may(0.2, unique_list(address(), 0..3, ""))),
        ("infrastructure", may(0.3, infrastructure())),
        ("tls", may(0.3, tls())),
        ("allowedListeners", may(0.5, allowed_listeners())),
        ("defaultScope", may(0.3, mostly(&["All"], &["None"]))),
    ]);
    (metadata, spec)
        .prop_map(|(metadata, mut spec)| {
            distinct(&mut spec["listeners"]);
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "Gateway",
                "metadata": metadata,
                "spec": spec,
            })
        })
        .boxed()
}

pub(super) fn listener_set() -> Json {
    let gateway = prop::sample::select(pool::GATEWAYS.to_vec())
        .prop_map(|(namespace, name)| json!({"namespace": namespace, "name": name}));
    let odd = any_of(&["web", "missing"]).prop_map(|name| json!({"name": name}));
    let spec = record(vec![
        (
            "parentRef",
            must(prop_oneof![8 => gateway, 1 => odd].boxed()),
        ),
        ("listeners", must(list(listener(), 1..4))),
    ]);
    let metadata = super::metadata(pool::LISTENER_SETS, pool::NAMESPACES);
    (metadata, spec, may(0.3, early()))
        .prop_map(|(metadata, mut spec, early)| {
            distinct(&mut spec["listeners"]);
            let Some(ports) = early else {
                return json!({
                    "apiVersion": "gateway.networking.k8s.io/v1",
                    "kind": "ListenerSet",
                    "metadata": metadata,
                    "spec": spec,
                });
            };
            let mut statuses = Vec::new();
            let listeners = spec["listeners"].as_array_mut().into_iter().flatten();
            let ports = ports.as_array().into_iter().flatten();
            for (listener, ports) in listeners.zip(ports) {
                if !ports["spec"].is_null() {
                    listener["port"] = ports["spec"].clone();
                }
                if let Some(port) = ports.get("status") {
                    statuses.push(json!({"name": listener["name"], "port": port}));
                }
            }
            distinct(&mut spec["listeners"]);
            json!({
                "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
                "kind": "XListenerSet",
                "metadata": metadata,
                "spec": spec,
                "status": {"listeners": statuses},
            })
        })
        .boxed()
}

/// Ports of an XListenerSet's listeners: unset, assigned in the status, or set to ports that may be assigned.
fn early() -> Json {
    let ports = prop_oneof![6 => just(0), 1 => any_number(pool::ASSIGNED)];
    let listener = record(vec![
        ("spec", may(0.7, ports.boxed())),
        ("status", may(0.5, any_number(pool::ASSIGNED))),
    ]);
    list(listener, 3..4)
}

/// Removes listeners that the API rejects as duplicates.
fn distinct(listeners: &mut Value) {
    dedup(listeners, |l| l["name"].to_string());
    dedup(listeners, |l| {
        format!("{} {} {}", l["port"], l["protocol"], l["hostname"])
    });
}

fn allowed_listeners() -> Json {
    record(vec![("namespaces", may(0.95, namespaces()))])
}

fn listener() -> Json {
    let protocol = prop_oneof![
        8 => just("HTTP"),
        8 => just("HTTPS"),
        3 => just("TLS"),
        1 => just("TCP"),
        1 => just("UDP"),
        1 => any_of(&["example.net/QUIC", "http"]),
    ];
    let ports: Vec<u32> = pool::PORTS.iter().map(|&port| port.into()).collect();
    // Null selects the protocol's default, to avoid too many conflicts.
    let port = prop_oneof![16 => just(Value::Null), 3 => any_number(&ports), 1 => any_number(&[1, 65_535])];
    record(vec![
        ("name", must(any_of(pool::LISTENERS))),
        ("hostname", may(0.6, any_of(pool::DOMAINS))),
        ("port", must(port.boxed())),
        ("protocol", must(protocol.boxed())),
        ("tls", must(listener_tls())),
        ("allowedRoutes", may(0.93, allowed_routes())),
        ("filters", may(0.15, filters())),
    ])
    .prop_map(fitting)
    .boxed()
}

/// Adds a port, and removes fields that the protocol doesn't allow.
fn fitting(mut listener: Value) -> Value {
    let protocol = listener["protocol"].as_str().unwrap_or_default().to_owned();
    if listener["port"].is_null() {
        let first = listener["name"] == "a" || listener["name"] == "c";
        let [plain, tls, other_plain, other_tls] = pool::PORTS;
        listener["port"] = match (protocol.as_str(), first) {
            ("HTTP", true) => plain,
            ("HTTP", false) => other_plain,
            (_, true) => tls,
            (_, false) => other_tls,
        }
        .into();
    }
    if let Some(fields) = listener.as_object_mut() {
        if !matches!(protocol.as_str(), "HTTPS" | "TLS") {
            fields.remove("tls");
        }
        if !matches!(protocol.as_str(), "HTTP" | "HTTPS") {
            fields.remove("filters");
        }
        if protocol == "HTTPS" {
            fields["tls"]["mode"] = "Terminate".into();
        }
        if matches!(protocol.as_str(), "TCP" | "UDP") {
            fields.remove("hostname");
        }
    }
    listener
}

fn listener_tls() -> Json {
    let options = just(json!({"example.net/option": "value"}));
    record(vec![
        ("mode", may(0.3, any_of(&["Terminate", "Passthrough"]))),
        ("certificateRefs", must(list(certificate_ref(), 1..4))),
        ("options", may(0.05, options)),
    ])
}

fn certificate_ref() -> Json {
    let named = record(vec![
        ("name", must(any_of(pool::SECRETS))),
        ("namespace", may(0.2, any_of(pool::NAMESPACES))),
    ]);
    let odd = record(vec![
        ("group", may(0.5, any_of(&["", "example.net"]))),
        ("kind", may(0.5, any_of(&["ConfigMap", "Secret"]))),
        ("name", must(any_of(&["c1", "missing"]))),
    ]);
    prop_oneof![9 => named, 1 => odd].boxed()
}

fn allowed_routes() -> Json {
    let kind = prop_oneof![
        6 => just(json!({"kind": "HTTPRoute"})),
        2 => just(json!({"kind": "GRPCRoute"})),
        1 => just(json!({"kind": "TLSRoute"})),
        1 => just(json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"})),
        1 => just(json!({"kind": "TCPRoute"})),
        1 => just(json!({"kind": "UDPRoute"})),
        1 => just(json!({"group": "example.net", "kind": "HTTPRoute"})),
        4 => just(json!({"group": "projectsesame.io", "kind": "HTTPProxy"})),
        4 => just(json!({"group": "networking.k8s.io", "kind": "Ingress"})),
    ];
    record(vec![
        ("namespaces", may(0.9, namespaces())),
        ("kinds", may(0.15, list(kind.boxed(), 0..3))),
    ])
}

fn namespaces() -> Json {
    let selector = || {
        prop_oneof![
            just(json!({"matchLabels": {"team": "red"}})),
            just(json!({"matchLabels": {"kubernetes.io/metadata.name": "two"}})),
            just(json!({"matchExpressions": [{"key": "team", "operator": "Exists"}]})),
            just(json!({"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["red"]}]})),
            just(json!({"matchExpressions": [{"key": "team", "operator": "Near", "values": ["red"]}]})),
            just(json!({})),
        ]
        .boxed()
    };
    prop_oneof![
        16 => just(json!({"from": "All"})),
        1 => just(json!({"from": "Same"})),
        1 => just(json!({"from": "None"})),
        1 => just(json!({"from": "Everywhere"})),
        1 => just(json!({"from": "Selector"})),
        3 => selector().prop_map(|selector| json!({"from": "Selector", "selector": selector})),
    ]
    .boxed()
}

fn filters() -> Json {
    record(vec![("requests", may(0.95, list(listener_filter(), 0..6)))])
}

fn address() -> Json {
    prop_oneof![
        just(json!({"type": "IPAddress", "value": "127.0.0.1"})),
        just(json!({"value": "192.0.2.1"})),
        just(json!({"type": "IPAddress"})),
        just(json!({"type": "Hostname", "value": "example.com"})),
        just(json!({"type": "example.net/pool", "value": "p"})),
        just(json!({"value": "not an address"})),
    ]
    .boxed()
}

fn infrastructure() -> Json {
    let other = json!({"group": "example.net", "kind": "Parameters", "name": "p"});
    let parameters = prop_oneof![3 => configuration::reference(), 1 => just(other)];
    record(vec![
        ("labels", may(0.5, just(json!({"a": "b"})))),
        ("parametersRef", may(0.5, parameters.boxed())),
    ])
}

/// Client certificate validation, and the Gateway's own client certificate.
fn tls() -> Json {
    record(vec![
        ("frontend", may(0.5, frontend())),
        ("backend", may(0.7, backend_tls())),
    ])
}

fn backend_tls() -> Json {
    let missing = just(json!({"name": "missing"}));
    let reference = prop_oneof![9 => certificate_ref(), 1 => missing];
    record(vec![("clientCertificateRef", may(0.95, reference.boxed()))])
}

/// Client certificate validation.
fn frontend() -> Json {
    let config = || record(vec![("validation", may(0.8, validation()))]);
    let port = any_number(&pool::PORTS.map(u32::from));
    let of_port = record(vec![("port", must(port)), ("tls", must(config()))]);
    record(vec![
        ("default", must(config())),
        ("perPort", may(0.5, unique_list(of_port, 1..3, "port"))),
    ])
}

fn validation() -> Json {
    let reference = (backend_tls::authority(), may(0.2, any_of(pool::NAMESPACES)));
    let reference = reference.prop_map(|(mut reference, namespace)| {
        if let Some(namespace) = namespace
            && reference["kind"] != "ClusterTrustBundle"
        {
            reference["namespace"] = namespace;
        }
        reference
    });
    let modes = mostly(&["AllowValidOnly", "AllowInsecureFallback"], &["Sometimes"]);
    record(vec![
        ("caCertificateRefs", must(list(reference.boxed(), 1..4))),
        ("mode", may(0.5, modes)),
    ])
}
