//! The fields with their values.

use serde_json::{Value, json};
use sesame_fleet::local::binary::VERSION;

use super::super::usual;
use super::publishing::{gateways, load_balancers};
use super::sections::sections;
use super::{CERTIFICATE, EXTENSION, Outcome, PRIORITY_CLASS, Row, reported, row};
use crate::e2e::shop;

/// All rows.
pub(super) fn all() -> Vec<Row> {
    let tables = [
        instance_settings(),
        publishing(),
        load_balancers(),
        gateways(),
        envoys(),
        choices(),
        listeners(),
        timeouts_and_limits(),
        operator_settings(),
        sections(),
    ];
    tables.into_iter().flatten().collect()
}

/// The sections for Gateways, Ingresses and HTTPProxies.
fn instance_settings() -> Vec<Row> {
    let controller = usual()["gateway"]["controllerName"].clone();
    let named = |namespace: Option<&str>| {
        let mut section = json!({ "controllerName": controller, "name": "web" });
        section["namespace"] = json!(namespace);
        section
    };
    let service = json!({ "namespace": shop::NAMESPACE, "name": EXTENSION });
    let limits = |field: &str, value: Value| {
        let mut section = json!({ "extensionService": service });
        section[field] = value;
        section
    };
    let unmanaged = |field, valid, invalid| {
        let invalid = Some((invalid, Outcome::Rejected));
        Row(field, valid, Outcome::RestartRequired, invalid)
    };
    vec![
        row(
            "gateway.controllerName",
            controller.clone(),
            json!("sesame"),
        ),
        // Deprecated, without an effect on Envoys that Sesame runs.
        row("gateway", named(Some("shop")), named(None)),
        row("defaultPorts.http", json!(8081), json!(0)),
        row("defaultPorts.https", json!(8444), json!(65_536)),
        row(
            "clientCertificate",
            json!({ "namespace": shop::NAMESPACE, "name": CERTIFICATE }),
            json!({ "name": CERTIFICATE }),
        ),
        row("ingress.classNames", json!(["sesame", "other"]), json!([])),
        row("httpProxy.rootNamespaces", json!(["shop"]), json!([])),
        row(
            "httpProxy.fallbackCertificate",
            json!({ "namespace": "shop", "name": "fallback" }),
            json!({ "name": "fallback" }),
        ),
        row("httpProxy.disablePermitInsecure", json!(true), json!("yes")),
        row(
            "rateLimitService.extensionService",
            service.clone(),
            json!({ "namespace": "shop" }),
        ),
        row(
            "rateLimitService",
            limits("domain", json!("shop")),
            limits("domain", json!("")),
        ),
        row(
            "rateLimitService",
            limits("failOpen", json!(true)),
            limits("failOpen", json!("yes")),
        ),
        row(
            "rateLimitService",
            limits("enableXRateLimitHeaders", json!(true)),
            limits("enableXRateLimitHeaders", json!("yes")),
        ),
        row(
            "rateLimitService",
            limits("enableResourceExhaustedCode", json!(true)),
            limits("enableResourceExhaustedCode", json!("yes")),
        ),
        unmanaged("unmanagedEnvoy.addresses", json!(["192.0.2.1"]), json!([])),
        unmanaged(
            "unmanagedEnvoy.service",
            json!({ "namespace": "shop", "name": "envoy" }),
            json!({ "name": "envoy" }),
        ),
    ]
}

/// `envoy.networkPublishing`.
fn publishing() -> Vec<Row> {
    let ranges = "envoy.networkPublishing.loadBalancerSourceRanges";
    vec![
        row(
            "envoy.networkPublishing.type",
            json!("ClusterIPService"),
            json!("LoadBalancer"),
        ),
        row(
            "envoy.networkPublishing.annotations",
            json!({ "example.com/internal": "true" }),
            json!({ "example.com/internal": true }),
        ),
        row(
            "envoy.networkPublishing.loadBalancerClass",
            json!("example.com/lb"),
            json!(""),
        ),
        Row(
            ranges,
            json!(["0.0.0.0/0"]),
            Outcome::Programmed,
            Some((json!(["192.0.2.0"]), Outcome::Reported)),
        ),
        row(
            "envoy.networkPublishing.externalTrafficPolicy",
            json!("Local"),
            json!("Nearest"),
        ),
    ]
}

/// Tolerations: valid ones, and one that takes no value.
fn tolerations(field: &'static str) -> Row {
    row(
        field,
        json!([{
            "key": "dedicated",
            "operator": "Equal",
            "value": "edge",
            "effect": "NoExecute",
            "tolerationSeconds": 300,
        }]),
        json!([{ "key": "dedicated", "operator": "Exists", "value": "edge" }]),
    )
}

/// The rest of the section `envoy`.
fn envoys() -> Vec<Row> {
    let scaling =
        |min: u32, max: u32| json!({ "minReplicas": min, "maxReplicas": max, "cpuPercent": 80 });
    vec![
        // `unmanaged` checks the effect of false.
        row("envoy.managed", json!(true), json!("yes")),
        row("envoy.workload", json!("DaemonSet"), json!("StatefulSet")),
        row("envoy.replicas", json!(3), json!(0)),
        row("envoy.autoscaling", scaling(2, 3), scaling(3, 2)),
        row("envoy.disruptionBudget", json!(false), json!("no")),
        row("envoy.networkPolicy", json!(true), json!("yes")),
        row(
            "envoy.image",
            json!(format!("ghcr.io/projectsesame/envoy:{VERSION}")),
            json!("envoy latest"),
        ),
        row("envoy.imagePullSecrets", json!(["registry"]), json!([""])),
        row(
            "envoy.serviceAccountAnnotations",
            json!({ "example.com/role": "edge" }),
            json!({ "example.com/role": 1 }),
        ),
        reported("envoy.resources.requests.cpu", "50m", "half"),
        reported("envoy.resources.requests.memory", "100Mi", "some"),
        reported("envoy.resources.limits.cpu", "2", "much"),
        reported("envoy.resources.limits.memory", "1Gi", "lots"),
        row(
            "envoy.nodeSelector",
            json!({ "kubernetes.io/os": "linux" }),
            json!({ "kubernetes.io/os": 1 }),
        ),
        tolerations("envoy.tolerations"),
        row("envoy.priorityClassName", json!(PRIORITY_CLASS), json!("")),
        row("envoy.drain.delay", json!("4s"), json!("soon")),
        row("envoy.drain.timeout", json!("30s"), json!("later")),
        row("envoy.logLevel", json!("info"), json!("loud")),
        row("envoy.maxConnections", json!(50_000), json!(0)),
    ]
}

