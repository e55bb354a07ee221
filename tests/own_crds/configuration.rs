//! Changes to a SesameConfiguration.

use serde_json::{Value, json};

use crate::Sample;

pub(crate) fn samples() -> Vec<Sample> {
    let configuration = |pointer, value, wrong| ("SesameConfiguration", pointer, value, wrong);
    vec![
        configuration("/spec", json!({}), None),
        configuration("/spec/unmanagedEnvoy", json!({}), Some("spec")),
        configuration(
            "/spec/gateway/controllerName",
            json!("sesame"),
            Some("spec.gateway.controllerName"),
        ),
        configuration("/spec/gateway/name", Value::Null, Some("spec.gateway")),
        configuration("/spec/envoy/replicas", json!(2), Some("spec.envoy")),
        configuration(
            "/spec/envoy/replicas",
            json!(0),
            Some("spec.envoy.replicas"),
        ),
        configuration(
            "/spec/envoy/autoscaling/minReplicas",
            json!(11),
            Some("spec.envoy.autoscaling"),
        ),
        configuration(
            "/spec/envoy/networkPublishing/type",
            json!("LoadBalancer"),
            Some("spec.envoy.networkPublishing.type"),
        ),
        configuration("/spec/envoy/image", json!("a b"), Some("spec.envoy.image")),
        configuration(
            "/spec/envoy/drain/delay",
            json!("soon"),
            Some("spec.envoy.drain.delay"),
        ),
        configuration(
            "/spec/envoy/tolerations/0/operator",
            json!("Exists"),
            Some("spec.envoy.tolerations[0]"),
        ),
        configuration(
            "/spec/envoy/tolerations/0/effect",
            json!("NoSchedule"),
            Some("spec.envoy.tolerations[0]"),
        ),
        configuration("/spec/envoy/maxConnections", json!(u32::MAX), None),
        configuration(
            "/spec/envoy/maxConnections",
            json!(0),
            Some("spec.envoy.maxConnections"),
        ),
        configuration("/spec/listeners", json!({}), None),
        configuration(
            "/spec/listeners/tls/minimumProtocolVersion",
            json!("1.1"),
            Some("spec.listeners.tls.minimumProtocolVersion"),
        ),
        configuration(
            "/spec/listeners/tls",
            json!({"minimumProtocolVersion": "1.3", "maximumProtocolVersion": "1.2"}),
            Some("spec.listeners.tls"),
        ),
        configuration(
            "/spec/listeners/tls/cipherSuites",
            json!(["AES128-SHA", "RC4-SHA"]),
            Some("spec.listeners.tls.cipherSuites[1]"),
        ),
        configuration(
            "/spec/listeners/tls/cipherSuites",
            json!(["AES128-SHA", "AES128-SHA"]),
            Some("spec.listeners.tls.cipherSuites[1]"),
        ),
        configuration(
            "/spec/listeners/tls/cipherSuites",
            json!([]),
            Some("spec.listeners.tls.cipherSuites"),
        ),
        configuration(
            "/spec/listeners/proxyProtocol",
            json!("v2"),
            Some("spec.listeners.proxyProtocol"),
        ),
        configuration(
            "/spec/listeners/accessLog/level",
            json!("Info"),
            Some("spec.listeners.accessLog.level"),
        ),
        configuration(
            "/spec/listeners/accessLog/format",
            json!("json"),
            Some("spec.listeners.accessLog.format"),
        ),
        configuration(
            "/spec/listeners/accessLog/format",
            json!("Text"),
            Some("spec.listeners.accessLog"),
        ),
        configuration(
            "/spec/listeners/accessLog/text",
            json!("%PROTOCOL%"),
            Some("spec.listeners.accessLog"),
        ),
        configuration("/spec/listeners/accessLog/json", json!({}), None),
        configuration(
            "/spec/listeners/accessLog/json/status",
            json!("%RESPONSE_CODE"),
            Some("spec.listeners.accessLog.json.status"),
        ),
        configuration(
            "/spec/listeners/accessLog",
            json!({"text": "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)% %REQ(x-a?:PATH):10%%%\n"}),
            None,
        ),
        configuration(
            "/spec/listeners/accessLog",
            json!({"text": "%REQ%"}),
            Some("spec.listeners.accessLog.text"),
        ),
        configuration(
            "/spec/listeners/accessLog",
            json!({"text": "%ENVIRONMENT(HOME)%"}),
            Some("spec.listeners.accessLog.text"),
        ),
        configuration("/spec/listeners/compression", json!([]), None),
        configuration(
            "/spec/listeners/compression",
            json!(["Gzip", "Deflate"]),
            Some("spec.listeners.compression[1]"),
        ),
        configuration(
            "/spec/listeners/compression",
            json!(["Gzip", "Gzip"]),
            Some("spec.listeners.compression[1]"),
        ),
        configuration("/spec/listeners/timeouts/request", json!("0s"), None),
        configuration(
            "/spec/listeners/timeouts/requestHeaders",
            json!("10"),
            Some("spec.listeners.timeouts.requestHeaders"),
        ),
        configuration(
            "/spec/listeners/limits/concurrentStreams",
            json!(0),
            Some("spec.listeners.limits.concurrentStreams"),
        ),
        configuration(
            "/spec/listeners/limits/requestHeadersKiB",
            json!(8193),
            Some("spec.listeners.limits.requestHeadersKiB"),
        ),
        configuration(
            "/spec/listeners/limits/requestHeaderCount",
            json!(0),
            Some("spec.listeners.limits.requestHeaderCount"),
        ),
        configuration(
            "/spec/listeners/limits/requestsPerConnection",
            json!(0),
            None,
        ),
        configuration(
            "/spec/listeners/limits/connectionBufferBytes",
            json!(4095),
            Some("spec.listeners.limits.connectionBufferBytes"),
        ),
        configuration(
            "/spec/listeners/limits/http2StreamWindowBytes",
            json!(65_534),
            Some("spec.listeners.limits.http2StreamWindowBytes"),
        ),
        configuration(
            "/spec/listeners/limits/http2ConnectionWindowBytes",
            json!(2_147_483_648u32),
            Some("spec.listeners.limits.http2ConnectionWindowBytes"),
        ),
        configuration(
            "/spec/listeners/trustedHops",
            json!(101),
            Some("spec.listeners.trustedHops"),
        ),
        configuration(
            "/spec/listeners/paths/escapedSlashes",
            json!("Unescape"),
            Some("spec.listeners.paths.escapedSlashes"),
        ),
        configuration(
            "/spec/listeners/headersWithUnderscores",
            json!("Keep"),
            Some("spec.listeners.headersWithUnderscores"),
        ),
        // Translation reports it.
        configuration("/spec/envoy/resources/limits/cpu", json!("much"), None),
        configuration("/spec/defaultPorts/https", Value::Null, None),
        configuration(
            "/spec/defaultPorts/http",
            json!(8444),
            Some("spec.defaultPorts"),
        ),
        configuration(
            "/spec/defaultPorts/http",
            json!(0),
            Some("spec.defaultPorts.http"),
        ),
        configuration(
            "/spec/ingress/classNames",
            json!([]),
            Some("spec.ingress.classNames"),
        ),
        configuration(
            "/spec/httpProxy/fallbackCertificate/namespace",
            Value::Null,
            Some("spec.httpProxy.fallbackCertificate.namespace"),
        ),
        configuration(
            "/spec/rateLimitService/domain",
            json!(""),
            Some("spec.rateLimitService.domain"),
        ),
        configuration(
            "/spec/rateLimitService/defaultGlobalRateLimitPolicy/descriptors",
            json!([]),
            Some("spec.rateLimitService.defaultGlobalRateLimitPolicy.descriptors"),
        ),
        configuration(
            "/spec/rateLimitService/defaultGlobalRateLimitPolicy/descriptors/0/entries",
            json!([{}]),
            Some("spec.rateLimitService.defaultGlobalRateLimitPolicy.descriptors[0].entries[0]"),
        ),
        configuration(
            "/spec/globalAuth/responseTimeout",
            json!("infinity"),
            Some("spec.globalAuth.responseTimeout"),
        ),
        configuration(
            "/spec/globalAuth/withRequestBody/maxRequestBytes",
            json!(1_048_577),
            Some("spec.globalAuth.withRequestBody"),
        ),
        configuration(
            "/spec/globalAuth/withRequestBody/maxRequestBytes",
            json!(0),
            Some("spec.globalAuth.withRequestBody.maxRequestBytes"),
        ),
        configuration(
            "/spec/policy/requestHeaders/set/0/name",
            json!(""),
            Some("spec.policy.requestHeaders.set[0].name"),
        ),
        configuration(
            "/spec/policy/responseHeaders/set/0/value",
            json!(""),
            Some("spec.policy.responseHeaders.set[0].value"),
        ),
        configuration(
            "/spec/policy/responseHeaders/remove",
            json!(["a", "a"]),
            Some("spec.policy.responseHeaders.remove[1]"),
        ),
        // Translation reports it.
        configuration(
            "/spec/policy/requestHeaders/set/0/name",
            json!("host"),
            None,
        ),
        configuration(
            "/spec/tracing/extensionService",
            Value::Null,
            Some("spec.tracing.extensionService"),
        ),
        configuration("/spec/tracing/overallSampling", json!("100.0"), None),
        configuration(
            "/spec/tracing/overallSampling",
            json!("100.5"),
            Some("spec.tracing.overallSampling"),
        ),
        configuration(
            "/spec/tracing/maxPathTagLength",
            json!(0),
            Some("spec.tracing.maxPathTagLength"),
        ),
        configuration(
            "/spec/tracing/customTags/0/requestHeaderName",
            json!("x-env"),
            Some("spec.tracing.customTags[0]"),
        ),
        configuration(
            "/spec/tracing/customTags/1/requestHeaderName",
            json!("x user"),
            Some("spec.tracing.customTags[1].requestHeaderName"),
        ),
        configuration(
            "/spec/tracing/customTags/1/tagName",
            json!("env"),
            Some("spec.tracing.customTags[1]"),
        ),
    ]
}
