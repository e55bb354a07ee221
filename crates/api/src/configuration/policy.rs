//! Changes to the headers of all requests and responses.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

/// Changes to the headers of requests and responses, for all routes of HTTPProxies. A route's own policy takes precedence
/// for the headers that it sets or removes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PolicyConfiguration {
    /// The headers of requests that are forwarded to Services.
    #[serde(default, skip_serializing_if = "is_default")]
    pub request_headers: DefaultHeaders,
    /// The headers of responses, including redirects and error responses of Sesame's routes.
    #[serde(default, skip_serializing_if = "is_default")]
    pub response_headers: DefaultHeaders,
    /// Whether the changes also apply to the routes of Ingresses.
    #[serde(default, skip_serializing_if = "is_default")]
    pub apply_to_ingress: bool,
}

/// Changes to headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DefaultHeaders {
    /// The headers to set, replacing existing values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(max = 64),
            extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"])
        )
    )]
    pub set: Vec<DefaultHeader>,
    /// The names of the headers to remove, case-insensitive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(max = 64),
            inner(length(min = 1, max = 256)),
            extend("x-kubernetes-list-type" = "set")
        )
    )]
    pub remove: Vec<Arc<str>>,
}

/// A header and its value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DefaultHeader {
    /// The name, case-insensitive. Framing headers, `Host`, and names that start with `x-envoy-` or `x-sesame-` aren't allowed.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub name: Arc<str>,
    /// The value. It may contain some of Envoy's command operators, such as `%REQ(X-Name)%`, and `%SESAME_NAMESPACE%`, the
    /// namespace of the HTTPProxy or Ingress; other percent signs are literal.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 4096)))]
    pub value: Arc<str>,
}
