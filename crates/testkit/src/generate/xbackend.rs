//! XBackends, valid and invalid, and their Services.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::json::{Json, any_number, any_of, just, may, mostly, must, record};
use super::{backend_tls, pool};

pub(super) fn xbackend() -> Json {
    let common = record(vec![("port", must(port())), ("tls", may(0.6, tls()))]);
    let metadata = super::metadata(pool::XBACKENDS, &["one", "one", "two"]);
    (
        metadata,
        destination(),
        common,
        any::<prop::sample::Index>(),
    )
        .prop_map(|(mut metadata, mut spec, common, choice)| {
            // In a cluster, XBackends of type EndpointSelector need Services.
            metadata["uid"] = "1".into();
            let fields = spec.as_object_mut();
            if let (Some(fields), Value::Object(common)) = (fields, common) {
                fields.extend(common);
            }
            let tls = spec.get("tls").is_some_and(|tls| tls["mode"] != "None");
            let protocols = match tls {
                true => &[
                    "TCP", "HTTP", "HTTP11", "MCP", "GRPC", "HTTP2", "WSS", "NEW", "",
                ],
                false => &["TCP", "HTTP", "HTTP11", "MCP", "GRPC", "H2C", "NEW", "", ""],
            };
            match *choice.get(protocols) {
                "" => {}
                protocol => spec["protocol"] = protocol.into(),
            }
            json!({
                "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
                "kind": "XBackend",
                "metadata": metadata,
                "spec": spec,
            })
        })
        .boxed()
}

/// A Service with the generated name of an XBackend's Service, owned by one of these XBackends or by none.
pub(super) fn service() -> Json {
    let owner = any_of(pool::XBACKENDS).prop_map(|name| {
        json!([{"apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackend", "name": name, "uid": "1"}])
    });
    let metadata = super::metadata(pool::POD_SERVICES, &["one", "one", "two"]);
    let spec = record(vec![
        ("clusterIP", must(mostly(&["None"], &["10.0.0.1"]))),
        ("selector", may(0.9, just(json!({"app": "a"})))),
        ("ports", may(0.9, just(json!([{"port": 80}])))),
        ("ipFamilies", may(0.3, just(json!(["IPv6", "IPv4"])))),
    ]);
    (metadata, may(0.8, owner.boxed()), spec)
        .prop_map(|(mut metadata, owner, spec)| {
            if let Some(owner) = owner {
                metadata["ownerReferences"] = owner;
            }
            json!({"apiVersion": "v1", "kind": "Service", "metadata": metadata, "spec": spec})
        })
        .boxed()
}

fn destination() -> Json {
    let hostname = mostly(
        &["example.com", "a.example.com"],
        &["localhost", "127.0.0.1", "x.localhost", "0", "local"],
    );
    let external = hostname.prop_map(
        |hostname| json!({"type": "ExternalHostname", "externalHostname": {"hostname": hostname}}),
    );
    let session = prop_oneof![
        just(json!({"header": {"name": "session"}, "type": "Header"})),
        just(json!({"cookie": {}})),
    ];
    let pods = record(vec![
        ("type", must(just("EndpointSelector"))),
        (
            "endpointSelector",
            must(just(json!({"matchLabels": {"app": "a"}}))),
        ),
        ("sessionPersistence", may(0.5, session.boxed())),
    ]);
    prop_oneof![3 => external, 2 => pods].boxed()
}

fn port() -> Json {
    record(vec![("number", must(any_number(&[443, 80, 65_535])))])
}

fn tls() -> Json {
    let none = just(json!({"mode": "None"}));
    let server = record(vec![
        ("mode", must(mostly(&["ServerOnly"], &["New"]))),
        ("validation", must(backend_tls::validation())),
    ]);
    let client = record(vec![
        ("name", must(mostly(pool::SECRETS, &["missing"]))),
        ("namespace", may(0.2, any_of(pool::NAMESPACES))),
        ("kind", may(0.1, just("ConfigMap"))),
    ]);
    let both = record(vec![
        ("mode", must(just("ClientAndServer"))),
        ("validation", must(backend_tls::validation())),
        ("clientCertificateRef", must(client)),
    ]);
    prop_oneof![1 => none, 4 => server, 4 => both].boxed()
}
