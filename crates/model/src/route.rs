use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::{
    ClusterKey, ExternalAuth, FleetId, ForwardOptions, JwtKeys, JwtProvider, RateLimit, RoutePolicy,
};

/// Identifies a route table: the hosts and routes of all listeners on a port.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteTableKey {
    /// The fleet that uses it.
    pub fleet: FleetId,
    /// The port in the owner's spec.
    pub port: u16,
}

impl RouteTableKey {
    /// The resource name within the fleet: `80`.
    pub fn name(&self) -> String {
        self.port.to_string()
    }
}

impl fmt::Display for RouteTableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.fleet, self.name())
    }
}

/// A route table without its virtual hosts, which are separate values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RouteTable {
    /// The listeners' hosts. If one of them has no virtual host, its requests get 404 even if a wider virtual host
    /// matches: only the routes of the most specific listener apply. Sorted, without duplicates; `*` only on a TLS
    /// port.
    pub reserved: Vec<Arc<str>>,
    /// True on a TLS port, where a connection belongs to one listener: requests for hosts of other listeners
    /// are misdirected and get 421.
    pub secure: bool,
}

/// Identifies a virtual host: a domain in a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualHostKey {
    /// The table.
    pub table: RouteTableKey,
    /// `example.com`, `*.example.com` (any number of labels), or `*`. Lowercase.
    pub domain: Arc<str>,
}

/// The routes of one domain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct VirtualHost {
    /// On a TLS port, the hostname of the listener, or `*`: requests on connections of other listeners get 421.
    pub listener: Option<Arc<str>>,
    /// Whether requests on connections of listener `*` are accepted too.
    pub fallback: bool,
    /// The authorization checks for every request, in order; at most [`MAX_HOST_AUTH`](crate::MAX_HOST_AUTH). They run
    /// before a route is selected, and their changes to the request affect the selection. If there are any, the routes
    /// together match all requests.
    pub auth: Box<[Arc<ExternalAuth>]>,
    /// Token issuers, by object, including those that the routes' [`RoutePolicy::jwt`] requires.
    pub jwt: Box<[Arc<[JwtProvider]>]>,
    /// The rate limit that routes with [`Rate::OfHost`](crate::Rate::OfHost) share; `None` if there are no such routes.
    pub rate: Option<Arc<RateLimit>>,
    /// In order; the first match applies. Without a match, the response is 404.
    pub routes: Vec<Arc<Route>>,
    /// Whether matches aren't served as written, because their conditions take too much time together.
    pub overloaded: bool,
}

impl VirtualHost {
    /// The clusters that it uses: for requests, mirrors, checks and fetching JWKS.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterKey> {
        let of_routes = self.routes.iter().flat_map(|route| route.clusters());
        of_routes.chain(self.clusters_of_checks())
    }

    /// The clusters that it uses apart from its routes: for checks and fetching JWKS.
    pub fn clusters_of_checks(&self) -> impl Iterator<Item = &ClusterKey> {
        let of_checks = self.auth.iter().map(|auth| &auth.cluster);
        let providers = self.jwt.iter().flat_map(|providers| providers.iter());
        let of_keys = providers.filter_map(|provider| match &provider.keys {
            JwtKeys::Remote(remote) => Some(&remote.cluster),
            JwtKeys::Inline(_) => None,
        });
        of_checks.chain(of_keys)
    }
}

/// A match and its action.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// The requests that match.
    pub matches: RouteMatch,
    /// The action for them.
    pub action: Action,
    /// Changes to the request before it is forwarded.
    pub request_headers: HeaderChanges,
    /// Changes to the response, including responses that the gateway generates.
    pub response_headers: HeaderChanges,
    /// Cross-origin rules.
    pub cors: Option<Arc<Cors>>,
    /// Session persistence, regardless of the target.
    pub session: Option<Arc<Session>>,
    /// The authorization check before the action. Preflight requests that [`Route::cors`] permits are answered without
    /// it.
    pub auth: Option<Arc<ExternalAuth>>,
    /// The limits that apply to requests before the action; usually `None`.
    pub policy: Option<Arc<RoutePolicy>>,
}

