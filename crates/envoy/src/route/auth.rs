//! Checks of requests by external services.
//!
//! Envoy's filter can't be configured completely for a route, but the composite filter can: its configuration for a route or
//! a host names the filters to run. So each check has a composite filter of its own in the connection manager. After the
//! first filter that waits for a response, the composite filter skips its others, so the check is the last one.

use envoy_types::pb::envoy::config::common::mutation_rules::v3 as rules;
use envoy_types::pb::envoy::config::core::v3 as core;
use envoy_types::pb::envoy::config::route::v3::FilterConfig;
use envoy_types::pb::envoy::extensions::filters::common::set_filter_state::v3::FilterStateValue;
use envoy_types::pb::envoy::extensions::filters::http::composite::v3 as composite;
use envoy_types::pb::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use envoy_types::pb::envoy::extensions::filters::http::ext_authz::v3 as pb;
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3 as mutation;
use envoy_types::pb::envoy::extensions::filters::http::rbac::v3::RbacPerRoute;
use envoy_types::pb::envoy::extensions::filters::http::set_filter_state::v3 as state;
use envoy_types::pb::envoy::extensions::filters::http::stateful_session::v3 as session;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    ListStringMatcher, StringMatcher, string_matcher::MatchPattern,
};
use envoy_types::pb::envoy::r#type::v3::{HttpStatus, StatusCode};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::core::v3 as xds;
use envoy_types::pb::xds::r#type::matcher::v3::{Matcher, matcher};
use envoy_types::util::pack_any;
use matcher::{OnMatch, on_match};
use rules::header_mutation::Action;
use sesame_model::{AuthProtocol, ExternalAuth, HOP_BY_HOP, HeaderChanges, INTERNAL, List};

use super::headers::changes;
use super::matching::regex;
use super::{jwt, policy};
use crate::{hcm, names, wire};

/// Configuration of [`hcm::ROUTE_AUTH`] for a route.
pub(super) fn of_route(auth: &ExternalAuth) -> Any {
    filters(auth, false)
}

/// Configuration of the filters of a host with checks. Envoy creates a request's filters when it arrives, by its first
/// route. So all filters that the route selected after the checks may use are enabled for the host, without an effect.
pub(super) fn of_host<'a>(
    auth: impl Iterator<Item = &'a ExternalAuth>,
) -> impl Iterator<Item = (String, Any)> {
    let checks = auth
        .enumerate()
        .map(|(place, auth)| (hcm::host_auth(place), filters(auth, true)));
    let no_session = session::StatefulSessionPerRoute {
        r#override: Some(session::stateful_session_per_route::Override::Disabled(
            true,
        )),
    };
    checks.chain([
        (hcm::CORS.to_owned(), pack_any(CorsPolicy::default())),
        (hcm::SOURCES.to_owned(), pack_any(RbacPerRoute::default())),
        (hcm::RATE.to_owned(), pack_any(policy::no_rate())),
        (hcm::JWT_PROVIDER.to_owned(), jwt::of_no_route()),
        (hcm::ROUTE_AUTH.to_owned(), execute(None)),
        (hcm::STATEFUL_SESSION.to_owned(), pack_any(no_session)),
    ])
}

/// The configuration of a route whose requests pass without the host's `count` checks.
pub(super) fn unchecked(count: usize) -> impl Iterator<Item = (String, Any)> {
    let disabled = FilterConfig {
        disabled: true,
        ..Default::default()
    };
    (0..count).map(move |place| (hcm::host_auth(place), pack_any(disabled.clone())))
}

/// Changes the request, then checks it. With `reroute`, the route is selected again after the check.
fn filters(auth: &ExternalAuth, reroute: bool) -> Any {
    let before = (!auth.before.is_empty()).then(|| {
        wire::extension(
            "envoy.filters.http.header_mutation",
            mutations(&auth.before),
        )
    });
    // If the service changes nothing, Envoy keeps the route of the unchanged request.
    let reselect = (reroute && before.is_some()).then(forget_route);
    let check = wire::extension("envoy.filters.http.ext_authz", check(auth, reroute));
    let filters = before.into_iter().chain(reselect).chain([check]);
    execute(Some(composite::ExecuteFilterAction {
        filter_chain: Some(composite::FilterChainConfiguration {
            typed_config: filters.collect(),
        }),
        ..Default::default()
    }))
}

/// Lets Envoy select the route again. The filter does so only if it sets something.
fn forget_route() -> core::TypedExtensionConfig {
    let one = FilterStateValue {
        factory_key: "envoy.string".to_owned(),
        ..wire::filter_state("sesame.changed", "1".to_owned())
    };
    wire::extension(
        "envoy.filters.http.set_filter_state",
        state::Config {
            on_request_headers: vec![one],
            clear_route_cache: true,
        },
    )
}

