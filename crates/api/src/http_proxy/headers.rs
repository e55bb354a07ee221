//! Changes to headers, cookies and paths, and CORS.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::skip::is_default;

use crate::http_filter::HttpHeader;
use crate::open_enum::open_enum;

/// Changes to headers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HeadersPolicy {
    /// The headers to set, replacing existing values. A value may contain some of Envoy's command operators, such as
    /// `%REQ(X-Name)%`, and `%SESAME_NAMESPACE%`, `%SESAME_SERVICE_NAME%` and `%SESAME_SERVICE_PORT%`; other percent
    /// signs are literal.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 128)))]
    pub set: Vec<HttpHeader>,
    /// The names of the headers to remove, case-insensitive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 128), inner(length(min = 1, max = 256)))
    )]
    pub remove: Vec<Arc<str>>,
}

/// Changes to the path of requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct PathRewritePolicy {
    /// Replacements for the matched path prefix. The entry whose `prefix` equals the matched prefix applies, or else
    /// the entry without a `prefix`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(length(max = 64)))]
    pub replace_prefix: Vec<ReplacePrefix>,
}

/// A replacement for a prefix.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ReplacePrefix {
    /// The route's full prefix, with those of the includes that lead to it. If absent, the entry applies to any prefix.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub prefix: Option<Arc<str>>,
    /// The text that replaces the prefix.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 1024)))]
    pub replacement: Arc<str>,
}

/// Changes to the attributes of a cookie. At least one attribute must be set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
// Requires the name and at least one other field; a CEL rule would cost too much in such deeply nested lists.
#[cfg_attr(feature = "schema", schemars(extend("minProperties" = 2)))]
#[serde(rename_all = "camelCase")]
pub struct CookieRewritePolicy {
    /// The name of the cookie, case-sensitive.
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(min = 1, max = 4096),
            regex(pattern = r#"^[^()<>@,;:\\"/\[\]?={} \t\x7f\x00-\x1f]+$"#)
        )
    )]
    pub name: Arc<str>,
    /// The new `Path`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_rewrite: Option<CookieRewrite>,
    /// The new `Domain`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub domain_rewrite: Option<CookieRewrite>,
    /// Whether the cookie is sent only over TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secure: Option<bool>,
    /// The new `SameSite`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub same_site: Option<SameSite>,
}

/// The new value of a cookie attribute.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CookieRewrite {
    /// The value.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 4096), regex(pattern = r"^[^;\x7f\x00-\x1f]+$"))
    )]
    pub value: Arc<str>,
}

open_enum! {
    /// Whether a cookie is sent with requests from other sites.
    pub enum SameSite {
        /// Never.
        Strict = "Strict",
        /// Only on top-level navigation.
        Lax = "Lax",
        /// Always.
        None = "None",
    }
}

/// The cross-origin requests that are allowed (CORS).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase")]
pub struct CorsPolicy {
    /// Whether requests with credentials are allowed.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_credentials: bool,
    /// The origins that may send requests: `*` for all, an origin such as `https://example.com`, or a regular expression
    /// that matches whole origins.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 128), inner(length(min = 1)))
    )]
    pub allow_origin: Vec<Arc<str>>,
    /// The allowed methods; `*` for all.
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 64), inner(length(min = 1)))
    )]
    pub allow_methods: Vec<Arc<str>>,
    /// The names of the allowed request headers; `*` for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 128), inner(length(min = 1)))
    )]
    pub allow_headers: Vec<Arc<str>>,
    /// The names of the response headers that scripts may read; `*` for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(max = 128), inner(length(min = 1)))
    )]
    pub expose_headers: Vec<Arc<str>>,
    /// How long a browser may cache the preflight response: a duration, such as `10m`. 0 disables caching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_age: Option<String>,
    /// Whether pages on public networks may send requests to this host on a private network.
    #[serde(default, skip_serializing_if = "is_default")]
    pub allow_private_network: bool,
}
