//! GatewayClass, Gateway, ListenerSet and XListenerSet.

use serde_json::{Value, json};

use super::{accepted, many, refused};

#[test]
fn invalid_gateway_classes_are_rejected() {
    let spec = |field: &str| format!("/spec/{field}");
    let kind = "GatewayClass";
    refused(
        kind,
        &[(&spec("controllerName"), json!("x"))],
        "spec.controllerName",
        "domain",
    );
    let long = json!("ä".repeat(65));
    refused(
        kind,
        &[(&spec("description"), long)],
        "spec.description",
        "at most 64",
    );
    accepted(kind, &[(&spec("description"), json!("ä".repeat(64)))]);
    let path = "spec.parametersRef.namespace";
    refused(
        kind,
        &[("/spec/parametersRef/namespace", json!("a.b"))],
        path,
        "at most 63",
    );
}

#[test]
fn invalid_listeners_are_rejected() {
    let kind = "Gateway";
    let no = |changes: &[(&str, Value)], path: &str, message: &str| {
        refused(kind, changes, &format!("spec.{path}"), message);
    };
    no(
        &[("/spec/gatewayClassName", json!(""))],
        "gatewayClassName",
        "empty",
    );
    no(
        &[("/spec/listeners", json!([]))],
        "listeners",
        "at least one",
    );

    let listener = |n: usize| json!({"name": format!("l{n}"), "port": n + 1, "protocol": "HTTP"});
    accepted(kind, &[("/spec/listeners", many(64, listener))]);
    no(
        &[("/spec/listeners", many(65, listener))],
        "listeners",
        "at most 64",
    );
    let pair = |a: Value, b: Value| json!([a, b]);
    no(
        &[(
            "/spec/listeners",
            pair(
                listener(1),
                json!({"name": "l1", "port": 9, "protocol": "TCP"}),
            ),
        )],
        "listeners[1]",
        "same name",
    );
    let twin =
        |hostname: Value| json!({"name": "x", "port": 2, "protocol": "HTTP", "hostname": hostname});
    no(
        &[("/spec/listeners", pair(listener(1), twin(Value::Null)))],
        "listeners[1]",
        "hostname",
    );
    accepted(
        kind,
        &[("/spec/listeners", pair(listener(1), twin(json!("a.b"))))],
    );

    let set = |field: &str, value: Value| {
        let mut listener = listener(1);
        listener[field] = value;
        json!([listener])
    };
    for (field, value, path, message) in [
        ("port", json!(0), "port", "from 1 to 65535"),
        ("name", json!("A"), "name", "a-z"),
        ("hostname", json!(""), "hostname", "hostname"),
        ("hostname", json!("1.2.3.4:80"), "hostname", "hostname"),
        (
            "tls",
            json!({"options": {"a": "b"}}),
            "tls",
            "not allowed with protocol HTTP",
        ),
        (
            "protocol",
            json!("TLS"),
            "tls",
            "required with protocol TLS",
        ),
        ("protocol", json!(""), "protocol", "empty"),
        (
            "allowedRoutes",
            json!({"kinds": many(9, |_| json!({"kind": "HTTPRoute"}))}),
            "allowedRoutes.kinds",
            "at most 8",
        ),
        (
            "allowedRoutes",
            json!({"kinds": [{"kind": "a/b"}]}),
            "allowedRoutes.kinds[0].kind",
            "kind",
        ),
    ] {
        let path = format!("listeners[0].{path}");
        no(&[("/spec/listeners", set(field, value))], &path, message);
    }
    for protocol in ["TCP", "UDP"] {
        let listener = json!([{"name": "l", "port": 1, "protocol": protocol, "hostname": "a"}]);
        no(
            &[("/spec/listeners", listener)],
            "listeners[0].hostname",
            "not allowed with protocol",
        );
    }
    accepted(
        kind,
        &[("/spec/listeners", set("protocol", json!("HTTPS")))],
    );

    let tls = "/spec/listeners/1/tls";
    no(
        &[(tls, json!({"mode": "Terminate"}))],
        "listeners[1].tls",
        "certificateRefs or options",
    );
    no(
        &[(tls, json!({}))],
        "listeners[1].tls",
        "certificateRefs or options",
    );
    accepted(kind, &[(tls, json!({"mode": "Passthrough"}))]);
    let https = ("/spec/listeners/1/protocol", json!("HTTPS"));
    no(
        &[https, ("/spec/listeners/1/tls/mode", json!("Passthrough"))],
        "listeners[1].tls.mode",
        "must be Terminate",
    );
    let reference = |_| json!({"name": "c"});
    no(
        &[("/spec/listeners/1/tls/certificateRefs", many(65, reference))],
        "listeners[1].tls.certificateRefs",
        "at most 64",
    );
    let options: Value = (0..17).map(|n| (format!("k{n}"), json!("v"))).collect();
    no(
        &[("/spec/listeners/1/tls/options", options)],
        "listeners[1].tls.options",
        "at most 16",
    );
    let filters = json!({"requests": [{"type": "ExtensionRef",
        "extensionRef": {"group": "a", "kind": "B", "name": "c"}}]});
    no(
        &[("/spec/listeners/1/filters", filters)],
        "listeners[1].filters",
        "only with protocol HTTP or HTTPS",
    );
}

