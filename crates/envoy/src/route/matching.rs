//! Route matches.

use envoy_types::pb::envoy::config::core::v3::RuntimeFractionalPercent;
use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::config::route::v3::header_matcher::HeaderMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::query_parameter_matcher::QueryParameterMatchSpecifier;
use envoy_types::pb::envoy::config::route::v3::route_match::PathSpecifier;
use envoy_types::pb::envoy::r#type::matcher::v3::{
    RegexMatcher, StringMatcher, string_matcher::MatchPattern,
};
use envoy_types::pb::envoy::r#type::v3::{FractionalPercent, fractional_percent::DenominatorType};
use sesame_model::{PartsPerMillion, PathMatch, RouteMatch, TextPosition, ValueMatch};

/// All requests, in parts per million.
const MILLION: u32 = 1_000_000;

pub(super) fn matching(matches: &RouteMatch) -> pb::RouteMatch {
    let method = matches.method.iter().map(|method| exact(":method", method));
    let method = path_first(matches).into_iter().chain(method);
    let headers = matches.headers.iter();
    let headers = headers.map(|header| header_matcher(&header.name, &header.value));
    pb::RouteMatch {
        path_specifier: Some(path(&matches.path)),
        headers: method.chain(headers).collect(),
        query_parameters: matches
            .query
            .iter()
            .map(|query| pb::QueryParameterMatcher {
                name: query.name.clone(),
                query_parameter_match_specifier: Some(match value(&query.value) {
                    Some(value) => QueryParameterMatchSpecifier::StringMatch(value),
                    None => QueryParameterMatchSpecifier::PresentMatch(true),
                }),
            })
            .collect(),
        grpc: matches
            .grpc
            .then(pb::route_match::GrpcRouteMatchOptions::default),
        runtime_fraction: matches.share.and_then(share),
        ..Default::default()
    }
}

/// Compares the path before headers and parameters that take time. Envoy compares a route's path last.
fn path_first(matches: &RouteMatch) -> Option<pb::HeaderMatcher> {
    let headers = matches.headers.iter().map(|header| &header.value);
    let mut values = headers.chain(matches.query.iter().map(|query| &query.value));
    let beginning = match &matches.path {
        PathMatch::Exact(path) | PathMatch::Prefix(path) | PathMatch::StartsWith(path) => path,
        PathMatch::Regex(_) => return None,
    };
    let useful = beginning.len() > 1 && values.any(|value| value.search().is_some());
    useful.then(|| pb::HeaderMatcher {
        name: ":path".to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(string(
            MatchPattern::Prefix(beginning.clone()),
        ))),
        ..Default::default()
    })
}

pub(super) fn header_matcher(name: &str, condition: &ValueMatch) -> pb::HeaderMatcher {
    let (condition, inverted, or_absent) = match condition {
        ValueMatch::Not(condition) => (&**condition, true, false),
        ValueMatch::NotOrAbsent(condition) => (&**condition, true, true),
        ValueMatch::Absent => (&ValueMatch::Present, true, false),
        condition => (condition, false, false),
    };
    pb::HeaderMatcher {
        name: header_name(name),
        header_match_specifier: Some(match value(condition) {
            Some(value) => HeaderMatchSpecifier::StringMatch(value),
            None => HeaderMatchSpecifier::PresentMatch(true),
        }),
        invert_match: inverted,
        treat_missing_header_as_empty: or_absent,
    }
}

/// Matches a header with this value.
pub(super) fn exact(name: &str, value: &str) -> pb::HeaderMatcher {
    pb::HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(string(
            MatchPattern::Exact(value.to_owned()),
        ))),
        ..Default::default()
    }
}

/// Matches a header that is absent or has a different value.
pub(super) fn differs(name: &str, value: &str) -> pb::HeaderMatcher {
    pb::HeaderMatcher {
        invert_match: true,
        ..exact(name, value)
    }
}

/// Matches a header that is present.
pub(super) fn present(name: &str) -> pb::HeaderMatcher {
    pb::HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::PresentMatch(true)),
        ..Default::default()
    }
}

