//! The time for the regular expressions of a host, which Envoy matches one after the other, and for the texts that it
//! searches for.
//!
//! In: the matches of a host's objects. Out: those that would take too much time, which aren't served, and a message
//! about each for the status of its object. It must not depend on kinds of objects, except for the status of responses.
//!
//! The oldest objects come first, so a new object never takes the time of an older one. The HTTPProxies of a tree count as
//! one object, their root.

mod time;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_api::{Kind, ObjectKey};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{Action, Route, RouteMatch, VirtualHost, VirtualHostKey};

use self::time::{Cause, Load, MAX_EACH, MAX_HOST, MAX_LIST, Sought};
pub(crate) use self::time::{ListTime, Meter, Scan};
use crate::problem::{Problem, bounded};
use crate::shared::covering::Covering;
use crate::shared::hosts::{self, HostMatch, HostObject, RankedMatch, Sources};
use crate::shared::regex::REQUEST;

/// The maximum length of an expression in a message, in characters.
const MAX_SHOWN: usize = 100;
/// The maximum number of matches that are reported for a host.
const MAX_REPORTED: usize = 16;

/// Why a match isn't served.
#[derive(Clone, Debug, PartialEq)]
struct Reason {
    sought: Sought,
    cause: Cause,
}

impl Reason {
    fn new(sought: Sought, cause: Cause) -> Self {
        Self { sought, cause }
    }

    /// What is wrong, and how to fix it.
    fn message(&self, domain: &str) -> String {
        let request = REQUEST / 1_024;
        let (what, text, shorter) = match &self.sought {
            Sought::Expression(text) => {
                ("regular expression", text, "use smaller repetition counts")
            }
            Sought::Text(text) => ("text", text, "use a shorter one"),
        };
        let text: String = text.chars().take(MAX_SHOWN).collect();
        let millis = |nanos: u64| nanos.div_ceil(10_000) as f64 / 100.0;
        match self.cause {
            Cause::States => format!(
                "the {what} {text} needs too many states; avoid counted repetitions such as {{20}} after .* or [^/]+, \
                 and many different expressions in an object"
            ),
            Cause::Each(nanos) => format!(
                "the {what} {text} takes Envoy about {} ms for a request of {request} KiB; the limit is {} ms; {shorter}",
                millis(nanos),
                millis(MAX_EACH)
            ),
            Cause::List(nanos) => format!(
                "with the {what} {text}, the list takes Envoy about {} ms for a request of {request} KiB, more than {} \
                 ms; use fewer regular expressions and texts",
                millis(nanos),
                millis(MAX_LIST)
            ),
            Cause::Host(nanos) => {
                let mend = match &self.sought {
                    Sought::Expression(_) => {
                        "use exact matches and prefixes, fewer expressions, or for paths, expressions that start with \
                         different literals"
                    }
                    Sought::Text(_) => {
                        "use exact conditions, or fewer with contains or notcontains for the same header and path, and \
                         with texts that start with the same letter"
                    }
                };
                format!(
                    "with the {what} {text} added, the conditions of host {domain} take Envoy about {} ms for a request \
                     of {request} KiB; the limit is {} ms; {mend}",
                    millis(nanos),
                    millis(MAX_HOST)
                )
            }
        }
    }
}

/// The matches of a host that aren't served as written. Usually empty.
#[derive(Debug, Default)]
pub(crate) struct Excess<'a> {
    /// By index in the host's order.
    matches: BTreeMap<usize, Refused<'a>>,
    /// The rules with such matches.
    rules: BTreeSet<(&'a ObjectKey, usize)>,
}

#[derive(Debug)]
struct Refused<'a> {
    /// Why the first of the scans is refused.
    reason: Reason,
    scans: Vec<&'a Scan>,
}

/// Finds the matches whose conditions take too much time.
pub(crate) fn excess<'a>(entries: &[HostMatch<'a>]) -> Excess<'a> {
    let with_scans = entries.iter().enumerate();
    let with_scans = with_scans.filter(|(_, one)| !one.entry.scans.is_empty());
    let mut by_age: Vec<_> = with_scans.collect();
    by_age.sort_by(|(_, a), (_, b)| {
        let objects = a.object.seniority().cmp(b.object.seniority());
        objects.then_with(|| a.place().cmp(&b.place()))
    });
    let mut load = Load::default();
    let mut excess = Excess::default();
    for (index, HostMatch { object, entry, .. }) in by_age {
        let whole = |scan: &Scan| scan.is_inherited() || !object.key.kind.is_http_proxy();
        let left_out = |scan: &&Scan| whole(scan) && scan.alone().is_err();
        // The other conditions of a match that is left out take no time.
        let only = entry.scans.iter().find(left_out);
        let scans = entry.scans.iter();
        let scans = scans.filter(|scan| only.is_none_or(|only| std::ptr::eq(*scan, only)));
        let copies = entry.routes.len() * redirects(object, entry);
        for scan in scans {
            let Err(cause) = load.add(scan, requests(entry), copies) else {
                continue;
            };
            excess.rules.insert((&object.key, entry.place.0));
            let refused = excess.matches.entry(index).or_insert_with(|| Refused {
                reason: Reason::new(scan.sought(requests(entry)), cause),
                scans: Vec::new(),
            });
            refused.scans.push(scan);
        }
    }
    excess
}

