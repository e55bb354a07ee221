//! Splits the routes of a large host into parts, so that a changed route costs only its part, not the whole host.
//!
//! In: a [`VirtualHost`]. Out: its parts, and the matcher that joins them. A part has the routes for one key of the
//! [`Tree`](super::tree), and doesn't depend on other parts.

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
use prost::bytes::Bytes;
use sesame_model::{Route, VirtualHost, VirtualHostKey};

use super::tree::{MANY, Tree};
use super::virtual_host::{Frame, envoys};
use crate::wire::{self, xds_extension};

/// Identifies a part: the host, and the text that the part's paths start with; empty for paths that don't start with
/// any other part's text.
pub(crate) type PartKey = (VirtualHostKey, Arc<str>);

/// A part of a host.
#[derive(Debug, PartialEq)]
pub(crate) struct Part {
    frame: Frame,
    /// In order.
    routes: Vec<Arc<Route>>,
}

/// Whether a host may have parts.
pub(crate) fn may_have_parts(host: &VirtualHost) -> bool {
    host.routes.len() >= MANY
}

/// A host's parts, sorted by text, if its routes form this tree.
pub(crate) fn parts(host: &VirtualHost, tree: &Tree) -> Vec<(Arc<str>, Part)> {
    let frame = Frame::of(host);
    let rest = (Arc::from(""), &tree.rest);
    let keys = tree
        .keys
        .iter()
        .map(|(text, places)| (Arc::clone(text), places));
    let part = |(text, places): (Arc<str>, &Vec<usize>)| {
        let routes = places.iter().map(|place| Arc::clone(&host.routes[*place]));
        let part = Part {
            frame: frame.clone(),
            routes: routes.collect(),
        };
        (text, part)
    };
    [rest].into_iter().chain(keys).map(part).collect()
}

impl Part {
    /// What Envoy does with requests for this part's paths.
    pub(super) fn on_match(
        &self,
        key: &VirtualHostKey,
        visible_port: &mut dyn FnMut(u16) -> u16,
    ) -> OnMatch {
        let routes = envoys(key, &self.frame, &self.routes, visible_port);
        let list = Any {
            type_url: pb::RouteList::type_url(),
            value: wire::route_list(routes),
        };
        OnMatch {
            on_match: Some(on_match::OnMatch::Action(xds_extension("routes", list))),
            ..Default::default()
        }
    }

    /// The part's bytes, as [`wire::host_of_parts`] joins them.
    pub(crate) fn encode(
        &self,
        (host, text): &PartKey,
        visible_port: &mut dyn FnMut(u16) -> u16,
    ) -> Bytes {
        let on_match = self.on_match(host, visible_port);
        let bytes = match &**text {
            "" => wire::matcher(Matcher {
                on_no_match: Some(Box::new(on_match)),
                ..Default::default()
            }),
            text => wire::matcher_key(text, &on_match),
        };
        bytes.into_boxed_slice().into()
    }
}

/// The matcher with these parts; `None` if there are none.
pub(super) fn matcher(parts: Vec<(Arc<str>, OnMatch)>) -> Option<Matcher> {
    let mut parts = parts.into_iter();
    let (_, rest) = parts.next()?;
    Some(Matcher {
        on_no_match: Some(Box::new(rest)),
        matcher_type: Some(MatcherType::MatcherTree(MatcherTree {
            tree_type: Some(TreeType::PrefixMatchMap(MatchMap {
                map: parts.map(|(text, part)| (text.to_string(), part)).collect(),
            })),
            ..tree()
        })),
    })
}

/// Envoy's tree without keys.
pub(crate) fn tree() -> MatcherTree {
    MatcherTree {
        input: Some(path()),
        ..Default::default()
    }
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use sesame_model::{Action, PathMatch};

    use super::*;
    use crate::testing::{any_virtual_host, route, table_key};
    use crate::virtual_host;

    proptest! {
        #[test]
        fn encoded_parts_join_to_the_bytes_of_the_host(
            host in any_virtual_host(),
            paths in prop::collection::vec("(/[ab]{1,2}){1,3}", 150..200),
        ) {
            let key = VirtualHostKey { table: table_key(), domain: "*.example.com".into() };
            let mut host = host;
            let paths = paths.into_iter().map(PathMatch::Prefix);
            host.routes.extend(paths.map(|path| Arc::new(route(path, Action::Respond(200)))));
            let whole = virtual_host(&key, &host, &mut |port| port);
            prop_assert!(whole.matcher.is_some());
            let tree = Tree::new(&host.routes).unwrap();
            let encoded: Vec<Bytes> = parts(&host, &tree)
                .into_iter()
                .map(|(text, part)| part.encode(&(key.clone(), text), &mut |port| port))
                .collect();
            let joined = wire::host_of_parts(crate::route::without_routes(&key, &host), &super::tree(), &encoded);
            prop_assert_eq!(joined.concat(), wire::virtual_host(whole));
        }
    }
}