/// `envoy.gatewayChoices`.
fn choices() -> Vec<Row> {
    vec![
        row(
            "envoy.gatewayChoices.fields",
            json!(["replicas", "resources"]),
            json!(["image"]),
        ),
        row("envoy.gatewayChoices.maxReplicas", json!(20), json!(0)),
        reported("envoy.gatewayChoices.maxResources.cpu", "8", "much"),
        reported("envoy.gatewayChoices.maxResources.memory", "8Gi", "lots"),
        row(
            "envoy.gatewayChoices.annotationPrefixes",
            json!(["example.com/"]),
            json!([""]),
        ),
    ]
}

/// The section `listeners`, except timeouts and limits.
fn listeners() -> Vec<Row> {
    vec![
        row(
            "listeners.tls.minimumProtocolVersion",
            json!("1.3"),
            json!("1.1"),
        ),
        row(
            "listeners.tls.maximumProtocolVersion",
            json!("1.2"),
            json!("1.4"),
        ),
        row(
            "listeners.tls.cipherSuites",
            json!([
                "ECDHE-ECDSA-AES128-GCM-SHA256",
                "ECDHE-RSA-AES128-GCM-SHA256"
            ]),
            json!(["RC4-SHA"]),
        ),
        row("listeners.proxyProtocol", json!("Optional"), json!("v2")),
        row("listeners.accessLog.level", json!("Errors"), json!("Some")),
        row("listeners.accessLog.format", json!("JSON"), json!("YAML")),
        row(
            "listeners.accessLog.text",
            json!("%REQ(:METHOD)% %RESPONSE_CODE%\n"),
            json!("%REQ%"),
        ),
        row(
            "listeners.accessLog",
            json!({ "format": "JSON", "json": { "status": "%RESPONSE_CODE%" } }),
            json!({ "format": "Text", "json": { "status": "%RESPONSE_CODE%" } }),
        ),
        row(
            "listeners.compression",
            json!(["Brotli", "Gzip", "Zstd"]),
            json!(["Deflate"]),
        ),
        row("listeners.trustedHops", json!(1), json!(101)),
        row(
            "listeners.paths.escapedSlashes",
            json!("Reject"),
            json!("Unescape"),
        ),
        row("listeners.paths.mergeSlashes", json!(false), json!("no")),
        row(
            "listeners.headersWithUnderscores",
            json!("Drop"),
            json!("Keep"),
        ),
    ]
}

/// The timeouts and limits of listeners.
fn timeouts_and_limits() -> Vec<Row> {
    let timeouts = [
        ("listeners.timeouts.connectionIdle", "30m"),
        ("listeners.timeouts.requestHeaders", "20s"),
        ("listeners.timeouts.request", "5m"),
        ("listeners.timeouts.streamIdle", "30m"),
        ("listeners.timeouts.connectionDuration", "24h"),
        ("listeners.timeouts.delayedClose", "2s"),
        ("listeners.timeouts.connectionShutdownGrace", "10s"),
    ];
    let limits = [
        ("listeners.limits.concurrentStreams", 200, 0),
        ("listeners.limits.requestHeadersKiB", 64, 8_193),
        ("listeners.limits.requestHeaderCount", 200, 0),
        ("listeners.limits.requestsPerConnection", 1_000, -1),
        ("listeners.limits.connectionBufferBytes", 65_536, 4_095),
        ("listeners.limits.http2StreamWindowBytes", 131_072, 65_534),
        (
            "listeners.limits.http2ConnectionWindowBytes",
            2_097_152,
            65_534,
        ),
    ];
    let timeouts = timeouts.map(|(field, valid)| row(field, json!(valid), json!("10")));
    let limits = limits.map(|(field, valid, invalid)| row(field, json!(valid), json!(invalid)));
    timeouts.into_iter().chain(limits).collect()
}

/// The section `instance`, which has an effect only with the operator. The operator checks the quantities.
fn operator_settings() -> Vec<Row> {
    vec![
        row("instance.replicas", json!(3), json!(17)),
        row("instance.networkPolicy", json!(false), json!("no")),
        row("instance.envoyNamespace", json!("Sesame"), json!("Shop")),
        row("instance.resources.requests.cpu", json!("100m"), json!("")),
        row(
            "instance.resources.requests.memory",
            json!("128Mi"),
            json!(""),
        ),
        row("instance.resources.limits.cpu", json!("1"), json!("")),
        row("instance.resources.limits.memory", json!("1Gi"), json!("")),
        row(
            "instance.nodeSelector",
            json!({ "kubernetes.io/os": "linux" }),
            json!({ "kubernetes.io/os": 1 }),
        ),
        tolerations("instance.tolerations"),
        row(
            "instance.priorityClassName",
            json!(PRIORITY_CLASS),
            json!(""),
        ),
        row(
            "instance.imagePullSecrets",
            json!(["registry"]),
            json!([""]),
        ),
    ]
}