impl Route {
    /// Responds to all requests with this status.
    pub fn respond_to_all(status: u16) -> Self {
        Self {
            matches: RouteMatch {
                path: PathMatch::Prefix("/".to_owned()),
                method: None,
                headers: Vec::new(),
                query: Vec::new(),
                grpc: false,
                share: None,
            },
            action: Action::Respond(status),
            request_headers: HeaderChanges::default(),
            response_headers: HeaderChanges::default(),
            cors: None,
            session: None,
            auth: None,
            policy: None,
        }
    }

    /// The clusters that it uses: for requests, mirrors, checks and rate limits.
    pub fn clusters(&self) -> impl Iterator<Item = &ClusterKey> {
        let policy = self.policy.as_deref();
        let limits = policy.and_then(|policy| policy.global_rate.as_deref());
        let forward = match &self.action {
            Action::Forward(forward) => Some(forward),
            Action::Redirect(_) | Action::Respond(_) | Action::RespondWith(_) => None,
        };
        let forwards = forward.into_iter().flat_map(|forward| {
            let targets = forward.targets.iter();
            let targets = targets.filter_map(|target| target.target.cluster());
            targets.chain(forward.mirrors.iter().map(|mirror| &mirror.cluster))
        });
        let checks = self.auth.iter().map(|auth| &auth.cluster);
        let limits = limits.into_iter().map(|rate| &rate.service.cluster);
        forwards.chain(checks).chain(limits)
    }
}

/// The maximum size of a regular expression's program, in RE2's instructions: the limit of translation and of Envoys.
pub const MAX_PROGRAM_SIZE: u32 = 1_024;

/// A condition on requests. All parts must match.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RouteMatch {
    /// The path, without the query.
    pub path: PathMatch,
    /// The method, case-sensitive.
    pub method: Option<Box<str>>,
    /// Conditions on headers.
    pub headers: Vec<HeaderMatch>,
    /// Conditions on query parameters.
    pub query: Vec<QueryMatch>,
    /// Matches only gRPC calls: requests whose content type is `application/grpc`, possibly with a suffix such as
    /// `+proto`.
    pub grpc: bool,
    /// Matches only if the request's random number is below this share. The number is drawn once per request, so
    /// consecutive routes with increasing shares split requests exactly.
    pub share: Option<PartsPerMillion>,
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PathMatch {
    /// This path only, case-sensitive.
    Exact(String),
    /// Whole segments: `/a` matches `/a`, `/a/` and `/a/b`, but not `/ab`. Has no trailing slash, except `/` itself,
    /// which matches all paths.
    Prefix(String),
    /// Any path that starts with this text: `/a` matches `/a`, `/a/b` and `/ab`. Starts with a slash; `/` is
    /// [`PathMatch::Prefix`].
    StartsWith(String),
    /// The whole path matches this RE2 expression.
    Regex(String),
}

/// A condition on a header.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HeaderMatch {
    /// Case-insensitive.
    pub name: String,
    /// The condition on its value.
    pub value: ValueMatch,
}

/// A condition on a query parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueryMatch {
    /// Case-sensitive.
    pub name: String,
    /// The condition on its value.
    pub value: ValueMatch,
}

/// A condition on the value of a header or query parameter.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ValueMatch {
    /// Equal, case-sensitive.
    Exact(String),
    /// The whole value matches this RE2 expression.
    Regex(String),
    /// There is a value, which may be empty.
    Present,
    /// There is no value. Only for headers.
    Absent,
    /// The value contains a text at a position.
    Text(Box<TextMatch>),
    /// The value doesn't satisfy a condition. Only for headers.
    Not(Box<ValueMatch>),
    /// Like [`ValueMatch::Not`], but a missing header counts as an empty value instead of never matching.
    NotOrAbsent(Box<ValueMatch>),
}

/// A condition for which Envoy reads the whole value, whose time grows with its length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search<'a> {
    /// For an RE2 expression.
    Expression(&'a str),
    /// For a text at any position.
    Text(&'a str),
}

impl ValueMatch {
    /// How Envoy reads the whole value, if the condition needs this.
    pub fn search(&self) -> Option<Search<'_>> {
        match self {
            Self::Regex(expression) => Some(Search::Expression(expression)),
            Self::Text(text) => {
                (text.position == TextPosition::Anywhere).then_some(Search::Text(&text.text))
            }
            Self::Not(condition) | Self::NotOrAbsent(condition) => condition.search(),
            Self::Exact(_) | Self::Present | Self::Absent => None,
        }
    }
}

