//! String patterns, hand-written because they run for every string of every object.

use super::{Check, ensure, fail};

/// Whether the text is one DNS label of at most 63 characters (RFC 1123).
pub(crate) fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_part(text)
}

/// Lowercase letters, digits and `-`, starting and ending with a letter or digit.
fn is_part(text: &str) -> bool {
    let inner = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(inner) && !text.starts_with('-') && !text.ends_with('-')
}

fn is_subdomain(text: &str) -> bool {
    text.split('.').all(is_part)
}

/// One DNS label of at most 63 characters (RFC 1123).
pub(super) fn label(text: &str) -> Check {
    ensure(
        is_label(text),
        "expected at most 63 characters (a-z, 0-9 and -), starting and ending with a letter or digit",
    )
}

/// DNS labels joined by dots, at most 253 characters (RFC 1123).
pub(super) fn subdomain(text: &str) -> Check {
    ensure(
        text.len() <= 253 && is_subdomain(text),
        "expected at most 253 characters (a-z, 0-9, - and .), each part starting and ending with \
         a letter or digit",
    )
}

/// Whether the text is a valid Gateway API hostname, optionally with a `*.` prefix.
pub fn is_hostname(text: &str) -> bool {
    text.len() <= 253 && is_subdomain(text.strip_prefix("*.").unwrap_or(text))
}

/// Whether the text is a valid Gateway API hostname without a wildcard.
pub fn is_precise_hostname(text: &str) -> bool {
    text.len() <= 253 && is_subdomain(text)
}

/// A hostname, optionally with a `*.` prefix.
pub(super) fn hostname(text: &str) -> Check {
    ensure(
        is_hostname(text),
        "expected a lowercase hostname such as example.com or *.example.com",
    )
}

/// A hostname without a wildcard.
pub(super) fn precise_hostname(text: &str) -> Check {
    ensure(
        is_precise_hostname(text),
        "expected a lowercase hostname such as example.com",
    )
}

/// Whether the text is a valid header name: a token (RFC 9110) of at most 256 characters.
pub fn is_header_name(text: &str) -> bool {
    let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    (1..=256).contains(&text.len()) && text.bytes().all(token)
}

/// The name of a header, query parameter or cookie.
pub(super) fn header_name(text: &str) -> Check {
    ensure(
        is_header_name(text),
        "expected 1 to 256 characters: letters, digits and any of !#$%&'*+-.^_`|~",
    )
}

/// A header value, within the standard channel's bounds. An API server accepts some values that are not valid in a
/// header; translation reports them.
pub(super) fn header_value(text: &str) -> Check {
    length(text, 1, 4096)
}

/// A string of `min` to `max` characters.
pub(super) fn length(text: &str, min: usize, max: usize) -> Check {
    let count = text.chars().count();
    if count < min {
        return fail("must not be empty");
    }
    if count > max {
        return fail(format!(
            "at most {max} characters are allowed, found {count}"
        ));
    }
    Ok(())
}

fn is_span_text(text: &str) -> bool {
    let valid = |b: u8| b.is_ascii_alphanumeric() || b"_.:/-".contains(&b);
    !text.is_empty() && text.bytes().all(valid)
}

/// A service name or an attribute name in spans.
pub(super) fn span_text(text: &str, max: usize) -> Check {
    ensure(
        text.len() <= max && is_span_text(text),
        &format!("expected 1 to {max} characters: letters, digits and any of _.:/-"),
    )
}

/// The name of spans: like [`span_text`], with single spaces between words.
pub(super) fn span_name(text: &str) -> Check {
    ensure(
        text.len() <= 256 && text.split(' ').all(is_span_text),
        "expected 1 to 256 characters: letters, digits, any of _.:/- and single spaces between them",
    )
}

/// An attribute key of OpenTelemetry's semantic conventions.
pub(super) fn attribute_key(text: &str) -> Check {
    let valid = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.-".contains(&b);
    ensure(
        (1..=256).contains(&text.len()) && text.bytes().all(valid),
        "expected 1 to 256 characters: lowercase letters, digits and any of _.-",
    )
}

/// A port number.
pub(super) fn port(port: &u16) -> Check {
    ensure(*port >= 1, "expected a port number from 1 to 65535")
}

