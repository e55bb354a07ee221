//! Matchers for headers and query parameters.

use sesame_api::{HeaderMatchCondition, QueryParameterMatchCondition};
use sesame_model::{HeaderMatch, QueryMatch, TextMatch, TextPosition, ValueMatch};

use crate::http_proxy::text::{check_value, has_controls};
use crate::shared::headers::{MAX_NAME, is_token};
use crate::shared::regex;

/// The pseudo-headers that a header condition can match.
pub(in crate::http_proxy) const PSEUDO_HEADERS: [&str; 4] =
    [":authority", ":method", ":path", ":scheme"];

/// The maximum length of a text anywhere in a value, in bytes.
const MAX_CONTAINED: usize = 256;

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
        "contains" => containing(matcher, text, ignore_case)?,
        "notcontains" => negated(containing(matcher, text, ignore_case)?),
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
    Ok(QueryMatch {
        name: source.name.to_string(),
        value: match matcher {
            "exact" => equal(matcher, text, ignore_case)?,
            "prefix" => at(matcher, text, TextPosition::Start, ignore_case)?,
            "suffix" => at(matcher, text, TextPosition::End, ignore_case)?,
            "regex" => pattern(text)?,
            "contains" => containing(matcher, text, ignore_case)?,
            _ => ValueMatch::Present,
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

/// A text anywhere in a value, as an expression: the time for it is linear and counted. Envoy's own search takes a
/// millisecond for a long text that almost occurs at each position of a long value.
fn containing(matcher: &str, text: &str, ignore_case: bool) -> Result<ValueMatch, String> {
    check(matcher, text)?;
    if text.len() > MAX_CONTAINED {
        return Err(format!(
            "{matcher} is longer than {MAX_CONTAINED} bytes; use a shorter text"
        ));
    }
    let mut pattern = "(?s).*".to_owned();
    for char in text.chars() {
        match ignore_case && char.is_ascii_alphabetic() {
            true => pattern.extend([
                '[',
                char.to_ascii_lowercase(),
                char.to_ascii_uppercase(),
                ']',
            ]),
            false => pattern.push_str(&regex_syntax::escape(char.encode_utf8(&mut [0; 4]))),
        }
    }
    Ok(ValueMatch::Regex(pattern + ".*"))
}

fn check(matcher: &str, text: &str) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("{matcher} must not be empty; use present instead"));
    }
    check_value(text).map_err(|why| format!("{matcher} {why}"))
}

fn at(
    matcher: &str,
    text: &str,
    position: TextPosition,
    ignore_case: bool,
) -> Result<ValueMatch, String> {
    check(matcher, text)?;
    Ok(ValueMatch::Text(Box::new(TextMatch {
        text: text.to_owned(),
        position,
        ignore_case,
    })))
}

fn equal(matcher: &str, text: &str, ignore_case: bool) -> Result<ValueMatch, String> {
    match ignore_case && !text.is_empty() {
        true => at(matcher, text, TextPosition::Whole, true),
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
