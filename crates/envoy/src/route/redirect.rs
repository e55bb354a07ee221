//! Redirects.
//!
//! Envoy keeps the port of the request's Host in the Location unless a port or host is configured, and always
//! includes a configured port. So a Location without a port requires a configured host. Under a wildcard domain the
//! host is unknown, so a second route handles requests whose Host has a port, by configuring the scheme's port.

use envoy_types::pb::envoy::config::route::v3::RedirectAction;
use envoy_types::pb::envoy::config::route::v3::redirect_action::{
    PathRewriteSpecifier, RedirectResponseCode, SchemeRewriteSpecifier,
};
use sesame_model::{PathMatch, PathRewrite, Redirect, RedirectPort};

use super::rewrite::{Rewrite, rewrite};

/// The context of a redirect.
pub(super) struct Origin<'a> {
    /// The virtual host's domain.
    pub(super) domain: &'a str,
    /// True on TLS connections.
    pub(super) secure: bool,
    /// The listener's port in the Gateway's spec.
    pub(super) port: u16,
    /// Maps a port in the spec to the port that clients see.
    pub(super) visible_port: &'a mut dyn FnMut(u16) -> u16,
    /// Whether a redirect depends on the port in the Host header.
    pub(super) compares_ports: bool,
}

/// A redirect as one or two actions.
pub(super) struct Redirects {
    /// For all requests that `with_port` doesn't handle.
    pub(super) action: RedirectAction,
    /// For requests whose Host has a port, if they need another action.
    pub(super) with_port: Option<RedirectAction>,
}

pub(super) fn redirect(
    redirect: &Redirect,
    matched: &PathMatch,
    origin: &mut Origin<'_>,
) -> Redirects {
    let scheme = match redirect.scheme.as_deref() {
        Some(scheme) => scheme,
        None if origin.secure => "https",
        None => "http",
    };
    let default_port = if scheme == "https" { 443 } else { 80 };
    let port = (origin.visible_port)(match redirect.port {
        RedirectPort::Exact(port) => port,
        RedirectPort::OfScheme => default_port,
        RedirectPort::OfListener => origin.port,
    });
    let host = match &redirect.hostname {
        Some(host) => host.clone(),
        None if origin.domain.starts_with('*') => String::new(),
        None => origin.domain.to_owned(),
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
        // Envoy replaces the request's port with this one and keeps its host.
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
    origin.compares_ports |= with_port.is_some();
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

/// Other statuses become 302, the Gateway API's default.
fn status(status: u16) -> RedirectResponseCode {
    match status {
        301 => RedirectResponseCode::MovedPermanently,
        303 => RedirectResponseCode::SeeOther,
        307 => RedirectResponseCode::TemporaryRedirect,
        308 => RedirectResponseCode::PermanentRedirect,
        _ => RedirectResponseCode::Found,
    }
}
