//! Matchers for headers and query parameters.

use sesame_api::{HeaderMatchCondition, QueryParameterMatchCondition};
use sesame_model::{HeaderMatch, QueryMatch, TextMatch, TextPosition, ValueMatch};

use crate::http_proxy::text::{check_value, has_controls};
use crate::shared::headers::{MAX_NAME, is_token};
use crate::shared::regex;

/// The pseudo-headers that a header condition can match.
pub(in crate::http_proxy) const PSEUDO_HEADERS: [&str; 4] =
    [":authority", ":method", ":path", ":scheme"];

/// Reads a condition on a header.
pub(in crate::http_proxy) fn header(source: &HeaderMatchCondition) -> Result<HeaderMatch, String> {
    let name = &*source.name;
    if !is_token(name) && !PSEUDO_HEADERS.contains(&name) {
        return Err(format!("name: {name:?} is not a valid header name"));
    }
    let matchers = [
        source.present.then_some(("present", "")),
        source.not_present.then_some(("notpresent", "")),
        source.contains.as_deref().map(|text| ("contains", text)),
        source
            .not_contains
            .as_deref()
            .map(|text| ("notcontains", text)),
        source.exact.as_deref().map(|text| ("exact", text)),
        source.not_exact.as_deref().map(|text| ("notexact", text)),
        source.regex.as_deref().map(|text| ("regex", text)),
    ];
    let (matcher, text) = only(&matchers)?;
    let ignore_case = source.ignore_case;
    let negated = |value: ValueMatch| match source.treat_missing_as_empty {
        true => ValueMatch::NotOrAbsent(Box::new(value)),
        false => ValueMatch::Not(Box::new(value)),
    };
    if source.treat_missing_as_empty && !matcher.starts_with("not") {
        return Err(format!(
            "treatMissingAsEmpty is not valid with {matcher}; use it with notcontains or notexact"
        ));
    }
    let value = match matcher {
        "present" => ValueMatch::Present,
        "notpresent" => ValueMatch::Absent,
        "contains" => containing(matcher, text, TextPosition::Anywhere, ignore_case)?,
        "notcontains" => negated(containing(
            matcher,
            text,
            TextPosition::Anywhere,
            ignore_case,
        )?),
        "exact" => equal(matcher, text, ignore_case)?,
        "notexact" => negated(equal(matcher, text, ignore_case)?),
        _ => pattern(text)?,
    };
    Ok(HeaderMatch {
        name: name.to_ascii_lowercase(),
        value,
    })
}

/// Reads a condition on a query parameter.
pub(super) fn parameter(source: &QueryParameterMatchCondition) -> Result<QueryMatch, String> {
    if !(1..=MAX_NAME).contains(&source.name.len()) || has_controls(&source.name) {
        return Err(format!(
            "name: expected the name of a query parameter, of at most {MAX_NAME} bytes"
        ));
    }
    let matchers = [
        source.exact.as_deref().map(|text| ("exact", text)),
        source.prefix.as_deref().map(|text| ("prefix", text)),
        source.suffix.as_deref().map(|text| ("suffix", text)),
        source.regex.as_deref().map(|text| ("regex", text)),
        source.contains.as_deref().map(|text| ("contains", text)),
        source.present.then_some(("present", "")),
    ];
    let (matcher, text) = only(&matchers)?;
    let ignore_case = source.ignore_case;
    if ignore_case && matches!(matcher, "regex" | "present") {
        return Err(format!("ignoreCase is not valid with {matcher}; remove it"));
    }
    let position = match matcher {
        "prefix" => TextPosition::Start,
        "suffix" => TextPosition::End,
        _ => TextPosition::Anywhere,
    };
    Ok(QueryMatch {
        name: source.name.to_string(),
        value: match matcher {
            "exact" => equal(matcher, text, ignore_case)?,
            "regex" => pattern(text)?,
            "present" => ValueMatch::Present,
            _ => containing(matcher, text, position, ignore_case)?,
        },
    })
}

/// Returns the only matcher of a condition; an error if it has none or several.
fn only<'a>(
    matchers: &[Option<(&'static str, &'a str)>],
) -> Result<(&'static str, &'a str), String> {
    let mut set = matchers.iter().flatten();
    let (first, second) = (set.next(), set.next());
    match (first, second) {
        (Some(matcher), None) => Ok(*matcher),
        (None, _) => Err("has no matcher; set one, such as exact".to_owned()),
        (Some((a, _)), Some((b, _))) => Err(format!(
            "{a} and {b} are mutually exclusive; use a separate condition for each"
        )),
    }
}

fn containing(
    matcher: &str,
    text: &str,
    position: TextPosition,
    ignore_case: bool,
) -> Result<ValueMatch, String> {
    if text.is_empty() {
        return Err(format!("{matcher} must not be empty; use present instead"));
    }
    check_value(text).map_err(|why| format!("{matcher} {why}"))?;
    Ok(ValueMatch::Text(Box::new(TextMatch {
        text: text.to_owned(),
        position,
        ignore_case,
    })))
}

fn equal(matcher: &str, text: &str, ignore_case: bool) -> Result<ValueMatch, String> {
    match ignore_case && !text.is_empty() {
        true => containing(matcher, text, TextPosition::Whole, true),
        false => {
            check_value(text).map_err(|why| format!("{matcher} {why}"))?;
            Ok(ValueMatch::Exact(text.to_owned()))
        }
    }
}

fn pattern(text: &str) -> Result<ValueMatch, String> {
    match regex::check(text) {
        Ok(()) => Ok(ValueMatch::Regex(text.to_owned())),
        Err(reason) => Err(format!("the regular expression {reason}")),
    }
}
