//! For each rule, objects that break it, and objects at the limit that don't.

mod filters;
mod gateways;
mod http_proxies;
mod routes;

use serde_json::{Value, json};

use super::text;
use crate::fixtures::{decode, with};

/// Asserts that the modified object is rejected at `path`, with an error that contains `message`.
fn refused(kind: &str, changes: &[(&str, Value)], path: &str, message: &str) {
    let shown = format!("{kind} {changes:?}");
    match decode(with(kind, changes)) {
        Ok(_) => panic!("accepted: {shown}"),
        Err(error) => {
            assert_eq!(error.path_text(), path, "{shown}: {error}");
            assert!(error.message.contains(message), "{shown}: {error}");
        }
    }
}

/// Asserts that the modified object is accepted.
fn accepted(kind: &str, changes: &[(&str, Value)]) {
    if let Err(error) = decode(with(kind, changes)) {
        panic!("{kind} {changes:?}: {error}");
    }
}

/// `count` elements, each made from its index.
fn many(count: usize, element: impl Fn(usize) -> Value) -> Value {
    (0..count).map(element).collect()
}

#[test]
fn hostnames_are_lowercase_dns_names() {
    for good in [
        "a",
        "example.com",
        "*.example.com",
        "*.com",
        "1.2",
        "xn--bcher-kva.example",
    ] {
        assert!(text::is_hostname(good), "{good}");
    }
    let long = ["a"; 128].join(".");
    let edge = ["a"; 127].join(".");
    assert!(text::is_hostname(&edge) && edge.len() == 253);
    for bad in [
        "", "*", "*.", "a.*", "*a.com", "A.com", "a..b", ".a", "a.", "-a", "a-", "a_b", "ü",
        "a:80", &long,
    ] {
        assert!(!text::is_hostname(bad), "{bad}");
        assert!(!text::is_precise_hostname(bad), "{bad}");
    }
    assert!(!text::is_precise_hostname("*.example.com"));
}

#[test]
fn header_names_are_tokens() {
    for good in [
        "a",
        "X-Forwarded-For",
        "a_b",
        "!#$%&'*+-.^_`|~",
        &"a".repeat(256),
    ] {
        assert!(text::is_header_name(good), "{good}");
    }
    for bad in [
        "",
        ":path",
        "a b",
        "a\n",
        "a:",
        "ü",
        "a,b",
        &"a".repeat(257),
    ] {
        assert!(!text::is_header_name(bad), "{bad}");
    }
}

#[test]
fn strings_must_match_their_patterns() {
    type Rule = fn(&str) -> super::Check;
    let table: [(Rule, &[&str], &[&str]); 8] = [
        (
            text::literal_path,
            &["/", "/a/b", "/a%20b", "/a.b/..c", "/a/", "/~x;y=1,2"],
            &[
                "", "a", "//", "/a//b", "/./a", "/a/../b", "/a/..", "/a/.", "/a%2fb", "/a%2Fb",
                "/a#b", "/a b", "/a?b", "/%", "/%4", "/%zz", "/ü", "/a\n",
            ],
        ),
        (
            text::cors_origin,
            &[
                "*",
                "https://a.b",
                "http://*.a.b:80",
                "https://*",
                "http://localhost:12345",
            ],
            &[
                "",
                "a.b",
                "ftp://a",
                "https://",
                "https://a:",
                "https://a:123456",
                "https://a/",
                "https://a:b",
                "https://*.*.a",
                "https://a..b",
                "null",
            ],
        ),
        (
            text::domain_path,
            &["example.com/a", "a/b/c", "a/~!$&'()*+,;=:%"],
            &[
                "",
                "example.com",
                "example.com/",
                "/a",
                "A/b",
                "a/b c",
                "a/ü",
            ],
        ),
        (
            text::qualified_key,
            &["a", "A_b.c-d", "example.com/A", "a/b"],
            &["", "a/", "/a", "a/b/c", "-a", "a-", "A.com/b", "a b"],
        ),
        (
            text::label_value,
            &["", "a", "A_b.c-d"],
            &["-a", "a-", "a b", "a/b"],
        ),
        (text::group, &["", "a", "a.b"], &["A", "a/b", "."]),
        (
            text::kind,
            &["A", "a-b", "XBackend"],
            &["", "1a", "a-", "a.b", "-a"],
        ),
        (
            text::absolute_uri,
            &["spiffe://a/b", "urn:x", "a:"],
            &["", "a", "/a:b", "//a", "?a:b", ":a"],
        ),
    ];
    for (index, (rule, good, bad)) in table.into_iter().enumerate() {
        for text in good {
            assert!(rule(text).is_ok(), "rule {index} rejects {text:?}");
        }
        for text in bad {
            assert!(rule(text).is_err(), "rule {index} accepts {text:?}");
        }
    }
    assert!(text::label_value(&"a".repeat(63)).is_ok());
    assert!(text::label_value(&"a".repeat(64)).is_err());
    assert!(text::label(&"a".repeat(63)).is_ok());
    assert!(text::label(&"a".repeat(64)).is_err());
}