/// Whether the text is not empty, and every character and percent-escape is valid in a path (RFC 3986).
fn is_path_text(text: &str) -> bool {
    let mut bytes = text.bytes();
    while let Some(b) = bytes.next() {
        let good = match b {
            b'%' => {
                let mut hex = || bytes.next().is_some_and(|b| b.is_ascii_hexdigit());
                hex() && hex()
            }
            _ => b.is_ascii_alphanumeric() || b"-/._~!$&'()*+,;=:@".contains(&b),
        };
        if !good {
            return false;
        }
    }
    !text.is_empty()
}

/// Text that is valid in a path.
pub(super) fn path_text(text: &str) -> Check {
    ensure(
        is_path_text(text),
        "expected a path with only letters, digits, percent-encoded characters such as %20 and \
         any of -/._~!$&'()*+,;=:@",
    )
}

/// A path to match literally: absolute and normalized.
pub(super) fn literal_path(text: &str) -> Check {
    ensure(text.starts_with('/'), "a path must start with /")?;
    for part in ["//", "/./", "/../", "%2f", "%2F", "#"] {
        if text.contains(part) {
            return fail(format!("a path must not contain {part}"));
        }
    }
    for end in ["/..", "/."] {
        if text.ends_with(end) {
            return fail(format!("a path must not end with {end}"));
        }
    }
    path_text(text)
}

/// A group in a reference; empty for the core group.
pub(super) fn group(text: &str) -> Check {
    if text.is_empty() {
        Ok(())
    } else {
        subdomain(text)
    }
}

/// A kind in a reference.
pub(super) fn kind(text: &str) -> Check {
    let inner = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    ensure(
        (1..=63).contains(&text.len())
            && text.bytes().all(inner)
            && text.starts_with(|c: char| c.is_ascii_alphabetic())
            && !text.ends_with('-'),
        "expected a kind such as Service",
    )
}

/// `domain/path`, as in controller names and implementation-specific values.
pub(super) fn domain_path(text: &str) -> Check {
    let tail = |b: u8| b.is_ascii_alphanumeric() || b"/-._~%!$&'()*+,;=:".contains(&b);
    let good = text.split_once('/').is_some_and(|(domain, path)| {
        is_subdomain(domain) && !path.is_empty() && path.bytes().all(tail)
    });
    ensure(
        text.len() <= 253 && good,
        "expected a domain-prefixed path such as example.com/name",
    )
}

/// The key of a label or annotation: a name of at most 63 characters, optionally with a `domain/` prefix.
pub(super) fn qualified_key(text: &str) -> Check {
    let (prefix, name) = match text.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, text),
    };
    ensure(
        prefix.is_none_or(|prefix| prefix.len() < 253 && is_subdomain(prefix))
            && is_qualified_name(name),
        "expected a key such as name or example.com/name",
    )
}

/// The value of a label.
pub(super) fn label_value(text: &str) -> Check {
    ensure(
        text.is_empty() || is_qualified_name(text),
        "expected at most 63 characters (letters, digits, -, _ and .), starting and ending with a \
         letter or digit",
    )
}

fn is_qualified_name(text: &str) -> bool {
    let edge = |c: char| c.is_ascii_alphanumeric();
    (1..=63).contains(&text.len())
        && text
            .bytes()
            .all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
        && text.starts_with(edge)
        && text.ends_with(edge)
}

/// `*` or `scheme://host[:port]`; the host may have a `*.` prefix.
pub(super) fn cors_origin(text: &str) -> Check {
    let host = |host: &str| {
        let part = |part: &str| {
            !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        };
        host == "*" || host.strip_prefix("*.").unwrap_or(host).split('.').all(part)
    };
    let port =
        |port: &str| (1..=5).contains(&port.len()) && port.bytes().all(|b| b.is_ascii_digit());
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"));
    let good = rest.is_some_and(|rest| match rest.split_once(':') {
        Some((name, number)) => host(name) && port(number),
        None => host(rest),
    });
    ensure(
        text == "*" || (text.len() <= 253 && good),
        "expected * or an origin such as https://example.com or http://*.example.com:8080",
    )
}

/// A URI with a scheme.
pub(super) fn absolute_uri(text: &str) -> Check {
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    ensure(
        text.len() <= 253 && !scheme.is_empty() && !scheme.contains(['/', '?', '#']),
        "expected a URI with a scheme, such as spiffe://example.com/name",
    )
}
