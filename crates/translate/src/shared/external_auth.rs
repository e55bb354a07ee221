//! External authorization, shared by all configuration sources.

use std::time::Duration;

use sesame_model::{AuthProtocol, List, TextMatch, TextPosition};

/// The default timeout for a check.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum size of a body that is sent to a service, in bytes: Envoy holds the body in memory, and several users
/// may share the Envoy.
pub(crate) const MAX_BODY: u32 = 8 << 20;

/// The error for an invalid path prefix.
pub(crate) const PATH_PREFIX: &str =
    "a path cannot contain a query, a fragment, spaces or control characters";

/// The path prefix with a leading slash, and without a trailing one, since the request's path starts with a slash.
/// `None` if it is invalid; the message is [`PATH_PREFIX`].
pub(crate) fn path_prefix(path: &str) -> Option<String> {
    let outside = |byte: u8| !byte.is_ascii_graphic() || matches!(byte, b'?' | b'#');
    if path.bytes().any(outside) {
        return None;
    }
    let path = path.trim_matches('/');
    Some(match path.is_empty() {
        true => String::new(),
        false => format!("/{path}"),
    })
}

/// Header names, which are case-insensitive.
pub(crate) fn names(text: &str, position: TextPosition) -> TextMatch {
    TextMatch {
        text: text.to_owned(),
        position,
        ignore_case: true,
    }
}

/// The size of the path prefix and of the header names, in bytes.
pub(crate) fn size(protocol: &AuthProtocol) -> usize {
    let all = |names: &[TextMatch]| names.iter().map(|name| name.text.len()).sum::<usize>();
    match protocol {
        AuthProtocol::Grpc {
            request_headers: List::Only(names),
        } => names.iter().map(String::len).sum(),
        AuthProtocol::Grpc { .. } | AuthProtocol::GrpcWithContext(_) => 0,
        AuthProtocol::Http {
            path_prefix,
            request_headers,
            response_headers,
        } => {
            let response_headers = response_headers.as_deref().unwrap_or_default();
            path_prefix.len() + all(request_headers) + all(response_headers)
        }
    }
}

/// The headers that only the service may set: those copied from its response but not sent to it. Otherwise, a client's
/// value would reach the backend if the service doesn't set one. Patterns are excluded, since headers can't be removed
/// by pattern.
pub(crate) fn exclusive(protocol: &AuthProtocol) -> impl Iterator<Item = &String> {
    let (copied, seen) = match protocol {
        AuthProtocol::Http {
            request_headers,
            response_headers: Some(copied),
            ..
        } => (&copied[..], &request_headers[..]),
        _ => (&[][..], &[][..]),
    };
    let whole = copied
        .iter()
        .filter(|copied| copied.position == TextPosition::Whole);
    whole.map(|copied| &copied.text).filter(move |name| {
        !name.eq_ignore_ascii_case("authorization") && !seen.iter().any(|seen| covers(seen, name))
    })
}

/// Whether a header has one of the names.
fn covers(names: &TextMatch, name: &str) -> bool {
    let (text, name) = (names.text.to_ascii_lowercase(), name.to_ascii_lowercase());
    match names.position {
        TextPosition::Whole => name == text,
        TextPosition::Start => name.starts_with(&text),
        TextPosition::End => name.ends_with(&text),
        TextPosition::Anywhere => name.contains(&text),
    }
}