/// The configuration of a composite filter.
pub(super) fn execute(action: Option<composite::ExecuteFilterAction>) -> Any {
    let on_match = action.map(|action| {
        Box::new(OnMatch {
            on_match: Some(on_match::OnMatch::Action(xds::TypedExtensionConfig {
                name: "filters".to_owned(),
                typed_config: Some(pack_any(action)),
            })),
            ..Default::default()
        })
    });
    pack_any(composite::CompositePerRoute {
        matcher: Some(Matcher {
            on_no_match: on_match,
            ..Default::default()
        }),
    })
}

fn mutations(before: &HeaderChanges) -> mutation::HeaderMutation {
    let before = changes(before);
    let removed = before.remove.into_iter().map(Action::Remove);
    let added = before.add.into_iter().map(Action::Append);
    let mutation = |action| rules::HeaderMutation {
        action: Some(action),
    };
    mutation::HeaderMutation {
        mutations: Some(mutation::Mutations {
            request_mutations: removed.chain(added).map(mutation).collect(),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn check(auth: &ExternalAuth, reroute: bool) -> pb::ExtAuthz {
    // Without a list, Envoy sends all headers in a call, and none in an HTTP request.
    let allowed = match &auth.protocol {
        AuthProtocol::Grpc {
            request_headers: List::All,
        } => None,
        AuthProtocol::Grpc {
            request_headers: List::Only(names),
        }
        | AuthProtocol::Http {
            request_headers: names,
            ..
        } => (!names.is_empty()).then(|| exact(names)),
    };
    pb::ExtAuthz {
        services: Some(service(auth)),
        transport_api_version: core::ApiVersion::V3.into(),
        // Distinguishes a failed service from one that denies the request.
        status_on_error: Some(HttpStatus {
            code: StatusCode::ServiceUnavailable.into(),
        }),
        validate_mutations: true,
        clear_route_cache: reroute,
        with_request_body: auth.max_body.map(|size| pb::BufferSettings {
            max_request_bytes: size,
            ..Default::default()
        }),
        allowed_headers: allowed,
        // For gRPC, the headers would be in a field that most services don't read.
        encode_raw_headers: matches!(auth.protocol, AuthProtocol::Http { .. }),
        disallowed_headers: Some(patterns(
            INTERNAL
                .iter()
                .map(|prefix| MatchPattern::Prefix((*prefix).to_owned())),
        )),
        decoder_header_mutation_rules: Some(rules::HeaderMutationRules {
            disallow_system: wire::boolean(true),
            disallow_expression: Some(regex(&disallowed(&auth.protocol))),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn service(auth: &ExternalAuth) -> pb::ext_authz::Services {
    let timeout = Some(wire::duration(auth.timeout));
    let cluster = names::cluster(&auth.cluster);
    let host = names::authority(&auth.cluster);
    match &auth.protocol {
        AuthProtocol::Grpc { .. } => pb::ext_authz::Services::GrpcService(core::GrpcService {
            timeout,
            target_specifier: Some(core::grpc_service::TargetSpecifier::EnvoyGrpc(
                core::grpc_service::EnvoyGrpc {
                    cluster_name: cluster,
                    authority: host,
                    ..Default::default()
                },
            )),
            ..Default::default()
        }),
        AuthProtocol::Http {
            path_prefix,
            response_headers,
            ..
        } => pb::ext_authz::Services::HttpService(pb::HttpService {
            // Only the cluster counts: the Host is the request's.
            server_uri: Some(core::HttpUri {
                uri: format!("http://{host}"),
                timeout,
                http_upstream_type: Some(core::http_uri::HttpUpstreamType::Cluster(cluster)),
            }),
            path_prefix: path_prefix.clone(),
            authorization_response: Some(pb::AuthorizationResponse {
                allowed_upstream_headers: Some(match response_headers {
                    List::Only(names) => exact(names),
                    List::All => patterns([MatchPattern::SafeRegex(regex(".*"))].into_iter()),
                }),
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
}

/// The headers that a service can't change. If all headers of its response are copied, those that describe the response's
/// body are not among them.
fn disallowed(protocol: &AuthProtocol) -> String {
    let prefixes = INTERNAL.iter().map(|prefix| format!("{prefix}.*"));
    let names = HOP_BY_HOP.iter().map(|name| (*name).to_owned());
    let body = match protocol {
        AuthProtocol::Http {
            response_headers: List::All,
            ..
        } => Some("content-.*".to_owned()),
        _ => None,
    };
    let all = ["host".to_owned()]
        .into_iter()
        .chain(names)
        .chain(prefixes)
        .chain(body);
    Vec::from_iter(all).join("|")
}

fn exact(names: &[String]) -> ListStringMatcher {
    patterns(names.iter().cloned().map(MatchPattern::Exact))
}

fn patterns(patterns: impl Iterator<Item = MatchPattern>) -> ListStringMatcher {
    let pattern = |pattern| StringMatcher {
        ignore_case: !matches!(pattern, MatchPattern::SafeRegex(_)),
        match_pattern: Some(pattern),
    };
    ListStringMatcher {
        patterns: patterns.map(pattern).collect(),
    }
}
