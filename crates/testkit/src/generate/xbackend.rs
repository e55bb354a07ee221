//! XBackends, valid and invalid.

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
        .prop_map(|(metadata, mut spec, common, choice)| {
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
    prop_oneof![4 => external, 1 => pods].boxed()
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
