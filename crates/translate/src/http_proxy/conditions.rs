//! Conditions on routes and inclusions.
//!
//! In: the conditions of one list, and those of the enclosing inclusions. Out: one match.

mod matchers;

use std::collections::BTreeMap;

use sesame_api::MatchCondition;
use sesame_model::{HeaderMatch, PathMatch, QueryMatch, RouteMatch, TextPosition, ValueMatch};

pub(super) use self::matchers::{PSEUDO_HEADERS, header};
use super::findings::{About, Findings};
use super::text::{MAX_TEXT, PATH, is_path};
use crate::shared::regex::Pattern;

/// The maximum number of conditions on headers and query parameters, including those of all enclosing inclusions.
const MAX_CONDITIONS: usize = 128;

/// Conditions that must all hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    /// `None` for any path.
    pub(super) path: Option<PathCondition>,
    pub(super) headers: Vec<HeaderMatch>,
    pub(super) query: Vec<QueryMatch>,
}

/// A condition on the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PathCondition {
    Prefix(String),
    Exact(String),
    Regex(Pattern),
}

/// Why conditions can't be combined with those of the enclosing inclusions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Misfit {
    pub(super) message: String,
    /// Conditions that all affected requests satisfy; a less specific route must not serve such requests. `None` if no
    /// requests are affected, or if the affected requests are unknown.
    pub(super) rest: Option<Box<Conditions>>,
}

/// The result of reading a list of conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Listed {
    /// The valid conditions.
    pub(super) conditions: Conditions,
    /// Whether the list also has invalid conditions.
    pub(super) partial: bool,
}

/// Where a list of conditions is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    Route,
    Include,
}

/// Reads a list of conditions. `None` if they don't define which requests match: they contradict each other, or none is
/// valid.
pub(super) fn read(
    field: &str,
    list: &[MatchCondition],
    place: Place,
    findings: &mut Findings,
) -> Option<Listed> {
    let before = findings.refusals();
    let about = match place {
        Place::Route => About::CONDITIONS,
        Place::Include => About::INCLUDE,
    };
    let mut conditions = Conditions::default();
    for (index, source) in list.iter().enumerate() {
        let field = format!("{field}.conditions[{index}]");
        match path(source, place) {
            Ok(None) => {}
            Ok(Some(_)) if conditions.path.is_some() => {
                let message = "only one condition on the path is allowed; remove the others";
                findings.refuse(about, &field, message);
            }
            Ok(path) => conditions.path = path,
            Err((part, message)) => findings.refuse(about, &format!("{field}{part}"), message),
        }
        if let Some(header) = source.header.as_deref() {
            match matchers::header(header) {
                Ok(header) => add(&mut conditions.headers, header),
                Err(message) => findings.refuse(about, &format!("{field}.header"), message),
            }
        }
        if let Some(parameter) = source.query_parameter.as_deref() {
            match matchers::parameter(parameter) {
                Ok(parameter) => add(&mut conditions.query, parameter),
                Err(message) => {
                    findings.refuse(about, &format!("{field}.queryParameter"), message);
                }
            }
        }
    }
    let partial = findings.refusals() > before;
    if let Err(message) = conditions.check() {
        findings.refuse(about, &format!("{field}.conditions"), message);
        return None;
    }
    if partial && conditions.is_default() {
        let message = "the entry is omitted, since it would match all requests without its invalid conditions; \
                       less specific routes apply instead";
        findings.refuse(about, &format!("{field}.conditions"), message);
        return None;
    }
    Some(Listed {
        conditions,
        partial,
    })
}

/// Adds a condition unless the list already contains it, or is too long anyway.
fn add<T: PartialEq>(list: &mut Vec<T>, condition: T) {
    if list.len() <= MAX_CONDITIONS && !list.contains(&condition) {
        list.push(condition);
    }
}

