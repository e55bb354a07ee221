//! GRPCRoute: its matches and its backends' protocol. Everything else is shared with other kinds of routes.

mod matches;

use std::sync::Arc;

use sesame_api::{BackendRef, GRPCRoute, GrpcRouteRule, Kind, RouteFilter};
use sesame_model::ClusterPolicy;

use super::route::backends::grpc_policy;
use super::route::rules::{Limits, Rule, read_matches};
use super::route::{HttpRouteKind, RouteKind};

impl RouteKind for GRPCRoute {
    fn references(&self) -> impl Iterator<Item = (&[RouteFilter], &[BackendRef])> {
        let rules = self.spec.rules.iter();
        rules.map(|rule| (&rule.filters[..], &rule.backend_refs[..]))
    }

    fn policy() -> Option<Arc<ClusterPolicy>> {
        Some(grpc_policy())
    }
}

impl HttpRouteKind for GRPCRoute {
    /// gRPC clients treat this status as UNAVAILABLE.
    const INVALID_RULE: u16 = 503;

    fn rules(&self) -> impl Iterator<Item = Rule<'_>> {
        let rules = self.spec.rules.iter().enumerate();
        rules.map(|(index, rule)| read(&format!("spec.rules[{index}]"), rule))
    }
}

fn read<'a>(field: &str, rule: &'a GrpcRouteRule) -> Rule<'a> {
    let (matches, errors) = read_matches(field, &rule.matches, matches::read);
    Rule {
        kind: Kind::GRPCRoute,
        matches,
        errors,
        filters: &rule.filters,
        backend_refs: &rule.backend_refs,
        session: rule.session_persistence.as_deref(),
        limits: Ok(Limits::default()),
    }
}
