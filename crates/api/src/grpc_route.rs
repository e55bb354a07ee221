//! GRPCRoute: where gRPC calls go.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::filter::RouteFilter;
use crate::http_route::{HeaderMatch, MatchType};
use crate::route::{BackendRef, RouteSpec, Rule, route_kind};
use crate::session::SessionPersistence;

route_kind! {
    /// A GRPCRoute.
    GRPCRoute { #[serde(default)] spec: GrpcRouteSpec }
}

/// What a GRPCRoute wants.
pub type GrpcRouteSpec = RouteSpec<GrpcRouteRule>;

impl Rule for GrpcRouteRule {}

/// Calls that match, and where they go.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRouteRule {
    /// The name, unique in the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
    /// The matches, any of which suffices; every call when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub matches: Vec<GrpcRouteMatch>,
    /// Filters: header modifiers, mirrors and extensions only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub filters: Vec<RouteFilter>,
    /// The backends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backend_refs: Vec<BackendRef>,
    /// How calls of one session stay at one endpoint (experimental).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_persistence: Option<Box<SessionPersistence>>,
}

/// One way to match a call; all parts must hold.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GrpcRouteMatch {
    /// The service and method; any when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<GrpcMethodMatch>,
    /// The headers, all of them. Of entries with the same name, whatever its case, the first counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub headers: Vec<HeaderMatch>,
}

/// A match on service and method, at least one of which is given.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GrpcMethodMatch {
    /// How the values are meant; exactly by default.
    #[serde(rename = "type", default)]
    pub type_: MatchType,
    /// The service with its package; any when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Arc<str>>,
    /// The method; any when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<Arc<str>>,
}
