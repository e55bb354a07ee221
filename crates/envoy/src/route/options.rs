//! Rarely used options of forwarding.

use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::TypedExtensionConfig;
use envoy_types::pb::envoy::config::route::v3::route::Action as PbAction;
use envoy_types::pb::envoy::config::route::v3::route_action::hash_policy::{
    ConnectionProperties, Cookie, Header, PolicySpecifier, QueryParameter,
};
use envoy_types::pb::envoy::config::route::v3::route_action::{HashPolicy, HostRewriteSpecifier};
use envoy_types::pb::envoy::config::route::v3::{InternalRedirectPolicy, Route, RouteAction};
use envoy_types::pb::envoy::extensions::internal_redirect::allow_listed_routes::v3::AllowListedRoutesConfig;
use envoy_types::pb::envoy::extensions::internal_redirect::previous_routes::v3::PreviousRoutesConfig;
use envoy_types::pb::envoy::extensions::internal_redirect::safe_cross_scheme::v3::SafeCrossSchemeConfig;
use sesame_model::{self as model, Action, CrossScheme, ForwardOptions, HashOf, InternalRedirects};

use crate::wire;

/// Applies the options to a route's action.
pub(super) fn apply(options: &ForwardOptions, action: &mut RouteAction) {
    if let Some(idle) = options.idle_timeout {
        action.idle_timeout = Some(wire::duration(idle));
    }
    if let Some(header) = &options.host_from_header {
        action.host_rewrite_specifier =
            Some(HostRewriteSpecifier::HostRewriteHeader(header.clone()));
    }
    action.hash_policy = options.hash.iter().map(hash).collect();
    action.internal_redirect_policy = options.internal_redirects.as_ref().map(policy);
}

fn hash(policy: &model::HashPolicy) -> HashPolicy {
    HashPolicy {
        terminal: policy.terminal,
        policy_specifier: Some(match &policy.of {
            HashOf::Header(name) => PolicySpecifier::Header(Header {
                header_name: name.clone(),
                ..Default::default()
            }),
            HashOf::Query(name) => {
                PolicySpecifier::QueryParameter(QueryParameter { name: name.clone() })
            }
            HashOf::Source => {
                PolicySpecifier::ConnectionProperties(ConnectionProperties { source_ip: true })
            }
            HashOf::Cookie { name, path } => PolicySpecifier::Cookie(Cookie {
                name: name.clone(),
                // Without a lifetime, Envoy doesn't set a cookie; zero means a session cookie.
                ttl: Some(wire::duration(Duration::ZERO)),
                path: path.clone(),
                ..Default::default()
            }),
        }),
    }
}

/// Whether Envoy follows redirects of the route's backends.
pub(super) fn redirects(route: &model::Route) -> bool {
    match &route.action {
        Action::Forward(forward) => forward
            .options
            .as_ref()
            .is_some_and(|options| options.internal_redirects.is_some()),
        _ => false,
    }
}

/// Makes a route a target of redirects from its own host's routes only: another host may have another owner, and may
/// require a client certificate. Envoy identifies targets by name.
pub(super) fn within_host(route: &mut Route, domain: &str) {
    domain.clone_into(&mut route.name);
    if let Some(PbAction::Route(action)) = &mut route.action
        && let Some(policy) = &mut action.internal_redirect_policy
    {
        policy.predicates.push(wire::extension(
            "envoy.internal_redirect_predicates.allow_listed_routes",
            AllowListedRoutesConfig {
                allowed_route_names: vec![domain.to_owned()],
            },
        ));
    }
}

fn policy(redirects: &InternalRedirects) -> InternalRedirectPolicy {
    let previous = redirects.deny_repeated.then(|| {
        wire::extension(
            "envoy.internal_redirect_predicates.previous_routes",
            PreviousRoutesConfig {},
        )
    });
    let safe = (redirects.cross_scheme == CrossScheme::SafeOnly).then(|| {
        wire::extension(
            "envoy.internal_redirect_predicates.safe_cross_scheme",
            SafeCrossSchemeConfig {},
        )
    });
    let predicates: Vec<TypedExtensionConfig> = previous.into_iter().chain(safe).collect();
    InternalRedirectPolicy {
        max_internal_redirects: wire::uint32(redirects.max),
        redirect_response_codes: redirects.codes.iter().copied().map(u32::from).collect(),
        predicates,
        allow_cross_scheme_redirect: redirects.cross_scheme != CrossScheme::Never,
        ..Default::default()
    }
}