/// A text to look for in a value.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TextMatch {
    /// Never empty.
    pub text: String,
    /// The position of the text.
    pub position: TextPosition,
    /// Whether case is ignored.
    pub ignore_case: bool,
}

/// The position of a text in a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TextPosition {
    /// It is the whole value.
    Whole,
    /// At the start.
    Start,
    /// At the end.
    End,
    /// Anywhere.
    Anywhere,
}

/// A share of requests, in millionths: 0..=1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartsPerMillion(pub u32);

/// The action for a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Forward to a backend. Shared: a rule has one action for all of its matches.
    Forward(Arc<Forward>),
    /// Redirect the client.
    Redirect(Arc<Redirect>),
    /// Respond with this status and no body.
    Respond(u16),
    /// Respond with a status and a body.
    RespondWith(Box<DirectResponse>),
}

/// A response that the gateway generates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectResponse {
    /// The status.
    pub status: u16,
    /// The body; plain text of at most 4,096 bytes.
    pub body: String,
}

/// How requests are forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Forward {
    /// The targets, chosen by weight; never empty, with a non-zero sum of weights.
    pub targets: Vec<WeightedTarget>,
    /// The status for requests to [`Target::Refused`]: 500 or 503.
    pub refused_status: u16,
    /// The path rewrite; `None` leaves the path unchanged.
    pub path_rewrite: Option<PathRewrite>,
    /// The Host header for the backend; `None` leaves it unchanged.
    pub host_rewrite: Option<Box<str>>,
    /// The clusters that get copies of requests.
    pub mirrors: Vec<Mirror>,
    /// The timeout from the end of the request to the end of the response, including retries; `None` sets no explicit
    /// limit; zero also disables implicit ones. On expiry, the response is 504.
    pub timeout: Option<Duration>,
    /// The timeout for each try; `None` for no limit.
    pub try_timeout: Option<Duration>,
    /// The retry policy; `None` for no retries.
    pub retry: Option<Box<Retry>>,
    /// Rarely used options.
    pub options: Option<Box<ForwardOptions>>,
}

/// A target and its weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedTarget {
    /// The target.
    pub target: Target,
    /// The weight, relative to the sum of all weights. A target with weight 0 doesn't get requests.
    pub weight: u32,
    /// Changes to requests for this target, applied after the route's.
    pub request_headers: HeaderChanges,
    /// Changes to responses from this target, applied after the route's.
    pub response_headers: HeaderChanges,
    /// The Host header for this target; overrides the route's.
    pub host_rewrite: Option<Box<str>>,
    /// Session persistence with this target; overrides the route's.
    pub session: Option<Arc<Session>>,
}

/// The target of requests or connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A cluster.
    Cluster(ClusterKey),
    /// The reference is invalid or not permitted: its share of requests gets [`Forward::refused_status`], and its share
    /// of connections is closed.
    Refused,
}

impl Target {
    /// The cluster, if valid.
    pub fn cluster(&self) -> Option<&ClusterKey> {
        match self {
            Self::Cluster(cluster) => Some(cluster),
            Self::Refused => None,
        }
    }
}

/// A path rewrite. The query is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRewrite {
    /// Replaces the whole path.
    Full(String),
    /// Replaces the prefix matched by [`PathMatch::Prefix`]; the result has exactly one slash before the rest.
    Prefix(String),
    /// Replaces the text matched by [`PathMatch::StartsWith`] or [`PathMatch::Exact`], regardless of slashes. With
    /// [`PathMatch::Prefix`], replaces the text of the prefix.
    Text(String),
}

/// A cluster that gets copies of requests and whose responses are ignored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// The cluster that gets the copies.
    pub cluster: ClusterKey,
    /// The share of requests to copy; `None` for all.
    pub share: Option<PartsPerMillion>,
}

/// When requests are retried.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    /// The maximum number of retries; at least 1.
    pub attempts: u32,
    /// Retry conditions besides `codes`, by their HTTPProxy names (`5xx`, `connect-failure`); if empty, only
    /// failures in which the backend can't have processed the request. Sorted.
    pub on: Vec<String>,
    /// The statuses to retry. Sorted.
    pub codes: Vec<u16>,
    /// The minimum backoff.
    pub backoff: Option<Duration>,
}

