//! The time of conditions for which Envoy reads a whole path, header or query parameter.
//!
//! A text is searched for its first letter, and compared where that is found. So each byte of a request takes time only for
//! the texts that start with it.

use std::collections::HashMap;
use std::sync::Arc;

use sesame_model::{HeaderMatch, PathMatch, RouteMatch, Search, ValueMatch};

use super::Reason;
use crate::shared::regex::{BEGINNING, Measure, REQUEST};

/// The maximum time for a condition, in nanoseconds.
pub(super) const MAX_EACH: u64 = 1_000_000;
/// The maximum time for the conditions of a host that apply to the same request, in nanoseconds.
pub(super) const MAX_HOST: u64 = 3_000_000;
/// The maximum time for the conditions of a list, in nanoseconds.
pub(super) const MAX_LIST: u64 = 1_000_000;
/// The limit on the work to measure an object's expressions, in instructions. Beyond it, upper bounds are used.
const MAX_EFFORT: u64 = 2_000_000;
/// The time to compare a text at one place of a request, in nanoseconds.
const COMPARE: usize = 5;
/// The length of a text whose comparison takes one nanosecond more.
const PER_NANO: usize = 64;

/// A condition of a match for which Envoy reads a whole part of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    pub(super) condition: Condition,
    part: Part,
    /// What the paths of the requests that it is compared with start with.
    beginning: Arc<[u8]>,
    /// The longest time for a request of [`REQUEST`] bytes, in nanoseconds; `None` without a limit.
    nanos: Option<u64>,
    pub(super) sought: Sought,
}

/// The place of a condition in a [`RouteMatch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    Path,
    Header(usize),
    Query(usize),
}

/// What Envoy looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sought {
    Expression(Arc<str>),
    Text(Arc<str>),
}

/// Parts of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// The path.
    Path,
    /// A query parameter, or the path with the query.
    Target,
    /// The values of a header.
    Header(Box<str>),
}

impl Part {
    /// The header whose bytes it has; `None` for those of the path and the query.
    fn header(&self) -> Option<&str> {
        match self {
            Self::Path | Self::Target => None,
            Self::Header(name) => Some(name),
        }
    }
}

impl Scan {
    /// The first letter of a text, in lower case.
    fn initial(&self) -> Option<u8> {
        match &self.sought {
            Sought::Expression(_) => None,
            Sought::Text(text) => initial(text),
        }
    }

    /// All paths that the condition applies to.
    pub(super) fn paths(&self) -> PathMatch {
        match std::str::from_utf8(&self.beginning) {
            Ok(text) if text.len() > 1 && text.starts_with('/') => {
                PathMatch::StartsWith(text.to_owned())
            }
            _ => PathMatch::Prefix("/".to_owned()),
        }
    }
}

fn initial(text: &str) -> Option<u8> {
    text.bytes().next().map(|byte| byte.to_ascii_lowercase())
}

/// The longest time to search a request for a text, in nanoseconds.
fn search(text: &str) -> u64 {
    let nanos = REQUEST * COMPARE + REQUEST * text.len() / PER_NANO;
    u64::try_from(nanos).unwrap_or(u64::MAX)
}

/// Measures the conditions of an object, each expression once.
#[derive(Debug)]
pub(crate) struct Meter {
    effort: u64,
    known: HashMap<String, (Arc<str>, Measure)>,
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
    /// The conditions of a match that read a whole part, in its order.
    pub(crate) fn scans(&mut self, requests: &RouteMatch) -> Box<[Scan]> {
        let mut found = Vec::new();
        if let PathMatch::Regex(pattern) = &requests.path {
            let (sought, measure) = self.measure(pattern);
            found.push(Scan {
                condition: Condition::Path,
                part: Part::Path,
                beginning: Arc::clone(&measure.beginning),
                nanos: measure.nanos,
                sought: Sought::Expression(sought),
            });
        }
        let beginning: Arc<[u8]> = beginning(&requests.path).into();
        let headers = requests.headers.iter().map(|one| (&one.name, &one.value));
        for (index, (name, value)) in headers.enumerate() {
            let part = match name.eq_ignore_ascii_case(":path") {
                true => Part::Target,
                false => Part::Header(name.to_ascii_lowercase().into()),
            };
            let scan = self.scan(value, Condition::Header(index), part, &beginning);
            found.extend(scan);
        }
        for (index, parameter) in requests.query.iter().enumerate() {
            let condition = Condition::Query(index);
            found.extend(self.scan(&parameter.value, condition, Part::Target, &beginning));
        }
        found.into()
    }

    fn scan(
        &mut self,
        value: &ValueMatch,
        condition: Condition,
        part: Part,
        beginning: &Arc<[u8]>,
    ) -> Option<Scan> {
        let (sought, nanos) = match value.search()? {
            Search::Expression(pattern) => {
                let (pattern, measure) = self.measure(pattern);
                (Sought::Expression(pattern), measure.nanos)
            }
            Search::Text(text) => (Sought::Text(text.into()), Some(search(text))),
        };
        Some(Scan {
            condition,
            part,
            beginning: Arc::clone(beginning),
            nanos,
            sought,
        })
    }

    fn measure(&mut self, pattern: &str) -> (Arc<str>, Measure) {
        if let Some(known) = self.known.get(pattern) {
            return known.clone();
        }
        let new = (Arc::from(pattern), Measure::of(pattern, &mut self.effort));
        self.known.insert(pattern.to_owned(), new.clone());
        new
    }
}

