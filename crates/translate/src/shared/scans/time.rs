//! The time of conditions for which Envoy reads a whole path, header or query parameter.
//!
//! A text is searched for its first letter, and compared where that is found. So each byte of a request takes time only for
//! the texts that start with it.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hasher};
use std::sync::Arc;

use sesame_model::{HeaderMatch, PathMatch, QueryMatch, RouteMatch, Search, ValueMatch};

use super::Reason;
use crate::shared::regex::{BEGINNING as MEASURED, Measure, REQUEST};

/// The maximum time for a condition, in nanoseconds.
pub(super) const MAX_EACH: u64 = 1_000_000;
/// The maximum time for the conditions of a host that apply to the same request, in nanoseconds.
pub(super) const MAX_HOST: u64 = 3_000_000;
/// The maximum time for the conditions of a list, in nanoseconds.
pub(super) const MAX_LIST: u64 = 1_000_000;
/// The limit on the work to measure an object's expressions, in instructions. Beyond it, upper bounds are used.
const MAX_EFFORT: u64 = 2_000_000;
/// The time to search a part for a text's first letter, in nanoseconds.
const SEARCH: u32 = 5_000;
/// The time to compare a text at one place of a request, in nanoseconds.
const COMPARE: usize = 5;
/// The length of a text whose comparison takes one nanosecond more.
const PER_NANO: usize = 64;
/// The length of the beginnings of paths that are compared, in bytes.
const BEGINNING: usize = 48;

/// A condition of a match for which Envoy reads a whole part of a request. An object can have thousands of them, so what
/// Envoy looks for is only in the [`RouteMatch`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Scan {
    /// On the path, an expression.
    Path {
        /// What all matching paths start with.
        beginning: Arc<[u8]>,
        time: Option<Time>,
    },
    /// On the header with this index.
    Header {
        index: usize,
        /// Whether it belongs to an inclusion of the HTTPProxy with the match.
        inherited: bool,
        time: Option<Time>,
    },
    /// On the query parameter with this index.
    Query {
        index: usize,
        /// As for headers.
        inherited: bool,
        time: Option<Time>,
    },
}

/// The longest time of a condition for a request of [`REQUEST`] bytes, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// To read all bytes, and to build an automaton again, for which few bytes suffice.
    Expression { reading: u32, building: u32 },
    /// To compare a text with this first letter, in lower case, wherever it is found.
    Text { initial: u8, comparing: u32 },
}

/// What Envoy looks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Sought {
    Expression(Arc<str>),
    Text(Arc<str>),
}

impl From<Search<'_>> for Sought {
    fn from(search: Search<'_>) -> Self {
        match search {
            Search::Expression(text) => Self::Expression(text.into()),
            Search::Text(text) => Self::Text(text.into()),
        }
    }
}

/// Parts of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Part {
    /// The path.
    Path,
    /// A query parameter, or the path with the query.
    Target,
    /// The values of the header with this [`hash`] of its name.
    Header(u64),
}

impl Part {
    fn of_header(name: &str) -> Self {
        match name.to_ascii_lowercase().as_str() {
            ":path" => Self::Target,
            "host" => Self::of_header(":authority"),
            name => Self::Header(hash(name)),
        }
    }

    /// The header whose bytes it has; `None` for those of the path and the query.
    fn header(self) -> Option<u64> {
        match self {
            Self::Path | Self::Target => None,
            Self::Header(name) => Some(name),
        }
    }
}

impl Scan {
    /// What Envoy looks for. `requests` is the match with the condition, here and below.
    pub(super) fn sought(&self, requests: &RouteMatch) -> Sought {
        let search = match (self, &requests.path) {
            (Self::Path { .. }, PathMatch::Regex(pattern)) => Some(Search::Expression(pattern)),
            (Self::Path { .. }, _) => None,
            (Self::Header { index, .. }, _) => requests.headers[*index].value.search(),
            (Self::Query { index, .. }, _) => requests.query[*index].value.search(),
        };
        search.unwrap_or(Search::Text("")).into()
    }

    /// All paths that a condition on the path applies to; `None` if unknown, and for other conditions.
    pub(super) fn paths(&self) -> Option<PathMatch> {
        let Self::Path { beginning, .. } = self else {
            return None;
        };
        match std::str::from_utf8(beginning).ok()? {
            "" | "/" => Some(PathMatch::Prefix("/".to_owned())),
            // A longer one may be truncated.
            text if text.starts_with('/') && text.len() < MEASURED => {
                Some(PathMatch::StartsWith(text.to_owned()))
            }
            _ => None,
        }
    }

