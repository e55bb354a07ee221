//! The time for the regular expressions of a host, which Envoy matches one after the other.
//!
//! In: the matches of a host's objects. Out: those that would take too much time, which aren't served, and a message
//! about each for the status of its object. It must not depend on kinds of objects, except for the status of responses.
//!
//! The oldest objects come first, so a new object never takes the time of an older one.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use sesame_api::{Kind, ObjectKey};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::{Action, PathMatch, Route, RouteMatch, ValueMatch, VirtualHost, VirtualHostKey};

use crate::problem::{Problem, bounded};
use crate::shared::covering::Covering;
use crate::shared::hosts::{self, HostMatch, HostObject, RankedMatch, Sources};
use crate::shared::regex::{Measure, REQUEST};

/// The maximum time for an expression, in nanoseconds.
const MAX_EACH: u64 = 1_000_000;
/// The maximum time for the expressions of a host that the same request may have to match, in nanoseconds.
const MAX_HOST: u64 = 3_000_000;
/// The maximum time for the expressions of a list, in nanoseconds.
const MAX_LIST: u64 = 1_000_000;
/// The limit on the work to measure an object's expressions, in instructions. Beyond it, upper bounds are used.
const MAX_EFFORT: u64 = 2_000_000;
/// The maximum length of an expression in a message, in characters.
const MAX_SHOWN: usize = 100;
/// The maximum number of matches that are reported for a host.
const MAX_REPORTED: usize = 16;

/// A regular expression of a match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// The part of a request that it matches.
    part: Part,
    measure: Arc<Measure>,
    /// The expression.
    pattern: Arc<str>,
}

/// Parts of a request. A request's bytes belong to one part.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// The path.
    Path,
    /// A query parameter, or the path with the query.
    Target,
    /// The values of a header.
    Header(Box<str>),
}

/// Measures the expressions of an object, each once.
#[derive(Debug)]
pub(crate) struct Meter {
    effort: u64,
    known: HashMap<String, (Arc<str>, Arc<Measure>)>,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            effort: MAX_EFFORT,
            known: HashMap::new(),
        }
    }
}

impl Meter {
    /// The expressions of a match.
    pub(crate) fn scans(&mut self, requests: &RouteMatch) -> Box<[Scan]> {
        let mut found = Vec::new();
        if let PathMatch::Regex(pattern) = &requests.path {
            found.push(self.scan(Part::Path, pattern));
        }
        for header in &requests.headers {
            if let Some(pattern) = expression(&header.value) {
                let part = match header.name.eq_ignore_ascii_case(":path") {
                    true => Part::Target,
                    false => Part::Header(header.name.to_ascii_lowercase().into()),
                };
                found.push(self.scan(part, pattern));
            }
        }
        for parameter in &requests.query {
            if let Some(pattern) = expression(&parameter.value) {
                found.push(self.scan(Part::Target, pattern));
            }
        }
        found.into()
    }

    fn scan(&mut self, part: Part, pattern: &str) -> Scan {
        let effort = &mut self.effort;
        let (pattern, measure) = match self.known.get(pattern) {
            Some(known) => known.clone(),
            None => {
                let measured = Arc::new(Measure::of(pattern, effort));
                let new = (Arc::from(pattern), measured);
                self.known.insert(pattern.to_owned(), new.clone());
                new
            }
        };
        Scan {
            part,
            measure,
            pattern,
        }
    }
}

/// The expression in a condition.
pub(crate) fn expression(value: &ValueMatch) -> Option<&str> {
    match value {
        ValueMatch::Regex(pattern) => Some(pattern),
        ValueMatch::Not(value) | ValueMatch::NotOrAbsent(value) => expression(value),
        _ => None,
    }
}

/// Why a match isn't served.
#[derive(Clone, Debug, PartialEq)]
struct Reason {
    pattern: Arc<str>,
    cause: Cause,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Cause {
    /// The automaton is too large.
    States,
    /// The expression takes this time, in nanoseconds.
    Each(u64),
    /// The host's expressions take this time, in nanoseconds.
    Host(u64),
    /// The list's expressions take this time, in nanoseconds.
    List(u64),
}

impl Reason {
    /// What is wrong, and how to fix it.
    fn message(&self, domain: &str) -> String {
        let request = REQUEST / 1_024;
        let pattern: String = self.pattern.chars().take(MAX_SHOWN).collect();
        let millis = |nanos: u64| nanos.div_ceil(10_000) as f64 / 100.0;
        match self.cause {
            Cause::States => format!(
                "the regular expression {pattern} needs too many states; avoid counted repetitions such as {{20}} after .* \
                 or [^/]+"
            ),
            Cause::Each(nanos) => format!(
                "the regular expression {pattern} takes Envoy about {} ms for a request of {request} KiB; the limit is {} \
                 ms; use smaller repetition counts",
                millis(nanos),
                millis(MAX_EACH)
            ),
            Cause::List(nanos) => format!(
                "with the regular expression {pattern}, those of the list take Envoy about {} ms for a request of {request} \
                 KiB, more than {} ms; use fewer expressions",
                millis(nanos),
                millis(MAX_LIST)
            ),
            Cause::Host(nanos) => format!(
                "with {pattern} added, the regular expressions of host {domain} take Envoy about {} ms for a request of \
                 {request} KiB; the limit is {} ms; use Exact or PathPrefix matches, fewer expressions, or expressions \
                 that start with different literals",
                millis(nanos),
                millis(MAX_HOST)
            ),
        }
    }
}

/// The time of a list of expressions, which Envoy compares with the same text.
#[derive(Debug)]
pub(crate) struct ListTime {
    effort: u64,
    nanos: u64,
}

impl Default for ListTime {
    fn default() -> Self {
        Self {
            effort: MAX_EFFORT,
            nanos: 0,
        }
    }
}

impl ListTime {
    /// Adds an expression.
    ///
    /// # Errors
    /// Why it takes too much time, and how to fix it.
    pub(crate) fn add(&mut self, pattern: &str) -> Result<(), String> {
        let cause = match Measure::of(pattern, &mut self.effort).nanos {
            None => Cause::States,
            Some(nanos) if nanos > MAX_EACH => Cause::Each(nanos),
            Some(nanos) if self.nanos + nanos > MAX_LIST => Cause::List(self.nanos + nanos),
            Some(nanos) => {
                self.nanos += nanos;
                return Ok(());
            }
        };
        let pattern = pattern.into();
        Err(Reason { pattern, cause }.message(""))
    }
}

/// The time of expressions that the same text may have to match: for a path, those whose beginnings start alike.
#[derive(Default)]
struct Load<'a> {
    by_beginning: HashMap<(&'a Part, &'a [u8]), Times>,
    /// The time of [`Part::Target`]. These bytes may be in the path too.
    target: u64,
    /// The maximum time of [`Part::Path`].
    path: u64,
}

