//! ExtensionService: a service that Envoy itself calls, for authorization, rate limits or traces.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use crate::check::{self, Check};
use crate::condition::ConditionsStatus;
use crate::http_proxy::{LoadBalancerPolicy, TimeoutPolicy, UpstreamValidation};
use crate::meta::Meta;
use crate::named::Named;
use crate::object::resource;
use crate::open_enum::open_enum;

/// A service that Envoy itself calls: for authorization, for rate limits, or to send traces.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtensionService {
    /// The metadata.
    #[serde(rename = "metadata")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::metadata"))]
    pub meta: Meta,
    /// Where the service is and how Envoy calls it.
    pub spec: ExtensionServiceSpec,
    /// The status, as reported by Sesame.
    #[serde(default, skip_serializing_if = "ConditionsStatus::is_empty")]
    pub status: ConditionsStatus,
}

resource! { ExtensionService {
    fn check(&self) -> Check {
        check::at("spec", check::extension_service::spec(&self.spec))
    }

    fn references(&self, named: &mut Named) {
        named.by_extension_service(self);
    }
} }

/// Where an extension service is and how Envoy calls it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExtensionServiceSpec {
    /// The Services that calls are sent to, in proportion to their weights. Services of type ExternalName aren't
    /// allowed.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 128)))]
    pub services: Vec<ExtensionServiceTarget>,
    /// How the certificates of the endpoints are verified. By default, they aren't verified. Not allowed with the `h2c`
    /// protocol.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation: Option<Box<UpstreamValidation>>,
    /// The protocol; `h2` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<ExtensionProtocol>,
    /// How an endpoint is chosen. Strategies that read requests don't apply.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub load_balancer_policy: Option<Box<LoadBalancerPolicy>>,
    /// How long calls may take, and how long idle connections stay open. `idle` has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_policy: Option<Box<TimeoutPolicy>>,
    /// The version of Envoy's gRPC APIs that the service implements; only `v3` is supported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol_version: Option<ExtensionProtocolVersion>,
    /// Circuit breaking: limits on connections, requests and retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub circuit_breaker_policy: Option<CircuitBreakerPolicy>,
}

/// A Service that calls are sent to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ExtensionServiceTarget {
    /// The name of the Service, in the ExtensionService's namespace.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Arc<str>,
    /// The port of the Service.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65535)))]
    pub port: u16,
    /// The Service's share of calls: its weight divided by the sum of all weights. If all weights are 0, the shares are
    /// equal.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 1_000_000)))]
    pub weight: i64,
}

open_enum! {
    /// The protocol of an extension service.
    pub enum ExtensionProtocol {
        /// HTTP/2 over TLS.
        H2 = "h2",
        /// HTTP/2 without TLS.
        H2c = "h2c",
        /// HTTP/1.1; over TLS if `validation` is set.
        Http11 = "http/1.1",
    }
}

open_enum! {
    /// A version of Envoy's gRPC APIs.
    pub enum ExtensionProtocolVersion {
        /// Version 3.
        V3 = "v3",
    }
}

/// Limits on connections, requests and retries. 0 means the default: 50,000 of each, 1,024 retries, and no limit for an endpoint.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CircuitBreakerPolicy {
    /// The maximum number of connections from one Envoy.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub max_connections: i64,
    /// The maximum number of requests that wait for a connection.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub max_pending_requests: i64,
    /// The maximum number of requests in progress.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub max_requests: i64,
    /// The maximum number of retries in progress.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub max_retries: i64,
    /// The maximum number of connections from one Envoy to one endpoint.
    #[serde(default, skip_serializing_if = "is_default")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub per_host_max_connections: i64,
}