    pub(super) fn is_inherited(&self) -> bool {
        match self {
            Self::Path { .. } => false,
            Self::Header { inherited, .. } | Self::Query { inherited, .. } => *inherited,
        }
    }

    fn time(&self) -> Option<Time> {
        match self {
            Self::Path { time, .. } | Self::Header { time, .. } | Self::Query { time, .. } => *time,
        }
    }

    fn part(&self, requests: &RouteMatch) -> Part {
        match self {
            Self::Path { .. } => Part::Path,
            Self::Header { index, .. } => Part::of_header(&requests.headers[*index].name),
            Self::Query { .. } => Part::Target,
        }
    }

    /// What the paths of the requests start with that it is compared with.
    fn beginning<'a>(&'a self, requests: &'a RouteMatch) -> &'a [u8] {
        match self {
            Self::Path { beginning, .. } => beginning,
            Self::Header { .. } | Self::Query { .. } => beginning(&requests.path),
        }
    }

    /// Why the condition takes too much time even alone.
    pub(super) fn alone(&self) -> Result<(), Cause> {
        match self.time() {
            None => Err(Cause::States),
            Some(time) if time.nanos() > MAX_EACH => Err(Cause::Each(time.nanos())),
            Some(_) => Ok(()),
        }
    }
}

impl Time {
    fn of_text(text: &str) -> Option<Self> {
        let initial = text.bytes().next()?.to_ascii_lowercase();
        let nanos = REQUEST * COMPARE + REQUEST * text.len() / PER_NANO;
        Some(Self::Text {
            initial,
            comparing: u32::try_from(nanos).unwrap_or(u32::MAX),
        })
    }

    fn of_expression(measure: &Measure) -> Option<Self> {
        let nanos = |nanos| u32::try_from(nanos).unwrap_or(u32::MAX);
        measure.nanos.map(|all| Self::Expression {
            reading: nanos(all - measure.building),
            building: nanos(measure.building),
        })
    }

    fn nanos(self) -> u64 {
        match self {
            Self::Expression { reading, building } => u64::from(reading) + u64::from(building),
            Self::Text { comparing, .. } => comparing.into(),
        }
    }
}

/// Measures the conditions of an object, each expression once.
#[derive(Debug)]
pub(crate) struct Meter {
    effort: u64,
    known: HashMap<String, Measure>,
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
        self.scans_below(requests, &[], &[])
    }

    /// The same, for a match with conditions of enclosing inclusions.
    pub(crate) fn scans_below(
        &mut self,
        requests: &RouteMatch,
        headers: &[HeaderMatch],
        query: &[QueryMatch],
    ) -> Box<[Scan]> {
        let mut found = Vec::new();
        if let PathMatch::Regex(pattern) = &requests.path {
            let measure = self.measure(pattern);
            found.push(Scan::Path {
                time: Time::of_expression(&measure),
                beginning: measure.beginning,
            });
        }
        for (index, header) in requests.headers.iter().enumerate() {
            found.extend(self.time(&header.value).map(|time| Scan::Header {
                index,
                inherited: headers.contains(header),
                time,
            }));
        }
        for (index, parameter) in requests.query.iter().enumerate() {
            found.extend(self.time(&parameter.value).map(|time| Scan::Query {
                index,
                inherited: query.contains(parameter),
                time,
            }));
        }
        found.into()
    }

    /// The time of a condition; `None` if it takes next to none, `Some(None)` if its automaton is too large.
    fn time(&mut self, value: &ValueMatch) -> Option<Option<Time>> {
        value.search().map(|search| match search {
            Search::Expression(pattern) => Time::of_expression(&self.measure(pattern)),
            Search::Text(text) => Time::of_text(text),
        })
    }

    fn measure(&mut self, pattern: &str) -> Measure {
        if let Some(known) = self.known.get(pattern) {
            return known.clone();
        }
        let new = Measure::of(pattern, &mut self.effort);
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
    texts: HashMap<(Part, u8), u64>,
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
                let Some(Time::Text { initial, comparing }) = Time::of_text(text) else {
                    return Ok(());
                };
                let comparing = comparing.into();
                let others = self.texts.entry((Part::of_header(&header.name), initial));
                let others = others.or_default();
                let added = within(Some(comparing), self.expressions + *others)
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

/// The time of a host's conditions that may apply to the same request: of those whose beginnings start alike.
#[derive(Default)]
pub(super) struct Load {
    groups: HashMap<Group, ByBeginning>,
    /// The maximum times of groups that read the same bytes, which add up, by [`Part::header`].
    of_bytes: HashMap<Option<u64>, OfBytes>,
    /// The maximum of these sums.
    reading: u64,
    /// The maximum time of [`Group::Building`].
    building: u64,
}

/// Conditions whose times add up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Group {
    /// Expressions for a part read all of its bytes. Texts are searched for their first letters there.
    Reading(Part),
    /// Texts are compared where a part has their first letter.
    Comparing(Part, u8),
    /// A request can have bytes for the automatons of all parts.
    Building,
}

