//! HTTPRoute: where HTTP requests go.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::duration::Duration;
use crate::filter::RouteFilter;
use crate::open_enum::open_enum;
use crate::route::{BackendRef, RouteSpec, Rule, route_kind};
use crate::session::SessionPersistence;

route_kind! {
    /// An HTTPRoute.
    HTTPRoute { spec: HttpRouteSpec }
}

/// What an HTTPRoute wants; one rule for every path when `rules` are missing.
pub type HttpRouteSpec = RouteSpec<HttpRouteRule>;

/// Requests that match, and where they go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteRule {
    /// The name, unique in the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The matches, any of which suffices. Every request when missing, and also when empty.
    #[serde(default = "HttpRouteMatch::default_matches")]
    pub matches: Vec<HttpRouteMatch>,
    /// Filters for requests and responses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<RouteFilter>,
    /// The backends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backend_refs: Vec<BackendRef>,
    /// How long a request may take.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<HttpRouteTimeouts>,
    /// When a request is tried again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<HttpRouteRetry>>,
    /// How requests of one session stay at one endpoint (experimental).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<Box<SessionPersistence>>,
}

impl Rule for HttpRouteRule {
    fn unsaid() -> Vec<Self> {
        vec![HttpRouteRule {
            name: None,
            matches: HttpRouteMatch::default_matches(),
            filters: Vec::new(),
            backend_refs: Vec::new(),
            timeouts: None,
            retry: None,
            session_persistence: None,
        }]
    }
}

/// One way to match a request; all parts must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteMatch {
    /// The path; any by default.
    #[serde(default)]
    pub path: HttpPathMatch,
    /// The headers, all of them. Of entries with the same name, whatever its case, the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
    /// The query parameters, all of them. Of entries with the same name the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query_params: Vec<HttpQueryParamMatch>,
    /// The method; any when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<HttpMethod>,
}

impl HttpRouteMatch {
    fn default_matches() -> Vec<Self> {
        vec![HttpRouteMatch::default()]
    }
}

/// A match on the path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpPathMatch {
    /// How the value is meant; as a prefix by default.
    #[serde(rename = "type", default)]
    pub type_: PathMatchType,
    /// The value; `/` by default.
    #[serde(default = "HttpPathMatch::root")]
    pub value: Arc<str>,
}

impl HttpPathMatch {
    fn root() -> Arc<str> {
        "/".into()
    }
}

impl Default for HttpPathMatch {
    fn default() -> Self {
        HttpPathMatch {
            type_: PathMatchType::PathPrefix,
            value: Self::root(),
        }
    }
}

open_enum! {
    /// How a path is matched.
    #[derive(Default)]
    pub enum PathMatchType {
        /// The whole path, with regard to case.
        Exact = "Exact",
        /// The first elements of the path, split at `/`.
        #[default]
        PathPrefix = "PathPrefix",
        /// A regular expression.
        RegularExpression = "RegularExpression",
    }
}

open_enum! {
    /// How a header, a query parameter or a gRPC method is matched.
    #[derive(Default)]
    pub enum MatchType {
        /// The whole value.
        #[default]
        Exact = "Exact",
        /// A regular expression.
        RegularExpression = "RegularExpression",
    }
}

/// A match on a header, in HTTPRoute and GRPCRoute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HeaderMatch {
    /// How the value is meant; exactly by default.
    #[serde(rename = "type", default)]
    pub type_: MatchType,
    /// The header's name, without regard to case.
    pub name: Arc<str>,
    /// The value.
    pub value: Arc<str>,
}

/// A match on a query parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpQueryParamMatch {
    /// How the value is meant; exactly by default.
    #[serde(rename = "type", default)]
    pub type_: MatchType,
    /// The parameter's name, with regard to case.
    pub name: Arc<str>,
    /// The value.
    pub value: Arc<str>,
}

open_enum! {
    /// An HTTP method.
    pub enum HttpMethod {
        /// GET.
        Get = "GET",
        /// HEAD.
        Head = "HEAD",
        /// POST.
        Post = "POST",
        /// PUT.
        Put = "PUT",
        /// DELETE.
        Delete = "DELETE",
        /// CONNECT.
        Connect = "CONNECT",
        /// OPTIONS.
        Options = "OPTIONS",
        /// TRACE.
        Trace = "TRACE",
        /// PATCH.
        Patch = "PATCH",
    }
}

/// How long a request may take; zero means without limit (GEP-1742).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteTimeouts {
    /// From the client's request to the end of the response, over all tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Duration>,
    /// One try at a backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_request: Option<Duration>,
}

/// When a request is tried again (GEP-1731).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpRouteRetry {
    /// Statuses, 400 to 599, on which to try again, besides failures to connect.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<u16>,
    /// How often to try again; 1 by default, 0 never.
    #[serde(default = "HttpRouteRetry::default_attempts")]
    pub attempts: u32,
    /// The base time between tries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Duration>,
}

impl HttpRouteRetry {
    fn default_attempts() -> u32 {
        1
    }
}