#[derive(Clone, Copy, Default)]
struct Times {
    /// Of the expressions with this beginning, in nanoseconds.
    own: u64,
    /// The maximum, with expressions whose beginnings start with this one.
    most: u64,
}

impl<'a> Load<'a> {
    /// Adds an expression.
    ///
    /// # Errors
    /// If it takes too much time.
    fn add(&mut self, scan: &'a Scan) -> Result<(), Cause> {
        let nanos = scan.measure.nanos.ok_or(Cause::States)?;
        if nanos > MAX_EACH {
            return Err(Cause::Each(nanos));
        }
        let beginning: &[u8] = match scan.part {
            Part::Path => &scan.measure.beginning,
            Part::Target | Part::Header(_) => &[],
        };
        let at = |end: usize| (&scan.part, &beginning[..end]);
        let times = |end| self.by_beginning.get(&at(end)).copied().unwrap_or_default();
        let above: u64 = (0..beginning.len()).map(|end| times(end).own).sum();
        let most = above + times(beginning.len()).most + nanos;
        let total = match scan.part {
            Part::Path => most.max(self.path) + self.target,
            Part::Target => most + self.path,
            Part::Header(_) => most,
        };
        if total > MAX_HOST {
            return Err(Cause::Host(total));
        }
        match scan.part {
            Part::Path => self.path = self.path.max(most),
            Part::Target => self.target = most,
            Part::Header(_) => {}
        }
        let own = self.by_beginning.entry(at(beginning.len())).or_default();
        own.own += nanos;
        own.most += nanos;
        let mut below = own.most;
        for end in (0..beginning.len()).rev() {
            let above = self.by_beginning.entry(at(end)).or_default();
            above.most = above.most.max(above.own + below);
            below = above.most;
        }
        Ok(())
    }
}

/// The matches of a host that aren't served as written. Usually empty.
#[derive(Debug, Default)]
pub(crate) struct Excess<'a> {
    /// By index in the host's order.
    matches: BTreeMap<usize, Reason>,
    /// The rules with such matches.
    rules: BTreeSet<(&'a ObjectKey, usize)>,
}

/// What becomes of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// It is served as written.
    Served,
    /// It isn't matched.
    LeftOut,
    /// Its requests get this status.
    Answered(u16),
}

/// Finds the matches whose expressions take too much time.
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
        for scan in &entry.scans {
            if let Err(cause) = load.add(scan) {
                let pattern = Arc::clone(&scan.pattern);
                excess.matches.insert(index, Reason { pattern, cause });
                excess.rules.insert((&object.key, entry.place.0));
                break;
            }
        }
    }
    excess
}

impl Excess<'_> {
    /// Whether all matches are served.
    pub(crate) fn is_empty(&self) -> bool {
        self.matches.is_empty()
    }

    /// What becomes of the match with this index. As with other invalid matches, a rule of the Gateway API isn't
    /// applied in part.
    pub(crate) fn effect(&self, index: usize, object: &HostObject, entry: &RankedMatch) -> Effect {
        if self.is_empty() {
            return Effect::Served;
        }
        if self.matches.contains_key(&index) {
            return Effect::LeftOut;
        }
        let whole = matches!(object.key.kind, Kind::HTTPRoute | Kind::GRPCRoute);
        match whole && self.rules.contains(&(&object.key, entry.place.0)) {
            true => Effect::Answered(hosts::invalid_rule(&object.key)),
            false => Effect::Served,
        }
    }
}

/// A route that answers the requests of another one with a status.
pub(crate) fn answer(route: &Route, status: u16) -> Arc<Route> {
    let mut answer = Route::respond_to_all(status);
    answer.matches = RouteMatch {
        share: None,
        ..route.matches.clone()
    };
    answer.action = Action::Respond(status);
    Arc::new(answer)
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
    for (index, reason) in excess.matches {
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
mod tests;
