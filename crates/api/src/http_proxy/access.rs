//! External authorization and filters of IP addresses.

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
    /// The ExtensionService. Required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub extension_ref: Option<ExtensionServiceReference>,
    /// The service's protocol: Envoy's gRPC API, or HTTP with a copy of the request's head. gRPC by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_type: Option<AuthorizationServiceType>,
    /// Settings for the service type `http`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_settings: Option<Box<HttpAuthorization>>,
    /// What applies to routes that say nothing else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_policy: Option<AuthorizationPolicy>,
    /// How long the service may take: a duration, such as `500ms`, or `infinity`. By default, the timeout of the
    /// ExtensionService, or else 5 seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_timeout: Option<String>,
    /// Whether requests are allowed if the service can't be reached or fails. By default, they get 503.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fail_open: bool,
    /// How much of a request's body is sent to the service. None by default.
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
    /// The namespace; by default, that of the HTTPProxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
    /// The name.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Arc<str>,
}

open_enum! {
    /// The protocol of a service for authorization.
    pub enum AuthorizationServiceType {
        /// Envoy's gRPC API.
        Grpc = "grpc",
        /// HTTP.
        Http = "http",
    }
}

/// What is sent to an HTTP service for authorization, and what is taken from its responses.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct HttpAuthorization {
    /// What is put before the path of the request to the service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/")))]
    pub path_prefix: Option<Arc<str>>,
    /// The headers of the client's request that are sent to the service, in addition to `Host`, `:method`, `:path`,
    /// `Content-Length` and `Authorization`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub allowed_authorization_headers: Vec<AllowedHeader>,
    /// The headers of the service's response that are added to the request to the backend.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub allowed_upstream_headers: Vec<AllowedHeader>,
}

/// Names of headers: exactly one of `exact`, `prefix`, `suffix` and `contains`.
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
    /// What the name starts with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub prefix: Option<Arc<str>>,
    /// What the name ends with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub suffix: Option<Arc<str>>,
    /// What the name contains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub contains: Option<Arc<str>>,
    /// Accepted, and unnecessary: upper and lower case are equal in the names of headers.
    #[serde(default, skip_serializing_if = "is_default")]
    pub ignore_case: bool,
}

/// Changes to the authorization of requests. What a route says wins over what its host says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AuthorizationPolicy {
    /// Whether requests need no authorization.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disabled: bool,
    /// Names and values that are sent to the service. Those of a route are merged with those of its host and win. Only
    /// with the service type `grpc`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("maxProperties" = 32)))]
    pub context: BTreeMap<String, String>,
}

/// How much of a request's body is sent to a service for authorization.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct RequestBodyBuffer {
    /// The maximum number of bytes: at most 8 MiB, or 1 MiB with `allowPartialMessage`.
    #[serde(default = "RequestBodyBuffer::kibibyte")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1)))]
    pub max_request_bytes: u32,
    /// Whether the start of a longer body is sent. By default, requests with a longer body are refused.
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
    /// Which address of a request is compared: `Peer` is that of the connection, `Remote` that of the client according to
    /// trusted proxies, by the header `X-Forwarded-For` or the PROXY protocol.
    pub source: IpFilterSource,
    /// The range, such as `10.0.0.0/8`, or a single address.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub cidr: Arc<str>,
}

open_enum! {
    /// Which address of a request is compared.
    pub enum IpFilterSource {
        /// That of the connection.
        Peer = "Peer",
        /// That of the client according to trusted proxies.
        Remote = "Remote",
    }
}