impl Excess<'_> {
    /// Matches that are served in a different way, by index in the host's order; `None` for those that aren't matched.
    ///
    /// A rule of the Gateway API isn't applied in part: its other matches respond with an error. An HTTPProxy responds with
    /// an error to the requests that satisfy the other conditions of a match, as if the refused ones were invalid.
    pub(crate) fn replacements(
        &self,
        entries: &[HostMatch<'_>],
    ) -> BTreeMap<usize, Option<RankedMatch>> {
        let mut found = BTreeMap::new();
        if self.matches.is_empty() {
            return found;
        }
        for (index, HostMatch { object, entry, .. }) in entries.iter().enumerate() {
            let status = hosts::invalid_rule(&object.key);
            let of_gateway_api = matches!(object.key.kind, Kind::HTTPRoute | Kind::GRPCRoute);
            match self.matches.get(&index) {
                Some(refused) if object.key.kind.is_http_proxy() => {
                    found.insert(index, rest(entry, &refused.scans, status));
                }
                Some(_) => {
                    found.insert(index, None);
                }
                None if of_gateway_api && self.rules.contains(&(&object.key, entry.place.0)) => {
                    found.insert(index, Some(answer(entry, status)));
                }
                None => {}
            }
        }
        found
    }
}

/// The number of Envoy's routes for each route of a match: redirects to the host of the request compare its port on
/// wildcard hosts.
fn redirects(object: &HostObject, entry: &RankedMatch) -> usize {
    let keeps_host =
        |route: &Arc<Route>| matches!(&route.action, Action::Redirect(to) if to.hostname.is_none());
    let redirects = entry
        .routes
        .iter()
        .chain(&entry.without_tls)
        .any(keeps_host);
    1 + usize::from(redirects && object.original.starts_with('*'))
}

/// The requests of a match.
fn requests(entry: &RankedMatch) -> &RouteMatch {
    &entry.routes[0].matches
}

/// Answers the requests that satisfy the other conditions of a match; `None` if these are all requests, or may be. Also `None`
/// if an inclusion has one of the refused conditions: an included HTTPProxy must not affect requests that don't satisfy them.
fn rest(entry: &RankedMatch, refused: &[&Scan], status: u16) -> Option<RankedMatch> {
    if refused.iter().any(|scan| scan.is_inherited()) {
        return None;
    }
    let of_path = refused
        .iter()
        .find(|scan| matches!(scan, Scan::Path { .. }));
    let path = match of_path {
        Some(scan) => scan.paths()?,
        None => requests(entry).path.clone(),
    };
    let reduced = |route: &Route| {
        let mut requests = RouteMatch {
            path: path.clone(),
            ..route.matches.clone()
        };
        for scan in refused.iter().rev() {
            match scan {
                Scan::Path { .. } => {}
                Scan::Header { index, .. } => drop(requests.headers.remove(*index)),
                Scan::Query { index, .. } => drop(requests.query.remove(*index)),
            }
        }
        Route {
            matches: requests,
            ..route.clone()
        }
    };
    let route = Route {
        action: Action::Respond(status),
        session: None,
        ..reduced(&entry.routes[0])
    };
    let rank = entry.rank.reduced(requests(entry), &route.matches);
    (!rank.is_of_all()).then(|| RankedMatch {
        rank,
        place: entry.place,
        routes: [Arc::new(route)].into(),
        without_tls: entry
            .without_tls
            .as_ref()
            .map(|route| Arc::new(reduced(route))),
        scans: Box::default(),
    })
}

/// Answers the requests of a match with a status.
fn answer(entry: &RankedMatch, status: u16) -> RankedMatch {
    let answer = Route {
        matches: RouteMatch {
            share: None,
            ..requests(entry).clone()
        },
        ..Route::respond_to_all(status)
    };
    RankedMatch {
        routes: [Arc::new(answer)].into(),
        ..entry.clone()
    }
}

/// The matches of a host that aren't served, by their objects.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Refusals(Vec<Refusal>);