#[test]
fn invalid_reference_grants_are_rejected() {
    let kind = "ReferenceGrant";
    for field in ["from", "to"] {
        let pointer = format!("/spec/{field}");
        refused(
            kind,
            &[(&pointer, json!([]))],
            &format!("spec.{field}"),
            "at least one",
        );
        let entry = |_| json!({"group": "", "kind": "Service", "namespace": "a"});
        refused(
            kind,
            &[(&pointer, many(17, entry))],
            &format!("spec.{field}"),
            "at most 16",
        );
    }
    let path = "spec.from[0].namespace";
    refused(kind, &[("/spec/from/0/namespace", json!("*"))], path, "a-z");
    refused(
        kind,
        &[("/spec/to/0/name", json!(""))],
        "spec.to[0].name",
        "empty",
    );
    refused(
        kind,
        &[("/spec/to/0/group", json!("*"))],
        "spec.to[0].group",
        "a-z",
    );
}

#[test]
fn invalid_backend_tls_policies_are_rejected() {
    let kind = "BackendTLSPolicy";
    let no = |pointer: &str, value: Value, path: &str, message: &str| {
        refused(kind, &[(pointer, value)], &format!("spec.{path}"), message);
    };
    let target = |section: Value| json!({"group": "", "kind": "Service", "name": "s", "sectionName": section});
    no("/spec/targetRefs", json!([]), "targetRefs", "at least one");
    for second in [json!("a"), Value::Null] {
        let targets = json!([target(json!("a")), target(second)]);
        no(
            "/spec/targetRefs",
            targets,
            "targetRefs[1]",
            "a different sectionName",
        );
    }
    let apart = json!([target(json!("a")), target(json!("b"))]);
    accepted(kind, &[("/spec/targetRefs", apart)]);
    no(
        "/spec/validation/hostname",
        json!("*.a"),
        "validation.hostname",
        "hostname",
    );
    no(
        "/spec/validation/caCertificateRefs",
        json!([]),
        "validation",
        "exactly one",
    );
    no(
        "/spec/validation/wellKnownCACertificates",
        json!("System"),
        "validation",
        "exactly one",
    );
    let reference = |_| json!({"group": "", "kind": "ConfigMap", "name": "c"});
    let refs = "validation.caCertificateRefs";
    no(
        "/spec/validation/caCertificateRefs",
        many(9, reference),
        refs,
        "at most 8",
    );
    let own = [
        ("/spec/validation/caCertificateRefs", Value::Null),
        (
            "/spec/validation/wellKnownCACertificates",
            json!("example.com/ours"),
        ),
    ];
    accepted(kind, &own);
    let own = [
        own[0].clone(),
        ("/spec/validation/wellKnownCACertificates", json!("ours")),
    ];
    refused(
        kind,
        &own,
        "spec.validation.wellKnownCACertificates",
        "domain",
    );

    let names = "/spec/validation/subjectAltNames";
    let path = "validation.subjectAltNames";
    let name = |_| json!({"type": "Hostname", "hostname": "a"});
    no(names, many(6, name), path, "at most 5");
    for (name, path, message) in [
        (json!({"type": "Hostname"}), "[0]", "requires hostname"),
        (
            json!({"type": "Hostname", "hostname": ""}),
            "[0]",
            "requires hostname",
        ),
        (
            json!({"type": "URI", "uri": "a:b", "hostname": "a"}),
            "[0]",
            "requires uri",
        ),
        (json!({"type": "Email", "hostname": "a"}), "[0]", "neither"),
        (
            json!({"type": "Hostname", "hostname": "A"}),
            "[0].hostname",
            "hostname",
        ),
        (json!({"type": "URI", "uri": "a"}), "[0].uri", "scheme"),
    ] {
        no(
            names,
            json!([name]),
            &format!("validation.subjectAltNames{path}"),
            message,
        );
    }
    accepted(kind, &[(names, json!([{"type": "Email", "email": "a@b"}]))]);
}

