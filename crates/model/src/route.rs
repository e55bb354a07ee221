use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::{ClusterKey, FleetId};

/// Names a route table: the hosts and routes that answer on one plain port, or on one TLS listener.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteTableKey {
    /// The fleet that uses it.
    pub fleet: FleetId,
    /// The port as the Gateway names it.
    pub port: u16,
    /// The TLS listener; `None` for a plain port, where all listeners share one table.
    pub listener: Option<Arc<str>>,
}

impl RouteTableKey {
    /// The name by which the fleet's Envoys ask for it: `80`, `443/web`.
    pub fn name(&self) -> String {
        match &self.listener {
            None => self.port.to_string(),
            Some(listener) => format!("{}/{listener}", self.port),
        }
    }
}

impl fmt::Display for RouteTableKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.fleet, self.name())
    }
}

/// A route table apart from its hosts, which are rows of their own.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteTable {
    /// Hosts of the table's own listeners. One that has no virtual host is answered 404, even where a wider virtual host
    /// would take it: a request reaches the routes of the most specific listener only. Sorted, without `*`.
    pub reserved: Vec<String>,
    /// Hosts that belong to another listener of the same port: a request for one of them arrived on the wrong
    /// connection and is answered 421. Sorted; disjoint from the domains of the table's virtual hosts.
    pub misdirected: Vec<String>,
}

/// Names a virtual host: a domain within a table.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VirtualHostKey {
    /// The table it is in.
    pub table: RouteTableKey,
    /// `example.com`, `*.example.com` (any number of labels), or `*`. Lower case.
    pub domain: Arc<str>,
}

/// The routes of one domain.
#[derive(Clone, Debug, PartialEq)]
pub struct VirtualHost {
    /// True where the table answers on TLS connections.
    pub secure: bool,
    /// Tried in this order: the first that matches answers; none: 404.
    pub routes: Vec<Arc<Route>>,
}

/// A match and what it leads to.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Which requests.
    pub matches: RouteMatch,
    /// What becomes of them.
    pub action: Action,
    /// Changes to the request before it is forwarded.
    pub request_headers: HeaderChanges,
    /// Changes to the response, whoever made it.
    pub response_headers: HeaderChanges,
    /// Cross-origin rules.
    pub cors: Option<Arc<Cors>>,
    /// Keep a client at the endpoint that it got first.
    pub session: Option<Arc<Session>>,
}

/// Which requests a route takes: all parts must hold.
#[derive(Clone, Debug, PartialEq)]
pub struct RouteMatch {
    /// The path, without the query.
    pub path: PathMatch,
    /// The method, exactly.
    pub method: Option<String>,
    /// Headers that must be there.
    pub headers: Vec<HeaderMatch>,
    /// Query parameters that must be there.
    pub query: Vec<QueryMatch>,
    /// Only requests whose random number lies below this share. The number is drawn once a request, so that
    /// consecutive routes with rising shares split the requests exactly.
    pub share: Option<PartsPerMillion>,
}

/// Which paths.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathMatch {
    /// This path and no other; letter case counts.
    Exact(String),
    /// Whole segments: `/a` takes `/a`, `/a/` and `/a/b`, never `/ab`. Without trailing slash, but for `/`, which
    /// takes all.
    Prefix(String),
    /// The whole path matches this RE2 expression.
    Regex(String),
}

/// A header's condition.
#[derive(Clone, Debug, PartialEq)]
pub struct HeaderMatch {
    /// Letter case doesn't count.
    pub name: String,
    /// What its value must be.
    pub value: ValueMatch,
}

/// A query parameter's condition.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryMatch {
    /// Letter case counts.
    pub name: String,
    /// What its value must be.
    pub value: ValueMatch,
}

/// A condition on a value.
#[derive(Clone, Debug, PartialEq)]
pub enum ValueMatch {
    /// Equal, letter case included.
    Exact(String),
    /// The whole value matches this RE2 expression.
    Regex(String),
}

/// A share of requests, in millionths: 0..=1,000,000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartsPerMillion(pub u32);

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It goes to a backend.
    Forward(Box<Forward>),
    /// The client is sent elsewhere.
    Redirect(Box<Redirect>),
    /// The gateway answers with this status and no body.
    Respond(u16),
}

/// A request on its way to a backend.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    /// Whom to choose from; never empty, and the weights' sum is not 0.
    pub targets: Vec<WeightedTarget>,
    /// How the path changes.
    pub path_rewrite: Option<PathRewrite>,
    /// The Host that the backend sees.
    pub host_rewrite: Option<String>,
    /// Who else gets a copy.
    pub mirrors: Vec<Mirror>,
    /// From the end of the request to the end of the response, retries included; `None`: no limit. On expiry 504.
    pub timeout: Option<Duration>,
    /// The same for each try; `None`: no limit.
    pub try_timeout: Option<Duration>,
    /// When to try again; `None`: never.
    pub retry: Option<Retry>,
}

