//! HTTPProxies: the rules of their generated CRD. Translation checks rules that depend on other fields or objects, and
//! reports violations in the status.

pub(crate) mod policy;
mod virtual_host;

use std::sync::Arc;

use crate::http_proxy::{
    CookieRewritePolicy, HeaderMatchCondition, HttpProxyInclude, HttpProxyRoute, HttpProxyService,
    HttpProxySpec, IpFilter, IpFilterSource, MatchCondition, QueryParameterMatchCondition,
    SameSite, ServiceProtocol, TcpProxy, TcpProxyInclude, UpstreamValidation,
};

use super::{Check, at, each, each_of_some, ensure, known, optional, text};

pub(crate) use policy::{load_balancer, timeouts, unsigned};

// The maximum lengths of lists.
const ROUTES: usize = 1024;
const INCLUDES: usize = 1024;
const CONDITIONS: usize = 32;
const SERVICES: usize = 32;
const COOKIES: usize = 64;
const ADDRESSES: usize = 1024;

/// Checks only the lengths of lists, for HTTPProxies of Contour's group: its CRD doesn't bound them.
pub(crate) fn lists(spec: &HttpProxySpec) -> Check {
    let any = |_: &_| Ok(());
    let cookies =
        |list: &[CookieRewritePolicy]| each("cookieRewritePolicies", list, COOKIES, |_| Ok(()));
    let service = |service: &HttpProxyService| cookies(&service.cookie_rewrite_policies);
    let route = |route: &HttpProxyRoute| {
        each("conditions", &route.conditions, CONDITIONS, any)?;
        each("services", &route.services, SERVICES, service)?;
        each("ipAllowPolicy", &route.ip_allow_policy, ADDRESSES, |_| {
            Ok(())
        })?;
        each("ipDenyPolicy", &route.ip_deny_policy, ADDRESSES, |_| Ok(()))?;
        cookies(&route.cookie_rewrite_policies)
    };
    let include =
        |include: &HttpProxyInclude| each("conditions", &include.conditions, CONDITIONS, any);
    each("routes", &spec.routes, ROUTES, route)?;
    at("routes", services(&spec.routes))?;
    each("includes", &spec.includes, INCLUDES, include)
}

fn services(routes: &[HttpProxyRoute]) -> Check {
    let services = routes.iter().map(|route| route.services.len());
    ensure(
        services.sum::<usize>() <= 4096,
        "the routes have more than 4096 services",
    )
}

pub(crate) fn spec(spec: &HttpProxySpec) -> Check {
    optional(
        "virtualhost",
        spec.virtual_host.as_deref(),
        virtual_host::virtual_host,
    )?;
    each("routes", &spec.routes, ROUTES, route)?;
    at("routes", services(&spec.routes))?;
    optional("tcpproxy", spec.tcp_proxy.as_deref(), tcp_proxy)?;
    each("includes", &spec.includes, INCLUDES, include)
}

fn include(include: &HttpProxyInclude) -> Check {
    at("name", text::length(&include.name, 1, 253))?;
    optional_length("namespace", include.namespace.as_deref(), 63)?;
    each("conditions", &include.conditions, CONDITIONS, condition)
}

fn route(route: &HttpProxyRoute) -> Check {
    let actions = [
        !route.services.is_empty(),
        route.request_redirect_policy.is_some(),
        route.direct_response_policy.is_some(),
    ];
    ensure(
        count(&actions) == 1,
        "exactly one of services, requestRedirectPolicy and directResponsePolicy is required",
    )?;
    each("conditions", &route.conditions, CONDITIONS, condition)?;
    each("services", &route.services, SERVICES, service)?;
    optional(
        "authPolicy",
        route.auth_policy.as_deref(),
        policy::authorization,
    )?;
    optional("timeoutPolicy", route.timeout_policy.as_deref(), timeouts)?;
    optional("retryPolicy", route.retry_policy.as_deref(), policy::retry)?;
    optional(
        "healthCheckPolicy",
        route.health_check_policy.as_deref(),
        policy::http_health,
    )?;
    optional(
        "loadBalancerPolicy",
        route.load_balancer_policy.as_deref(),
        load_balancer,
    )?;
    optional(
        "pathRewritePolicy",
        route.path_rewrite_policy.as_deref(),
        policy::path_rewrite,
    )?;
    optional(
        "requestHeadersPolicy",
        route.request_headers_policy.as_deref(),
        policy::headers,
    )?;
    optional(
        "responseHeadersPolicy",
        route.response_headers_policy.as_deref(),
        policy::headers,
    )?;
    each(
        "cookieRewritePolicies",
        &route.cookie_rewrite_policies,
        COOKIES,
        cookie,
    )?;
    optional(
        "rateLimitPolicy",
        route.rate_limit_policy.as_deref(),
        policy::rate_limit,
    )?;
    optional(
        "requestRedirectPolicy",
        route.request_redirect_policy.as_deref(),
        policy::redirect,
    )?;
    optional(
        "directResponsePolicy",
        route.direct_response_policy.as_deref(),
        policy::direct_response,
    )?;
    optional(
        "internalRedirectPolicy",
        route.internal_redirect_policy.as_deref(),
        policy::internal_redirect,
    )?;
    optional(
        "jwtVerificationPolicy",
        route.jwt_verification_policy.as_deref(),
        policy::jwt,
    )?;
    ip_filters(&route.ip_allow_policy, &route.ip_deny_policy)
}

