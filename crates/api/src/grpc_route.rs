//! GRPCRoute: routing of gRPC calls.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::filter::RouteFilter;
use crate::http_route::{HeaderMatch, MatchType};
use crate::object::resource;
use crate::route::{BackendRef, RouteSpec, RouteView, Rule, route_kind};
use crate::session::SessionPersistence;

route_kind! {
    /// A GRPCRoute.
    GRPCRoute { #[serde(default)] spec: GrpcRouteSpec }
}

resource! { GRPCRoute {
    fn as_route(&self) -> Option<RouteView<'_>> {
        Some(RouteView::of(self))
    }

    fn check(&self) -> Check {
        check::at("spec", check::route::grpc_route(&self.spec))
    }
} }

/// The spec of a GRPCRoute.
pub type GrpcRouteSpec = RouteSpec<GrpcRouteRule>;

impl Rule for GrpcRouteRule {}

/// A rule: matches, filters and backends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRouteRule {
    /// The name, unique within the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The matches, at least one of which must hold; if empty, every call matches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<GrpcRouteMatch>,
    /// Filters: header modifiers, mirrors and extensions only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<RouteFilter>,
    /// The backends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backend_refs: Vec<BackendRef>,
    /// Session persistence (experimental).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<Box<SessionPersistence>>,
}

/// A match on a call; all parts must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRouteMatch {
    /// The service and method; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<GrpcMethodMatch>,
    /// The headers, all of which must match. If a name repeats (ignoring case), only the first entry is used.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
}

/// A match on service and method; at least one of them is set.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrpcMethodMatch {
    /// The type of match; Exact by default.
    #[serde(rename = "type", default)]
    pub type_: MatchType,
    /// The service with its package; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Arc<str>>,
    /// The method; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Arc<str>>,
}
