//! Filters of route rules, backends and listeners. Decoding checks that type and body match.

use std::sync::Arc;

use crate::filter::{ListenerFilter, RouteFilter};
use crate::http_filter::{
    Cors, ExternalAuth, ExternalAuthProtocol, Fraction, HeaderModifier, HttpHeader, PathModifier,
    RequestMirror, RequestRedirect, UrlRewrite,
};

use super::{Check, at, at_index, each, ensure, fail, optional, reference, text, unique};

/// `filters`: at most 16, and some types at most once.
pub(super) fn filters(list: &[RouteFilter]) -> Check {
    each("filters", list, 16, route)?;
    let message = "only one filter of this type is allowed";
    unique("filters", list, message, |filter| {
        let once = matches!(
            filter,
            RouteFilter::RequestHeaderModifier(_)
                | RouteFilter::ResponseHeaderModifier(_)
                | RouteFilter::RequestRedirect(_)
                | RouteFilter::UrlRewrite(_)
                | RouteFilter::Cors(_)
        );
        once.then(|| filter.type_name())
    })?;
    let redirects = list
        .iter()
        .any(|f| matches!(f, RouteFilter::RequestRedirect(_)));
    let rewrites = list.iter().any(|f| matches!(f, RouteFilter::UrlRewrite(_)));
    let both = "RequestRedirect and URLRewrite cannot be used together";
    at("filters", ensure(!(redirects && rewrites), both))
}

/// `filters` of a GRPCRoute, which supports only some types.
pub(super) fn grpc_filters(list: &[RouteFilter]) -> Check {
    filters(list)?;
    let foreign = list.iter().position(|filter| {
        matches!(
            filter,
            RouteFilter::RequestRedirect(_)
                | RouteFilter::UrlRewrite(_)
                | RouteFilter::Cors(_)
                | RouteFilter::ExternalAuth(_)
        )
    });
    let Some(index) = foreign else { return Ok(()) };
    let message = format!(
        "{} filters are not supported in a GRPCRoute",
        list[index].type_name()
    );
    at("filters", at_index(index, at("type", fail(message))))
}

pub(super) fn listener(filter: &ListenerFilter) -> Check {
    match filter {
        ListenerFilter::ExternalAuth(auth) => at("externalAuth", external_auth(auth)),
        ListenerFilter::ExtensionRef(r) => at("extensionRef", reference::local(r)),
        ListenerFilter::Unknown(_) => Ok(()),
    }
}

fn route(filter: &RouteFilter) -> Check {
    match filter {
        RouteFilter::RequestHeaderModifier(m) => at("requestHeaderModifier", header_modifier(m)),
        RouteFilter::ResponseHeaderModifier(m) => at("responseHeaderModifier", header_modifier(m)),
        RouteFilter::RequestMirror(mirror) => at("requestMirror", request_mirror(mirror)),
        RouteFilter::RequestRedirect(redirect) => at("requestRedirect", request_redirect(redirect)),
        RouteFilter::UrlRewrite(rewrite) => at("urlRewrite", url_rewrite(rewrite)),
        RouteFilter::Cors(cors) => at("cors", cors_rules(cors)),
        RouteFilter::ExternalAuth(auth) => at("externalAuth", external_auth(auth)),
        RouteFilter::ExtensionRef(r) => at("extensionRef", reference::local(r)),
        RouteFilter::Unknown(_) => Ok(()),
    }
}

fn header_modifier(modifier: &HeaderModifier) -> Check {
    headers("set", &modifier.set)?;
    headers("add", &modifier.add)?;
    set_of("remove", &modifier.remove, 16, |_| Ok(()))
}

pub(super) fn headers(field: &str, list: &[HttpHeader]) -> Check {
    each(field, list, 16, |header| {
        at("name", text::header_name(&header.name))?;
        at("value", text::header_value(&header.value))
    })?;
    unique(field, list, "another entry has the same name", |header| {
        Some(&header.name)
    })
}

/// A list without duplicates.
fn set_of<T: Eq + std::hash::Hash>(
    field: &str,
    list: &[T],
    max: usize,
    check: impl Fn(&T) -> Check,
) -> Check {
    each(field, list, max, check)?;
    unique(field, list, "duplicate entry", Some)
}