fn ip_filters(allow: &[IpFilter], deny: &[IpFilter]) -> Check {
    ensure(
        allow.is_empty() || deny.is_empty(),
        "ipAllowPolicy and ipDenyPolicy are mutually exclusive",
    )?;
    let filter = |filter: &IpFilter| {
        known("source", Some(&filter.source), IpFilterSource::KNOWN)?;
        at("cidr", text::length(&filter.cidr, 1, 64))
    };
    each("ipAllowPolicy", allow, ADDRESSES, filter)?;
    each("ipDenyPolicy", deny, ADDRESSES, filter)
}

fn condition(condition: &MatchCondition) -> Check {
    let paths = [
        condition.prefix.is_some(),
        condition.exact.is_some(),
        condition.regex.is_some(),
    ];
    ensure(
        count(&paths) <= 1,
        "at most one of prefix, exact and regex is allowed",
    )?;
    optional_path("prefix", condition.prefix.as_deref())?;
    optional_path("exact", condition.exact.as_deref())?;
    matcher_texts([
        ("prefix", &condition.prefix),
        ("exact", &condition.exact),
        ("regex", &condition.regex),
    ])?;
    optional("header", condition.header.as_deref(), header)?;
    optional(
        "queryParameter",
        condition.query_parameter.as_deref(),
        query_parameter,
    )
}

fn header(header: &HeaderMatchCondition) -> Check {
    at("name", text::length(&header.name, 1, 256))?;
    let matchers = [
        header.present,
        header.not_present,
        header.contains.is_some(),
        header.not_contains.is_some(),
        header.exact.is_some(),
        header.not_exact.is_some(),
        header.regex.is_some(),
    ];
    ensure(
        count(&matchers) == 1,
        "exactly one of present, notpresent, contains, notcontains, exact, notexact and regex is required",
    )?;
    matcher_texts([
        ("contains", &header.contains),
        ("notcontains", &header.not_contains),
        ("exact", &header.exact),
        ("notexact", &header.not_exact),
        ("regex", &header.regex),
    ])
}

fn query_parameter(parameter: &QueryParameterMatchCondition) -> Check {
    at("name", text::length(&parameter.name, 1, 256))?;
    let matchers = [
        parameter.exact.is_some(),
        parameter.prefix.is_some(),
        parameter.suffix.is_some(),
        parameter.regex.is_some(),
        parameter.contains.is_some(),
        parameter.present,
    ];
    ensure(
        count(&matchers) == 1,
        "exactly one of exact, prefix, suffix, regex, contains and present is required",
    )?;
    matcher_texts([
        ("exact", &parameter.exact),
        ("prefix", &parameter.prefix),
        ("suffix", &parameter.suffix),
        ("regex", &parameter.regex),
        ("contains", &parameter.contains),
    ])
}

/// The optional strings of a condition.
fn matcher_texts<const N: usize>(texts: [(&str, &Option<Arc<str>>); N]) -> Check {
    for (field, value) in texts {
        let length = |value: &Arc<str>| text::length(value, 0, 4096);
        optional(field, value.as_ref(), length)?;
    }
    Ok(())
}

