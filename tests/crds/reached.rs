//! `generate::bounds` reaches every bound of the CRDs, upstream's and our own: the objects that real Envoys accept in
//! `tests/envoy_accepts`.

use std::path::PathBuf;

use serde_json::Value;
use sesame_api::Kind;
use sesame_testkit::generate;

use super::schema::{self, Crd, Path, Step};

/// Parts of paths whose bounds don't matter to Envoy, and why.
const IRRELEVANT: &[(&str, &str)] = &[
    (".group", "identifies a kind"),
    (".kind", "identifies a kind"),
    (".namespace", "other references have the longest namespace"),
    ("ervices[].name", "the names of Services have 63 characters"),
    ("ackendRef.name", "the names of Services have 63 characters"),
    (
        "ackendRefs[].name",
        "the names of Services have 63 characters",
    ),
    (
        "BackendTLSPolicy.spec.targetRefs[].",
        "the names of Services and ports",
    ),
    (
        "XBackendTrafficPolicy.spec.targetRefs[].",
        "the names of Services",
    ),
    ("extensionRef.name", "always refused"),
    (
        ".wellKnownCACertificates",
        "the only supported name is System",
    ),
    (".options{}", "ignored"),
    (".annotations{}", "not in Envoy's configuration"),
    (".protocol", "unknown protocols are refused"),
    ("Gateway.spec.addresses", "not in Envoy's configuration"),
    ("GatewayClass.spec.controllerName", "always Sesame's"),
    (
        "GatewayClass.spec.parametersRef",
        "not in Envoy's configuration",
    ),
    (
        "Route.spec.rules[].backendRefs[].filters",
        "the same as a rule's",
    ),
    ("ListenerSet.spec.listeners[].", "the same as a Gateway's"),
    ("includes[].conditions[].", "the same as a route's"),
    ("TCPRoute.spec.parentRefs", "the same as an HTTPRoute's"),
    ("TLSRoute.spec.parentRefs", "the same as an HTTPRoute's"),
    ("UDPRoute.spec.parentRefs", "the same as an HTTPRoute's"),
    ("TCPRoute.spec.rules", "Sesame supports one rule"),
    ("TLSRoute.spec.rules", "Sesame supports one rule"),
    ("UDPRoute.spec.rules", "Sesame supports one rule"),
    (".cidr", "the longest network is shorter"),
    (".ipDenyPolicy", "excludes ipAllowPolicy"),
    (
        "eadersPolicy.remove[]",
        "distinct from the names that are set",
    ),
    (
        ".tcpproxy.",
        "not in Envoy's configuration, or the same as a route's",
    ),
    (
        "XBackendTrafficPolicy.spec.sessionPersistence.header",
        "excludes a cookie",
    ),
    (
        "XBackend.spec.sessionPersistence.header",
        "excludes a cookie",
    ),
    (
        "SesameConfiguration.spec.envoy.",
        "not in Envoy's configuration",
    ),
    (
        "SesameConfiguration.spec.gateway.",
        "not in Envoy's configuration",
    ),
    (
        "SesameConfiguration.spec.httpProxy.rootNamespaces",
        "not in Envoy's configuration",
    ),
    (
        "SesameConfiguration.spec.ingress.",
        "not in Envoy's configuration",
    ),
    (
        "SesameConfiguration.spec.instance.",
        "not in Envoy's configuration",
    ),
    (
        "SesameConfiguration.spec.metrics.",
        "not in Envoy's configuration",
    ),
    (
        "SesameConfiguration.spec.unmanagedEnvoy.",
        "not in Envoy's configuration",
    ),
    (
        "SesameConfiguration.spec.watchNamespaces",
        "not in Envoy's configuration",
    ),
    (
        "SesameConfiguration.spec.xds.",
        "not in Envoy's configuration",
    ),
    (
        "HTTPProxy.spec.routes[].authPolicy.context",
        "the same as a host's",
    ),
    (
        "descriptors[].entries[].requestHeaderValueMatch.headers[].",
        "a policy has at most 4 KiB of descriptors",
    ),
    (
        "cors.allowOrigins[]",
        "a label of an origin's host has 63 characters",
    ),
    (".add[].name", "distinct from the names that are set"),
];

