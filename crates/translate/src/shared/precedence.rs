//! The precedence of matches in the Gateway API ("Proxy or Load Balancer routing configuration … MUST prioritize matches",
//! HTTPRouteRule.matches).

use std::cmp::Reverse;

use jiff::Timestamp;
use sesame_api::NamespacedName;
use sesame_model::{PathMatch, RouteMatch};

/// How specific a match is. The smallest one is tried first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatchRank {
    path: PathRank,
    /// `false` (the match has a method) sorts first.
    any_method: bool,
    headers: Reverse<usize>,
    query: Reverse<usize>,
}

/// Exact paths, then regular expressions, then prefixes; longer ones first. The API leaves the order of expressions open.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathRank {
    Exact,
    Regex(Reverse<usize>),
    Prefix(Reverse<usize>),
}

impl MatchRank {
    /// The rank of a match.
    pub fn of(matches: &RouteMatch) -> Self {
        Self {
            path: match &matches.path {
                PathMatch::Exact(_) => PathRank::Exact,
                PathMatch::Regex(pattern) => PathRank::Regex(Reverse(pattern.chars().count())),
                // `/` and `` are one prefix; a trailing slash has been taken off the others.
                PathMatch::Prefix(prefix) => {
                    PathRank::Prefix(Reverse(prefix.trim_end_matches('/').chars().count()))
                }
            },
            any_method: matches.method.is_none(),
            headers: Reverse(matches.headers.len()),
            query: Reverse(matches.query.len()),
        }
    }
}

/// A source of routes. Of equal matches, the smaller source's wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The Gateway API.
    GatewayApi,
    /// HTTPProxy.
    HttpProxy,
    /// Ingress.
    Ingress,
}

/// The order of objects with equal matches: by source, then the older one, then by name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seniority {
    /// The source.
    pub source: Source,
    /// `None` (files have no creation time) is older than any time.
    pub created: Option<Timestamp>,
    /// `namespace/name`.
    pub name: NamespacedName,
}

#[cfg(test)]
mod tests {
    use sesame_model::{HeaderMatch, QueryMatch, ValueMatch};

    use super::*;

    fn a_match(path: PathMatch, method: bool, headers: usize, query: usize) -> RouteMatch {
        let value = || ValueMatch::Exact("x".into());
        RouteMatch {
            path,
            method: method.then(|| "GET".into()),
            headers: (0..headers)
                .map(|n| HeaderMatch {
                    name: format!("h{n}"),
                    value: value(),
                })
                .collect(),
            query: (0..query)
                .map(|n| QueryMatch {
                    name: format!("q{n}"),
                    value: value(),
                })
                .collect(),
            share: None,
        }
    }

    #[test]
    fn path_then_method_then_headers_then_query() {
        let exact = || PathMatch::Exact("/".into());
        let prefix = |text: &str| PathMatch::Prefix(text.into());
        let in_order = [
            a_match(exact(), true, 0, 0),
            a_match(exact(), false, 2, 0),
            a_match(exact(), false, 1, 5),
            a_match(PathMatch::Regex("/.*".into()), true, 3, 3),
            a_match(prefix("/long/er"), false, 0, 0),
            a_match(prefix("/long"), true, 0, 0),
            a_match(prefix("/long"), false, 1, 0),
            a_match(prefix("/long"), false, 0, 1),
            a_match(prefix("/long"), false, 0, 0),
            a_match(prefix("/"), true, 9, 9),
        ];
        let ranks: Vec<_> = in_order.iter().map(MatchRank::of).collect();
        assert!(
            ranks.is_sorted() && ranks.windows(2).all(|pair| pair[0] != pair[1]),
            "{ranks:?}"
        );
    }

    #[test]
    fn older_goes_first_then_the_alphabet() {
        let at = |second: i64, name: &str| Seniority {
            source: Source::GatewayApi,
            created: (second >= 0).then(|| Timestamp::from_second(second).expect("a time")),
            name: NamespacedName::new("default", name),
        };
        let in_order = [at(-1, "z"), at(1, "b"), at(2, "a"), at(2, "b")];
        assert!(in_order.is_sorted());
    }
}
