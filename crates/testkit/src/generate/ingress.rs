//! Ingresses and their classes.

use proptest::prelude::*;
use serde_json::json;

use super::json::{Json, any_number, any_of, just, list, may, mostly, must, record};
use super::{pool, route};

const CLASSES: &[&str] = &["sesame", "ours", "foreign", "missing"];

pub(super) fn class() -> Json {
    let metadata = super::metadata(&["ours", "foreign"], &[""]);
    let controllers = &[
        "projectsesame.io/ingress-controller",
        "example.net/controller",
    ];
    let default = may(
        0.2,
        just(json!({"ingressclass.kubernetes.io/is-default-class": "true"})),
    );
    (metadata, may(0.9, any_of(controllers)), default)
        .prop_map(|(mut metadata, controller, annotations)| {
            if let Some(fields) = metadata.as_object_mut() {
                fields.remove("namespace");
                fields.extend(annotations.map(|value| ("annotations".to_owned(), value)));
            }
            let mut class = json!({
                "apiVersion": "networking.k8s.io/v1",
                "kind": "IngressClass",
                "metadata": metadata,
                "spec": {},
            });
            if let Some(controller) = controller {
                class["spec"]["controller"] = controller;
            }
            class
        })
        .boxed()
}

/// The name of an ingress class, for `spec.ingressClassName`.
pub(super) fn class_name() -> Json {
    prop_oneof![6 => just("sesame"), 1 => any_of(CLASSES)].boxed()
}

pub(super) fn ingress() -> Json {
    let tls = record(vec![
        ("hosts", may(0.9, list(any_of(pool::HOSTNAMES), 0..3))),
        ("secretName", may(0.95, secret_name())),
    ]);
    let rule = record(vec![
        ("host", may(0.8, any_of(pool::HOSTNAMES))),
        (
            "http",
            may(
                0.95,
                list(path(), 1..4)
                    .prop_map(|paths| json!({"paths": paths}))
                    .boxed(),
            ),
        ),
    ]);
    let spec = record(vec![
        ("ingressClassName", may(0.9, class_name())),
        ("defaultBackend", may(0.2, backend())),
        ("tls", may(0.5, list(tls, 0..3))),
        ("rules", must(list(rule, 1..4))),
    ]);
    (
        super::metadata(pool::ROUTES, &["one", "two"]),
        annotations(),
        spec,
    )
        .prop_map(|(mut metadata, annotations, spec)| {
            metadata["annotations"] = annotations;
            json!({
                "apiVersion": "networking.k8s.io/v1",
                "kind": "Ingress",
                "metadata": metadata,
                "spec": spec,
            })
        })
        .boxed()
}

/// The name of a Secret, with or without a namespace.
pub(super) fn secret_name() -> Json {
    mostly(
        &["c1", "c2", "c3", "one/c1", "two/c2"],
        &["missing", "/", "a/b/c"],
    )
}

fn path() -> Json {
    let regex = route::regex().prop_map(
        |regex| json!({"pathType": "ImplementationSpecific", "path": format!("/{regex}")}),
    );
    let literal = (
        any_of(&["Exact", "Prefix", "Prefix", "ImplementationSpecific"]),
        mostly(pool::PATHS, &["/a%20b", "/a;v=1", "/..a", "/a.b/", "/%25"]),
    );
    let literal =
        literal.prop_map(|(path_type, path)| json!({"pathType": path_type, "path": path}));
    let matching = prop_oneof![
        8 => literal,
        2 => regex,
        1 => just(json!({"pathType": "ImplementationSpecific"})),
    ];
    (matching, backend())
        .prop_map(|(mut path, backend)| {
            path["backend"] = backend;
            path
        })
        .boxed()
}

fn backend() -> Json {
    let port = prop_oneof![
        4 => any_number(pool::SERVICE_PORTS).prop_map(|number| json!({"number": number})),
        1 => any_of(pool::PORT_NAMES).prop_map(|name| json!({"name": name})),
    ];
    let service = (mostly(pool::SERVICES, &["missing"]), port);
    prop_oneof![
        19 => service.prop_map(|(name, port)| json!({"service": {"name": name, "port": port}})),
        1 => just(json!({"resource": {"kind": "Bucket", "name": "b"}})),
    ]
    .boxed()
}

fn annotations() -> Json {
    let bools: &[&str] = &["true", "false", "yes"];
    record(vec![
        ("kubernetes.io/ingress.class", may(0.05, any_of(CLASSES))),
        ("projectsesame.io/ingress.class", may(0.05, any_of(CLASSES))),
        (
            "ingress.kubernetes.io/force-ssl-redirect",
            may(0.2, any_of(bools)),
        ),
        ("kubernetes.io/ingress.allow-http", may(0.1, any_of(bools))),
        (
            "projectsesame.io/retry-on",
            may(0.2, mostly(&["5xx", "gateway-error,reset"], &["", "often"])),
        ),
        (
            "projectsesame.io/num-retries",
            may(0.2, any_of(&["-1", "0", "3", "many", "99999999999"])),
        ),
        ("projectsesame.io/per-try-timeout", may(0.1, duration())),
        ("projectsesame.io/response-timeout", may(0.2, duration())),
        (
            "projectsesame.io/tls-cert-namespace",
            may(0.1, any_of(pool::NAMESPACES)),
        ),
        (
            "projectsesame.io/tls-minimum-protocol-version",
            may(0.1, any_of(&["1.2", "1.3", "1.0", ""])),
        ),
        (
            "projectsesame.io/tls-maximum-protocol-version",
            may(0.1, any_of(&["1.2", "1.3", "9"])),
        ),
    ])
}

/// A duration as text, valid or not.
pub(super) fn duration() -> Json {
    mostly(
        &["5s", "500ms", "1h30m", "infinity"],
        &["0s", "-1s", "", "1", "1.5s", "99999999999h", "soon", "1ns"],
    )
}

/// Annotations on a Service.
pub(super) fn service_annotations() -> Json {
    let limits = || mostly(&["1", "1024"], &["0", "-1", "4294967296", "many"]);
    let ports = || mostly(&["80", "80,443", "web"], &["", ",", "99999", "other, 80"]);
    record(vec![
        ("projectsesame.io/max-connections", may(0.3, limits())),
        ("projectsesame.io/max-pending-requests", may(0.3, limits())),
        ("projectsesame.io/max-requests", may(0.3, limits())),
        ("projectsesame.io/max-retries", may(0.3, limits())),
        (
            "projectsesame.io/per-host-max-connections",
            may(0.3, limits()),
        ),
        ("projectsesame.io/upstream-protocol.h2", may(0.2, ports())),
        ("projectsesame.io/upstream-protocol.h2c", may(0.2, ports())),
        ("projectsesame.io/upstream-protocol.tls", may(0.2, ports())),
    ])
}
