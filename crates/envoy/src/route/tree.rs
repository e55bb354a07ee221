//! A host's routes as a prefix tree of paths.
//!
//! In: routes in matching order. Out: keys, each with its routes. It must not depend on what a route does.
//!
//! Envoy tries a list of routes one by one. With a tree, it finds the longest key that is a prefix of the path and
//! tries only that key's routes. It never falls back to a shorter key, so each key holds, in list order, all routes
//! that can match a path with this prefix. So a request gets the same route as from the list.
//!
//! Each key costs Envoy a few microseconds whenever it gets the table, so paths that start alike share a key. The keys
//! depend only on the routes' paths, so any other change to a route doesn't affect other keys.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

use sesame_model::{PathMatch, Route};

/// The minimum number of routes for which a tree is worth its size.
pub(super) const MANY: usize = 64;
/// Limit on the tree's size, as a multiple of the routes' size: a route that matches any path is stored under every
/// key.
const COPIES: usize = 8;
/// Limit on the copies of large routes, without the first unit of each: one unit for this number of routes.
const PER_LARGE: usize = 8;
/// The unit of a route's size, in bytes. Most routes have size 1, so the limit doesn't depend on small changes.
const UNIT: usize = 2_048;
/// The maximum number of routes with different paths that share a key. Trying a route costs a request about 0.06 µs.
const SHARED: usize = 16;

/// Routes by key, as indexes into the list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Tree {
    /// No key is empty.
    pub(super) keys: BTreeMap<Arc<str>, Vec<usize>>,
    /// Routes for paths that match no key.
    pub(super) rest: Vec<usize>,
}

/// What a tree depends on: equal if all routes have the same paths and sizes. It has the routes instead of copies of their
/// paths, since most routes of two versions are the same allocation.
#[derive(Debug)]
pub(crate) struct Outline(Vec<Arc<Route>>);

impl Outline {
    /// The outline of routes in matching order.
    pub(crate) fn of(routes: &[Arc<Route>]) -> Self {
        Self(routes.to_vec())
    }

    /// The tree; `None` if a list is at least as good.
    pub(crate) fn tree(&self) -> Option<Tree> {
        Tree::new(&self.0)
    }
}

impl PartialEq for Outline {
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &Arc<Route>, b: &Arc<Route>| {
            Arc::ptr_eq(a, b) || (a.matches.path == b.matches.path && size(a) == size(b))
        };
        let (a, b) = (&self.0, &other.0);
        a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
    }
}

/// The routes that name the same path.
#[derive(Debug, Default)]
struct Named {
    /// Routes for exactly this path.
    exact: Vec<usize>,
    /// Routes for this path and all paths below it.
    prefix: Vec<usize>,
    /// Routes for all paths that start with this text.
    text: Vec<usize>,
}

impl Tree {
    /// `None` if a list is at least as good.
    pub(super) fn new(routes: &[Arc<Route>]) -> Option<Self> {
        match routes.len() {
            ..MANY => None,
            _ => {
                let all: usize = routes.iter().map(|route| size(route)).sum();
                let large = all - routes.len();
                let left = [all.saturating_mul(COPIES), large + routes.len() / PER_LARGE];
                Self::within(routes, SHARED, left)
            }
        }
    }

