//! Policies, backends, configurations and objects that others refer to.

use serde_json::{Value, json};
use sesame_testkit::certs::{Authority, Identity};
use sesame_testkit::many::{self, NAMESPACE};

use super::{NAME, Shape, data, list, object, service, slice};
use crate::gateways::{gateway, routes};
use crate::routes::http_route;

/// CA certificates of about this size in total, at least one.
pub(crate) fn authorities(bytes: usize) -> String {
    let root = Authority::new().unwrap();
    let mut out = root.pem();
    while out.len() < bytes {
        let number = out.len();
        let name = format!("{number}-{}", "n".repeat(4_000));
        out += &root.intermediate(&name).unwrap().pem();
    }
    out
}

/// The entries of a Secret with a certificate, whose chain has about this size.
pub(crate) fn certificate(bytes: usize) -> Value {
    let Identity {
        mut chain,
        private_key,
    } = Identity::self_signed(&["*.example.com"]).unwrap();
    let root = Authority::new().unwrap();
    let more = root.intermediate(&"n".repeat(bytes / 100)).unwrap().pem();
    while chain.len() < bytes {
        chain += &more;
    }
    json!({"tls.crt": chain, "tls.key": private_key})
}

/// The configuration of the instance.
pub(crate) fn instance(settings: Value) -> Value {
    let mut spec = json!({"gateway": {"controllerName": "projectsesame.io/gateway-controller"}});
    for (field, value) in settings.as_object().unwrap() {
        spec[field] = value.clone();
    }
    object(
        "projectsesame.io/v1alpha1",
        "SesameConfiguration",
        "instance",
        spec,
    )
}

/// Policies for 16 targets, or 16 Services with 100 ports each.
fn targets() -> Value {
    list(
        16,
        |number| json!({"group": "", "kind": "Service", "name": format!("t{number}")}),
    )
}

/// A route to the XBackend and 255 ports of 16 Services.
fn to_targets() -> Vec<Value> {
    let rule = |rule: usize| {
        let backend = |number| json!({"name": format!("t{number}"), "port": 80 + rule});
        json!({"matches": [{"path": {"value": format!("/r{rule}")}}], "backendRefs": list(16, backend)})
    };
    let mut rules: Vec<Value> = (0..16).map(rule).collect();
    let external =
        json!({"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": NAME});
    rules[0]["backendRefs"][0] = external;
    let mut route = http_route(1, &rules);
    route["metadata"]["name"] = "route".into();
    let services = (0..16).map(|number| service(&format!("t{number}"), 100));
    services.chain([route]).collect()
}

fn x_policy(kind: &str, spec: Value) -> Value {
    object("gateway.networking.x-k8s.io/v1alpha1", kind, NAME, spec)
}