type FieldMessage = (&'static str, String);

fn path(source: &MatchCondition, place: Place) -> Result<Option<PathCondition>, FieldMessage> {
    let checked = |part: &'static str, path: &str| match is_path(path) {
        true => Ok(path.to_owned()),
        false => Err((part, PATH.to_owned())),
    };
    match (
        source.prefix.as_deref(),
        source.exact.as_deref(),
        source.regex.as_deref(),
    ) {
        (None, None, None) => Ok(None),
        (Some(prefix), None, None) => {
            let prefix = checked(".prefix", prefix)?;
            Ok(Some(PathCondition::Prefix(without_repeated_slashes(
                &prefix,
            ))))
        }
        (None, Some(_), None) | (None, None, Some(_)) if place == Place::Include => {
            let message = "an include allows only a prefix; move this condition to the routes of the included HTTPProxy";
            Err(("", message.to_owned()))
        }
        (None, Some(exact), None) => Ok(Some(PathCondition::Exact(checked(".exact", exact)?))),
        (None, None, Some(pattern)) => match Pattern::read(pattern) {
            Ok(pattern) => Ok(Some(PathCondition::Regex(pattern))),
            Err(reason) => Err((".regex", format!("the regular expression {reason}"))),
        },
        _ => {
            let message = "prefix, exact and regex are mutually exclusive; use several conditions or remove all but one";
            Err(("", message.to_owned()))
        }
    }
}

fn without_repeated_slashes(path: &str) -> String {
    let mut slash = false;
    let kept = path.chars().filter(|&c| {
        let repeated = slash && c == '/';
        slash = c == '/';
        !repeated
    });
    kept.collect()
}

impl Conditions {
    /// Whether all requests satisfy the conditions.
    pub(super) fn is_default(&self) -> bool {
        let any_path = match &self.path {
            None => true,
            Some(PathCondition::Prefix(prefix)) => prefix == "/",
            Some(_) => false,
        };
        any_path && self.headers.is_empty() && self.query.is_empty()
    }

    /// A text that is the same for equivalent conditions.
    pub(super) fn fingerprint(&self) -> String {
        let mut headers: Vec<String> = self
            .headers
            .iter()
            .map(|header| format!("{header:?}"))
            .collect();
        let mut query: Vec<String> = self.query.iter().map(|one| format!("{one:?}")).collect();
        headers.sort();
        query.sort();
        format!("{:?} {headers:?} {query:?}", self.path)
    }

    /// Combines these conditions, which belong to an inclusion, with `inner` conditions.
    ///
    /// # Errors
    /// If no request can satisfy both, or if the result is too large.
    pub(super) fn and(&self, inner: &Self) -> Result<Self, Misfit> {
        let mut both = self.clone();
        let mut too_large = None;
        match self.path_with(inner) {
            Ok(path) => both.path = path,
            Err(message) => too_large = Some(message),
        }
        for header in &inner.headers {
            add(&mut both.headers, header.clone());
        }
        for parameter in &inner.query {
            add(&mut both.query, parameter.clone());
        }
        both.check().map_err(|message| Misfit {
            message,
            rest: None,
        })?;
        if both.headers.len() + both.query.len() > MAX_CONDITIONS {
            both.headers.truncate(self.headers.len());
            both.query.truncate(self.query.len());
            let message = format!("at most {MAX_CONDITIONS} conditions are allowed; remove some");
            too_large.get_or_insert(message);
        }
        match too_large {
            None => Ok(both),
            Some(message) => Err(Misfit {
                message,
                rest: (!both.is_default()).then(|| Box::new(both)),
            }),
        }
    }

    fn path_with(&self, inner: &Self) -> Result<Option<PathCondition>, String> {
        let outer = match &self.path {
            Some(PathCondition::Prefix(prefix)) => prefix.as_str(),
            _ => "",
        };
        let joined = |path: &str| {
            let path = without_repeated_slashes(&format!("{outer}{path}"));
            match path.len() > MAX_TEXT {
                true => Err(format!(
                    "the path is longer than {MAX_TEXT} bytes; shorten it"
                )),
                false => Ok(path),
            }
        };
        Ok(match &inner.path {
            None => self.path.clone(),
            Some(PathCondition::Prefix(prefix)) => Some(PathCondition::Prefix(joined(prefix)?)),
            Some(PathCondition::Exact(path)) if outer.is_empty() => {
                Some(PathCondition::Exact(path.clone()))
            }
            Some(PathCondition::Exact(path)) => Some(PathCondition::Exact(joined(path)?)),
            Some(PathCondition::Regex(pattern)) => {
                let prefix = outer.strip_suffix('/').unwrap_or(outer);
                let pattern = pattern
                    .after(prefix)
                    .map_err(|why| format!("with prefix {prefix}, the regular expression {why}"))?;
                Some(PathCondition::Regex(pattern))
            }
        })
    }

