//! Checks for all route kinds except HTTPRoute, and checks that route kinds share.

use std::net::IpAddr;
use std::sync::Arc;

use crate::filter::RouteFilter;
use crate::grpc_route::{GrpcMethodMatch, GrpcRouteRule, GrpcRouteSpec};
use crate::http_route::MatchType;
use crate::l4_route::{L4RouteRule, L4RouteSpec};
use crate::route::BackendRef;
use crate::session::{CookieLifetime, SessionPersistence, SessionPersistenceType};

use super::{
    Check, at, each, each_of_some, ensure, fail, filter, http_route, optional, reference, text,
    unique,
};

pub(crate) fn grpc_route(spec: &GrpcRouteSpec) -> Check {
    reference::parents(&spec.parent_refs)?;
    hostnames(&spec.hostnames, 16)?;
    each("rules", &spec.rules, 16, grpc_rule)?;
    unique_names("rules", &spec.rules, |rule| rule.name.as_ref())?;
    total_matches(spec.rules.iter().map(|rule| rule.matches.len()))
}

fn grpc_rule(rule: &GrpcRouteRule) -> Check {
    optional("name", rule.name.as_ref(), |name| text::subdomain(name))?;
    each("matches", &rule.matches, 64, |m| {
        optional("method", m.method.as_ref(), grpc_method)?;
        http_route::headers(&m.headers)
    })?;
    filter::grpc_filters(&rule.filters)?;
    backends(&rule.backend_refs, filter::grpc_filters)?;
    optional(
        "sessionPersistence",
        rule.session_persistence.as_deref(),
        session,
    )
}

/// Requires a service or a method; with type Exact, both must be valid names.
fn grpc_method(m: &GrpcMethodMatch) -> Check {
    ensure(
        m.service.is_some() || m.method.is_some(),
        "service or method is required",
    )?;
    optional("service", m.service.as_ref(), |service| {
        text::length(service, 0, 1024)
    })?;
    optional("method", m.method.as_ref(), |method| {
        text::length(method, 0, 1024)
    })?;
    if m.type_ != MatchType::Exact {
        return Ok(());
    }
    optional("service", m.service.as_ref(), |service| {
        let parts = service.strip_prefix('.').unwrap_or(service);
        ensure(
            parts.split('.').all(is_identifier),
            "expected a service name such as package.Service",
        )
    })?;
    optional("method", m.method.as_ref(), |method| {
        ensure(
            is_identifier(method),
            "expected a method name such as GetFeature",
        )
    })
}

fn is_identifier(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// `hostnames` of a TLSRoute: 1 to 1024, no IP addresses.
pub(crate) fn tls_route(spec: &L4RouteSpec) -> Check {
    at(
        "hostnames",
        ensure(!spec.hostnames.is_empty(), "at least one entry is required"),
    )?;
    hostnames(&spec.hostnames, 1024)?;
    each("hostnames", &spec.hostnames, 1024, |hostname| {
        ensure(
            hostname.parse::<IpAddr>().is_err(),
            "must not be an IP address",
        )
    })?;
    l4_route(spec)
}

pub(crate) fn l4_route(spec: &L4RouteSpec) -> Check {
    reference::parents(&spec.parent_refs)?;
    each_of_some("rules", &spec.rules, 1, |rule: &L4RouteRule| {
        optional("name", rule.name.as_ref(), |name| text::subdomain(name))?;
        let some = ensure(
            !rule.backend_refs.is_empty(),
            "at least one entry is required",
        );
        at("backendRefs", some)?;
        backends(&rule.backend_refs, |_| Ok(()))
    })
}

pub(super) fn hostnames(list: &[Arc<str>], max: usize) -> Check {
    each("hostnames", list, max, |hostname| text::hostname(hostname))
}

/// `rules[].name`: unique within the route.
pub(super) fn unique_names<'a, T>(
    field: &str,
    rules: &'a [T],
    name: impl Fn(&'a T) -> Option<&'a Arc<str>>,
) -> Check {
    unique(field, rules, "another rule has the same name", name)
}

/// At most 128 `matches` across all rules of a route.
pub(super) fn total_matches(counts: impl Iterator<Item = usize>) -> Check {
    let total: usize = counts.sum();
    if total > 128 {
        let message = format!("at most 128 matches are allowed across all rules, found {total}");
        return at("rules", fail(message));
    }
    Ok(())
}

/// `backendRefs`: at most 16.
pub(super) fn backends(list: &[BackendRef], filters: impl Fn(&[RouteFilter]) -> Check) -> Check {
    each("backendRefs", list, 16, |backend| {
        reference::object(
            &backend.group,
            &backend.kind,
            &backend.name,
            backend.namespace.as_ref(),
        )?;
        reference::backend_port(&backend.group, &backend.kind, backend.port)?;
        let weight = ensure(
            backend.weight <= 1_000_000,
            "expected a weight from 0 to 1000000",
        );
        at("weight", weight)?;
        filters(&backend.filters)
    })
}

/// The body matches the type; a permanent cookie requires a timeout.
pub(super) fn session(session: &SessionPersistence) -> Check {
    let cookie = session.type_ == SessionPersistenceType::Cookie;
    let header = session.type_ == SessionPersistenceType::Header;
    let message = "is required with type Cookie and not allowed otherwise";
    at(
        "cookie",
        ensure(cookie == session.cookie.is_some(), message),
    )?;
    let message = "is required with type Header and not allowed otherwise";
    at(
        "header",
        ensure(header == session.header.is_some(), message),
    )?;
    optional("header", session.header.as_ref(), |h| {
        at("name", text::header_name(&h.name))
    })?;
    optional("cookie", session.cookie.as_ref(), |cookie| {
        optional("name", cookie.name.as_ref(), |name| text::header_name(name))?;
        at("path", text::length(&cookie.path, 0, 1024))
    })?;
    let permanent = session
        .cookie
        .as_ref()
        .is_some_and(|c| c.lifetime_type == CookieLifetime::Permanent);
    let ends = !permanent || session.absolute_timeout.is_some();
    at(
        "absoluteTimeout",
        ensure(ends, "is required with a permanent cookie"),
    )
}