    /// `None` if there are no keys (Envoy rejects an empty map), if a path can't be a key, or if the keys would hold
    /// routes of more than `left`: in total, and without the first unit of each.
    fn within(routes: &[Arc<Route>], shared: usize, left: [usize; 2]) -> Option<Self> {
        let [mut left, mut left_of_large] = left;
        let mut named: BTreeMap<&str, Named> = BTreeMap::new();
        let mut any = Vec::new();
        for (place, route) in routes.iter().enumerate() {
            match &route.matches.path {
                PathMatch::Regex(_) => any.push(place),
                PathMatch::Prefix(path) if path == "/" => any.push(place),
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
        let sizes: Vec<usize> = routes.iter().map(|route| size(route)).collect();
        let (mut keys, mut rest) = grouped(&named, shared);
        // The strings that the current key starts with: in sorted order, each precedes all keys that start with it.
        let mut texts: Vec<(&str, &Named)> = Vec::new();
        let mut upcoming = named.iter().peekable();
        for (key, places) in &mut keys {
            while let Some((text, own)) = upcoming.next_if(|(text, _)| *text < key) {
                if !own.text.is_empty() {
                    while texts
                        .pop_if(|(above, _)| !text.starts_with(*above))
                        .is_some()
                    {}
                    texts.push((text, own));
                }
            }
            while texts
                .pop_if(|(above, _)| !key.starts_with(*above))
                .is_some()
            {}
            for above in above(key) {
                places.extend(named.get(above).into_iter().flat_map(|above| &above.prefix));
            }
            places.extend(texts.iter().flat_map(|(_, named)| &named.text));
            places.extend(&any);
            let size: usize = places.iter().map(|place| sizes[*place]).sum();
            left = left.checked_sub(size)?;
            left_of_large = left_of_large.checked_sub(size - places.len())?;
            places.sort_unstable();
        }
        rest.extend(any);
        rest.sort_unstable();
        let keys: BTreeMap<_, _> = keys
            .into_iter()
            .map(|(key, places)| (key.into(), places))
            .collect();
        (!keys.is_empty()).then_some(Self { keys, rest })
    }
}

/// The size of a route, in [`UNIT`]s.
fn size(route: &Route) -> usize {
    1 + route.bytes() / UNIT
}

/// Assigns each path a key that it starts with, unless few enough paths are left without a key. Returns the routes for
/// each key, and the routes without a key. If a path starts with several keys, its routes get the longest.
fn grouped<'a>(
    named: &BTreeMap<&'a str, Named>,
    shared: usize,
) -> (BTreeMap<&'a str, Vec<usize>>, Vec<usize>) {
    let mut keys = BTreeMap::new();
    // Prefixes of the current path, shortest first.
    let mut open = vec![Branch::new("", Vec::new())];
    let mut paths = named.iter().peekable();
    while let Some((path, own)) = paths.next() {
        let own = [&own.exact, &own.prefix, &own.text];
        open.push(Branch::new(
            path,
            own.into_iter().flatten().copied().collect(),
        ));
        let next = paths.peek().map_or("", |(next, _)| **next);
        let common = common(path, next);
        while let Some(closed) = open.pop_if(|branch| branch.prefix.len() > common.len()) {
            if open
                .last()
                .is_none_or(|above| above.prefix.len() < common.len())
            {
                open.push(Branch::new(common, Vec::new()));
            }
            let prefix = closed.prefix;
            let left = closed.divide(shared, &mut keys);
            if let Some(above) = open.last_mut().filter(|_| !left.is_empty()) {
                above.below.push((prefix, left));
            }
        }
    }
    let rest = open.into_iter().flat_map(|branch| {
        let below = branch.below.into_iter().flat_map(|(_, places)| places);
        branch.own.into_iter().chain(below)
    });
    (keys, rest.collect())
}

/// A text at which paths end or diverge.
struct Branch<'a> {
    prefix: &'a str,
    /// The routes for this path.
    own: Vec<usize>,
    /// Branches of longer paths, with their routes that don't have a key yet.
    below: Vec<(&'a str, Vec<usize>)>,
}

impl<'a> Branch<'a> {
    fn new(prefix: &'a str, own: Vec<usize>) -> Self {
        Self {
            prefix,
            own,
            below: Vec::new(),
        }
    }

    /// Assigns keys to branches, largest first, until the remaining routes can share a key. Returns the remaining
    /// routes.
    fn divide(mut self, shared: usize, keys: &mut BTreeMap<&'a str, Vec<usize>>) -> Vec<usize> {
        self.below
            .sort_by_key(|(prefix, places)| (Reverse(places.len()), *prefix));
        let below = self.below.iter().map(|(_, places)| places.len());
        let mut left = self.own.len() + below.sum::<usize>();
        let mut out = self.own;
        for (prefix, places) in self.below {
            if left > shared {
                left -= places.len();
                keys.insert(prefix, places);
            } else {
                out.extend(places);
            }
        }
        if left > shared {
            keys.insert(self.prefix, std::mem::take(&mut out));
        }
        out
    }
}

/// The longest text that both start with.
fn common<'a>(a: &'a str, b: &str) -> &'a str {
    let pairs = a.char_indices().zip(b.chars());
    let end = pairs.take_while(|((_, a), b)| a == b).last();
    end.map_or("", |((at, last), _)| &a[..at + last.len_utf8()])
}

