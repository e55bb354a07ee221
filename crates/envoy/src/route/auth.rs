//! External authorization: services that check requests.
//!
//! Envoy's authorization filter can't be configured completely per route, but the composite filter can: its
//! configuration for a route or a host lists the filters to run. So each check has a composite filter of its own in the
//! connection manager. A composite filter skips the filters after the first one that waits for a response, so the check
//! comes last.
//!
//! The filters in a composite filter can't be configured per route, but a check's context entries are part of the
//! authorization filter's configuration for a route. So checks with context entries use separate authorization filters
//! in the connection manager, and the route's configuration names the service. Two settings can't be configured per
//! route; there is a filter for each of their combinations.

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
use pb::ext_authz_per_route::Override;
use rules::header_mutation::Action;
use sesame_model::{
    AuthBody, AuthProtocol, ExternalAuth, HOP_BY_HOP, HeaderChanges, INTERNAL, List, TextMatch,
    TextPosition,
};

use super::headers::changes;
use super::matching::regex;
use super::{cookies, jwt, policy};
use crate::{hcm, names, wire};

/// The filter for a route's check, and its configuration.
pub(super) fn of_route(auth: &ExternalAuth) -> (String, Any) {
    let AuthProtocol::GrpcWithContext(context) = &auth.protocol else {
        return (hcm::ROUTE_AUTH.to_owned(), filters(auth, false));
    };
    let settings = pb::CheckSettings {
        with_request_body: auth.body.map(buffer),
        service_override: Some(pb::check_settings::ServiceOverride::GrpcService(grpc(auth))),
        ..Default::default()
    };
    let filter = ContextFilter {
        fail_open: auth.fail_open,
        bytes: auth.body.is_some_and(|body| body.bytes),
    };
    (filter.name(), wire::check_of_route(&settings, context))
}

/// A filter for checks with context entries.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContextFilter {
    /// Whether requests pass if the service fails.
    fail_open: bool,
    /// Whether the service gets the body as bytes.
    bytes: bool,
}

impl ContextFilter {
    /// All context filters.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        let all = [(false, false), (false, true), (true, false), (true, true)];
        all.into_iter()
            .map(|(fail_open, bytes)| Self { fail_open, bytes })
    }

    /// The filter's name in the connection manager.
    pub(crate) fn name(self) -> String {
        let open = if self.fail_open { ".open" } else { "" };
        let bytes = if self.bytes { ".bytes" } else { "" };
        format!("auth.context{open}{bytes}")
    }

    /// The filter's configuration in the connection manager. Its service doesn't exist: each route names its own.
    pub(crate) fn config(self) -> pb::ExtAuthz {
        let service = grpc_service(names::REFUSED.to_owned(), String::new());
        let body = AuthBody {
            max: 1,
            partial: true,
            bytes: true,
        };
        pb::ExtAuthz {
            services: Some(pb::ext_authz::Services::GrpcService(service)),
            failure_mode_allow: self.fail_open,
            with_request_body: self.bytes.then(|| buffer(body)),
            ..strict(false)
        }
    }
}

/// Configuration of the filters for a host with checks. Envoy creates a request's filters when the request arrives,
/// from its first route. The checks may lead to another route, so all filters that such a route may use are enabled for
/// the host, without effect.
pub(super) fn of_host<'a>(
    auth: impl Iterator<Item = &'a ExternalAuth>,
) -> impl Iterator<Item = (String, Any)> {
    let checks = auth
        .enumerate()
        .map(|(place, auth)| (hcm::host_auth(place), filters(auth, true)));
    let unchecked = pb::ExtAuthzPerRoute {
        r#override: Some(Override::Disabled(true)),
    };
    let unchecked = pack_any(unchecked);
    let contexts = ContextFilter::all().map(move |filter| (filter.name(), unchecked.clone()));
    let no_session = session::StatefulSessionPerRoute {
        r#override: Some(session::stateful_session_per_route::Override::Disabled(
            true,
        )),
    };
    checks.chain(contexts).chain([
        (hcm::CORS.to_owned(), pack_any(CorsPolicy::default())),
        (hcm::SOURCES.to_owned(), pack_any(RbacPerRoute::default())),
        (hcm::RATE.to_owned(), pack_any(policy::no_rate())),
        (hcm::JWT_PROVIDER.to_owned(), jwt::of_no_route()),
        (hcm::ROUTE_AUTH.to_owned(), execute(None)),
        (hcm::GLOBAL_RATE.to_owned(), execute(None)),
        (hcm::STATEFUL_SESSION.to_owned(), pack_any(no_session)),
        (hcm::COOKIE_CHANGES.to_owned(), cookies::of_no_target()),
    ])
}

/// The configuration for a route whose requests bypass the host's `count` checks.
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
    // If the service doesn't change the request, Envoy keeps the route selected before these mutations.
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

