//! Cross-origin rules.
//!
//! Envoy's filter answers a preflight from an origin that may call, and adds the permission to other answers. Preflights
//! from other origins are answered with 200 and no permission, so that no backend widens what the gateway refuses; their
//! other requests reach the backend.

use envoy_types::pb::envoy::config::common::mutation_rules::v3::{
    HeaderMutation, header_mutation::Action,
};
use envoy_types::pb::envoy::config::core::v3::{
    HeaderValue, HeaderValueOption, header_value_option::HeaderAppendAction,
};
use envoy_types::pb::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use envoy_types::pb::envoy::extensions::filters::http::header_mutation::v3::{
    HeaderMutationPerRoute, Mutations,
};
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_model::{Cors, List, OriginMatch};

use super::matching::{regex, string};
use crate::wire;

/// One or more labels of a host name.
const LABELS: &str = r"[0-9a-z_-]+(?:\.[0-9a-z_-]+)*";

/// Configuration of the CORS filter for one route.
pub(super) fn policy(cors: &Cors) -> Any {
    pack_any(CorsPolicy {
        allow_origin_string_match: cors.origins.iter().map(origin).collect(),
        allow_methods: list(&cors.methods),
        allow_headers: list(&cors.headers),
        expose_headers: list(&cors.expose),
        max_age: cors.max_age.as_secs().to_string(),
        allow_credentials: if cors.credentials {
            wire::boolean(true)
        } else {
            None
        },
        forward_not_matching_preflights: wire::boolean(false),
        ..Default::default()
    })
}

/// Configuration of the header mutation filter for one route, where the CORS filter alone can't say it: with credentials
/// a browser takes `*` for a name, so that "all" must be said with the names that it asked for.
pub(super) fn echo(cors: &Cors) -> Option<Any> {
    let echoes = [
        (&cors.methods, "method", "methods"),
        (&cors.headers, "headers", "headers"),
    ];
    let response_mutations: Vec<_> = echoes
        .into_iter()
        .filter(|(list, ..)| cors.credentials && **list == List::All)
        .map(|(_, asked, allowed)| HeaderMutation {
            action: Some(Action::Append(HeaderValueOption {
                header: Some(HeaderValue {
                    key: format!("access-control-allow-{allowed}"),
                    value: format!("%REQ(access-control-request-{asked})%"),
                    ..Default::default()
                }),
                // Only the CORS filter's answer to a preflight has the header.
                append_action: HeaderAppendAction::OverwriteIfExists.into(),
                ..Default::default()
            })),
        })
        .collect();
    (!response_mutations.is_empty()).then(|| {
        pack_any(HeaderMutationPerRoute {
            mutations: Some(Mutations {
                response_mutations,
                ..Default::default()
            }),
        })
    })
}

/// Browsers write origins in lower case.
fn origin(origin: &OriginMatch) -> StringMatcher {
    string(match origin {
        // To the filter this literal means every origin. It answers with the request's own.
        OriginMatch::Any => MatchPattern::Exact("*".to_owned()),
        OriginMatch::Exact(origin) => MatchPattern::Exact(origin.to_ascii_lowercase()),
        OriginMatch::Wildcard { before, behind } => MatchPattern::SafeRegex(regex(&format!(
            "{}{LABELS}{}",
            regex_syntax::escape(&before.to_ascii_lowercase()),
            regex_syntax::escape(&behind.to_ascii_lowercase()),
        ))),
    })
}

fn list(list: &List) -> String {
    match list {
        List::Only(names) => names.join(", "),
        List::All => "*".to_owned(),
    }
}