/// Matches a header whose entire value matches an RE2 expression.
fn matches_regex(name: &str, expression: &str) -> pb::HeaderMatcher {
    pb::HeaderMatcher {
        name: name.to_owned(),
        header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(string(
            MatchPattern::SafeRegex(regex(expression)),
        ))),
        ..Default::default()
    }
}

/// Matches a Host header with a port, among those that belong to a wildcard domain.
pub(super) fn has_port(domain: &str) -> pb::HeaderMatcher {
    match domain.strip_prefix('*') {
        None | Some("") => matches_regex(":authority", r".*:\d+"),
        Some(suffix) => pb::HeaderMatcher {
            name: ":authority".to_owned(),
            header_match_specifier: Some(HeaderMatchSpecifier::StringMatch(StringMatcher {
                match_pattern: Some(MatchPattern::Suffix(suffix.to_owned())),
                ignore_case: true,
            })),
            invert_match: true,
            ..Default::default()
        },
    }
}

/// Matches a Host header that is longer than a name, which has at most 253 bytes, and a port.
pub(super) fn overlong_host() -> pb::HeaderMatcher {
    matches_regex(":authority", "(?s).{260,}")
}

/// Envoy represents the Host header as a pseudo-header, as in HTTP/2.
pub(super) fn header_name(name: &str) -> String {
    if name.eq_ignore_ascii_case("host") {
        ":authority".to_owned()
    } else {
        name.to_owned()
    }
}

fn path(path: &PathMatch) -> PathSpecifier {
    match path {
        PathMatch::Exact(path) => PathSpecifier::Path(path.clone()),
        PathMatch::Prefix(prefix) => match prefix.trim_end_matches('/') {
            // PathSeparatedPrefix needs at least one segment.
            "" => PathSpecifier::Prefix("/".to_owned()),
            prefix => PathSpecifier::PathSeparatedPrefix(prefix.to_owned()),
        },
        PathMatch::StartsWith(text) => PathSpecifier::Prefix(text.clone()),
        PathMatch::Regex(expression) => PathSpecifier::SafeRegex(regex(expression)),
    }
}

/// `None` for any value.
fn value(value: &ValueMatch) -> Option<StringMatcher> {
    Some(match value {
        ValueMatch::Exact(value) => string(MatchPattern::Exact(value.clone())),
        ValueMatch::Regex(expression) => string(MatchPattern::SafeRegex(regex(expression))),
        ValueMatch::Text(text) => {
            let value = text.text.clone();
            StringMatcher {
                match_pattern: Some(match text.position {
                    TextPosition::Whole => MatchPattern::Exact(value),
                    TextPosition::Start => MatchPattern::Prefix(value),
                    TextPosition::End => MatchPattern::Suffix(value),
                    TextPosition::Anywhere => MatchPattern::Contains(value),
                }),
                ignore_case: text.ignore_case,
            }
        }
        ValueMatch::Present
        | ValueMatch::Absent
        | ValueMatch::Not(_)
        | ValueMatch::NotOrAbsent(_) => return None,
    })
}

pub(super) fn string(pattern: MatchPattern) -> StringMatcher {
    StringMatcher {
        match_pattern: Some(pattern),
        ..Default::default()
    }
}

pub(super) fn regex(expression: &str) -> RegexMatcher {
    RegexMatcher {
        regex: expression.to_owned(),
        ..Default::default()
    }
}

/// All requests, without a runtime key.
pub(super) fn everything() -> RuntimeFractionalPercent {
    fraction(MILLION)
}

/// A fraction without a runtime key; `None` for all requests.
pub(super) fn share(share: PartsPerMillion) -> Option<RuntimeFractionalPercent> {
    (share.0 < MILLION).then(|| fraction(share.0))
}

fn fraction(millionths: u32) -> RuntimeFractionalPercent {
    RuntimeFractionalPercent {
        default_value: Some(FractionalPercent {
            numerator: millionths,
            denominator: DenominatorType::Million.into(),
        }),
        ..Default::default()
    }
}