fn request_mirror(mirror: &RequestMirror) -> Check {
    at("backendRef", reference::backend(&mirror.backend_ref))?;
    let both = mirror.percent.is_some() && mirror.fraction.is_some();
    ensure(!both, "only one of percent and fraction is allowed")?;
    optional("percent", mirror.percent.as_ref(), |percent| {
        ensure(*percent <= 100, "expected a percentage from 0 to 100")
    })?;
    optional("fraction", mirror.fraction.as_ref(), fraction)
}

pub(super) fn fraction(fraction: &Fraction) -> Check {
    at(
        "denominator",
        ensure(fraction.denominator >= 1, "must be at least 1"),
    )?;
    // In the CRD, both numbers are int32.
    at(
        "denominator",
        ensure(
            i32::try_from(fraction.denominator).is_ok(),
            "must not be greater than 2147483647",
        ),
    )?;
    let proper = fraction.numerator <= fraction.denominator;
    at(
        "numerator",
        ensure(proper, "must not be greater than the denominator"),
    )
}

fn request_redirect(redirect: &RequestRedirect) -> Check {
    optional("hostname", redirect.hostname.as_ref(), |name| {
        text::precise_hostname(name)
    })?;
    optional("path", redirect.path.as_ref(), path_modifier)?;
    optional("port", redirect.port.as_ref(), text::port)?;
    let known = matches!(redirect.status_code, 301 | 302 | 303 | 307 | 308);
    at(
        "statusCode",
        ensure(known, "expected 301, 302, 303, 307 or 308"),
    )
}

fn url_rewrite(rewrite: &UrlRewrite) -> Check {
    optional("hostname", rewrite.hostname.as_ref(), |name| {
        text::precise_hostname(name)
    })?;
    optional("path", rewrite.path.as_ref(), path_modifier)
}

fn path_modifier(modifier: &PathModifier) -> Check {
    match modifier {
        PathModifier::ReplaceFullPath(path) => at("replaceFullPath", text::length(path, 0, 1024)),
        PathModifier::ReplacePrefixMatch(path) => {
            at("replacePrefixMatch", text::length(path, 0, 1024))
        }
        PathModifier::Unknown(_) => Ok(()),
    }
}

fn cors_rules(cors: &Cors) -> Check {
    let alone = |field: &str, wild: bool, count: usize| {
        at(
            field,
            ensure(!wild || count == 1, "* must be the only entry"),
        )
    };
    let wild = |list: &[Arc<str>]| list.iter().any(|entry| &**entry == "*");
    set_of("allowOrigins", &cors.allow_origins, 64, |origin| {
        text::cors_origin(origin)
    })?;
    alone(
        "allowOrigins",
        wild(&cors.allow_origins),
        cors.allow_origins.len(),
    )?;
    set_of("allowMethods", &cors.allow_methods, 9, |_| Ok(()))?;
    let any_method = cors.allow_methods.iter().any(|method| *method == "*");
    alone("allowMethods", any_method, cors.allow_methods.len())?;
    set_of("allowHeaders", &cors.allow_headers, 64, |name| {
        text::header_name(name)
    })?;
    alone(
        "allowHeaders",
        wild(&cors.allow_headers),
        cors.allow_headers.len(),
    )?;
    set_of("exposeHeaders", &cors.expose_headers, 64, |name| {
        text::header_name(name)
    })?;
    at(
        "maxAge",
        ensure(cors.max_age >= 1, "must be at least 1 second"),
    )
}

fn external_auth(auth: &ExternalAuth) -> Check {
    at("backendRef", reference::backend(&auth.backend_ref))?;
    let grpc = auth.protocol == ExternalAuthProtocol::Grpc;
    let http = auth.protocol == ExternalAuthProtocol::Http;
    at(
        "grpc",
        ensure(
            grpc == auth.grpc.is_some(),
            "is required with protocol GRPC and not allowed otherwise",
        ),
    )?;
    at(
        "http",
        ensure(
            http == auth.http.is_some(),
            "is required with protocol HTTP and not allowed otherwise",
        ),
    )?;
    optional("grpc", auth.grpc.as_ref(), |grpc| {
        set_of("allowedHeaders", &grpc.allowed_headers, 64, |_| Ok(()))
    })?;
    optional("http", auth.http.as_ref(), |http| {
        optional("path", http.path.as_ref(), |path| {
            text::length(path, 0, 1024)?;
            text::path_text(path)
        })?;
        set_of("allowedHeaders", &http.allowed_headers, 64, |_| Ok(()))?;
        set_of(
            "allowedResponseHeaders",
            &http.allowed_response_headers,
            64,
            |_| Ok(()),
        )
    })
}
