//! CORS policies.
//!
//! Envoy's filter answers preflights from allowed origins and adds CORS headers to the responses to their other
//! requests. Preflights from other origins get 200 without CORS headers, so no backend can allow them; their other
//! requests reach the backend.

use envoy_types::pb::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use envoy_types::pb::google::protobuf::Any;
use envoy_types::util::pack_any;
use sesame_model::{Cors, List, OriginMatch};

use super::matching::{regex, string};
use crate::wire;

/// One or more labels of a hostname.
const LABELS: &str = r"[0-9a-z_-]+(?:\.[0-9a-z_-]+)*";

/// Configuration of the CORS filter for a route.
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

/// Browsers send origins in lower case.
fn origin(origin: &OriginMatch) -> StringMatcher {
    string(match origin {
        // Envoy's filter treats this literal as any origin and echoes the request's.
        OriginMatch::Any => MatchPattern::Exact("*".to_owned()),
        OriginMatch::Exact(origin) => MatchPattern::Exact(origin.to_ascii_lowercase()),
        OriginMatch::Wildcard { before, behind } => MatchPattern::SafeRegex(regex(&format!(
            "{}{LABELS}{}",
            regex_syntax::escape(&before.to_ascii_lowercase()),
            regex_syntax::escape(&behind.to_ascii_lowercase()),
        ))),
        OriginMatch::Regex(pattern) => MatchPattern::SafeRegex(regex(pattern)),
    })
}

fn list(list: &List) -> String {
    match list {
        List::Only(names) => names.join(", "),
        // For methods and request headers, the filter echoes what the preflight requests. This also works with
        // credentials, for which browsers take the star literally.
        List::All => "*".to_owned(),
    }
}
