//! A host's routes as a prefix tree of paths.
//!
//! In: routes in matching order. Out: an equivalent Envoy matcher. It must not depend on what a route does.
//!
//! Envoy tries a list of routes one by one. With a tree, it finds the longest key that is a prefix of the path and
//! tries only that key's routes. It never falls back to a shorter key, so each key holds, in list order, all routes
//! that can match a path with this prefix. So a request gets the same route as from the list.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use envoy_types::pb::envoy::config::route::v3 as pb;
use envoy_types::pb::envoy::r#type::matcher::v3::HttpRequestHeaderMatchInput;
use envoy_types::pb::google::protobuf::Any;
use envoy_types::pb::xds::core::v3 as xds;
use envoy_types::pb::xds::r#type::matcher::v3::{Matcher, matcher};
use envoy_types::util::pack_any;
use matcher::matcher_tree::{MatchMap, TreeType};
use matcher::{MatcherTree, MatcherType, OnMatch, on_match};
use prost::Name;
use sesame_model::{PathMatch, Route};

use crate::wire::{self, xds_extension};

/// The minimum number of routes for which a tree is worth its size.
const MANY: usize = 64;
/// Limit on the tree's size, as a multiple of the number of routes: a route that matches any path is stored under
/// every key.
const COPIES: usize = 8;

/// Routes by key, as indexes into the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tree<'a> {
    keys: BTreeMap<&'a str, Vec<usize>>,
    /// Routes for paths that match no key.
    rest: Vec<usize>,
}

/// The routes that name one path.
#[derive(Debug, Default)]
struct Named {
    /// Routes for exactly this path.
    exact: Vec<usize>,
    /// Routes for this path and all paths below it.
    prefix: Vec<usize>,
    /// Routes for all paths that start with this text.
    text: Vec<usize>,
}

impl<'a> Tree<'a> {
    /// `None` if a list is at least as good.
    pub(super) fn new(routes: &'a [Arc<Route>]) -> Option<Self> {
        match routes.len() {
            ..MANY => None,
            many => Self::within(routes, many.saturating_mul(COPIES)),
        }
    }

    /// `None` if there are no keys (Envoy rejects an empty map), if a path can't be a key, or if the keys would hold
    /// more than `left` routes in total.
    fn within(routes: &'a [Arc<Route>], mut left: usize) -> Option<Self> {
        let mut named: BTreeMap<&str, Named> = BTreeMap::new();
        let mut rest = Vec::new();
        for (place, route) in routes.iter().enumerate() {
            match &route.matches.path {
                PathMatch::Regex(_) => rest.push(place),
                PathMatch::Prefix(path) if path == "/" => rest.push(place),
                // The tree matches the path including its query.
                PathMatch::Exact(path) | PathMatch::Prefix(path) | PathMatch::StartsWith(path)
                    if path.contains('?') =>
                {
                    return None;
                }
                PathMatch::StartsWith(text) => named.entry(text).or_default().text.push(place),
                PathMatch::Exact(path) => named.entry(path).or_default().exact.push(place),
                PathMatch::Prefix(path) => named.entry(path).or_default().prefix.push(place),
            }
        }
        let mut keys = BTreeMap::new();
        // The texts that the current key starts with: in sorted order, each text precedes all keys that start with it.
        let mut texts: Vec<(&str, &Named)> = Vec::new();
        for (key, own) in &named {
            let mut places: Vec<usize> = own.exact.iter().chain(&rest).copied().collect();
            for above in segments(key) {
                places.extend(named.get(above).into_iter().flat_map(|above| &above.prefix));
            }
            while texts.last().is_some_and(|(text, _)| !key.starts_with(text)) {
                texts.pop();
            }
            if !own.text.is_empty() {
                texts.push((key, own));
            }
            places.extend(texts.iter().flat_map(|(_, named)| &named.text));
            left = left.checked_sub(places.len())?;
            places.sort_unstable();
            keys.insert(*key, places);
        }
        (!keys.is_empty()).then_some(Self { keys, rest })
    }

    /// Envoy's matcher. For each route in the list, `routes` yields its Envoy routes. `first` precedes all of them.
    pub(super) fn matcher(
        &self,
        first: Option<pb::Route>,
        routes: impl Iterator<Item = Vec<pb::Route>>,
    ) -> Matcher {
        let first = wire::route_list(first.into_iter().collect());
        let routes: Vec<Vec<u8>> = routes.map(wire::route_list).collect();
        let on_match = |places: &Vec<usize>| OnMatch {
            on_match: Some(on_match::OnMatch::Action(route_list(
                std::iter::once(&first)
                    .chain(places.iter().map(|place| &routes[*place]))
                    .flatten()
                    .copied()
                    .collect(),
            ))),
            ..Default::default()
        };
        let keys = self.keys.iter();
        let map: HashMap<String, OnMatch> = keys
            .map(|(key, places)| ((*key).to_owned(), on_match(places)))
            .collect();
        Matcher {
            on_no_match: Some(Box::new(on_match(&self.rest))),
            matcher_type: Some(MatcherType::MatcherTree(MatcherTree {
                input: Some(path()),
                tree_type: Some(TreeType::PrefixMatchMap(MatchMap { map })),
            })),
        }
    }
}

