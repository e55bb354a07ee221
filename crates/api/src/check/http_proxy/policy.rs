//! The policies of routes.

use std::ops::RangeInclusive;

use crate::check::{Check, at, each, each_of_some, ensure, known, optional, text};
use crate::http_filter::{HttpHeader, RedirectScheme};
use crate::http_proxy::{
    AuthorizationPolicy, CrossSchemeRedirect, DirectResponsePolicy, GlobalRateLimitPolicy,
    HeadersPolicy, HttpHealthCheckPolicy, InternalRedirectPolicy, JwtVerificationPolicy,
    LoadBalancerPolicy, LocalRateLimitPolicy, PathRewritePolicy, RateLimitDescriptor,
    RateLimitDescriptorEntry, RateLimitPolicy, RateLimitUnit, RequestRedirectPolicy, RetryOn,
    RetryPolicy, TcpHealthCheckPolicy, TimeoutPolicy,
};

use super::{count, header, optional_length, optional_path};

/// The status codes of redirects.
const REDIRECT_CODES: [u16; 5] = [301, 302, 303, 307, 308];

/// Accepts any timeouts: translation checks them.
pub(crate) fn timeouts(_: &TimeoutPolicy) -> Check {
    Ok(())
}

pub(super) fn authorization(policy: &AuthorizationPolicy) -> Check {
    let few = policy.context.len() <= 32;
    at("context", ensure(few, "at most 32 entries are allowed"))
}

pub(super) fn retry(policy: &RetryPolicy) -> Check {
    at("count", in_range(policy.count, -1..=u32::MAX.into()))?;
    each("retryOn", &policy.retry_on, 16, |word| {
        one_of(word, RetryOn::KNOWN)
    })?;
    let code = |code: &i64| in_range(*code, 100..=599);
    each(
        "retriableStatusCodes",
        &policy.retriable_status_codes,
        64,
        code,
    )
}

/// Translation reports invalid parts of a hash.
pub(crate) fn load_balancer(policy: &LoadBalancerPolicy) -> Check {
    each(
        "requestHashPolicies",
        &policy.request_hash_policies,
        64,
        |part| {
            optional(
                "headerHashOptions",
                part.header_hash_options.as_ref(),
                |header| at("headerName", text::length(&header.header_name, 1, 256)),
            )?;
            let parameter = part.query_parameter_hash_options.as_ref();
            optional("queryParameterHashOptions", parameter, |parameter| {
                at(
                    "parameterName",
                    text::length(&parameter.parameter_name, 1, 256),
                )
            })
        },
    )
}

pub(super) fn http_health(policy: &HttpHealthCheckPolicy) -> Check {
    at("path", text::length(&policy.path, 1, 1024))?;
    optional_path("path", Some(&policy.path))?;
    health([
        policy.interval_seconds,
        policy.timeout_seconds,
        policy.unhealthy_threshold_count,
        policy.healthy_threshold_count,
    ])?;
    each("expectedStatuses", &policy.expected_statuses, 64, |range| {
        at("start", in_range(range.start, 100..=599))?;
        at("end", in_range(range.end, 101..=600))?;
        ensure(range.start < range.end, "start must be less than end")
    })
}

pub(super) fn tcp_health(policy: &TcpHealthCheckPolicy) -> Check {
    health([
        policy.interval_seconds,
        policy.timeout_seconds,
        policy.unhealthy_threshold_count,
        policy.healthy_threshold_count,
    ])
}

fn health([interval, timeout, unhealthy, healthy]: [i64; 4]) -> Check {
    at("intervalSeconds", in_range(interval, 0..=86_400))?;
    at("timeoutSeconds", in_range(timeout, 0..=86_400))?;
    let counts = 0..=u32::MAX.into();
    at(
        "unhealthyThresholdCount",
        in_range(unhealthy, counts.clone()),
    )?;
    at("healthyThresholdCount", in_range(healthy, counts))
}

pub(super) fn path_rewrite(policy: &PathRewritePolicy) -> Check {
    each("replacePrefix", &policy.replace_prefix, 64, |replace| {
        optional_length("prefix", replace.prefix.as_deref(), 1024)?;
        at("replacement", text::length(&replace.replacement, 1, 1024))
    })
}

pub(super) fn headers(policy: &HeadersPolicy) -> Check {
    each("set", &policy.set, 128, named)?;
    each("remove", &policy.remove, 128, |name| {
        text::length(name, 1, 256)
    })
}

