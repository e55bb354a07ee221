//! Rarely used route options.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::GlobalRate;

/// Options for [`Forward`](crate::Forward).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ForwardOptions {
    /// How long a stream may be idle; zero for no limit, `None` for the default.
    pub idle_timeout: Option<Duration>,
    /// The request header whose value becomes the Host header for the backend, if the request has it.
    pub host_from_header: Option<String>,
    /// The parts of a request that select the endpoint, in order, for clusters that hash requests.
    pub hash: Vec<HashPolicy>,
    /// The backend's redirects to follow instead of passing them on; `None` follows none.
    pub internal_redirects: Option<InternalRedirects>,
    /// Changes to the cookies that targets set: one list for each target, or empty.
    pub cookies: Box<[Arc<[CookieChange]>]>,
}

/// The maximum number of redirects that Envoy follows for a request. Each counts as a pass of an Envoy, and the passes of
/// a request are limited, so that it can't go round in a circle.
pub const MAX_INTERNAL_REDIRECTS: u32 = 3;

/// Changes to the attributes of a cookie that a response sets (RFC 6265, section 4.1). `None` leaves an attribute
/// unchanged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CookieChange {
    /// The name of the cookie, case-sensitive: a token. Names are unique in a list.
    pub name: Arc<str>,
    /// `Path`. Not empty; ASCII without control characters and semicolons.
    pub path: Option<Arc<str>>,
    /// `Domain`, with the same characters.
    pub domain: Option<Arc<str>>,
    /// Whether `Secure` is present.
    pub secure: Option<bool>,
    /// `SameSite`: `Strict`, `Lax` or `None`.
    pub same_site: Option<&'static str>,
}

/// A part of a request that selects an endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HashPolicy {
    /// The part.
    pub of: HashOf,
    /// Whether later policies are ignored if the request has this part.
    pub terminal: bool,
}

/// A part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HashOf {
    /// A header.
    Header(String),
    /// A query parameter.
    Query(String),
    /// The client's address.
    Source,
    /// A session cookie, which the gateway sets if it is missing.
    Cookie {
        /// The name.
        name: String,
        /// The path.
        path: String,
    },
}

/// Redirects that the gateway follows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InternalRedirects {
    /// The maximum number of redirects for one request; at least 1.
    pub max: u32,
    /// The statuses: 301, 302, 303, 307 or 308. Never empty, sorted.
    pub codes: Vec<u16>,
    /// Whether redirects to another scheme are followed.
    pub cross_scheme: CrossScheme,
    /// Whether a redirect to a route that has already redirected the request is passed on to the client.
    pub deny_repeated: bool,
}

/// Whether redirects to another scheme are followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CrossScheme {
    /// Never.
    Never,
    /// Only from HTTPS to HTTP, and only if the request was encrypted.
    SafeOnly,
    /// Always.
    Always,
}

/// Limits on requests.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutePolicy {
    /// The name of the host's provider whose token is required; requests without a valid token get 401 or 403.
    pub jwt: Option<Arc<str>>,
    /// The client addresses whose requests pass; all other requests get 403.
    pub sources: Option<SourceFilter>,
    /// The rate limit, for each Envoy.
    pub rate: Option<Rate>,
    /// The rate limits across all Envoys.
    pub global_rate: Option<Arc<GlobalRate>>,
}

/// A filter by client address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFilter {
    /// Whether the listed addresses pass; if false, all other addresses pass.
    pub allow: bool,
    /// Never empty.
    pub ranges: Vec<SourceRange>,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// An address in the range.
    pub address: IpAddr,
    /// The length, in bits, of the prefix that all addresses in the range share.
    pub prefix: u8,
    /// Whether to compare the address of the connection's peer; if false, compares the trusted client address in
    /// `X-Forwarded-For`.
    pub peer: bool,
}

/// The rate limit of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rate {
    /// A limit for this route.
    Own(RateLimit),
    /// The [`VirtualHost`](crate::VirtualHost)'s limit, which all such routes share.
    OfHost,
}

/// A rate limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The number of requests permitted per interval.
    pub requests: u32,
    /// The interval.
    pub interval: Duration,
    /// The number of additional requests permitted in a burst after a time with fewer requests.
    pub burst: u32,
    /// The status of rejected requests.
    pub status: u16,
    /// Headers to add to responses to rejected requests.
    pub response_headers: Vec<(String, String)>,
}