/// The sizes of lists and texts that Sesame limits to less than the CRD.
const LIMITED: &[(&str, u64)] = &[
    ("Gateway.spec.listeners[].filters.requests", 4),
    // The paths and names of all checks of a listener total 1 KiB.
    (
        "Gateway.spec.listeners[].filters.requests[].externalAuth.grpc.allowedHeaders",
        8,
    ),
    (
        "Gateway.spec.listeners[].filters.requests[].externalAuth.http.allowedHeaders",
        8,
    ),
    (
        "Gateway.spec.listeners[].filters.requests[].externalAuth.http.allowedResponseHeaders",
        8,
    ),
    (
        "Gateway.spec.listeners[].filters.requests[].externalAuth.http.path",
        64,
    ),
    // Each inclusion of the same HTTPProxy repeats its routes.
    ("HTTPProxy.spec.includes", 512),
    // Each target is a Gateway with an Envoy.
    ("XTelemetryPolicy.spec.targetRefs", 2),
    // The time of an Envoy to search a request for the text.
    ("HTTPProxy.spec.routes[].conditions[].header.contains", 721),
    (
        "HTTPProxy.spec.routes[].conditions[].header.notcontains",
        721,
    ),
    (
        "HTTPProxy.spec.routes[].conditions[].queryParameter.contains",
        721,
    ),
];

/// The CRDs of our own kinds.
fn own() -> Vec<Crd> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../deploy/crds");
    schema::read(&folder, "own")
}

/// All values at a place in an object.
fn all_at<'a>(object: &'a Value, path: &Path) -> Vec<&'a Value> {
    path.0.iter().fold(vec![object], |values, step| {
        let next = values.into_iter().flat_map(|value| match step {
            Step::Field(name) => value.get(name).into_iter().collect::<Vec<_>>(),
            Step::Item => value.as_array().into_iter().flatten().collect(),
            Step::Entry => value
                .as_object()
                .into_iter()
                .flat_map(|all| all.values())
                .collect(),
        });
        next.collect()
    })
}

/// The bound of a schema on the size of its values, if any.
fn bound(schema: &Value) -> Option<u64> {
    let bounds = ["maxItems", "maxLength", "maxProperties"];
    bounds.iter().find_map(|name| schema[name].as_u64())
}

fn size(value: &Value) -> u64 {
    let size = match value {
        Value::String(text) => text.chars().count(),
        Value::Array(list) => list.len(),
        Value::Object(fields) => fields.len(),
        _ => 0,
    };
    size as u64
}

#[test]
fn every_bound_is_reached_by_a_generated_object() {
    let objects = generate::bounds();
    let mut missed = Vec::new();
    let mut used = [false; IRRELEVANT.len()];
    let mut crds = super::read();
    crds.retain(|crd| crd.channel == "experimental");
    crds.extend(own());
    for crd in crds {
        let kind = Kind::from_api(&crd.api_version, &crd.kind);
        let of_kind: Vec<&Value> = objects
            .iter()
            .filter(|(key, _)| Some(key.kind) == kind)
            .map(|(_, object)| object)
            .collect();
        for place in crd.places() {
            let Some(bound) = bound(place.schema) else {
                continue;
            };
            if place.path.0[0] != Step::Field("spec".to_owned()) {
                continue;
            }
            let values = of_kind
                .iter()
                .flat_map(|object| all_at(object, &place.path));
            let largest = values.map(size).max();
            let path = format!("{}.{}", crd.kind, place.path);
            let limit = LIMITED.iter().find(|(limited, _)| *limited == path);
            let bound = limit.map_or(bound, |(_, limit)| *limit);
            if largest != Some(bound) {
                match IRRELEVANT.iter().position(|(part, _)| path.contains(part)) {
                    Some(index) => used[index] = true,
                    None => missed.push(format!("{path}: {largest:?} of {bound}")),
                }
            }
        }
    }
    assert!(
        missed.is_empty(),
        "{} bounds:\n{}",
        missed.len(),
        missed.join("\n")
    );
    let unused = IRRELEVANT.iter().zip(used).filter(|(_, used)| !used);
    let unused: Vec<&str> = unused.map(|((part, _), _)| *part).collect();
    assert!(unused.is_empty(), "unused exceptions: {unused:?}");
}