#[derive(Clone, Debug, PartialEq)]
struct Refusal {
    object: ObjectKey,
    /// See [`RankedMatch::place`].
    place: (usize, usize),
    reason: Reason,
}

/// Refusals by the object whose match isn't served.
pub(crate) type ByObject = Index<VirtualHostKey, Refusals, ObjectKey>;

/// Declares the refusals. Only hosts that have some are read again.
pub(crate) fn stages(
    b: &mut Builder,
    sources: Sources,
    virtual_hosts: Table<VirtualHostKey, VirtualHost>,
) -> ByObject {
    let overloaded = b.index(
        virtual_hosts,
        "overloaded hosts",
        |key: &VirtualHostKey, host| Vec::from_iter(host.overloaded.then(|| key.clone())),
    );
    let refusals = b.derive("refused matches", overloaded, move |reader, key| {
        of_host(reader, sources, key)
    });
    b.index(
        refusals,
        "refused matches by object",
        |_, refusals: &Refusals| {
            let objects = refusals.0.iter().map(|refusal| refusal.object.clone());
            BTreeSet::from_iter(objects).into_iter().collect()
        },
    )
}

fn of_host(reader: &mut Reader<'_>, sources: Sources, key: &VirtualHostKey) -> Option<Refusals> {
    let port = hosts::port(&key.table);
    let covering = Covering::read(reader, sources.points_by_domain, &port, &key.domain);
    let listeners = hosts::with_table(&covering, &key.table);
    let objects = hosts::objects(reader, sources, key, &listeners);
    let entries = hosts::in_order(&objects);
    let excess = excess(&entries);
    let mut counts: BTreeMap<&ObjectKey, usize> = BTreeMap::new();
    let mut refusals = Vec::new();
    for (index, Refused { reason, .. }) in excess.matches {
        let HostMatch { object, entry, .. } = entries[index];
        let count = counts.entry(&object.key).or_default();
        *count += 1;
        if *count <= MAX_REPORTED {
            refusals.push(Refusal {
                object: hosts::object_of(&object.key),
                place: entry.place,
                reason,
            });
        }
    }
    (!refusals.is_empty()).then_some(Refusals(refusals))
}

/// Why matches of an object aren't served, each with the index of its rule and of its match. Sorted.
pub(crate) fn messages(
    reader: &mut Reader<'_>,
    by_object: ByObject,
    object: &ObjectKey,
) -> Vec<((usize, usize), String)> {
    let mut messages = BTreeSet::new();
    for (host, refusals) in reader.by(by_object, object) {
        let own = refusals.0.iter().filter(|one| one.object == *object);
        messages.extend(own.map(|one| (one.place, one.reason.message(&host.domain))));
    }
    messages.into_iter().take(MAX_REPORTED).collect()
}

/// The problem with a route of the Gateway API whose matches aren't all served.
pub(crate) fn problem(
    reader: &mut Reader<'_>,
    by_object: ByObject,
    object: &ObjectKey,
    partially_invalid: Option<Problem>,
) -> Option<Problem> {
    let messages = messages(reader, by_object, object);
    if messages.is_empty() {
        return partially_invalid;
    }
    let fields = messages.into_iter().map(|((rule, of_rule), message)| {
        format!("spec.rules[{rule}].matches[{of_rule}]: {message}")
    });
    let fields = fields.collect::<Vec<_>>().join("; ");
    let message = match &partially_invalid {
        Some(problem) => format!("{}; {fields}", problem.message()),
        None => format!("Dropped Rule: {fields}"),
    };
    let reason = sesame_api::reason::route::UNSUPPORTED_VALUE;
    Some(Problem::new(reason, bounded(message)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_numbers_and_the_fix() {
        let expression = |cause| Reason::new(Sought::Expression("/.*".into()), cause);
        let text = |cause| Reason::new(Sought::Text("bot".into()), cause);
        let message = |reason: Reason| reason.message("example.com");
        let of_host = Cause::Host(4_012_345);
        for (reason, expected) in [
            (
                expression(of_host),
                "host example.com take Envoy about 4.02 ms",
            ),
            (
                text(of_host),
                "fewer with contains or notcontains for the same header and path",
            ),
            (
                expression(Cause::Each(1_500_000)),
                "about 1.5 ms for a request of 60 KiB; the limit is 1 ms; use smaller repetition counts",
            ),
            (
                text(Cause::Each(1_500_000)),
                "the text bot takes Envoy about 1.5 ms",
            ),
            (expression(Cause::States), "avoid counted repetitions"),
        ] {
            let message = message(reason);
            assert!(message.contains(expected), "{message}");
        }
    }
}
