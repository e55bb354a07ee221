//! Matches that don't get requests, since another object has the same match for the same host and takes precedence.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fmt::Write as _;

use sesame_api::{Kind, ObjectKey};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{FleetId, PathMatch, RouteMatch, VirtualHostKey};

use crate::shared::covering::Covering;
use crate::shared::hosts::{self, Attachments, HostMatch, Sources};

/// The maximum number of matches that are reported for a host.
const MAX_REPORTED: usize = 16;

/// The overlaps of a host.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Overlaps(Vec<Overlap>);

/// A match that doesn't get requests.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Overlap {
    /// The object with the match.
    loser: ObjectKey,
    /// The object with the same match that takes precedence.
    winner: ObjectKey,
    /// The match, in words.
    requests: String,
}

/// Overlaps by the object whose match doesn't get requests.
pub(crate) type ByLoser = Index<VirtualHostKey, Overlaps, ObjectKey>;

/// Declares the overlaps of Ingresses and HTTPProxies. Routes of the Gateway API may have the same matches by design.
pub(crate) fn stages(
    b: &mut Builder,
    sources: Sources,
    attachments: Table<ObjectKey, Attachments>,
) -> ByLoser {
    let hosts = b.index(
        attachments,
        "hosts without gateway",
        |key: &ObjectKey, attachments| match reported(key) {
            true => attachments.host_keys(),
            false => Vec::new(),
        },
    );
    let overlaps = b.derive("overlaps", hosts, move |reader, key: &VirtualHostKey| {
        of_host(reader, sources, key)
    });
    b.index(overlaps, "overlaps by object", |_, overlaps: &Overlaps| {
        let mut losers: Vec<_> = overlaps.0.iter().map(|one| one.loser.clone()).collect();
        losers.sort();
        losers.dedup();
        losers
    })
}

/// An object's matches that don't get requests, each as a sentence. Sorted.
pub(crate) fn messages(
    reader: &mut Reader<'_>,
    by_loser: ByLoser,
    object: &ObjectKey,
) -> Vec<String> {
    let hosts = reader.by(by_loser, object);
    let mut messages: Vec<String> = hosts
        .iter()
        .flat_map(|(host, overlaps)| {
            let own = overlaps.0.iter().filter(|one| one.loser == *object);
            own.map(|one| {
                let place = match &host.table.fleet {
                    FleetId::Gateway { namespace, name } => format!(" of Gateway {namespace}/{name}"),
                    FleetId::Default | FleetId::Unmanaged => String::new(),
                };
                format!(
                    "{} on host {}{place} goes to {} {}, which has the same match and takes precedence",
                    one.requests,
                    host.domain,
                    one.winner.kind,
                    one.winner.namespaced_name()
                )
            })
        })
        .collect();
    messages.sort();
    // A host may be on an HTTP port and on an HTTPS port.
    messages.dedup();
    messages
}

fn of_host(reader: &mut Reader<'_>, sources: Sources, key: &VirtualHostKey) -> Option<Overlaps> {
    let port = hosts::port(&key.table);
    let covering = Covering::read(reader, sources.points_by_domain, &port, &key.domain);
    let listeners = hosts::with_table(&covering, &key.table);
    let objects = hosts::objects(reader, sources, key, &listeners);
    if objects.len() < 2 {
        return None;
    }
    // A wider hostname or a default backend gives way by design.
    let mut first: HashMap<(&str, bool, RouteMatch), ObjectKey> = HashMap::new();
    let mut overlaps = Vec::new();
    for HostMatch { object, entry, .. } in hosts::in_order(&objects) {
        let Some(route) = entry.routes.first() else {
            continue;
        };
        let requests = RouteMatch {
            share: None,
            ..route.matches.clone()
        };
        let own = hosts::object_of(&object.key);
        match first.entry((&*object.original, entry.rank.is_default(), requests)) {
            Entry::Vacant(vacant) => drop(vacant.insert(own)),
            Entry::Occupied(winner) if *winner.get() != own => {
                if reported(&own) && overlaps.len() < MAX_REPORTED {
                    let (_, _, requests) = winner.key();
                    overlaps.push(Overlap {
                        loser: own,
                        winner: winner.get().clone(),
                        requests: in_words(requests),
                    });
                }
            }
            Entry::Occupied(_) => {}
        }
    }
    (!overlaps.is_empty()).then_some(Overlaps(overlaps))
}

fn reported(object: &ObjectKey) -> bool {
    object.kind == Kind::Ingress || object.kind.is_http_proxy()
}

/// `prefix /api with 2 conditions on headers`.
fn in_words(requests: &RouteMatch) -> String {
    let mut text = match &requests.path {
        PathMatch::Exact(path) => format!("path {path}"),
        PathMatch::Prefix(prefix) | PathMatch::StartsWith(prefix) => format!("prefix {prefix}"),
        PathMatch::Regex(pattern) => format!("path expression {pattern}"),
    };
    for (number, of) in [
        (requests.headers.len(), "headers"),
        (requests.query.len(), "query parameters"),
    ] {
        if number > 0 {
            // Writing to a String can't fail.
            let noun = if number == 1 {
                "condition"
            } else {
                "conditions"
            };
            let _ = write!(text, " with {number} {noun} on {of}");
        }
    }
    text
}