/// The target of a redirect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Redirect {
    /// `http` or `https`; `None` keeps the request's.
    pub scheme: Option<String>,
    /// The hostname; `None` keeps the request's.
    pub hostname: Option<String>,
    /// The port in the new URL.
    pub port: RedirectPort,
    /// The path rewrite; `None` keeps the request's path.
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

impl Redirect {
    /// A redirect to the same host and path with HTTPS, on this port.
    pub fn to_https(port: u16) -> Self {
        Self {
            scheme: Some("https".to_owned()),
            hostname: None,
            port: RedirectPort::Exact(port),
            path: None,
            status: 301,
        }
    }
}

/// The port of a redirect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectPort {
    /// This port; omitted if it is the scheme's default.
    Exact(u16),
    /// The default port of the redirect's scheme.
    OfScheme,
    /// The port of the listener that received the request; omitted if it is the scheme's default.
    OfListener,
}

/// A [`HeaderLists`] that doesn't allocate when it is empty, which is the common case. Clones share the lists.
#[derive(Clone, Default)]
pub struct HeaderChanges(Option<Arc<HeaderLists>>);

/// Changes to headers. Each name is in at most one of the lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderLists {
    /// Replace all values with this one.
    pub set: Vec<(String, String)>,
    /// Append to the existing values.
    pub add: Vec<(String, String)>,
    /// Remove.
    pub remove: Vec<String>,
    /// Replace all values with one that contains references to the request or response, in HTTPProxy's syntax
    /// (`%REQ(x-id)%`). Other percent signs are doubled.
    pub computed: Vec<(String, String)>,
}

impl HeaderLists {
    const NONE: &Self = &Self {
        set: Vec::new(),
        add: Vec::new(),
        remove: Vec::new(),
        computed: Vec::new(),
    };

    /// True if there are no changes.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty()
            && self.add.is_empty()
            && self.remove.is_empty()
            && self.computed.is_empty()
    }
}

impl From<HeaderLists> for HeaderChanges {
    fn from(lists: HeaderLists) -> Self {
        Self((!lists.is_empty()).then(|| Arc::new(lists)))
    }
}

impl Deref for HeaderChanges {
    type Target = HeaderLists;

    fn deref(&self) -> &HeaderLists {
        self.0.as_deref().unwrap_or(HeaderLists::NONE)
    }
}

impl DerefMut for HeaderChanges {
    fn deref_mut(&mut self) -> &mut HeaderLists {
        Arc::make_mut(self.0.get_or_insert_default())
    }
}

impl Eq for HeaderChanges {}

impl PartialEq for HeaderChanges {
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl fmt::Debug for HeaderChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// A CORS policy: the gateway itself answers preflight requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    /// Permitted origins. Requests from other origins are forwarded; their responses don't get CORS headers.
    pub origins: Vec<OriginMatch>,
    /// Whether credentials, such as cookies, are permitted.
    pub credentials: bool,
    /// Permitted methods.
    pub methods: List,
    /// Permitted request headers.
    pub headers: List,
    /// Response headers that scripts may read.
    pub expose: List,
    /// How long browsers may cache the response to a preflight.
    pub max_age: Duration,
    /// Whether pages of public networks may send requests to private ones.
    pub private_network: bool,
}

/// A permitted origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginMatch {
    /// `*`.
    Any,
    /// `https://example.com:8443`.
    Exact(String),
    /// `https://*.example.com`, split at the `*`, which matches one or more labels. `behind` may be empty.
    Wildcard {
        /// `https://`.
        before: String,
        /// `.example.com`.
        behind: String,
    },
    /// The whole origin matches this RE2 expression.
    Regex(String),
}

/// A list of names, or all names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// Only these names.
    Only(Vec<String>),
    /// `*`: all names.
    All,
}

/// How later requests from a client reach the same endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Session {
    /// The gateway sets a cookie.
    Cookie {
        /// The name.
        name: String,
        /// The path.
        path: String,
        /// The cookie's lifetime; `None` for a session cookie.
        lifetime: Option<Duration>,
    },
    /// The gateway sets a response header, which clients send with later requests.
    Header {
        /// The name.
        name: String,
    },
}