#[test]
fn invalid_services_and_endpoint_slices_are_rejected() {
    refused(
        "Service",
        &[("/spec/ports/0/port", json!(0))],
        "spec.ports[0].port",
        "from 1",
    );
    refused(
        "Service",
        &[("/spec/ports/0/port", json!(65536))],
        "spec.ports[0].port",
        "from 1",
    );
    let slice = "EndpointSlice";
    refused(
        slice,
        &[("/ports/0/port", json!(-1))],
        "ports[0].port",
        "from 1",
    );
    let path = "endpoints[0].addresses[0]";
    for (kind, address, message) in [
        ("IPv4", "::1", "IPv4"),
        ("IPv4", "127.0.0.1:80", "IPv4"),
        ("IPv6", "127.0.0.1", "IPv6"),
        ("FQDN", "A b", "a-z"),
    ] {
        let changes = [
            ("/addressType", json!(kind)),
            ("/endpoints/0/addresses/0", json!(address)),
        ];
        refused(slice, &changes, path, message);
    }
    refused(
        slice,
        &[("/endpoints/0/addresses", json!([]))],
        "endpoints[0].addresses",
        "one",
    );
    let endpoint = |_| json!({"addresses": ["127.0.0.1"]});
    accepted(slice, &[("/endpoints", many(1000, endpoint))]);
    refused(
        slice,
        &[("/endpoints", many(1001, endpoint))],
        "endpoints",
        "at most 1000",
    );
}

#[test]
fn invalid_xbackends_are_rejected() {
    let kind = "XBackend";
    let no = |changes: &[(&str, Value)], path: &str, message: &str| {
        refused(kind, changes, path, message);
    };
    for hostname in [
        "*.example.com",
        "db.shop.svc.cluster.local",
        "Upper.example.com",
    ] {
        let path = "spec.externalHostname.hostname";
        let message = match hostname.ends_with("local") {
            true => "cluster.local",
            false => "hostname",
        };
        no(
            &[("/spec/externalHostname/hostname", json!(hostname))],
            path,
            message,
        );
    }
    let selector = json!({"matchLabels": {"app": "a"}});
    no(
        &[("/spec/externalHostname", Value::Null)],
        "spec",
        "requires",
    );
    no(
        &[("/spec/endpointSelector", selector.clone())],
        "spec",
        "allow",
    );
    let pods = |labels: Value| {
        [
            ("/spec/type", json!("EndpointSelector")),
            ("/spec/externalHostname", Value::Null),
            ("/spec/endpointSelector", json!({"matchLabels": labels})),
        ]
    };
    accepted(kind, &pods(json!({"app": "a"})));
    let labels = "spec.endpointSelector.matchLabels";
    no(&pods(json!({})), labels, "at least one");
    no(
        &pods(json!({"app": "ü"})),
        &format!("{labels}.app"),
        "letters",
    );
    let session = json!({"type": "Header", "header": {"name": "a"}});
    no(
        &[("/spec/sessionPersistence", session)],
        "spec.sessionPersistence",
        "only with type EndpointSelector",
    );
    no(
        &[("/spec/port/number", json!(0))],
        "spec.port.number",
        "65535",
    );
    let mode = |mode: &str| ("/spec/tls", json!({"mode": mode}));
    no(
        &[mode("ServerOnly")],
        "spec.tls",
        "validation is not allowed with mode None",
    );
    no(
        &[mode("ClientAndServer")],
        "spec.tls",
        "clientCertificateRef",
    );
    no(
        &[("/spec/tls/mode", json!("ServerOnly"))],
        "spec.tls",
        "clientCertificateRef",
    );
    no(
        &[("/spec/tls/validation/hostname", json!("*.a"))],
        "spec.tls.validation.hostname",
        "hostname",
    );
    let protocol = |protocol: &str| ("/spec/protocol", json!(protocol));
    no(&[protocol("H2C")], "spec.protocol", "HTTP2");
    for encrypted in ["HTTP2", "WSS"] {
        no(
            &[protocol(encrypted), mode("None")],
            "spec.protocol",
            "requires tls",
        );
    }
    accepted(kind, &[protocol("H2C"), mode("None")]);
}