fn service(service: &HttpProxyService) -> Check {
    at("name", text::length(&service.name, 1, 253))?;
    at("port", text::port(&service.port))?;
    optional("healthPort", service.health_port.as_ref(), text::port)?;
    known(
        "protocol",
        service.protocol.as_ref(),
        ServiceProtocol::KNOWN,
    )?;
    at("weight", weight(service.weight))?;
    optional("validation", service.validation.as_deref(), validation)?;
    optional(
        "requestHeadersPolicy",
        service.request_headers_policy.as_deref(),
        policy::headers,
    )?;
    optional(
        "responseHeadersPolicy",
        service.response_headers_policy.as_deref(),
        policy::headers,
    )?;
    each(
        "cookieRewritePolicies",
        &service.cookie_rewrite_policies,
        COOKIES,
        cookie,
    )?;
    optional(
        "slowStartPolicy",
        service.slow_start_policy.as_deref(),
        |slow| {
            at(
                "minWeightPercent",
                ensure(slow.min_weight_percent <= 100, "expected at most 100"),
            )
        },
    )
}

pub(super) fn weight(weight: i64) -> Check {
    ensure(
        (0..=1_000_000).contains(&weight),
        "expected a weight from 0 to 1000000",
    )
}

/// Validation of endpoint certificates.
pub(super) fn validation(validation: &UpstreamValidation) -> Check {
    at("caSecret", text::length(&validation.ca_secret, 1, 317))?;
    at(
        "subjectName",
        text::length(&validation.subject_name, 1, 250),
    )?;
    each("subjectNames", &validation.subject_names, 8, |name| {
        text::length(name, 1, 250)
    })?;
    let first = validation.subject_names.first();
    ensure(
        first.is_none_or(|first| *first == validation.subject_name),
        "the first entry of subjectNames must equal subjectName",
    )
}

fn cookie(cookie: &CookieRewritePolicy) -> Check {
    let name = |b: u8| b > b' ' && b != 0x7f && !br#"()<>@,;:\"/[]?={}"#.contains(&b);
    at("name", text::length(&cookie.name, 1, 4096))?;
    at(
        "name",
        ensure(
            cookie.name.bytes().all(name),
            "expected a cookie name without spaces, control characters or any of ()<>@,;:\\\"/[]?={}",
        ),
    )?;
    for (field, rewrite) in [
        ("pathRewrite", &cookie.path_rewrite),
        ("domainRewrite", &cookie.domain_rewrite),
    ] {
        optional(field, rewrite.as_ref(), |rewrite| {
            at("value", attribute(&rewrite.value))
        })?;
    }
    known("sameSite", cookie.same_site.as_ref(), SameSite::KNOWN)?;
    let set = [
        cookie.path_rewrite.is_some(),
        cookie.domain_rewrite.is_some(),
        cookie.secure.is_some(),
        cookie.same_site.is_some(),
    ];
    ensure(
        count(&set) > 0,
        "at least one of pathRewrite, domainRewrite, secure and sameSite is required",
    )
}

fn attribute(value: &str) -> Check {
    text::length(value, 1, 4096)?;
    let valid = |b: u8| b >= b' ' && b != 0x7f && b != b';';
    ensure(
        value.bytes().all(valid),
        "expected a cookie attribute value without control characters or semicolons",
    )
}

fn tcp_proxy(proxy: &TcpProxy) -> Check {
    optional(
        "loadBalancerPolicy",
        proxy.load_balancer_policy.as_deref(),
        load_balancer,
    )?;
    each("services", &proxy.services, 32, service)?;
    let include = |include: &TcpProxyInclude| {
        at("name", text::length(&include.name, 1, 253))?;
        optional_length("namespace", include.namespace.as_deref(), 63)
    };
    optional("include", proxy.include.as_deref(), include)?;
    optional("includes", proxy.includes.as_deref(), include)?;
    optional(
        "healthCheckPolicy",
        proxy.health_check_policy.as_deref(),
        policy::tcp_health,
    )
}

/// The number of true values.
fn count(set: &[bool]) -> usize {
    set.iter().filter(|set| **set).count()
}

/// An optional path.
fn optional_path(field: &str, path: Option<&str>) -> Check {
    let starts = |path: &str| ensure(path.starts_with('/'), "must start with /");
    path.map_or(Ok(()), |path| at(field, starts(path)))
}

/// An optional string of 1 to `max` characters.
fn optional_length(field: &str, value: Option<&str>, max: usize) -> Check {
    value.map_or(Ok(()), |value| at(field, text::length(value, 1, max)))
}

/// A list of 1 to `max` non-empty strings.
fn some_texts(field: &str, list: &[Arc<str>], max: usize) -> Check {
    each_of_some(field, list, max, |value| text::length(value, 1, usize::MAX))
}
