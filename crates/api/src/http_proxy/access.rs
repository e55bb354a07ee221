//! External authorization and IP address filters.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use crate::open_enum::open_enum;

/// The external service that decides whether a request is authorized.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct AuthorizationServer {
    /// The ExtensionService. Required, unless the Sesame instance has an authorization for all hosts; without an ExtensionService, only
    /// `authPolicy` applies to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension_ref: Option<ExtensionServiceReference>,
    /// The service's protocol: `grpc` (Envoy's gRPC API), or `http` (a request with the client's method, path and
    /// selected headers); `grpc` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_type: Option<AuthorizationServiceType>,
    /// Settings for the `http` service type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_settings: Option<Box<HttpAuthorization>>,
    /// The default policy for routes. A route's `authPolicy` overrides it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_policy: Option<AuthorizationPolicy>,
    /// The timeout of a call to the service: a duration, such as `500ms`, or `infinity`. By default, the
    /// ExtensionService's timeout, or 5 seconds if the ExtensionService has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_timeout: Option<String>,
    /// Whether requests are allowed if the service is unreachable or fails. By default, they get a 503 response.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fail_open: bool,
    /// How much of the request's body is sent to the service; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_request_body: Option<RequestBodyBuffer>,
}

/// A reference to an ExtensionService.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExtensionServiceReference {
    /// The API version; `projectsesame.io/v1alpha1` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_version: Option<Arc<str>>,
    /// The namespace; by default, the HTTPProxy's namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
    /// The name.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Arc<str>,
}

open_enum! {
    /// The protocol of an authorization service.
    pub enum AuthorizationServiceType {
        /// Envoy's gRPC API.
        Grpc = "grpc",
        /// HTTP.
        Http = "http",
    }
}

/// The path and headers of requests to an HTTP authorization service, and the headers taken from its responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HttpAuthorization {
    /// A prefix for the path of requests to the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/")))]
    pub path_prefix: Option<Arc<str>>,
    /// Client request headers to forward to the service, in addition to `Host`, `:method`, `:path`, `Content-Length`
    /// and `Authorization`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub allowed_authorization_headers: Vec<AllowedHeader>,
    /// Headers to copy from the service's response to the request to the backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub allowed_upstream_headers: Vec<AllowedHeader>,
}

/// A match on header names: exactly one of `exact`, `prefix`, `suffix` and `contains`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "[has(self.exact), has(self.prefix), has(self.suffix), has(self.contains)].filter(set, set).size() == 1",
    "message": "exactly one of exact, prefix, suffix and contains is required",
}])))]
#[serde(rename_all = "camelCase")]
pub struct AllowedHeader {
    /// The name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub exact: Option<Arc<str>>,
    /// The start of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub prefix: Option<Arc<str>>,
    /// The end of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub suffix: Option<Arc<str>>,
    /// Text that the name contains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub contains: Option<Arc<str>>,
    /// Accepted but has no effect: header names are case-insensitive.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignore_case: bool,
}

/// Authorization settings for a host or a route. A route's settings override its host's.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuthorizationPolicy {
    /// Whether authorization is disabled.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disabled: bool,
    /// Names and values to send to the service; only with the `grpc` service type. A route's entries are merged with
    /// its host's and take precedence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("maxProperties" = 32)))]
    pub context: BTreeMap<String, String>,
}

/// How much of a request's body is sent to an authorization service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestBodyBuffer {
    /// The maximum number of bytes: at most 8 MiB, or 1 MiB with `allowPartialMessage`.
    #[serde(default = "RequestBodyBuffer::kibibyte")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub max_request_bytes: u32,
    /// Whether to send the start of a longer body. By default, requests with a longer body are rejected.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_partial_message: bool,
    /// Whether the body is sent to a gRPC service as bytes. By default, it is sent as UTF-8 text.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pack_as_bytes: bool,
}

impl RequestBodyBuffer {
    fn kibibyte() -> u32 {
        1024
    }
}

/// A range of IP addresses.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct IpFilter {
    /// The address to compare: `Peer` is the source address of the connection; `Remote` is the client address that
    /// trusted proxies report in the `X-Forwarded-For` header or through the PROXY protocol.
    pub source: IpFilterSource,
    /// The range, such as `10.0.0.0/8`, or a single address.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub cidr: Arc<str>,
}

open_enum! {
    /// The address to compare.
    pub enum IpFilterSource {
        /// The source address of the connection.
        Peer = "Peer",
        /// The client address that trusted proxies report.
        Remote = "Remote",
    }
}
