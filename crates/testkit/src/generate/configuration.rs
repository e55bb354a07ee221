//! SesameConfigurations that Gateways refer to, valid and invalid.

use proptest::prelude::*;
use serde_json::json;

use super::bounds::INSTANCE;
use super::json::{Json, any_number, any_of, boolean, just, list, may, mostly, must, record};

/// The names of SesameConfigurations.
const NAMES: &[&str] = &["c1", "c2"];

pub(super) fn configuration() -> Json {
    let amounts = || {
        record(vec![
            ("cpu", may(0.5, mostly(&["100m", "2"], &["much"]))),
            ("memory", may(0.5, mostly(&["128Mi", "1Gi"], &["lots"]))),
        ])
    };
    let resources = record(vec![
        ("requests", may(0.5, amounts())),
        ("limits", may(0.5, amounts())),
    ]);
    let publishing = record(vec![
        (
            "type",
            may(0.5, any_of(&["NodePortService", "ClusterIPService"])),
        ),
        ("loadBalancerSourceRanges", may(0.2, ranges())),
        (
            "loadBalancer",
            may(0.2, just(json!({"provider": {"type": "AWS"}}))),
        ),
    ]);
    let outer = any_of(&["c1", "sesame"])
        .prop_map(|class| json!({"type": "Gateway", "gateway": {"className": class}}));
    let publishing = prop_oneof![3 => publishing, 1 => outer].boxed();
    let envoy = record(vec![
        ("managed", may(0.3, boolean())),
        ("replicas", may(0.5, any_number(&[1, 3]))),
        ("resources", may(0.3, resources)),
        ("networkPublishing", may(0.3, publishing)),
        ("maxConnections", may(0.3, any_number(&[1, u32::MAX]))),
    ]);
    let classes = just(json!({"classNames": ["other"]}));
    let spec = record(vec![
        ("envoy", may(0.8, envoy)),
        ("listeners", may(0.5, listeners())),
        ("ingress", may(0.2, classes)),
    ]);
    (super::metadata(NAMES, &["one", "one", "two"]), spec)
        .prop_map(|(metadata, spec)| {
            json!({
                "apiVersion": "projectsesame.io/v1alpha1",
                "kind": "SesameConfiguration",
                "metadata": metadata,
                "spec": spec,
            })
        })
        .boxed()
}

/// Every kind of setting that affects the encoding of listeners.
fn listeners() -> Json {
    let tls = record(vec![
        ("minimumProtocolVersion", may(0.5, any_of(&["1.2", "1.3"]))),
        (
            "cipherSuites",
            may(0.5, just(json!(["ECDHE-ECDSA-AES128-GCM-SHA256"]))),
        ),
    ]);
    let log = prop_oneof![
        just(json!({"level": "All"})),
        just(json!({"level": "Errors", "format": "JSON"})),
        just(json!({"level": "Critical", "text": "%PROTOCOL% %REQ(x-a)%"})),
    ];
    let timeouts = record(vec![
        ("request", may(0.5, any_of(&["0s", "5m"]))),
        ("connectionDuration", may(0.5, any_of(&["0s", "1h"]))),
    ]);
    let limits = record(vec![
        ("concurrentStreams", may(0.5, any_number(&[1, 1000]))),
        ("requestHeadersKiB", may(0.5, any_number(&[1, 8192]))),
        ("connectionBufferBytes", may(0.5, any_number(&[4096]))),
    ]);
    let algorithms = prop_oneof![
        just(json!([])),
        just(json!(["Gzip"])),
        just(json!(["Zstd", "Brotli"])),
    ];
    let slashes = any_of(&["KeepUnchanged", "Reject", "UnescapeAndForward"]);
    record(vec![
        ("tls", may(0.5, tls)),
        (
            "proxyProtocol",
            may(0.3, any_of(&["Disabled", "Optional", "Required"])),
        ),
        ("accessLog", may(0.5, log.boxed())),
        ("compression", may(0.3, algorithms.boxed())),
        ("timeouts", may(0.3, timeouts)),
        ("limits", may(0.3, limits)),
        ("trustedHops", may(0.3, any_number(&[0, 100]))),
        (
            "paths",
            may(0.3, record(vec![("escapedSlashes", may(0.5, slashes))])),
        ),
        (
            "headersWithUnderscores",
            may(0.3, any_of(&["Allow", "Drop"])),
        ),
    ])
}