#[test]
fn invalid_backend_traffic_policies_are_rejected() {
    let kind = "XBackendTrafficPolicy";
    let no = |pointer: &str, value: Value, message: &str| {
        let path = format!("spec.{}", pointer.replace('/', "."));
        refused(
            kind,
            &[(&format!("/spec/{pointer}"), value)],
            &path,
            message,
        );
    };
    no("targetRefs", json!([]), "at least one");
    let same = json!({"group": "", "kind": "Service", "name": "a"});
    refused(
        kind,
        &[("/spec/targetRefs", json!([same, same]))],
        "spec.targetRefs[1]",
        "same target",
    );
    no("retryConstraint/budget/percent", json!(101), "0 to 100");
    for interval in ["999ms", "1h1ms"] {
        let field = "retryConstraint/budget/interval";
        no(field, json!(interval), "1s to 1h");
    }
    for count in [0, 1_000_001] {
        let field = "retryConstraint/minRetryRate/count";
        no(field, json!(count), "1 to 1000000");
    }
    for interval in ["0s", "1h1ms"] {
        let field = "retryConstraint/minRetryRate/interval";
        no(field, json!(interval), "1ms to 1h");
    }
    no("sessionPersistence/cookie", Value::Null, "required");
    accepted(
        kind,
        &[
            ("/spec/retryConstraint", json!({})),
            ("/spec/sessionPersistence", Value::Null),
        ],
    );
}

#[test]
fn invalid_telemetry_policies_are_rejected() {
    let kind = "XTelemetryPolicy";
    let no = |pointer: &str, value: Value, path: &str, message: &str| {
        let pointer = format!("/spec/{pointer}");
        refused(kind, &[(&pointer, value)], &format!("spec.{path}"), message);
    };
    no("targetRefs", json!([]), "targetRefs", "at least one");
    no("tracing", Value::Null, "tracing", "required");
    let above = json!({"numerator": 2, "denominator": 1});
    let rate = "samplingRate.numerator";
    no(
        "tracing/samplingRate",
        above.clone(),
        &format!("tracing.{rate}"),
        "denominator",
    );
    let parents = "tracing/parentBasedSampling";
    let field = "tracing.parentBasedSampling";
    no(
        &format!("{parents}/samplingRate"),
        above,
        &format!("{field}.{rate}"),
        "denominator",
    );
    no(
        &format!("{parents}/mode"),
        json!("Disabled"),
        &format!("{field}.samplingRate"),
        "Enabled",
    );
    no(
        "tracing/mode",
        json!("Disabled"),
        "tracing.samplingRate",
        "mode Enabled",
    );
    no(
        "tracing/provider",
        Value::Null,
        "tracing.provider",
        "required",
    );
    no(
        "tracing/serviceName",
        json!("a b"),
        "tracing.serviceName",
        "letters",
    );
    no(
        "tracing/spanName",
        json!("a  b"),
        "tracing.spanName",
        "single spaces",
    );
    let first = "tracing.attributes[0]";
    let attribute = |value: Value| json!([value]);
    let header = json!({"name": "a", "sourceType": "Header", "literalValue": "a"});
    no(
        "tracing/attributes",
        attribute(header),
        first,
        "requires headerName",
    );
    let key = json!({"name": "a", "sourceType": "Attribute", "attributeKey": "A"});
    no(
        "tracing/attributes",
        attribute(key),
        &format!("{first}.attributeKey"),
        "lowercase",
    );
    let unknown = json!({"name": "a", "sourceType": "Cookie"});
    accepted(
        kind,
        &[("/spec/tracing/attributes", attribute(unknown.clone()))],
    );
    let twice = json!([unknown, unknown]);
    no(
        "tracing/attributes",
        twice,
        "tracing.attributes[1]",
        "same name",
    );
}
