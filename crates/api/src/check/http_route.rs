//! HTTPRoute.

use crate::filter::RouteFilter;
use crate::http_filter::PathModifier;
use crate::http_route::{
    HeaderMatch, HttpPathMatch, HttpRouteMatch, HttpRouteRetry, HttpRouteRule, HttpRouteSpec,
    HttpRouteTimeouts, PathMatchType,
};

use super::{
    Check, at, each, each_of_some, ensure, filter, optional, reference, route, text, unique,
};

pub(crate) fn http_route(spec: &HttpRouteSpec) -> Check {
    reference::parents(&spec.parent_refs)?;
    route::hostnames(&spec.hostnames, 16)?;
    each_of_some("rules", &spec.rules, 16, rule)?;
    route::unique_names("rules", &spec.rules, |rule| rule.name.as_ref())?;
    route::total_matches(spec.rules.iter().map(|rule| rule.matches.len()))
}

fn rule(rule: &HttpRouteRule) -> Check {
    optional("name", rule.name.as_ref(), |name| text::subdomain(name))?;
    each("matches", &rule.matches, 64, matching)?;
    filter::filters(&rule.filters)?;
    route::backends(&rule.backend_refs, filter::filters)?;
    let redirect = |f: &RouteFilter| matches!(f, RouteFilter::RequestRedirect(_));
    let unused = rule.backend_refs.is_empty() || !rule.filters.iter().any(redirect);
    at(
        "backendRefs",
        ensure(
            unused,
            "cannot be used together with a RequestRedirect filter",
        ),
    )?;
    prefix_replacement(rule)?;
    optional("timeouts", rule.timeouts.as_ref(), timeouts)?;
    optional("retry", rule.retry.as_deref(), retry)?;
    optional(
        "sessionPersistence",
        rule.session_persistence.as_deref(),
        route::session,
    )
}

/// `ReplacePrefixMatch` requires exactly one match, of type PathPrefix.
fn prefix_replacement(rule: &HttpRouteRule) -> Check {
    let of_prefix = |filter: &RouteFilter| {
        let path = match filter {
            RouteFilter::RequestRedirect(redirect) => &redirect.path,
            RouteFilter::UrlRewrite(rewrite) => &rewrite.path,
            _ => return false,
        };
        matches!(path, Some(PathModifier::ReplacePrefixMatch(_)))
    };
    let backend_filters = rule
        .backend_refs
        .iter()
        .flat_map(|backend| &backend.filters);
    let replaces = rule.filters.iter().chain(backend_filters).any(of_prefix);
    let one_prefix = matches!(
        rule.matches.as_slice(),
        [HttpRouteMatch { path, .. }] if path.type_ == PathMatchType::PathPrefix
    );
    let message = "replacePrefixMatch requires exactly one match, of type PathPrefix";
    at("matches", ensure(!replaces || one_prefix, message))
}

fn matching(m: &HttpRouteMatch) -> Check {
    at("path", path(&m.path))?;
    headers(&m.headers)?;
    each("queryParams", &m.query_params, 16, |query| {
        at("name", text::header_name(&query.name))?;
        at("value", text::length(&query.value, 1, 1024))
    })?;
    unique(
        "queryParams",
        &m.query_params,
        "another entry has the same name",
        |q| Some(&q.name),
    )
}

fn path(path: &HttpPathMatch) -> Check {
    at("value", text::length(&path.value, 0, 1024))?;
    match path.type_ {
        PathMatchType::Exact | PathMatchType::PathPrefix => {
            at("value", text::literal_path(&path.value))
        }
        PathMatchType::RegularExpression | PathMatchType::Other(_) => Ok(()),
    }
}

/// `headers` of a match, in HTTPRoute and GRPCRoute.
pub(super) fn headers(list: &[HeaderMatch]) -> Check {
    each("headers", list, 16, |header| {
        at("name", text::header_name(&header.name))?;
        at("value", text::header_value(&header.value))
    })?;
    unique(
        "headers",
        list,
        "another entry has the same name",
        |header| Some(&header.name),
    )
}

fn timeouts(timeouts: &HttpRouteTimeouts) -> Check {
    let (Some(request), Some(backend)) = (&timeouts.request, &timeouts.backend_request) else {
        return Ok(());
    };
    let fits = request.is_zero() || backend.as_millis() <= request.as_millis();
    at(
        "backendRequest",
        ensure(fits, "must not be longer than the request timeout"),
    )
}

fn retry(retry: &HttpRouteRetry) -> Check {
    // There are only 200 distinct codes from 400 to 599.
    each("codes", &retry.codes, 200, |code| {
        ensure(
            (400..=599).contains(code),
            "expected a status code from 400 to 599",
        )
    })?;
    unique("codes", &retry.codes, "duplicate entry", Some)
}
