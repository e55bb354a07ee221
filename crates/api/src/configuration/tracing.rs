//! Tracing of the requests of all fleets.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::ObjectName;
use crate::check;
use crate::skip::is_default;

/// Tracing of requests, for all Envoys of the instance. Without this section, requests are traced only for Gateways with a
/// telemetry policy. A valid policy of a Gateway replaces this section for its Envoys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TracingConfiguration {
    /// The ExtensionService of the OpenTelemetry collector, which gets spans over OTLP/gRPC. Its protocol must be `h2` or
    /// `h2c`. Spans are lost while the collector isn't available; requests aren't affected.
    pub extension_service: ObjectName,
    /// The name of the service in the spans. By default, it is `name.namespace` of the Gateway, or `sesame` for the Envoys of
    /// Ingresses and HTTPProxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub service_name: Option<Arc<str>>,
    /// The percentage of requests that are traced, such as `"5"` or `"0.25"`, with at most four decimals; `"100"` by default.
    /// It doesn't depend on whether the client traces the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = r"^(100(\.0{1,4})?|[0-9]{1,2}(\.[0-9]{1,4})?)$"))
    )]
    pub overall_sampling: Option<Arc<str>>,
    /// Whether spans have the attributes `k8s.pod.name` and `k8s.namespace.name` of the Envoy; true by default. They come from
    /// the Envoy's environment variables `POD_NAME` and `POD_NAMESPACE`, and are omitted without these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_pod_detail: Option<bool>,
    /// The maximum length of the URL's path in spans, in bytes; 256 by default. Longer paths are truncated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 8192)))]
    pub max_path_tag_length: Option<u32>,
    /// Additional attributes of spans, with different names.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(max = 64),
            extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["tagName"])
        )
    )]
    pub custom_tags: Vec<CustomTag>,
}

impl TracingConfiguration {
    /// The share of traced requests, in millionths.
    pub fn sampling(&self) -> u32 {
        let sampling = self.overall_sampling.as_deref();
        let sampling = sampling.and_then(check::configuration::percentage);
        sampling.unwrap_or(1_000_000)
    }
}

/// An attribute of spans.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.literal) != has(self.requestHeaderName)", "message": "exactly one of literal and requestHeaderName is required"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomTag {
    /// The name of the attribute.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub tag_name: Arc<str>,
    /// The value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub literal: Option<Arc<str>>,
    /// The name of the request's header that has the value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(regex(pattern = "^[A-Za-z0-9_-]{1,253}$"))
    )]
    pub request_header_name: Option<Arc<str>>,
}