/// What the paths of the requests start with that satisfy a condition other than an expression. Envoy compares them with
/// it before it scans headers and parameters.
fn beginning(path: &PathMatch) -> &[u8] {
    match path {
        PathMatch::Exact(path) | PathMatch::Prefix(path) | PathMatch::StartsWith(path)
            if path.len() > 1 =>
        {
            let path = path.as_bytes();
            &path[..path.len().min(BEGINNING)]
        }
        _ => &[],
    }
}

/// The time of a list of conditions.
#[derive(Debug)]
pub(crate) struct ListTime {
    effort: u64,
    /// Of all expressions, in nanoseconds.
    expressions: u64,
    /// Of texts for the same header that start with the same letter, in nanoseconds.
    texts: HashMap<(Box<str>, Option<u8>), u64>,
    /// The maximum of `texts`.
    most: u64,
}

impl Default for ListTime {
    fn default() -> Self {
        Self {
            effort: MAX_EFFORT,
            expressions: 0,
            texts: HashMap::new(),
            most: 0,
        }
    }
}

impl ListTime {
    /// Adds an expression.
    ///
    /// # Errors
    /// Why it takes too much time, and how to fix it.
    pub(crate) fn add(&mut self, pattern: &str) -> Result<(), String> {
        let nanos = Measure::of(pattern, &mut self.effort).nanos;
        let added = within(nanos, self.expressions + self.most)
            .map_err(|cause| Reason::new(Sought::Expression(pattern.into()), cause).message(""))?;
        self.expressions += added;
        Ok(())
    }

    /// Adds a condition on a header.
    ///
    /// # Errors
    /// Why it takes too much time, and how to fix it.
    pub(crate) fn add_header(&mut self, header: &HeaderMatch) -> Result<(), String> {
        match header.value.search() {
            None => Ok(()),
            Some(Search::Expression(pattern)) => self.add(pattern),
            Some(Search::Text(text)) => {
                let key = (header.name.as_str().into(), initial(text));
                let others = self.texts.entry(key).or_default();
                let added = within(Some(search(text)), self.expressions + *others)
                    .map_err(|cause| Reason::new(Sought::Text(text.into()), cause).message(""))?;
                *others += added;
                self.most = self.most.max(*others);
                Ok(())
            }
        }
    }
}

/// The time, if it and the time of the `others` are within the limits on a list.
fn within(nanos: Option<u64>, others: u64) -> Result<u64, Cause> {
    match nanos {
        None => Err(Cause::States),
        Some(nanos) if nanos > MAX_EACH => Err(Cause::Each(nanos)),
        Some(nanos) if others + nanos > MAX_LIST => Err(Cause::List(others + nanos)),
        Some(nanos) => Ok(nanos),
    }
}

/// Why a condition takes too much time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Cause {
    /// The automaton is too large.
    States,
    /// The condition takes this time, in nanoseconds.
    Each(u64),
    /// The host's conditions take this time, in nanoseconds.
    Host(u64),
    /// The list's conditions take this time, in nanoseconds.
    List(u64),
}

/// The time of conditions that may apply to the same request: those whose beginnings start alike.
#[derive(Default)]
pub(super) struct Load<'a> {
    /// The conditions of a group read the same bytes: expressions all of them, texts those that are equal to their first
    /// letter.
    groups: HashMap<(&'a Part, Option<u8>), ByBeginning<'a>>,
    /// The maximum times of conditions that have the same bytes, which add up: of expressions for the path, of other
    /// expressions, and of the texts with any first letter.
    most: HashMap<Option<&'a str>, [u64; 3]>,
}

type ByBeginning<'a> = HashMap<&'a [u8], Times>;

#[derive(Clone, Copy, Default)]
struct Times {
    /// Of the conditions with this beginning, in nanoseconds.
    own: u64,
    /// The maximum, with conditions whose beginnings start with this one.
    most: u64,
}

impl<'a> Load<'a> {
    /// Adds a condition.
    ///
    /// # Errors
    /// If it takes too much time.
    pub(super) fn add(&mut self, scan: &'a Scan) -> Result<(), Cause> {
        let nanos = scan.nanos.ok_or(Cause::States)?;
        if nanos > MAX_EACH {
            return Err(Cause::Each(nanos));
        }
        let initial = scan.initial();
        let group = self.groups.entry((&scan.part, initial)).or_default();
        let at = |end: usize| &scan.beginning[..end];
        let end = scan.beginning.len();
        let times = |end| group.get(at(end)).copied().unwrap_or_default();
        let above: u64 = (0..end).map(|end| times(end).own).sum();
        let most = above + times(end).most + nanos;
        let kinds = self.most.entry(scan.part.header()).or_default();
        let kind = match (&scan.part, initial) {
            (Part::Path, _) => 0,
            (_, None) => 1,
            (_, Some(_)) => 2,
        };
        let others: u64 = kinds.iter().sum::<u64>() - kinds[kind];
        if others + most > MAX_HOST {
            return Err(Cause::Host(others + most));
        }
        kinds[kind] = kinds[kind].max(most);
        let own = group.entry(at(end)).or_default();
        own.own += nanos;
        own.most += nanos;
        let mut below = own.most;
        for end in (0..end).rev() {
            let above = group.entry(at(end)).or_default();
            above.most = above.most.max(above.own + below);
            below = above.most;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
