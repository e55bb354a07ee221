//! HTTPRouteMatch → [`RouteMatch`].

use std::collections::BTreeSet;

use sesame_api::{HttpMethod, HttpPathMatch, HttpRouteMatch, MatchType, PathMatchType};
use sesame_model::{HeaderMatch, PathMatch, QueryMatch, RouteMatch, ValueMatch};

use crate::gateway_api::problem::FieldError;
use crate::shared::regex;

/// What a rule with an empty list of matches takes.
pub(super) fn everything() -> RouteMatch {
    RouteMatch {
        path: PathMatch::Prefix("/".to_owned()),
        method: None,
        headers: Vec::new(),
        query: Vec::new(),
        share: None,
    }
}

/// Reads one match. `field` is where it stands.
///
/// # Errors
/// What can't be matched as written.
pub(super) fn read(field: &str, source: &HttpRouteMatch) -> Result<RouteMatch, FieldError> {
    let headers = distinct(&source.headers, |header| header.name.to_ascii_lowercase());
    let query = distinct(&source.query_params, |param| param.name.to_string());
    Ok(RouteMatch {
        path: read_path(&format!("{field}.path"), &source.path)?,
        method: source
            .method
            .as_ref()
            .map(|method| read_method(&format!("{field}.method"), method))
            .transpose()?,
        headers: headers
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
            .collect::<Result<_, _>>()?,
        query: query
            .map(|(index, param)| {
                let field = format!("{field}.queryParams[{index}]");
                Ok(QueryMatch {
                    name: param.name.to_string(),
                    value: read_value(&field, &param.type_, &param.value)?,
                })
            })
            .collect::<Result<_, _>>()?,
        share: None,
    })
}

/// What is said of a header's value that can't be one.
pub(super) const CONTROLS: &str = "a header's value can't have control characters";

/// Whether a text can't be a header's value: no request has one with a line break in it.
pub(super) fn has_controls(value: &str) -> bool {
    value
        .bytes()
        .any(|byte| byte.is_ascii_control() && byte != b'\t')
}

/// A method that nobody knows makes what names it impossible, whether requests with it exist or not (HTTPMethod).
///
/// # Errors
/// If it is none of the API's.
pub(super) fn read_method(field: &str, method: &HttpMethod) -> Result<String, FieldError> {
    match method {
        HttpMethod::Other(other) => Err(FieldError::new(
            field,
            format!(
                "unknown method {other:?}; known are {}",
                HttpMethod::KNOWN.join(", ")
            ),
        )),
        known => Ok(known.as_str().to_owned()),
    }
}

fn read_path(field: &str, path: &HttpPathMatch) -> Result<PathMatch, FieldError> {
    let value = &*path.value;
    match &path.type_ {
        PathMatchType::Exact => Ok(PathMatch::Exact(value.to_owned())),
        PathMatchType::PathPrefix => Ok(PathMatch::Prefix(match value.trim_end_matches('/') {
            "" => "/".to_owned(),
            prefix => prefix.to_owned(),
        })),
        PathMatchType::RegularExpression => {
            Ok(PathMatch::Regex(checked(&format!("{field}.value"), value)?))
        }
        PathMatchType::Other(other) => Err(FieldError::new(
            format!("{field}.type"),
            format!("unknown type {other:?}; known are Exact, PathPrefix and RegularExpression"),
        )),
    }
}

fn read_value(field: &str, match_type: &MatchType, value: &str) -> Result<ValueMatch, FieldError> {
    match match_type {
        MatchType::Exact => Ok(ValueMatch::Exact(value.to_owned())),
        MatchType::RegularExpression => Ok(ValueMatch::Regex(checked(
            &format!("{field}.value"),
            value,
        )?)),
        MatchType::Other(other) => Err(FieldError::new(
            format!("{field}.type"),
            format!("unknown type {other:?}; known are Exact and RegularExpression"),
        )),
    }
}

fn checked(field: &str, pattern: &str) -> Result<String, FieldError> {
    regex::check(pattern)
        .map_err(|reason| FieldError::new(field, format!("the regular expression {reason}")))?;
    Ok(pattern.to_owned())
}

/// Of entries with an equivalent name only the first counts (HTTPHeaderMatch.name, HTTPQueryParamMatch.name).
fn distinct<T>(entries: &[T], name: impl Fn(&T) -> String) -> impl Iterator<Item = (usize, &T)> {
    let mut seen = BTreeSet::new();
    entries
        .iter()
        .enumerate()
        .filter(move |(_, entry)| seen.insert(name(entry)))
}