/// The path and its parents: `/a` and `/a/b` for `/a/b`.
fn segments(path: &str) -> impl Iterator<Item = &str> {
    let above = path.match_indices('/').map(|(end, _)| &path[..end]);
    above.filter(|above| !above.is_empty()).chain([path])
}

/// The path including its query.
fn path() -> xds::TypedExtensionConfig {
    xds_extension(
        "path",
        pack_any(HttpRequestHeaderMatchInput {
            header_name: ":path".to_owned(),
        }),
    )
}

/// A `RouteList` from its bytes; `RouteList` encodings can be concatenated.
fn route_list(routes: Vec<u8>) -> xds::TypedExtensionConfig {
    let list = Any {
        type_url: pb::RouteList::type_url(),
        value: routes,
    };
    xds_extension("routes", list)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sesame_model::Action;

    use super::*;
    use crate::testing::route;

    fn routes(paths: impl IntoIterator<Item = PathMatch>) -> Vec<Arc<Route>> {
        let routes = paths.into_iter();
        routes
            .map(|path| Arc::new(route(path, Action::Respond(200))))
            .collect()
    }

    fn exact(path: &str) -> PathMatch {
        PathMatch::Exact(path.to_owned())
    }

    fn prefix(path: &str) -> PathMatch {
        PathMatch::Prefix(path.to_owned())
    }

    /// The model's definition of a match.
    fn matches(path: &PathMatch, request: &str) -> bool {
        let request = request.split('?').next().unwrap_or_default();
        match path {
            PathMatch::Exact(path) => request == path,
            PathMatch::Prefix(path) if path == "/" => true,
            PathMatch::Prefix(path) => {
                let rest = request.strip_prefix(path.as_str());
                rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
            }
            PathMatch::StartsWith(text) => request.starts_with(text.as_str()),
            // The only expression in these tests.
            PathMatch::Regex(_) => request.ends_with('b'),
        }
    }

    /// Envoy's lookup.
    fn found<'a>(tree: &'a Tree<'_>, request: &str) -> &'a [usize] {
        let keys = tree
            .keys
            .iter()
            .filter(|(key, _)| request.starts_with(**key));
        let longest = keys.max_by_key(|(key, _)| key.len());
        longest.map_or(&tree.rest, |(_, places)| places)
    }

    fn any_path() -> impl Strategy<Value = PathMatch> {
        let path = "(/[ab]{1,2}){1,3}";
        prop_oneof![
            path.prop_map(PathMatch::Exact),
            path.prop_map(PathMatch::Prefix),
            "(/[ab]{0,2}){1,3}".prop_map(|text| match &*text {
                "/" => PathMatch::Prefix(text),
                _ => PathMatch::StartsWith(text),
            }),
            "/a{0,3}/?".prop_map(PathMatch::Exact),
            Just(prefix("/")),
            Just(PathMatch::Regex(".*b".to_owned())),
        ]
    }

    proptest! {
        #[test]
        fn a_tree_tries_the_same_routes_as_a_list(
            paths in prop::collection::vec(any_path(), 0..80),
            request in prop::collection::vec("(/[ab]{0,2}){1,4}/?(\\?a=/b)?", 40),
        ) {
            let routes = routes(paths.into_iter().chain([exact("/key")]));
            let tree = Tree::within(&routes, usize::MAX).unwrap();
            for request in request {
                let wanted = |place: &usize| matches(&routes[*place].matches.path, &request);
                let list: Vec<usize> = (0..routes.len()).filter(wanted).collect();
                let found = found(&tree, &request).iter().copied();
                let tree: Vec<usize> = found.filter(wanted).collect();
                prop_assert_eq!(tree, list, "{}", request);
            }
        }
    }

    #[test]
    fn a_key_holds_every_route_that_can_match_below_it() {
        let mut paths = vec![exact("/a/b"), prefix("/a"), prefix("/"), exact("/a")];
        paths.extend((0..MANY).map(|number| prefix(&format!("/n{number}"))));
        let routes = routes(paths);
        let tree = Tree::new(&routes).unwrap();
        assert_eq!(tree.keys["/a/b"], [0, 1, 2]);
        assert_eq!(tree.keys["/a"], [1, 2, 3]);
        assert_eq!(tree.keys["/n7"], [2, 11]);
        assert_eq!(tree.rest, [2]);
    }

    #[test]
    fn short_lists_and_lists_with_many_routes_for_any_path_get_no_tree() {
        let few = routes((1..MANY).map(|number| prefix(&format!("/n{number}"))));
        assert_eq!(Tree::new(&few), None);
        let any = (0..MANY).map(|number| PathMatch::Regex(format!("/{number}")));
        let any = routes(any.chain((0..MANY).map(|number| prefix(&format!("/n{number}")))));
        assert_eq!(Tree::new(&any), None);
    }

    #[test]
    fn routes_without_a_key_stay_a_list() {
        for count in [MANY - 1, MANY, MANY + 1, 2 * MANY] {
            let root = routes((0..count).map(|_| prefix("/")));
            assert_eq!(Tree::new(&root), None, "{count}");
            let regex = routes((0..count).map(|n| PathMatch::Regex(format!("/{n}"))));
            assert_eq!(Tree::new(&regex), None, "{count}");
        }
    }
}
