//! Redirects, fixed responses, and internal redirects, which are redirects from backends that Envoy follows.

use sesame_api::{
    CrossSchemeRedirect, DirectResponsePolicy, InternalRedirectPolicy, RedirectScheme,
    RequestRedirectPolicy,
};
use sesame_model::{
    Action, CrossScheme, DirectResponse, InternalRedirects, MAX_INTERNAL_REDIRECTS, PathRewrite,
    Redirect, RedirectPort,
};

use super::findings::{About, Findings};
use super::rewrite::Replacements;
use super::text::{PATH, is_path};

/// The maximum length of a response body, in bytes: Envoy's own limit.
const MAX_BODY: usize = 4_096;

/// The supported redirect statuses.
const CODES: [u16; 5] = [301, 302, 303, 307, 308];

/// Reads a redirect, and the replacement for the prefix of the path.
pub(super) fn redirect(
    field: &str,
    policy: &RequestRedirectPolicy,
    findings: &mut Findings,
) -> (Redirect, Replacements) {
    let field = format!("{field}.requestRedirectPolicy");
    let scheme = policy.scheme.as_ref().map(|scheme| scheme.as_str());
    if let Some(RedirectScheme::Other(other)) = &policy.scheme {
        let message = format!("unknown scheme {other:?}; use http or https");
        findings.refuse(About::ACTION, &format!("{field}.scheme"), message);
    }
    if let Some(hostname) = policy.hostname.as_deref()
        && !sesame_api::is_precise_hostname(hostname)
    {
        let message = format!("{hostname:?} is not a lowercase hostname such as example.com");
        findings.refuse(About::ACTION, &format!("{field}.hostname"), message);
    }
    if policy.port == Some(0) {
        let message = "expected a port from 1 to 65535";
        findings.refuse(About::ACTION, &format!("{field}.port"), message);
    }
    if !CODES.contains(&policy.status_code) {
        let message = format!(
            "{} is not supported; use 301, 302, 303, 307 or 308",
            policy.status_code
        );
        findings.refuse(About::ACTION, &format!("{field}.statusCode"), message);
    }
    if policy.path.is_some() && policy.prefix.is_some() {
        let message = "path and prefix are mutually exclusive; remove one of them";
        findings.refuse(About::ACTION, &field, message);
    }
    for (part, path) in [("path", &policy.path), ("prefix", &policy.prefix)] {
        if path.as_deref().is_some_and(|path| !is_path(path)) {
            findings.refuse(About::ACTION, &format!("{field}.{part}"), PATH);
        }
    }
    let prefix = policy.prefix.as_deref();
    let redirect = Redirect {
        scheme: scheme.map(str::to_owned),
        hostname: policy.hostname.as_deref().map(str::to_owned),
        port: match (policy.port, scheme) {
            (Some(port), _) => RedirectPort::Exact(port),
            (None, Some(_)) => RedirectPort::OfScheme,
            (None, None) => RedirectPort::OfListener,
        },
        path: policy
            .path
            .as_deref()
            .map(|path| PathRewrite::Full(path.to_owned())),
        status: policy.status_code,
    };
    (
        redirect,
        prefix.map_or_else(Replacements::default, Replacements::of_redirect),
    )
}

/// Reads a fixed response.
pub(super) fn response(
    field: &str,
    policy: &DirectResponsePolicy,
    findings: &mut Findings,
) -> Action {
    let field = format!("{field}.directResponsePolicy");
    let status = policy.status_code;
    if !(200..600).contains(&status) {
        let message = format!("{status} is not valid; use a status from 200 to 599");
        findings.refuse(About::ACTION, &format!("{field}.statusCode"), message);
    }
    let body = policy.body.as_deref().unwrap_or_default();
    if body.len() > MAX_BODY {
        let message = format!("is {} bytes long; the maximum is {MAX_BODY}", body.len());
        findings.refuse(About::ACTION, &format!("{field}.body"), message);
    }
    match body {
        "" => Action::Respond(status),
        body => Action::RespondWith(Box::new(DirectResponse {
            status,
            body: body.to_owned(),
        })),
    }
}

/// Reads which redirects from backends Envoy follows; `None` if it doesn't follow any.
pub(super) fn internal(
    field: &str,
    policy: Option<&InternalRedirectPolicy>,
    findings: &mut Findings,
) -> Option<InternalRedirects> {
    let policy = policy?;
    let field = format!("{field}.internalRedirectPolicy");
    let mut codes = policy.redirect_response_codes.clone();
    for (index, code) in codes.iter().enumerate() {
        if !CODES.contains(code) {
            let field = format!("{field}.redirectResponseCodes[{index}]");
            let message = format!("{code} is not supported; use 301, 302, 303, 307 or 308");
            findings.refuse(About::ACTION, &field, message);
        }
    }
    if codes.is_empty() {
        codes.push(302);
    }
    codes.sort_unstable();
    codes.dedup();
    let cross_scheme = match &policy.allow_cross_scheme_redirect {
        None | Some(CrossSchemeRedirect::Never) => CrossScheme::Never,
        Some(CrossSchemeRedirect::SafeOnly) => CrossScheme::SafeOnly,
        Some(CrossSchemeRedirect::Always) => CrossScheme::Always,
        Some(other) => {
            let field = format!("{field}.allowCrossSchemeRedirect");
            let message = format!(
                "unknown value {:?}; use Always, Never or SafeOnly",
                other.as_str()
            );
            findings.refuse(About::ACTION, &field, message);
            CrossScheme::Never
        }
    };
    let max = policy.max_internal_redirects.unwrap_or(1);
    let of_max = format!("{field}.maxInternalRedirects");
    let max = findings.count(About::ACTION, &of_max, max);
    if max > MAX_INTERNAL_REDIRECTS {
        let message = format!("{max} is too many; {MAX_INTERNAL_REDIRECTS} are followed");
        findings.warn(About::ACTION, &of_max, message);
    }
    (max > 0).then_some(InternalRedirects {
        max: max.min(MAX_INTERNAL_REDIRECTS),
        codes,
        cross_scheme,
        deny_repeated: policy.deny_repeated_route_redirect,
    })
}
