//! Rarely used options of routes.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::GlobalRate;

/// Options of [`Forward`](crate::Forward).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ForwardOptions {
    /// How long a stream may be idle; zero for no limit, `None` for the default.
    pub idle_timeout: Option<Duration>,
    /// The Host header for the backend is the value of this request header, if the request has it.
    pub host_from_header: Option<String>,
    /// The parts of requests that select the endpoint, in order, for clusters that hash requests.
    pub hash: Vec<HashPolicy>,
    /// Follows redirects of the backend instead of passing them on; `None` for never.
    pub internal_redirects: Option<InternalRedirects>,
    /// The changes to cookies that targets set: one list for each target, or empty.
    pub cookies: Box<[Arc<[CookieChange]>]>,
}

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
    /// The maximum number for one request; at least 1.
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
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RoutePolicy {
    /// The host's provider whose token a request needs; requests without a valid one get 401 or 403.
    pub jwt: Option<Arc<str>>,
    /// The addresses of clients whose requests pass; all others get 403.
    pub sources: Option<SourceFilter>,
    /// The limit on their rate, for each Envoy.
    pub rate: Option<Rate>,
    /// The limits on their rate across all Envoys.
    pub global_rate: Option<Arc<GlobalRate>>,
}

/// Addresses of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFilter {
    /// Whether the listed addresses pass; if false, all others do.
    pub allow: bool,
    /// Never empty.
    pub ranges: Vec<SourceRange>,
}

/// A range of addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SourceRange {
    /// An address of the range.
    pub address: IpAddr,
    /// The length of the prefix that addresses of the range share.
    pub prefix: u8,
    /// Whether to compare the address of the connection; if false, the trusted client address in `X-Forwarded-For`.
    pub peer: bool,
}

/// The rate limit of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rate {
    /// A limit for this route.
    Own(RateLimit),
    /// The limit of the [`VirtualHost`](crate::VirtualHost), for all such routes together.
    OfHost,
}

/// A rate limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimit {
    /// The number of requests permitted per interval.
    pub requests: u32,
    /// The interval.
    pub interval: Duration,
    /// The number of additional requests permitted in a burst, after a time with fewer.
    pub burst: u32,
    /// The status of rejected requests.
    pub status: u16,
    /// Headers to add to responses to rejected requests.
    pub response_headers: Vec<(String, String)>,
}