/// One choice among several.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedTarget {
    /// Who answers.
    pub target: Target,
    /// Its share of the sum of all weights. 0 is never chosen.
    pub weight: u32,
    /// Changes to a request that goes here, after the route's own.
    pub request_headers: HeaderChanges,
    /// Changes to a response that comes from here, after the route's own.
    pub response_headers: HeaderChanges,
    /// The Host that this backend sees, before the route's.
    pub host_rewrite: Option<String>,
}

/// Who answers a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// A cluster.
    Cluster(ClusterKey),
    /// Nobody: the reference is wrong or not permitted, and its share of the requests gets 500.
    Refused,
}

/// How a path changes. The query stays.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PathRewrite {
    /// The whole path becomes this.
    Full(String),
    /// The matched prefix (of a [`PathMatch::Prefix`]) becomes this; slashes at the seam are single.
    Prefix(String),
}

/// A copy of requests for somebody whose answer nobody waits for.
#[derive(Clone, Debug, PartialEq)]
pub struct Mirror {
    /// Who gets the copy.
    pub cluster: ClusterKey,
    /// Of how many requests; `None`: all.
    pub share: Option<PartsPerMillion>,
}

/// When a request is tried again.
#[derive(Clone, Debug, PartialEq)]
pub struct Retry {
    /// Tries after the first; at least 1. Connections that fail are always a reason.
    pub attempts: u32,
    /// Statuses that are a reason too. Sorted.
    pub codes: Vec<u16>,
    /// The shortest pause before the next try.
    pub backoff: Option<Duration>,
}

/// Where a client is sent.
#[derive(Clone, Debug, PartialEq)]
pub struct Redirect {
    /// `http` or `https`; `None`: as it came.
    pub scheme: Option<String>,
    /// `None`: as it came.
    pub hostname: Option<String>,
    /// The port in the new address.
    pub port: RedirectPort,
    /// `None`: as it came.
    pub path: Option<PathRewrite>,
    /// 301, 302, 303, 307 or 308.
    pub status: u16,
}

/// The port of a redirect's target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RedirectPort {
    /// This one; left out where it is the scheme's own.
    Exact(u16),
    /// The well-known port of the redirect's scheme.
    OfScheme,
    /// The port of the listener that the request came to; left out where it is the scheme's own.
    OfListener,
}

/// Changes to headers: a [`HeaderLists`] that takes no room where nothing changes, which is nearly everywhere.
#[derive(Clone, Default)]
pub struct HeaderChanges(Option<Box<HeaderLists>>);

/// Names, and what to do with them. A name is in one of the three at most.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HeaderLists {
    /// Replace all values by this one.
    pub set: Vec<(String, String)>,
    /// Put behind what is there.
    pub add: Vec<(String, String)>,
    /// Take away.
    pub remove: Vec<String>,
}

impl HeaderLists {
    const NONE: &Self = &Self {
        set: Vec::new(),
        add: Vec::new(),
        remove: Vec::new(),
    };

    /// True if nothing changes.
    pub fn is_empty(&self) -> bool {
        self.set.is_empty() && self.add.is_empty() && self.remove.is_empty()
    }
}

impl From<HeaderLists> for HeaderChanges {
    fn from(lists: HeaderLists) -> Self {
        Self((!lists.is_empty()).then(|| Box::new(lists)))
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
        self.0.get_or_insert_default()
    }
}

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

/// Cross-origin resource sharing: the gateway answers preflights itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Cors {
    /// Whose scripts may call. Others still reach the backend, without permission in the answer.
    pub origins: Vec<OriginMatch>,
    /// Whether cookies and the like may come along.
    pub credentials: bool,
    /// Methods permitted.
    pub methods: List,
    /// Request headers permitted.
    pub headers: List,
    /// Response headers that scripts may read.
    pub expose: List,
    /// How long a browser may remember the preflight's answer.
    pub max_age: Duration,
}

/// Which origins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OriginMatch {
    /// `*`.
    Any,
    /// `https://example.com:8443`.
    Exact(String),
    /// `https://*.example.com`: what stands before and behind the star, which takes one or more labels. Behind may be
    /// empty.
    Wildcard {
        /// `https://`.
        before: String,
        /// `.example.com`.
        behind: String,
    },
}

/// Names, or all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum List {
    /// These.
    Only(Vec<String>),
    /// `*`: whatever is asked for.
    All,
}

/// How a client stays at one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Session {
    /// A cookie that the gateway sets.
    Cookie {
        /// Its name.
        name: String,
        /// Its path.
        path: String,
        /// How long it lives; `None`: until the browser closes.
        lifetime: Option<Duration>,
    },
    /// A header that the gateway sets on the response and the client sends along.
    Header {
        /// Its name.
        name: String,
    },
}