/// The instance's configuration. Always valid: while it isn't, the last valid one applies.
pub(super) fn instance() -> Json {
    let extension = || {
        (any_of(&["one", "two"]), mostly(&["e1", "e2"], &["missing"]))
            .prop_map(|(namespace, name)| json!({"namespace": namespace, "name": name}))
            .boxed()
    };
    let entries = || {
        list(
            prop_oneof![
                just(json!({"remoteAddress": {}})),
                just(json!({"genericKey": {"value": "100%"}})),
                just(json!({"requestHeader": {"headerName": "x-a", "descriptorKey": "a"}})),
                just(json!({"requestHeaderValueMatch": {"headers": [{"name": "x-a", "present": true}], "value": "a"}})),
            ]
            .boxed(),
            1..4,
        )
    };
    let descriptor = entries().prop_map(|entries| json!({"entries": entries}));
    let rates = record(vec![
        ("extensionService", must(extension())),
        ("domain", may(0.3, any_of(&["a", "b.c/%"]))),
        ("failOpen", may(0.3, boolean())),
        ("enableXRateLimitHeaders", may(0.3, boolean())),
        ("enableResourceExhaustedCode", may(0.3, boolean())),
        (
            "defaultGlobalRateLimitPolicy",
            may(
                0.5,
                list(descriptor.boxed(), 1..3)
                    .prop_map(|descriptors| json!({"descriptors": descriptors}))
                    .boxed(),
            ),
        ),
    ]);
    let body = record(vec![
        ("maxRequestBytes", may(0.7, any_number(&[1, 1 << 20]))),
        ("allowPartialMessage", may(0.5, boolean())),
        ("packAsBytes", may(0.5, boolean())),
    ]);
    let policy = record(vec![
        ("disabled", may(0.3, boolean())),
        ("context", may(0.5, just(json!({"k": "%", "ü": "a"})))),
    ]);
    let auth = record(vec![
        ("extensionService", must(extension())),
        ("failOpen", may(0.3, boolean())),
        ("authPolicy", may(0.5, policy)),
        ("responseTimeout", may(0.3, any_of(&["0s", "5s"]))),
        ("withRequestBody", may(0.3, body)),
    ]);
    let set = |value: &str| json!([{"name": "x-a", "value": value}, {"name": "x-b", "value": "b"}]);
    let changes = || {
        record(vec![
            (
                "set",
                may(
                    0.7,
                    prop_oneof![just(set("100%")), just(set("%HOSTNAME%"))].boxed(),
                ),
            ),
            ("remove", may(0.5, just(json!(["x-c", "server"])))),
        ])
    };
    let policy = record(vec![
        ("requestHeaders", may(0.7, changes())),
        ("responseHeaders", may(0.7, changes())),
        ("applyToIngress", may(0.5, boolean())),
    ]);
    let tags = json!([
        {"tagName": "a", "literal": "100%"},
        {"tagName": "b/ü", "literal": "%REQ(x)%"},
        {"tagName": "c", "requestHeaderName": "x-a"},
    ]);
    let tracing = record(vec![
        ("extensionService", must(extension())),
        ("serviceName", may(0.3, any_of(&["web", "a b"]))),
        ("overallSampling", may(0.5, any_of(&["0", "0.0001", "100"]))),
        ("includePodDetail", may(0.3, boolean())),
        ("maxPathTagLength", may(0.3, any_number(&[1, 8192]))),
        ("customTags", may(0.5, just(tags))),
    ]);
    let certificate = json!({"namespace": "one", "name": "c1"});
    let fallback = json!({"fallbackCertificate": certificate});
    let gateway = json!({"controllerName": "projectsesame.io/gateway-controller"});
    let spec = record(vec![
        ("gateway", must(just(gateway))),
        ("listeners", may(0.5, listeners())),
        ("clientCertificate", may(0.3, just(certificate))),
        ("httpProxy", may(0.5, just(fallback))),
        ("rateLimitService", may(0.5, rates)),
        ("globalAuth", may(0.3, auth)),
        ("policy", may(0.4, policy)),
        ("tracing", may(0.4, tracing)),
    ]);
    spec.prop_map(|spec| {
        let (namespace, name) = INSTANCE;
        json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "SesameConfiguration",
            "metadata": {"namespace": namespace, "name": name},
            "spec": spec,
        })
    })
    .boxed()
}

fn ranges() -> Json {
    prop_oneof![
        4 => just(json!(["192.0.2.0/24"])),
        1 => just(json!(["192.0.2.0"])),
    ]
    .boxed()
}

/// A Gateway's reference to a SesameConfiguration.
pub(super) fn reference() -> Json {
    mostly(NAMES, &["missing"])
        .prop_map(|name| json!({"group": "projectsesame.io", "kind": "SesameConfiguration", "name": name}))
        .boxed()
}