/// The maximum times for the same bytes, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct OfBytes {
    /// Of [`Part::Path`].
    path: u64,
    /// Of reading another part.
    reading: u64,
    /// Of comparing texts with any of the letters.
    comparing: u64,
}

impl Load {
    /// Adds a condition of a match that is `copies` routes in Envoy.
    ///
    /// # Errors
    /// If it takes too much time.
    pub(super) fn add(
        &mut self,
        scan: &Scan,
        requests: &RouteMatch,
        copies: usize,
    ) -> Result<(), Cause> {
        scan.alone()?;
        let time = scan.time().ok_or(Cause::States)?;
        let part = scan.part(requests);
        let charges = match time {
            Time::Expression { reading, building } => {
                [(Group::Reading(part), reading), (Group::Building, building)]
            }
            Time::Text { initial, comparing } => [
                (Group::Reading(part), SEARCH),
                (Group::Comparing(part, initial), comparing),
            ],
        };
        let copies = u64::try_from(copies).unwrap_or(u64::MAX);
        let charges =
            charges.map(|(group, nanos)| (group, u64::from(nanos).saturating_mul(copies)));
        let levels = levels(scan.beginning(requests));
        let of_bytes = self.of_bytes.entry(part.header()).or_default();
        let mut after = *of_bytes;
        let mut building = self.building;
        for (group, nanos) in charges {
            let groups = &self.groups;
            let most = groups.get(&group).map_or(0, |group| group.most(&levels));
            let most = most.saturating_add(nanos);
            let maximum = match group {
                Group::Reading(Part::Path) => &mut after.path,
                Group::Reading(_) => &mut after.reading,
                Group::Comparing(..) => &mut after.comparing,
                Group::Building => &mut building,
            };
            *maximum = most.max(*maximum);
        }
        let same = [after.path, after.reading, after.comparing];
        let reading = same.into_iter().fold(0, u64::saturating_add);
        let reading = reading.max(self.reading);
        let total = reading.saturating_add(building);
        if total > MAX_HOST {
            return Err(Cause::Host(total));
        }
        *of_bytes = after;
        (self.reading, self.building) = (reading, building);
        for (group, nanos) in charges {
            self.groups.entry(group).or_default().add(&levels, nanos);
        }
        Ok(())
    }
}

/// An identifier for a text. If different texts had the same one, here or in [`levels`], their times would only count
/// together.
fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(text.as_bytes());
    hasher.finish()
}

/// Identifiers for the texts that a beginning starts with, from the empty one to the whole.
fn levels(beginning: &[u8]) -> Vec<u64> {
    let mut hasher = DefaultHasher::new();
    let mut levels = vec![hasher.finish()];
    levels.extend(beginning.iter().map(|byte| {
        hasher.write_u8(*byte);
        hasher.finish()
    }));
    levels
}

/// The times of a group's conditions, by what their beginnings start with.
#[derive(Default)]
struct ByBeginning(HashMap<u64, Times>);

#[derive(Clone, Copy, Default)]
struct Times {
    /// Of the conditions with this beginning, in nanoseconds.
    own: u64,
    /// The maximum, with conditions whose beginnings start with this one.
    most: u64,
}

impl ByBeginning {
    /// The longest time of conditions that apply to the same request as one with this beginning.
    fn most(&self, levels: &[u64]) -> u64 {
        let times = |level: &u64| self.0.get(level).copied().unwrap_or_default();
        let (last, above) = levels.split_last().expect("the empty beginning");
        above.iter().map(|level| times(level).own).sum::<u64>() + times(last).most
    }

    fn add(&mut self, levels: &[u64], nanos: u64) {
        let mut below = 0;
        for (distance, level) in levels.iter().rev().enumerate() {
            let times = self.0.entry(*level).or_default();
            if distance == 0 {
                times.own += nanos;
                times.most += nanos;
            } else {
                times.most = times.most.max(times.own + below);
            }
            below = times.most;
        }
    }
}

#[cfg(test)]
mod tests;