/// The parents of a path: `/a` for `/a/b`.
fn above(path: &str) -> impl Iterator<Item = &str> {
    let above = path.match_indices('/').map(|(end, _)| &path[..end]);
    above.filter(|above| !above.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sesame_model::{Action, DirectResponse};

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

    /// The number of routes with a path.
    fn named(routes: &[Arc<Route>]) -> usize {
        let of = |route: &&Arc<Route>| {
            !matches!(&route.matches.path, PathMatch::Regex(_)) && route.matches.path != prefix("/")
        };
        routes.iter().filter(of).count()
    }

    /// Envoy's lookup.
    fn found<'a>(tree: &'a Tree, request: &str) -> &'a [usize] {
        let keys = tree
            .keys
            .iter()
            .filter(|(key, _)| request.starts_with(&***key));
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
            shared in 0..20_usize,
            request in prop::collection::vec("(/[ab]{0,2}){1,4}/?(\\?a=/b)?", 40),
        ) {
            let routes = routes(paths);
            let Some(tree) = Tree::within(&routes, shared, [usize::MAX; 2]) else {
                // All paths can share one key.
                prop_assert!(named(&routes) <= shared);
                return Ok(());
            };
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
        paths.extend((0..10).map(|number| prefix(&format!("/n{number}"))));
        let routes = routes(paths);
        let tree = Tree::within(&routes, 0, [usize::MAX; 2]).unwrap();
        assert_eq!(tree.keys["/a/b"], [0, 1, 2]);
        assert_eq!(tree.keys["/a"], [1, 2, 3]);
        assert_eq!(tree.keys["/n7"], [2, 11]);
        assert_eq!(tree.rest, [2]);
    }

    #[test]
    fn paths_that_start_alike_share_a_key() {
        let mut paths: Vec<_> = (0..1000)
            .map(|number| prefix(&format!("/{number}")))
            .collect();
        paths.push(prefix("/"));
        let routes = routes(paths);
        let tree = Tree::new(&routes).unwrap();
        assert_eq!(
            tree.keys["/12"],
            [12, 120, 121, 122, 123, 124, 125, 126, 127, 128, 129, 1000]
        );
        assert_eq!(tree.keys.len(), 89);
        let lists = tree.keys.values().chain([&tree.rest]);
        assert!(lists.clone().all(|list| list.len() <= SHARED + 1));
        let total: usize = lists.map(Vec::len).sum();
        assert_eq!(total, 1000 + 90);
    }

    #[test]
    fn a_path_with_many_routes_has_a_key_of_its_own() {
        let same = (0..2 * SHARED).map(|_| exact("/same"));
        let paths = (0..MANY).map(|number| exact(&format!("/same/{number}")));
        let routes = routes(same.chain(paths));
        let tree = Tree::new(&routes).unwrap();
        assert!(tree.keys["/same"].iter().copied().eq(0..2 * SHARED));
    }

    #[test]
    fn large_routes_have_few_copies() {
        let tree = |body: usize| {
            let paths = (0..2 * MANY).map(|number| exact(&format!("/{number}/{number}")));
            let mut routes = routes(paths);
            let large = DirectResponse {
                status: 200,
                body: "a".repeat(body),
            };
            let large = route(prefix("/"), Action::RespondWith(Box::new(large)));
            routes.push(Arc::new(large));
            Tree::new(&routes)
        };
        assert!(tree(100).is_some());
        assert!(tree(64 << 10).is_none());
    }

    proptest! {
        #[test]
        fn a_new_path_changes_few_keys(
            paths in prop::collection::btree_set("(/[a-e]{1,3}){1,3}", 200..300),
            new in "(/[a-e]{1,3}){1,3}",
        ) {
            prop_assume!(!paths.contains(&new));
            let keys = |paths: &mut dyn Iterator<Item = &String>| {
                let paths: Vec<_> = paths.map(|path| exact(path)).collect();
                let routes = routes(paths);
                let tree = Tree::new(&routes).unwrap();
                let named = |places: &Vec<usize>| -> Vec<String> {
                    let path = |place: &usize| format!("{:?}", routes[*place].matches.path);
                    places.iter().map(path).collect()
                };
                let keys = tree.keys.iter().map(|(key, places)| (key.clone(), named(places)));
                keys.collect::<BTreeMap<_, _>>()
            };
            let before = keys(&mut paths.iter());
            let after = keys(&mut paths.iter().chain([&new]));
            let changed = after.iter().filter(|(key, list)| before.get(*key) != Some(list)).count();
            prop_assert!(changed <= 8, "{changed} of {}", after.len());
        }
    }

    #[test]
    fn an_outline_changes_only_with_a_path_or_a_size() {
        let of = |path, action| Outline::of(&[Arc::new(route(path, action))]);
        let outline = of(prefix("/a"), Action::Respond(200));
        assert_eq!(outline, of(prefix("/a"), Action::Respond(404)));
        assert_ne!(outline, of(exact("/a"), Action::Respond(200)));
        let large = DirectResponse {
            status: 200,
            body: "a".repeat(UNIT),
        };
        assert_ne!(
            outline,
            of(prefix("/a"), Action::RespondWith(Box::new(large)))
        );
    }

    #[test]
    fn short_lists_and_lists_with_many_routes_for_any_path_get_no_tree() {
        let few = routes((1..MANY).map(|number| prefix(&format!("/n{number}"))));
        assert_eq!(Tree::new(&few), None);
        let any = (0..1000).map(|number| PathMatch::Regex(format!("/{number}")));
        let any = routes(any.chain((0..1000).map(|number| prefix(&format!("/n{number}")))));
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
