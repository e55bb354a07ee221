//! HTTPRoute: routing of HTTP requests.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::duration::Duration;
use crate::filter::RouteFilter;
use crate::object::resource;
use crate::open_enum::open_enum;
use crate::route::{BackendRef, RouteSpec, RouteView, Rule, route_kind};
use crate::session::SessionPersistence;

route_kind! {
    /// An HTTPRoute.
    HTTPRoute { spec: HttpRouteSpec }
}

resource! { HTTPRoute {
    fn as_route(&self) -> Option<RouteView<'_>> {
        Some(RouteView::of(self))
    }

    fn check(&self) -> Check {
        check::at("spec", check::http_route::http_route(&self.spec))
    }
} }

/// The spec of an HTTPRoute; if `rules` is absent, one rule matches every path.
pub type HttpRouteSpec = RouteSpec<HttpRouteRule>;

/// A rule: matches, filters and backends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteRule {
    /// The name, unique within the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The matches, at least one of which must hold; if absent or empty, every request matches.
    #[serde(default = "HttpRouteMatch::default_matches")]
    pub matches: Vec<HttpRouteMatch>,
    /// Filters for requests and responses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<RouteFilter>,
    /// The backends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backend_refs: Vec<BackendRef>,
    /// Timeouts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeouts: Option<HttpRouteTimeouts>,
    /// Retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<HttpRouteRetry>>,
    /// Session persistence (experimental).
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

/// A match on a request; all parts must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteMatch {
    /// The path; any by default.
    #[serde(default)]
    pub path: HttpPathMatch,
    /// The headers, all of which must match. If a name repeats (ignoring case), only the first entry is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
    /// The query parameters, all of which must match. If a name repeats, only the first entry is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub query_params: Vec<HttpQueryParamMatch>,
    /// The method; any if absent.
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
    /// The type of match; PathPrefix by default.
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
        /// The whole path, case-sensitive.
        Exact = "Exact",
        /// A prefix of the path, compared element by element (split at `/`).
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
    /// The type of match; Exact by default.
    #[serde(rename = "type", default)]
    pub type_: MatchType,
    /// The header's name, case-insensitive.
    pub name: Arc<str>,
    /// The value.
    pub value: Arc<str>,
}

/// A match on a query parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpQueryParamMatch {
    /// The type of match; Exact by default.
    #[serde(rename = "type", default)]
    pub type_: MatchType,
    /// The parameter's name, case-sensitive.
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

/// Request timeouts (GEP-1742); zero disables a timeout.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct HttpRouteTimeouts {
    /// From the client's request to the end of the response, including retries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request: Option<Duration>,
    /// One attempt at a backend.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend_request: Option<Duration>,
}

/// Retries of a request (GEP-1731).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HttpRouteRetry {
    /// The statuses to retry, 400 to 599, in addition to connection failures.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub codes: Vec<u16>,
    /// The maximum number of retries; 1 by default.
    #[serde(default = "HttpRouteRetry::default_attempts")]
    pub attempts: u32,
    /// The base delay between attempts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff: Option<Duration>,
}

impl HttpRouteRetry {
    fn default_attempts() -> u32 {
        1
    }
}
