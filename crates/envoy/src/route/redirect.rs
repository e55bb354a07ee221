//! Clients that are sent elsewhere.
//!
//! Envoy keeps the port of the request's Host in the new address unless it is told a port or a host, and a port that it
//! is told it always shows. Where the new address must have no port, the host is therefore named; where a wildcard
//! domain leaves it unknown, requests whose Host has a port get a route of their own, which names the scheme's port.

use envoy_types::pb::envoy::config::route::v3::RedirectAction;
use envoy_types::pb::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use sesame_model::{PathMatch, PathRewrite, Redirect, RedirectPort};

use super::rewrite::{Rewrite, rewrite};

/// What a redirect depends on besides itself.
pub(super) struct Place<'a> {
    /// The virtual host's domain.
    pub(super) domain: &'a str,
    /// True on TLS connections.
    pub(super) secure: bool,
    /// The port of the listener, as the Gateway says it.
    pub(super) port: u16,
    /// Added to a port of the Gateway to get the one that clients see.
    pub(super) offset: u16,
}

/// A redirect as one action, or two.
pub(super) struct Redirects {
    /// For requests that `with_port` doesn't take.
    pub(super) action: RedirectAction,
    /// For requests whose Host has a port, if they need something else.
    pub(super) with_port: Option<RedirectAction>,
}

pub(super) fn redirect(redirect: &Redirect, matched: &PathMatch, place: &Place<'_>) -> Redirects {
    let scheme = match redirect.scheme.as_deref() {
        Some(scheme) => scheme,
        None if place.secure => "https",
        None => "http",
    };
    let default_port = if scheme == "https" { 443 } else { 80 };
    let port = match redirect.port {
        RedirectPort::Exact(port) => port,
        RedirectPort::OfScheme => default_port,
        RedirectPort::OfListener => place.port,
    }
    .saturating_add(place.offset);
    let host = match &redirect.hostname {
        Some(host) => host.clone(),
        None if place.domain.starts_with('*') => String::new(),
        None => place.domain.to_owned(),
    };
    let mut action = RedirectAction {
        response_code: status(redirect.status).into(),
        scheme_rewrite_specifier: redirect
            .scheme
            .clone()
            .map(SchemeRewriteSpecifier::SchemeRedirect),
        path_rewrite_specifier: redirect
            .path
            .as_ref()
            .and_then(|rewrite| path(rewrite, matched)),
        ..Default::default()
    };
    if port != default_port {
        // Envoy replaces the request's port by this one, so that its host may stay.
        action.port_redirect = port.into();
        action.host_redirect = redirect.hostname.clone().unwrap_or_default();
        return Redirects {
            action,
            with_port: None,
        };
    }
    let with_port = host.is_empty().then(|| RedirectAction {
        port_redirect: default_port.into(),
        ..action.clone()
    });
    action.host_redirect = host;
    Redirects { action, with_port }
}

fn path(change: &PathRewrite, matched: &PathMatch) -> Option<PathRewriteSpecifier> {
    if let PathRewrite::Full(path) = change {
        return Some(PathRewriteSpecifier::PathRedirect(path.clone()));
    }
    rewrite(matched, change).map(|rewrite| match rewrite {
        Rewrite::Matched(replacement) => PathRewriteSpecifier::PrefixRewrite(replacement),
        Rewrite::Regex {
            pattern,
            substitution,
        } => PathRewriteSpecifier::RegexRewrite(Rewrite::message(&pattern, substitution)),
    })
}

/// Anything else becomes 302, the Gateway API's default.
fn status(status: u16) -> RedirectResponseCode {
    match status {
        301 => RedirectResponseCode::MovedPermanently,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => RedirectResponseCode::Found,
    }
}
