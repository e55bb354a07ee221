//! The precedence of matches in the Gateway API ("Proxy or Load Balancer routing configuration … MUST prioritize
//! matches", HTTPRouteRule.matches).

use std::cmp::Reverse;

use jiff::Timestamp;
use sesame_api::{Meta, NamespacedName};
use sesame_model::{PathMatch, Route, RouteMatch};

/// How specific a match is. The smallest is tried first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct MatchRank {
    path: PathRank,
    /// `false` sorts first: the match has a method.
    any_method: bool,
    headers: Reverse<usize>,
    query: Reverse<usize>,
}

/// gRPC calls come first, since their matches leave all other requests to HTTP routes. Among them, longer services come
/// first, then longer methods. Next are exact paths, regular expressions and prefixes, each with the longest first. The
/// API does not specify the order of expressions.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathRank {
    Call {
        service: Reverse<usize>,
        method: Reverse<usize>,
    },
    Exact,
    Regex(Reverse<usize>),
    Prefix(Reverse<usize>),
    Default,
}

impl PathRank {
    fn of(path: &PathMatch) -> Self {
        match path {
            PathMatch::Exact(_) => Self::Exact,
            PathMatch::Regex(pattern) => Self::Regex(Reverse(pattern.chars().count())),
            // `/` and `` are the same prefix; a trailing slash has been removed from all others.
            PathMatch::StartsWith(text) => Self::Prefix(Reverse(text.chars().count())),
            PathMatch::Prefix(prefix) => {
                Self::Prefix(Reverse(prefix.trim_end_matches('/').chars().count()))
            }
        }
    }
}

impl MatchRank {
    /// The rank of a match.
    pub fn of(matches: &RouteMatch) -> Self {
        Self {
            path: PathRank::of(&matches.path),
            any_method: matches.method.is_none(),
            headers: Reverse(matches.headers.len()),
            query: Reverse(matches.query.len()),
        }
    }

    /// The rank of a match with this rank after the conditions in `from` were reduced to those in `to`.
    pub(crate) fn reduced(&self, from: &RouteMatch, to: &RouteMatch) -> Self {
        let mut rank = self.clone();
        if from.path != to.path {
            rank.path = PathRank::of(&to.path);
        }
        rank.headers.0 -= from.headers.len() - to.headers.len();
        rank.query.0 -= from.query.len() - to.query.len();
        rank
    }

    /// Whether a match with this rank has no conditions.
    pub(crate) fn is_of_all(&self) -> bool {
        *self == Self::of(&Route::respond_to_all(404).matches)
    }

    /// The rank of a default backend, which gets all requests that match nothing else.
    pub fn of_default() -> Self {
        Self {
            path: PathRank::Default,
            any_method: true,
            headers: Reverse(0),
            query: Reverse(0),
        }
    }

    /// Whether this is the rank of a default backend.
    pub fn is_default(&self) -> bool {
        self.path == PathRank::Default
    }

    /// The rank of a match for gRPC calls (GRPCRouteRule.matches). An empty service or method means any.
    pub fn of_call(service: &str, method: &str, headers: usize) -> Self {
        let length = |text: &str| Reverse(text.chars().count());
        Self {
            path: PathRank::Call {
                service: length(service),
                method: length(method),
            },
            any_method: true,
            headers: Reverse(headers),
            query: Reverse(0),
        }
    }
}

/// A source of routes. If matches are equal, the smaller source takes precedence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Source {
    /// The Gateway API.
    GatewayApi,
    /// HTTPProxy.
    HttpProxy,
    /// Ingress.
    Ingress,
}

/// The order of objects with equal matches: by source, then age (oldest first), then name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Seniority {
    /// The source.
    pub source: Source,
    /// `None` (files have no creation time) counts as older than any time.
    pub created: Option<Timestamp>,
    /// `namespace/name`.
    pub name: NamespacedName,
}

impl Seniority {
    /// The seniority of an object from a source.
    pub fn of(source: Source, meta: &Meta) -> Self {
        Self {
            source,
            created: meta.creation_timestamp,
            name: meta.namespaced_name(),
        }
    }
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
            grpc: false,
            share: None,
        }
    }

    #[test]
    fn the_path_outranks_the_method_then_headers_then_query() {
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
        let mut ranks: Vec<_> = in_order.iter().map(MatchRank::of).collect();
        ranks.push(MatchRank::of_default());
        assert!(
            ranks.is_sorted() && ranks.windows(2).all(|pair| pair[0] != pair[1]),
            "{ranks:?}"
        );
    }

    #[test]
    fn the_service_outranks_the_method_then_headers() {
        let in_order = [
            MatchRank::of_call("a.Long", "B", 0),
            MatchRank::of_call("a.Long", "", 1),
            MatchRank::of_call("a.Long", "", 0),
            MatchRank::of_call("a.B", "Long", 0),
            MatchRank::of_call("", "Long", 9),
            MatchRank::of_call("", "", 1),
            MatchRank::of_call("", "", 0),
            MatchRank::of(&a_match(PathMatch::Exact("/".into()), true, 9, 9)),
        ];
        assert!(
            in_order.is_sorted() && in_order.windows(2).all(|pair| pair[0] != pair[1]),
            "{in_order:?}"
        );
    }

    #[test]
    fn older_objects_come_first_and_equal_ages_are_ordered_by_name() {
        let at = |second: i64, name: &str| Seniority {
            source: Source::GatewayApi,
            created: (second >= 0).then(|| Timestamp::from_second(second).expect("a valid time")),
            name: NamespacedName::new("default", name),
        };
        let in_order = [at(-1, "z"), at(1, "b"), at(2, "a"), at(2, "b")];
        assert!(in_order.is_sorted());
    }
}
