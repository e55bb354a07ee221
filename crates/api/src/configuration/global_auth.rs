//! External authorization of the requests to all hosts of HTTPProxies.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ObjectName;
use crate::duration::Duration;
use crate::skip::is_default;

/// External authorization of the requests to all hosts of HTTPProxies, with and without TLS. A host's own `authorization`
/// replaces it if it has an `extensionRef`; otherwise, the host's `authPolicy` disables it or adds to its context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GlobalAuthConfiguration {
    /// The ExtensionService, which implements Envoy's gRPC API for authorization. Its protocol must be `h2` or `h2c`. While it
    /// doesn't exist or can't be used, requests that need authorization get a 503 response.
    pub extension_service: ObjectName,
    /// Whether requests are allowed if the service is unreachable or fails. By default, they get a 503 response.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fail_open: bool,
    /// The default policy for hosts.
    #[serde(default, skip_serializing_if = "is_default")]
    pub auth_policy: GlobalAuthPolicy,
    /// The timeout of a call to the service; `0s` disables it. By default, the ExtensionService's timeout, or 5 seconds if
    /// the ExtensionService has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::duration"))]
    pub response_timeout: Option<Duration>,
    /// How much of the request's body is sent to the service; none by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub with_request_body: Option<GlobalAuthBody>,
}

/// The default policy for hosts. The `authPolicy` of a host or a route overrides it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct GlobalAuthPolicy {
    /// Whether requests need no authorization, except those to hosts and routes with an `authPolicy` of their own.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disabled: bool,
    /// Names and values to send to the service, at most 4096 bytes in total. The entries of hosts and routes are merged with
    /// them and take precedence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("maxProperties" = 32)))]
    pub context: BTreeMap<String, String>,
}

/// How much of a request's body is sent to the authorization service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.allowPartialMessage) || !self.allowPartialMessage || !has(self.maxRequestBytes) || self.maxRequestBytes <= 1048576", "message": "maxRequestBytes must not exceed 1048576 with allowPartialMessage"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GlobalAuthBody {
    /// The maximum number of bytes: at most 8 MiB, or 1 MiB with `allowPartialMessage`.
    #[serde(default = "GlobalAuthBody::kibibyte")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 8_388_608)))]
    pub max_request_bytes: u32,
    /// Whether to send the start of a longer body. By default, requests with a longer body are rejected.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_partial_message: bool,
    /// Whether the body is sent as bytes. By default, it is sent as UTF-8 text.
    #[serde(default, skip_serializing_if = "is_default")]
    pub pack_as_bytes: bool,
}

impl GlobalAuthBody {
    fn kibibyte() -> u32 {
        1024
    }
}
