//! Redirects and fixed responses.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use crate::http_filter::RedirectScheme;
use crate::open_enum::open_enum;

/// A redirect response. Parts of the URL that aren't set stay unchanged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.path) && has(self.prefix))",
    "message": "path and prefix are mutually exclusive",
}])))]
#[serde(rename_all = "camelCase")]
pub struct RequestRedirectPolicy {
    /// The new scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<RedirectScheme>,
    /// The new hostname.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(min = 1, max = 253),
            regex(pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
        )
    )]
    pub hostname: Option<Arc<str>>,
    /// The new port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65535)))]
    pub port: Option<u16>,
    /// The status code of the response.
    #[serde(default = "RequestRedirectPolicy::found")]
    #[cfg_attr(feature = "schema", schemars(extend("enum" = [301, 302, 303, 307, 308])))]
    pub status_code: u16,
    /// The new path. Mutually exclusive with `prefix`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/")))]
    pub path: Option<Arc<str>>,
    /// The replacement for the matched path prefix. Mutually exclusive with `path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(regex(pattern = "^/")))]
    pub prefix: Option<Arc<str>>,
}

impl RequestRedirectPolicy {
    fn found() -> u16 {
        302
    }
}

/// A fixed response.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct DirectResponsePolicy {
    /// The status code of the response.
    #[cfg_attr(feature = "schema", schemars(range(min = 200, max = 599)))]
    pub status_code: u16,
    /// The body; empty by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub body: Option<Arc<str>>,
}

/// The redirects that Envoy follows itself when a backend returns them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct InternalRedirectPolicy {
    /// The maximum number of redirects to follow for one request; 1 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 0, max = 4_294_967_295i64)))]
    pub max_internal_redirects: Option<i64>,
    /// The status codes of redirects to follow; only 302 by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 5), extend("items" = {"type": "integer", "format": "int32", "enum": [301, 302, 303, 307, 308]})))]
    pub redirect_response_codes: Vec<u16>,
    /// Whether to follow redirects between HTTPS and HTTP; never by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allow_cross_scheme_redirect: Option<CrossSchemeRedirect>,
    /// Whether to return a redirect to the client, instead of following it, if it leads to a route that this request
    /// has already used.
    #[serde(default, skip_serializing_if = "is_default")]
    pub deny_repeated_route_redirect: bool,
}

open_enum! {
    /// Whether to follow redirects to another scheme.
    pub enum CrossSchemeRedirect {
        /// In both directions.
        Always = "Always",
        /// Not at all.
        Never = "Never",
        /// Not from HTTPS to HTTP.
        SafeOnly = "SafeOnly",
    }
}