fn telemetry(attributes: usize, bytes: usize) -> Value {
    let attribute = |number| json!({"name": format!("a{number}"), "sourceType": "Literal", "literalValue": "v".repeat(bytes)});
    x_policy(
        "XTelemetryPolicy",
        json!({
            "targetRefs": [{"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "wide"}],
            "tracing": {
                "mode": "Enabled",
                "provider": {"backendRef": {"name": "s", "port": 80}},
                "attributes": list(attributes, attribute),
            },
        }),
    )
}

fn policies() -> Vec<Option<Shape>> {
    let config_map =
        |number| json!({"group": "", "kind": "ConfigMap", "name": format!("ca-{number}")});
    let tls = object(
        "gateway.networking.k8s.io/v1",
        "BackendTLSPolicy",
        NAME,
        json!({
            "targetRefs": targets(),
            "validation": {"caCertificateRefs": list(8, config_map), "hostname": "a.example.com"},
        }),
    );
    let ca = authorities(370_000);
    let maps =
        (0..8).map(|number| data("ConfigMap", &format!("ca-{number}"), json!({"ca.crt": ca})));
    let with_tls = [to_targets(), maps.collect()].concat();
    let wide = || [vec![gateway("wide", &json!({}))], routes(100, "wide")].concat();
    let traffic = json!({
        "targetRefs": targets(),
        "sessionPersistence": {"sessionName": "n".repeat(128), "type": "Cookie", "absoluteTimeout": "1h", "cookie": {"lifetimeType": "Permanent"}},
    });
    let external = json!({
        "type": "ExternalHostname",
        "externalHostname": {"hostname": "api.example.com"},
        "port": {"number": 443},
        "tls": {"mode": "ServerOnly", "validation": {"hostname": "api.example.com", "caCertificateRefs": list(8, config_map)}},
    });
    vec![
        shape!(
            "BackendTLSPolicy: 8 times 370 KB of CA certificates, 256 ports",
            with_tls.clone(),
            tls,
        )
        .map(Shape::copied),
        shape!(
            "XBackendTrafficPolicy: sessions of 256 ports",
            to_targets(),
            x_policy("XBackendTrafficPolicy", traffic),
        )
        .map(Shape::copied),
        shape!(
            "XBackend: 8 times 370 KB of CA certificates",
            with_tls,
            x_policy("XBackend", external),
        )
        .map(Shape::copied),
        shape!(
            "XTelemetryPolicy: 15,000 attributes",
            wide(),
            telemetry(15_000, 1),
        ),
        shape!(
            "XTelemetryPolicy: 16 attributes with 15 KB, 64 ports",
            wide(),
            telemetry(16, 900),
        )
        .map(Shape::copied),
    ]
}

fn configuration() -> Option<Shape> {
    let tag = |number| json!({"tagName": format!("t{number}"), "literal": "v".repeat(1_000)});
    let header = |number| json!({"name": format!("x-{number}"), "value": "v".repeat(60)});
    let headers = json!({"set": list(64, header)});
    let service = json!({"namespace": NAMESPACE, "name": "limits"});
    let spec = json!({
        "listeners": {"accessLog": {"level": "All", "text": "v".repeat(4_000)}},
        "rateLimitService": {"extensionService": service, "defaultGlobalRateLimitPolicy": {
            "descriptors": [{"entries": list(14, |_| json!({"genericKey": {"value": "v".repeat(230)}}))}]}},
        "tracing": {"extensionService": service, "customTags": list(64, tag)},
        "policy": {"requestHeaders": headers, "responseHeaders": headers},
    });
    let extension = json!({"services": [{"name": "s", "port": 80}], "protocol": "h2c"});
    let mut before = vec![
        object(
            "projectsesame.io/v1alpha1",
            "ExtensionService",
            "limits",
            extension,
        ),
        gateway("wide", &json!({})),
    ];
    before.extend(routes(100, "wide"));
    let proxy = |number| {
        object(
            "projectsesame.io/v1",
            "HTTPProxy",
            &format!("p{number}"),
            json!({
                "virtualhost": {"fqdn": format!("p{number}.example.com")},
                "routes": [{"services": [{"name": "s", "port": 80}]}],
            }),
        )
    };
    before.extend((0..1_000).map(proxy));
    shape!(
        "SesameConfiguration: long texts, 1,000 HTTPProxies, 1,600 hosts",
        before,
        instance(spec),
    )
}

pub(crate) fn shapes() -> Vec<Option<Shape>> {
    let grant = object(
        "gateway.networking.k8s.io/v1",
        "ReferenceGrant",
        NAME,
        json!({
            "from": list(16, |number| json!({"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": format!("n{number}")})),
            "to": list(16, |number| json!({"group": "", "kind": "Service", "name": format!("s{number}")})),
        }),
    );
    let delegation = object(
        "projectsesame.io/v1",
        "TLSCertificateDelegation",
        NAME,
        json!({
            "delegations": list(163, |number| json!({"secretName": format!("s{number}"), "targetNamespaces": list(100, |number| json!(format!("n{number}")))})),
        }),
    );
    let extension = object(
        "projectsesame.io/v1alpha1",
        "ExtensionService",
        NAME,
        json!({
            "services": list(16, |number| json!({"name": "s", "port": 80 + number})),
            "protocol": "h2c",
        }),
    );
    let mut out = vec![
        shape!(
            "Service: 30,000 ports",
            routes(100, many::GATEWAY),
            service(NAME, 30_000),
        )
        .map(Shape::copied),
        shape!(
            "EndpointSlice: 1,000 endpoints, 100 ports",
            vec![service("s", 5_000)],
            slice("s", 100, 1_000),
        )
        .map(Shape::copied),
        shape!(
            "Secret: a chain of 1 MB, unused",
            vec![],
            data("Secret", NAME, certificate(1_000_000)),
        )
        .map(Shape::copied),
        shape!(
            "ConfigMap: CA certificates of 1 MB, unused",
            vec![],
            data("ConfigMap", NAME, json!({"ca.crt": authorities(1_000_000)})),
        )
        .map(Shape::copied),
        shape!("ReferenceGrant: 16 to 16", vec![], grant),
        shape!(
            "TLSCertificateDelegation: 163 Secrets to 100 namespaces",
            vec![],
            delegation,
        )
        .map(Shape::copied),
        shape!(
            "ExtensionService: 16 ports, 1,000 endpoints",
            vec![service("s", 100), slice("s", 100, 1_000)],
            extension,
        )
        .map(Shape::copied),
        configuration(),
    ];
    out.extend(policies());
    out
}
