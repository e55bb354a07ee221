//! Matches shared by HTTPRoute and GRPCRoute: headers and values.

use std::collections::BTreeSet;

use sesame_api::{HeaderMatch as ApiHeaderMatch, MatchType};
use sesame_model::{HeaderMatch, ValueMatch};

use crate::problem::FieldError;
use crate::shared::regex;

/// Reads header matches.
///
/// # Errors
/// The first invalid match.
pub(crate) fn read_headers(
    field: &str,
    headers: &[ApiHeaderMatch],
) -> Result<Vec<HeaderMatch>, FieldError> {
    distinct(headers, |header| header.name.to_ascii_lowercase())
        .map(|(index, header)| {
            let field = format!("{field}.headers[{index}]");
            if has_controls(&header.value) {
                let field = format!("{field}.value");
                return Err(FieldError::new(field, CONTROLS));
            }
            Ok(HeaderMatch {
                name: header.name.to_string(),
                value: read_value(&field, &header.type_, &header.value)?,
            })
        })
        .collect()
}

pub(crate) fn read_value(
    field: &str,
    match_type: &MatchType,
    value: &str,
) -> Result<ValueMatch, FieldError> {
    match match_type {
        MatchType::Exact => Ok(ValueMatch::Exact(value.to_owned())),
        MatchType::RegularExpression => Ok(ValueMatch::Regex(checked(
            &format!("{field}.value"),
            value,
        )?)),
        MatchType::Other(other) => Err(FieldError::new(
            format!("{field}.type"),
            format!("unknown type {other:?}; use Exact or RegularExpression"),
        )),
    }
}

pub(crate) fn checked(field: &str, pattern: &str) -> Result<String, FieldError> {
    regex::check(pattern)
        .map_err(|reason| FieldError::new(field, format!("the regular expression {reason}")))?;
    Ok(pattern.to_owned())
}

/// Keeps only the first of several entries with equivalent names (HTTPHeaderMatch.name, HTTPQueryParamMatch.name).
pub(crate) fn distinct<T>(
    entries: &[T],
    name: impl Fn(&T) -> String,
) -> impl Iterator<Item = (usize, &T)> {
    let mut seen = BTreeSet::new();
    entries
        .iter()
        .enumerate()
        .filter(move |(_, entry)| seen.insert(name(entry)))
}

/// The error message for control characters in a header value.
pub(crate) const CONTROLS: &str = "a header value cannot contain control characters";

/// Whether a header value has control characters, which requests can't contain.
pub(crate) fn has_controls(value: &str) -> bool {
    value
        .bytes()
        .any(|byte| byte.is_ascii_control() && byte != b'\t')
}
