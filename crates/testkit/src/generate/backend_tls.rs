//! BackendTLSPolicies, and ConfigMaps and ClusterTrustBundles with CA certificates, valid and invalid.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::json::{Json, any_of, just, list, may, mostly, must, record, unique_list};
use super::{pool, secret};

/// The names of ConfigMaps.
const AUTHORITIES: &[&str] = &["ca1", "ca2"];

/// The names of ClusterTrustBundles.
const BUNDLES: &[&str] = &["b1", "example.net:b2"];

/// The namespaces of policies and ConfigMaps.
const HOMES: &[&str] = &["one", "one", "two"];

pub(super) fn policy() -> Json {
    let service = record(vec![
        ("group", must(mostly(&[""], &["example.net"]))),
        ("kind", must(mostly(&["Service"], &["Secret"]))),
        ("name", must(mostly(pool::SERVICES, &["missing"]))),
        (
            "sectionName",
            may(0.4, mostly(pool::PORT_NAMES, &["missing"])),
        ),
    ]);
    let xbackend = any_of(pool::XBACKENDS).prop_map(
        |name| json!({"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": name}),
    );
    let target = prop_oneof![9 => service, 1 => xbackend].boxed();
    let spec = record(vec![
        ("targetRefs", must(unique_list(target, 1..3, "name"))),
        ("validation", must(validation())),
        (
            "options",
            may(0.1, just(json!({"example.net/option": "on"}))),
        ),
    ]);
    let metadata = super::metadata(&["p1", "p2", "p3", "p4"], HOMES);
    (metadata, spec)
        .prop_map(|(metadata, spec)| {
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "BackendTLSPolicy",
                "metadata": metadata,
                "spec": spec,
            })
        })
        .boxed()
}

/// A reference to CA certificates.
pub(super) fn authority() -> Json {
    prop_oneof![
        6 => any_of(AUTHORITIES).prop_map(|name| json!({"group": "", "kind": "ConfigMap", "name": name})),
        2 => any_of(pool::SECRETS).prop_map(|name| json!({"group": "", "kind": "Secret", "name": name})),
        2 => any_of(BUNDLES).prop_map(|name| {
            json!({"group": "certificates.k8s.io", "kind": "ClusterTrustBundle", "name": name})
        }),
        1 => just(json!({"group": "", "kind": "ConfigMap", "name": "missing"})),
        1 => just(json!({"group": "example.net", "kind": "Vault", "name": "ca1"})),
    ]
    .boxed()
}

pub(super) fn validation() -> Json {
    let authorities = prop_oneof![
        4 => list(authority(), 1..4).prop_map(|refs| json!({"caCertificateRefs": refs})),
        1 => mostly(&["System"], &["example.net/other"])
            .prop_map(|name| json!({"wellKnownCACertificates": name})),
    ];
    let name = prop_oneof![
        3 => any_of(&["example.com", "*.example.com"])
            .prop_map(|name| json!({"type": "Hostname", "hostname": name})),
        2 => just(json!({"type": "URI", "uri": "spiffe://example.com/s"})),
        1 => just(json!({"type": "Email"})),
    ];
    let names = record(vec![
        ("hostname", must(any_of(&["example.com", "a.example.com"]))),
        ("subjectAltNames", may(0.3, list(name.boxed(), 1..4))),
    ]);
    (authorities, names)
        .prop_map(|(mut validation, names)| {
            if let (Some(all), Value::Object(names)) = (validation.as_object_mut(), names) {
                all.extend(names);
            }
            validation
        })
        .boxed()
}

pub(super) fn trust_bundle() -> Json {
    let text = prop_oneof![9 => secret::chain(), 1 => just(json!(""))];
    (any_of(BUNDLES), text)
        .prop_map(|(name, text)| {
            json!({
                "apiVersion": "certificates.k8s.io/v1",
                "kind": "ClusterTrustBundle",
                "metadata": {"name": name},
                "spec": {"trustBundle": text},
            })
        })
        .boxed()
}

pub(super) fn config_map() -> Json {
    let data = prop_oneof![
        9 => secret::chain().prop_map(|chain| json!({"ca.crt": chain})),
        1 => just(json!({"other": "unused"})),
    ];
    (super::metadata(AUTHORITIES, HOMES), data)
        .prop_map(|(metadata, data)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})
        })
        .boxed()
}
