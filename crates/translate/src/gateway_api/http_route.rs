//! HTTPRoute: its matches, timeouts and retries. Everything else is shared with other kinds of routes.

mod limits;
pub(crate) mod matches;

use sesame_api::{BackendRef, HTTPRoute, HttpRouteRule, Kind, RouteFilter};

use super::route::rules::{Rule, read_matches};
use super::route::{HttpRouteKind, RouteKind};

impl RouteKind for HTTPRoute {
    fn references(&self) -> impl Iterator<Item = (&[RouteFilter], &[BackendRef])> {
        let rules = self.spec.rules.iter();
        rules.map(|rule| (&rule.filters[..], &rule.backend_refs[..]))
    }
}

impl HttpRouteKind for HTTPRoute {
    const INVALID_RULE: u16 = 500;

    fn rules(&self) -> impl Iterator<Item = Rule<'_>> {
        let rules = self.spec.rules.iter().enumerate();
        rules.map(|(index, rule)| read(&format!("spec.rules[{index}]"), rule))
    }
}

fn read<'a>(field: &str, rule: &'a HttpRouteRule) -> Rule<'a> {
    let (matches, errors) = read_matches(field, &rule.matches, matches::read);
    Rule {
        kind: Kind::HTTPRoute,
        matches,
        errors,
        filters: &rule.filters,
        backend_refs: &rule.backend_refs,
        session: rule.session_persistence.as_deref(),
        limits: limits::read(field, rule.timeouts.as_ref(), rule.retry.as_deref()),
    }
}