fn named(header: &HttpHeader) -> Check {
    at("name", text::length(&header.name, 1, 256))?;
    at("value", text::length(&header.value, 0, 4096))
}

pub(super) fn rate_limit(policy: &RateLimitPolicy) -> Check {
    optional("local", policy.local.as_deref(), local)?;
    optional("global", policy.global.as_deref(), global)
}

fn local(policy: &LocalRateLimitPolicy) -> Check {
    at(
        "requests",
        ensure(policy.requests > 0, "expected at least 1"),
    )?;
    known("unit", Some(&policy.unit), RateLimitUnit::KNOWN)?;
    at("burst", unsigned(policy.burst))?;
    optional(
        "responseStatusCode",
        policy.response_status_code.as_ref(),
        |code| in_range((*code).into(), 400..=599),
    )?;
    each(
        "responseHeadersToAdd",
        &policy.response_headers_to_add,
        10,
        named,
    )
}

fn global(policy: &GlobalRateLimitPolicy) -> Check {
    descriptors(&policy.descriptors)
}

pub(crate) fn descriptors(list: &[RateLimitDescriptor]) -> Check {
    each("descriptors", list, 32, |descriptor| {
        each_of_some("entries", &descriptor.entries, 16, entry)
    })
}

fn entry(entry: &RateLimitDescriptorEntry) -> Check {
    let set = [
        entry.generic_key.is_some(),
        entry.request_header.is_some(),
        entry.request_header_value_match.is_some(),
        entry.remote_address.is_some(),
    ];
    ensure(
        count(&set) == 1,
        "exactly one of genericKey, requestHeader, requestHeaderValueMatch and remoteAddress is required",
    )?;
    let some = |text: &str| text::length(text, 1, usize::MAX);
    optional("genericKey", entry.generic_key.as_ref(), |key| {
        at("value", some(&key.value))
    })?;
    optional("requestHeader", entry.request_header.as_ref(), |header| {
        at("headerName", some(&header.header_name))?;
        at("descriptorKey", some(&header.descriptor_key))
    })?;
    let conditions = entry.request_header_value_match.as_deref();
    optional("requestHeaderValueMatch", conditions, |conditions| {
        each_of_some("headers", &conditions.headers, 16, header)?;
        at("value", some(&conditions.value))
    })
}

pub(super) fn redirect(policy: &RequestRedirectPolicy) -> Check {
    ensure(
        policy.path.is_none() || policy.prefix.is_none(),
        "path and prefix are mutually exclusive",
    )?;
    known("scheme", policy.scheme.as_ref(), RedirectScheme::KNOWN)?;
    optional(
        "hostname",
        policy.hostname.as_deref(),
        text::precise_hostname,
    )?;
    optional("port", policy.port.as_ref(), text::port)?;
    at("statusCode", redirect_code(&policy.status_code))?;
    optional_path("path", policy.path.as_deref())?;
    optional_path("prefix", policy.prefix.as_deref())
}

fn redirect_code(code: &u16) -> Check {
    ensure(
        REDIRECT_CODES.contains(code),
        "expected 301, 302, 303, 307 or 308",
    )
}

pub(super) fn direct_response(policy: &DirectResponsePolicy) -> Check {
    at("statusCode", in_range(policy.status_code.into(), 200..=599))
}

pub(super) fn internal_redirect(policy: &InternalRedirectPolicy) -> Check {
    let max = policy.max_internal_redirects;
    at("maxInternalRedirects", unsigned(max.unwrap_or_default()))?;
    each(
        "redirectResponseCodes",
        &policy.redirect_response_codes,
        5,
        redirect_code,
    )?;
    known(
        "allowCrossSchemeRedirect",
        policy.allow_cross_scheme_redirect.as_ref(),
        CrossSchemeRedirect::KNOWN,
    )
}

pub(super) fn jwt(policy: &JwtVerificationPolicy) -> Check {
    ensure(
        policy.require.is_none() || !policy.disabled,
        "require and disabled are mutually exclusive",
    )
}

fn one_of(word: &RetryOn, words: &[&str]) -> Check {
    crate::check::known_word(word.as_str(), words)
}

/// A number that Envoy has in 32 bits.
pub(crate) fn unsigned(number: i64) -> Check {
    in_range(number, 0..=u32::MAX.into())
}

fn in_range(number: i64, range: RangeInclusive<i64>) -> Check {
    let (min, max) = (range.start(), range.end());
    ensure(
        range.contains(&number),
        &format!("expected a whole number from {min} to {max}"),
    )
}