    /// The approximate size in memory, in bytes.
    pub(super) fn bytes(&self) -> usize {
        /// The size of a condition without its strings.
        const CONDITION: usize = 64;
        let path = match &self.path {
            None => 0,
            Some(PathCondition::Prefix(text) | PathCondition::Exact(text)) => text.len(),
            Some(PathCondition::Regex(pattern)) => pattern.as_str().len(),
        };
        let one = |name: &str, value: &ValueMatch| CONDITION + name.len() + text(value).len();
        let headers = self
            .headers
            .iter()
            .map(|one_of| one(&one_of.name, &one_of.value));
        let query = self
            .query
            .iter()
            .map(|one_of| one(&one_of.name, &one_of.value));
        path + headers.chain(query).sum::<usize>()
    }

    /// Checks that a request can satisfy the conditions.
    fn check(&self) -> Result<(), String> {
        let mut of_header: BTreeMap<&str, Vec<&ValueMatch>> = BTreeMap::new();
        for header in &self.headers {
            of_header
                .entry(&header.name)
                .or_default()
                .push(&header.value);
        }
        for (name, values) in of_header {
            consistent(&values).map_err(|why| format!("header {name}: {why}"))?;
        }
        let mut of_parameter: BTreeMap<&str, Vec<&ValueMatch>> = BTreeMap::new();
        for parameter in &self.query {
            let values = of_parameter.entry(&parameter.name).or_default();
            values.push(&parameter.value);
        }
        for (name, values) in of_parameter {
            consistent(&values).map_err(|why| format!("query parameter {name}: {why}"))?;
        }
        Ok(())
    }

    /// The match for requests that satisfy the conditions.
    pub(super) fn requests(&self) -> RouteMatch {
        let mut method = None;
        let mut headers = self.headers.clone();
        headers.retain(|header| match &header.value {
            ValueMatch::Exact(value) if header.name == ":method" => {
                method = Some(value.as_str().into());
                false
            }
            _ => true,
        });
        RouteMatch {
            path: match &self.path {
                None => PathMatch::Prefix("/".to_owned()),
                Some(PathCondition::Prefix(prefix)) => starts_with(prefix),
                Some(PathCondition::Exact(path)) => PathMatch::Exact(path.clone()),
                Some(PathCondition::Regex(pattern)) => {
                    PathMatch::Regex(pattern.as_str().to_owned())
                }
            },
            method,
            headers,
            query: self.query.clone(),
            grpc: false,
            share: None,
        }
    }
}

/// The match for a prefix.
pub(super) fn starts_with(prefix: &str) -> PathMatch {
    match prefix {
        "" | "/" => PathMatch::Prefix("/".to_owned()),
        prefix => PathMatch::StartsWith(prefix.to_owned()),
    }
}

/// The text of a condition.
fn text(value: &ValueMatch) -> &str {
    match value {
        ValueMatch::Exact(text) | ValueMatch::Regex(text) => text,
        ValueMatch::Text(text) => &text.text,
        ValueMatch::Not(inner) | ValueMatch::NotOrAbsent(inner) => text(inner),
        ValueMatch::Present | ValueMatch::Absent => "",
    }
}

/// Checks that a single value can satisfy all of these conditions.
fn consistent(values: &[&ValueMatch]) -> Result<(), &'static str> {
    // Texts that differ only in case contradict each other if both conditions are case-sensitive.
    let mut exact: Option<&str> = None;
    let mut with_case: Option<&str> = None;
    for value in values {
        let (text, ignore_case) = match value {
            ValueMatch::Exact(text) => (text, false),
            ValueMatch::Text(text) if text.position == TextPosition::Whole => {
                (&text.text, text.ignore_case)
            }
            _ => continue,
        };
        let differs = !exact.get_or_insert(text).eq_ignore_ascii_case(text);
        if differs || (!ignore_case && *with_case.get_or_insert(text) != text) {
            return Err("several conditions require different values; keep one of them");
        }
    }
    let absent = values.iter().any(|value| **value == ValueMatch::Absent);
    let needs_value =
        |value: &&ValueMatch| !matches!(value, ValueMatch::Absent | ValueMatch::NotOrAbsent(_));
    if absent && values.iter().any(needs_value) {
        return Err("conditions require it to be both absent and present; remove one of them");
    }
    let negated = values.iter().filter_map(|value| match value {
        ValueMatch::Not(inner) | ValueMatch::NotOrAbsent(inner) => Some(&**inner),
        _ => None,
    });
    for inner in negated {
        if values.iter().any(|value| **value == *inner) {
            return Err("two conditions contradict each other; remove one of them");
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "conditions/tests.rs"]
mod tests;
