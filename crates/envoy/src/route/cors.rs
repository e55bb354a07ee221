//! CORS policies.
//!
//! Envoy's filter answers preflights from allowed origins and adds CORS headers to the responses to their other
//! requests. Preflights from other origins get 200 without CORS headers, so no backend can allow them; their other
//! requests reach the backend.

use std::collections::BTreeMap;

use envoy_types::pb::envoy::extensions::filters::http::cors::v3::CorsPolicy;
use envoy_types::pb::envoy::r#type::matcher::v3::{StringMatcher, string_matcher::MatchPattern};
use envoy_types::pb::google::protobuf::{Any, BoolValue};
use envoy_types::util::pack_any;
use sesame_model::{Cors, List, OriginMatch};

use super::matching::{regex, string};
use crate::wire;

/// One or more labels of a hostname.
const LABELS: &str = r"[0-9a-z_-]+(?:\.[0-9a-z_-]+)*";

/// The maximum length of the ends of wildcard origins in an expression, in bytes. Envoy limits the size of expressions.
const MAX_ENDS: usize = 700;

/// Configuration of the CORS filter for a route.
pub(super) fn policy(cors: &Cors) -> Any {
    pack_any(CorsPolicy {
        allow_origin_string_match: origins(&cors.origins),
        allow_methods: list(&cors.methods),
        allow_headers: list(&cors.headers),
        expose_headers: list(&cors.expose),
        // Rounded up: 0 disables caching.
        max_age: cors.max_age.as_secs_f64().ceil().to_string(),
        allow_credentials: permitted(cors.credentials),
        allow_private_network_access: permitted(cors.private_network),
        forward_not_matching_preflights: wire::boolean(false),
        ..Default::default()
    })
}

fn permitted(permitted: bool) -> Option<BoolValue> {
    permitted.then(|| wire::boolean(true)).flatten()
}

/// Browsers send origins in lower case; exact ones also match in upper case. Wildcards share expressions, so that a long
/// origin is read only a few times.
fn origins(origins: &[OriginMatch]) -> Vec<StringMatcher> {
    let mut patterns = Vec::new();
    let mut wildcards: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for origin in origins {
        patterns.push(match origin {
            // Envoy's filter treats this literal as any origin and echoes the request's.
            OriginMatch::Any => MatchPattern::Exact("*".to_owned()),
            OriginMatch::Exact(origin) => MatchPattern::Exact(origin.clone()),
            OriginMatch::Regex(pattern) => MatchPattern::SafeRegex(regex(pattern)),
            OriginMatch::Wildcard { before, behind } => {
                let [before, behind] = [before, behind].map(|text| text.to_ascii_lowercase());
                wildcards.entry(before).or_default().push(behind);
                continue;
            }
        });
    }
    for (before, ends) in wildcards {
        let mut left = &*ends;
        while !left.is_empty() {
            let lengths = left.iter().scan(0, |length, end| {
                *length += end.len();
                Some(*length)
            });
            let fit = lengths.take_while(|length| *length <= MAX_ENDS).count();
            let (ends, rest) = left.split_at(fit.max(1));
            let ends: Vec<String> = ends.iter().map(|end| regex_syntax::escape(end)).collect();
            let ends = match &*ends {
                [end] => end.clone(),
                several => format!("(?:{})", several.join("|")),
            };
            let before = regex_syntax::escape(&before);
            let pattern = format!("{before}{LABELS}{ends}");
            patterns.push(MatchPattern::SafeRegex(regex(&pattern)));
            left = rest;
        }
    }
    let matcher = |pattern| {
        let ignore_case = matches!(pattern, MatchPattern::Exact(_));
        StringMatcher {
            ignore_case,
            ..string(pattern)
        }
    };
    patterns.into_iter().map(matcher).collect()
}

fn list(list: &List) -> String {
    match list {
        List::Only(names) => names.join(", "),
        // For methods and request headers, the filter echoes what the preflight requests. This also works with
        // credentials, for which browsers take the star literally.
        List::All => "*".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expressions(ends: &[String]) -> Vec<String> {
        let wildcard = |behind: &String| OriginMatch::Wildcard {
            before: "HTTPS://".to_owned(),
            behind: behind.clone(),
        };
        let wildcards: Vec<_> = ends.iter().map(wildcard).collect();
        let of = |matcher: StringMatcher| match matcher.match_pattern {
            Some(MatchPattern::SafeRegex(found)) => found.regex,
            other => panic!("{other:?}"),
        };
        origins(&wildcards).into_iter().map(of).collect()
    }

    #[test]
    fn wildcards_share_expressions_of_limited_length() {
        let ends = [".a.com".to_owned(), ".b.com:8443".to_owned()];
        let expected = format!(r"https://{LABELS}(?:\.a\.com|\.b\.com:8443)");
        assert_eq!(expressions(&ends), [expected]);
        let long: Vec<String> = (0..4)
            .map(|number| format!(".{number}{}", "a".repeat(MAX_ENDS / 2 - 3)))
            .collect();
        assert_eq!(expressions(&long).len(), 2);
        assert_eq!(expressions(&[".a".repeat(MAX_ENDS)]).len(), 1);
    }
}