/// Makes Envoy select the route again. The filter does this only if it sets a value.
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
        }
        | AuthProtocol::GrpcWithContext(_) => None,
        AuthProtocol::Grpc {
            request_headers: List::Only(names),
        } => Some(patterns(names.iter().cloned().map(MatchPattern::Exact))),
        AuthProtocol::Http {
            request_headers, ..
        } => some(request_headers),
    };
    let copies_all = matches!(
        auth.protocol,
        AuthProtocol::Http {
            response_headers: None,
            ..
        }
    );
    pb::ExtAuthz {
        services: Some(service(auth)),
        failure_mode_allow: auth.fail_open,
        clear_route_cache: reroute,
        with_request_body: auth.body.map(buffer),
        allowed_headers: allowed,
        // For gRPC, the headers would be in a field that most services don't read.
        encode_raw_headers: matches!(auth.protocol, AuthProtocol::Http { .. }),
        ..strict(copies_all)
    }
}

fn buffer(body: AuthBody) -> pb::BufferSettings {
    pb::BufferSettings {
        max_request_bytes: body.max,
        allow_partial_message: body.partial,
        pack_as_bytes: body.bytes,
    }
}

/// The settings common to all checks. `copies_all`: all headers in the service's response are copied to the request.
fn strict(copies_all: bool) -> pb::ExtAuthz {
    pb::ExtAuthz {
        transport_api_version: core::ApiVersion::V3.into(),
        // Distinguishes a failed service from one that denies the request.
        status_on_error: Some(HttpStatus {
            code: StatusCode::ServiceUnavailable.into(),
        }),
        validate_mutations: true,
        disallowed_headers: Some(patterns(
            INTERNAL
                .iter()
                .map(|prefix| MatchPattern::Prefix((*prefix).to_owned())),
        )),
        decoder_header_mutation_rules: Some(rules::HeaderMutationRules {
            disallow_system: wire::boolean(true),
            disallow_expression: Some(regex(&disallowed(copies_all))),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// The service, with the check's timeout for calls.
fn grpc(auth: &ExternalAuth) -> core::GrpcService {
    core::GrpcService {
        timeout: Some(wire::duration(auth.timeout)),
        ..grpc_service(
            names::cluster(&auth.cluster),
            names::authority(&auth.cluster),
        )
    }
}

pub(super) fn grpc_service(cluster: String, authority: String) -> core::GrpcService {
    core::GrpcService {
        target_specifier: Some(core::grpc_service::TargetSpecifier::EnvoyGrpc(
            core::grpc_service::EnvoyGrpc {
                cluster_name: cluster,
                authority,
                ..Default::default()
            },
        )),
        ..Default::default()
    }
}

fn service(auth: &ExternalAuth) -> pb::ext_authz::Services {
    let cluster = names::cluster(&auth.cluster);
    let host = names::authority(&auth.cluster);
    match &auth.protocol {
        AuthProtocol::Grpc { .. } | AuthProtocol::GrpcWithContext(_) => {
            pb::ext_authz::Services::GrpcService(grpc(auth))
        }
        AuthProtocol::Http {
            path_prefix,
            response_headers,
            ..
        } => pb::ext_authz::Services::HttpService(pb::HttpService {
            // Only the cluster is used: the Host header is the request's.
            server_uri: Some(core::HttpUri {
                uri: format!("http://{host}"),
                timeout: Some(wire::duration(auth.timeout)),
                http_upstream_type: Some(core::http_uri::HttpUpstreamType::Cluster(cluster)),
            }),
            path_prefix: path_prefix.clone(),
            authorization_response: Some(pb::AuthorizationResponse {
                allowed_upstream_headers: match response_headers {
                    Some(names) => some(names),
                    None => Some(patterns([MatchPattern::SafeRegex(regex(".*"))].into_iter())),
                },
                ..Default::default()
            }),
            ..Default::default()
        }),
    }
}

/// The headers that a service can't change. If all headers in its response are copied, these include the headers that
/// describe the response's body.
fn disallowed(copies_all: bool) -> String {
    let prefixes = INTERNAL.iter().map(|prefix| format!("{prefix}.*"));
    let names = HOP_BY_HOP.iter().map(|name| (*name).to_owned());
    let body = copies_all.then(|| "content-.*".to_owned());
    let all = ["host".to_owned()]
        .into_iter()
        .chain(names)
        .chain(prefixes)
        .chain(body);
    Vec::from_iter(all).join("|")
}

/// Names of headers; `None` if there are none.
fn some(names: &[TextMatch]) -> Option<ListStringMatcher> {
    let names = names.iter().map(|name| {
        let text = name.text.clone();
        match name.position {
            TextPosition::Whole => MatchPattern::Exact(text),
            TextPosition::Start => MatchPattern::Prefix(text),
            TextPosition::End => MatchPattern::Suffix(text),
            TextPosition::Anywhere => MatchPattern::Contains(text),
        }
    });
    (names.len() > 0).then(|| patterns(names))
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