#[test]
fn invalid_addresses_and_infrastructure_are_rejected() {
    let kind = "Gateway";
    let address = |t: &str, value: &str| json!({"type": t, "value": value});
    let twice = json!([
        address("IPAddress", "1.2.3.4"),
        address("IPAddress", "1.2.3.4")
    ]);
    refused(
        kind,
        &[("/spec/addresses", twice)],
        "spec.addresses[1]",
        "same address",
    );
    let named = json!([address("NamedAddress", "a"), address("NamedAddress", "a")]);
    accepted(kind, &[("/spec/addresses", named)]);
    accepted(kind, &[("/spec/addresses", json!([{}, {}]))]);
    let many_addresses = many(17, |n| address("IPAddress", &n.to_string()));
    refused(
        kind,
        &[("/spec/addresses", many_addresses)],
        "spec.addresses",
        "at most 16",
    );
    let bad = json!([address("Hostname", "A b")]);
    refused(
        kind,
        &[("/spec/addresses", bad)],
        "spec.addresses[0].value",
        "hostname",
    );
    for good in [
        "",
        "Cluster",
        "example.com/private",
        "testing.x-k8s.io/sentinel",
        "a/b/c",
    ] {
        accepted(kind, &[("/spec/addresses/0/routability", json!(good))]);
    }
    for bad in ["Private", "k8s.io/a", "x.k8s.io/a", "example.com/", "/a"] {
        let path = "spec.addresses[0].routability";
        refused(
            kind,
            &[("/spec/addresses/0/routability", json!(bad))],
            path,
            "outside k8s.io",
        );
    }

    let infra = "/spec/infrastructure";
    for (field, value, path, message) in [
        (
            "labels",
            json!({"a b": "c"}),
            "labels.a b",
            "expected a key",
        ),
        (
            "labels",
            json!({"a": "c d"}),
            "labels.a",
            "at most 63 characters",
        ),
        (
            "annotations",
            json!({"a/b/c": ""}),
            "annotations.a/b/c",
            "expected a key",
        ),
        (
            "annotations",
            json!({"a": "x".repeat(4097)}),
            "annotations.a",
            "at most 4096",
        ),
        (
            "parametersRef/name",
            json!(""),
            "parametersRef.name",
            "empty",
        ),
    ] {
        let path = format!("spec.infrastructure.{path}");
        refused(
            kind,
            &[(&format!("{infra}/{field}"), value)],
            &path,
            message,
        );
    }
    let labels: Value = (0..9).map(|n| (format!("k{n}"), json!("v"))).collect();
    let path = "spec.infrastructure.labels";
    refused(
        kind,
        &[("/spec/infrastructure/labels", labels)],
        path,
        "at most 8",
    );
}

#[test]
fn invalid_tls_settings_of_a_gateway_are_rejected() {
    let kind = "Gateway";
    let frontend = "/spec/tls/frontend";
    let port = |port: u16| json!({"port": port, "tls": {}});
    let twice = json!([port(1), port(1)]);
    let path = "spec.tls.frontend.perPort[1]";
    refused(
        kind,
        &[("/spec/tls/frontend/perPort", twice)],
        path,
        "same port",
    );
    let zero = json!([port(0)]);
    let path = "spec.tls.frontend.perPort[0].port";
    refused(
        kind,
        &[("/spec/tls/frontend/perPort", zero)],
        path,
        "from 1",
    );
    let refs = format!("{frontend}/default/validation/caCertificateRefs");
    let path = "spec.tls.frontend.default.validation.caCertificateRefs";
    refused(kind, &[(&refs, json!([]))], path, "at least one");
    let reference = |_| json!({"group": "", "kind": "ConfigMap", "name": "c"});
    refused(kind, &[(&refs, many(17, reference))], path, "at most 16");
    let bundle = json!([{"group": "certificates.k8s.io", "kind": "ClusterTrustBundle",
        "name": "a", "namespace": "b"}]);
    refused(
        kind,
        &[(&refs, bundle)],
        &format!("{path}[0].namespace"),
        "ClusterTrustBundle",
    );
    let client = "/spec/tls/backend/clientCertificateRef/namespace";
    let path = "spec.tls.backend.clientCertificateRef.namespace";
    refused(kind, &[(client, json!("A"))], path, "a-z");
}

#[test]
fn invalid_listener_sets_are_rejected() {
    let kind = "ListenerSet";
    refused(
        kind,
        &[("/spec/listeners", json!([]))],
        "spec.listeners",
        "at least one",
    );
    refused(
        kind,
        &[("/spec/parentRef/name", json!(""))],
        "spec.parentRef.name",
        "empty",
    );
    let path = "spec.listeners[0].port";
    refused(
        kind,
        &[("/spec/listeners/0/port", json!(0))],
        path,
        "from 1",
    );
    refused(
        kind,
        &[("/spec/listeners/0/port", Value::Null)],
        path,
        "required",
    );
}

#[test]
fn only_early_listener_sets_may_leave_ports_open() {
    let kind = "XListenerSet";
    let port = "/spec/listeners/0/port";
    for value in [Value::Null, json!(0), json!(1), json!(65_535)] {
        accepted(kind, &[(port, value)]);
    }
    refused(
        kind,
        &[(port, json!(65_536))],
        "spec.listeners[0].port",
        "65535",
    );
    let two = |hostname: &str| {
        let listener = json!({"name": "b", "hostname": hostname, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": "c"}]}});
        [("/spec/listeners/-", listener)]
    };
    accepted(kind, &two("other.example.com"));
    refused(
        kind,
        &two("shop.example.com"),
        "spec.listeners[1]",
        "same port",
    );
    for kind in ["Gateway", "ListenerSet"] {
        refused(
            kind,
            &[(port, json!(0))],
            "spec.listeners[0].port",
            "from 1",
        );
    }
}
