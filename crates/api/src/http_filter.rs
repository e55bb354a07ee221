//! Filter bodies.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::http_route::HttpMethod;
use crate::open_enum::open_enum;
use crate::reference::BackendObjectReference;

/// Changes to headers. Each header is in at most one of the three lists.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HeaderModifier {
    /// Headers to set, replacing existing values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub set: Vec<HttpHeader>,
    /// Headers to append to existing values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub add: Vec<HttpHeader>,
    /// The names of headers to remove, case-insensitive.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remove: Vec<Arc<str>>,
}

/// A header and its value.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HttpHeader {
    /// The name, case-insensitive.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub name: Arc<str>,
    /// The value.
    #[cfg_attr(feature = "schema", schemars(length(max = 4096)))]
    pub value: Arc<str>,
}

/// Copies requests to another backend and ignores its responses.
///
/// At most one of `percent` and `fraction` is set; without either, all requests are copied.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestMirror {
    /// The backend.
    pub backend_ref: BackendObjectReference,
    /// The percentage of requests, 0 to 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub percent: Option<u32>,
    /// The share of requests as a fraction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fraction: Option<Fraction>,
}

/// A fraction from 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fraction {
    /// The numerator, not greater than the denominator.
    pub numerator: u32,
    /// The denominator, at least 1; 100 by default.
    #[serde(default = "Fraction::default_denominator")]
    pub denominator: u32,
}

impl Fraction {
    fn default_denominator() -> u32 {
        100
    }
}

/// A redirect; missing parts are taken from the request.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RequestRedirect {
    /// The scheme.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheme: Option<RedirectScheme>,
    /// The hostname.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Arc<str>>,
    /// The path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathModifier>,
    /// The port, 1 to 65535. Defaults to the scheme's well-known port if `scheme` is set, otherwise
    /// to the listener's port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
    /// The status: 301, 302, 303, 307 or 308; 302 by default.
    #[serde(default = "RequestRedirect::default_status_code")]
    pub status_code: u16,
}

impl RequestRedirect {
    fn default_status_code() -> u16 {
        302
    }
}

open_enum! {
    /// The scheme of a redirect.
    pub enum RedirectScheme {
        /// http.
        Http = "http",
        /// https.
        Https = "https",
    }
}

/// A change to the host or path of requests.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct UrlRewrite {
    /// The new value of the Host header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hostname: Option<Arc<str>>,
    /// The new path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathModifier>,
}

/// A change to the path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "RawPathModifier", into = "RawPathModifier")]
pub enum PathModifier {
    /// Replaces the whole path.
    ReplaceFullPath(Arc<str>),
    /// Replaces the matched prefix.
    ReplacePrefixMatch(Arc<str>),
    /// An unknown type.
    Unknown(Arc<str>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawPathModifier {
    #[serde(rename = "type")]
    type_: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replace_full_path: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    replace_prefix_match: Option<Arc<str>>,
}

impl TryFrom<RawPathModifier> for PathModifier {
    type Error = String;

    fn try_from(raw: RawPathModifier) -> Result<Self, String> {
        match (&*raw.type_, raw.replace_full_path, raw.replace_prefix_match) {
            ("ReplaceFullPath", Some(path), None) => Ok(PathModifier::ReplaceFullPath(path)),
            ("ReplacePrefixMatch", None, Some(path)) => Ok(PathModifier::ReplacePrefixMatch(path)),
            ("ReplaceFullPath", ..) => {
                Err("type ReplaceFullPath requires replaceFullPath and no other field".to_owned())
            }
            ("ReplacePrefixMatch", ..) => Err(
                "type ReplacePrefixMatch requires replacePrefixMatch and no other field".to_owned(),
            ),
            (other, None, None) => Ok(PathModifier::Unknown(other.into())),
            (other, ..) => Err(format!(
                "type {other} allows neither replaceFullPath nor replacePrefixMatch"
            )),
        }
    }
}

impl From<PathModifier> for RawPathModifier {
    fn from(modifier: PathModifier) -> Self {
        let (type_, replace_full_path, replace_prefix_match) = match modifier {
            PathModifier::ReplaceFullPath(path) => ("ReplaceFullPath".into(), Some(path), None),
            PathModifier::ReplacePrefixMatch(path) => {
                ("ReplacePrefixMatch".into(), None, Some(path))
            }
            PathModifier::Unknown(type_) => (type_, None, None),
        };
        RawPathModifier {
            type_,
            replace_full_path,
            replace_prefix_match,
        }
    }
}

/// A CORS policy (Fetch standard).
///
/// In each list, `*` means all and must be the only entry.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cors {
    /// The allowed origins, as `scheme://host[:port]`; the host may start with `*.`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_origins: Vec<Arc<str>>,
    /// Whether requests may carry credentials.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub allow_credentials: bool,
    /// The methods; `Other("*")` means all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_methods: Vec<HttpMethod>,
    /// The allowed request headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_headers: Vec<Arc<str>>,
    /// The response headers exposed to scripts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub expose_headers: Vec<Arc<str>>,
    /// How long a browser may cache the preflight response, in seconds; 5 by default, at least 1.
    #[serde(default = "Cors::default_max_age")]
    pub max_age: u32,
}

impl Cors {
    fn default_max_age() -> u32 {
        5
    }
}

/// External authorization of requests (experimental).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExternalAuth {
    /// The protocol of the service.
    pub protocol: ExternalAuthProtocol,
    /// The authorization service.
    pub backend_ref: BackendObjectReference,
    /// Settings for gRPC; required with protocol GRPC, not allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcAuth>,
    /// Settings for HTTP; required with protocol HTTP, not allowed otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpAuth>,
    /// Forwards the request body to the service; if absent, the body is not forwarded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub forward_body: Option<ForwardBody>,
}

open_enum! {
    /// The protocol of an authorization service.
    pub enum ExternalAuthProtocol {
        /// Envoy's ext_authz protocol over gRPC.
        Grpc = "GRPC",
        /// An HTTP request like the client's.
        Http = "HTTP",
    }
}

/// Settings for authorization over gRPC.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcAuth {
    /// The request headers sent to the service; all if empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_headers: Vec<Arc<str>>,
}

/// Settings for authorization over HTTP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpAuth {
    /// A prefix to add to the request's path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<Arc<str>>,
    /// The request headers sent to the service, besides Host, Method, Path, Content-Length and
    /// Authorization.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_headers: Vec<Arc<str>>,
    /// The service's response headers that are sent to the backend; if empty, all except
    /// pseudo-headers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_response_headers: Vec<Arc<str>>,
}

/// How the request body is forwarded to the service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForwardBody {
    /// The maximum size in bytes; with 0, no body is forwarded.
    #[serde(default)]
    pub max_size: u32,
}
