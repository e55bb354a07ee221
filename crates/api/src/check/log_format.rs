//! Formats of access logs: text with Envoy's command operators. Envoy rejects listeners with an invalid format.

use super::{Check, ensure, fail};

/// The operators without an argument.
const PLAIN: &[&str] = &[
    "BYTES_RECEIVED",
    "BYTES_SENT",
    "CONNECTION_ID",
    "CONNECTION_TERMINATION_DETAILS",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_DIRECT_REMOTE_PORT",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_REMOTE_PORT",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_VERSION",
    "DOWNSTREAM_TRANSPORT_FAILURE_REASON",
    "DURATION",
    "FILTER_CHAIN_NAME",
    "GRPC_STATUS",
    "HOSTNAME",
    "PROTOCOL",
    "REQUESTED_SERVER_NAME",
    "REQUEST_DURATION",
    "REQUEST_HEADERS_BYTES",
    "REQUEST_TX_DURATION",
    "RESPONSE_CODE",
    "RESPONSE_CODE_DETAILS",
    "RESPONSE_DURATION",
    "RESPONSE_FLAGS",
    "RESPONSE_FLAGS_LONG",
    "RESPONSE_HEADERS_BYTES",
    "RESPONSE_TRAILERS_BYTES",
    "RESPONSE_TX_DURATION",
    "ROUTE_NAME",
    "START_TIME",
    "STREAM_ID",
    "TRACE_ID",
    "UPSTREAM_CLUSTER",
    "UPSTREAM_CONNECTION_ID",
    "UPSTREAM_HOST",
    "UPSTREAM_LOCAL_ADDRESS",
    "UPSTREAM_PROTOCOL",
    "UPSTREAM_REMOTE_ADDRESS",
    "UPSTREAM_REQUEST_ATTEMPT_COUNT",
    "UPSTREAM_TLS_CIPHER",
    "UPSTREAM_TLS_VERSION",
    "UPSTREAM_TRANSPORT_FAILURE_REASON",
    "UPSTREAM_WIRE_BYTES_RECEIVED",
    "UPSTREAM_WIRE_BYTES_SENT",
];

/// The operators whose argument is a header, optionally with a maximum length: `%REQ(user-agent):100%`.
const OF_HEADERS: &[&str] = &["REQ", "RESP", "TRAILER"];

/// The conversion specifiers in the argument of `START_TIME`.
const OF_TIME: &str = "YmdHMSFTfszZe";

/// The characters between conversion specifiers, as in a character class; `-` is last.
const BETWEEN: &str = "A-Za-z0-9 .,:/_+-";

/// The maximum number of fields, and the maximum length of a format.
const MAX_FIELDS: usize = 64;
const MAX_LENGTH: usize = 4096;

/// The pattern of formats in the CRD.
#[cfg(feature = "schema")]
pub(crate) fn pattern() -> String {
    let plain = PLAIN.join("|");
    let of_headers = OF_HEADERS.join("|");
    let header = r":?[A-Za-z0-9_-]{1,128}(\?:?[A-Za-z0-9_-]{1,128})?";
    format!(
        r"^([^%]|%%|%({plain})%|%({of_headers})\({header}\)(:[0-9]{{1,5}})?%|%START_TIME\((%[1-9]?[{OF_TIME}]|[{BETWEEN}])+\)%)*$"
    )
}

/// The schema of a JSON format.
#[cfg(feature = "schema")]
pub(crate) fn fields_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
    schemars::json_schema!({
        "type": "object",
        "maxProperties": MAX_FIELDS,
        "additionalProperties": {"type": "string", "maxLength": MAX_LENGTH, "pattern": pattern()},
    })
}

/// The format of a text entry.
pub(super) fn text(format: &str) -> Check {
    super::text::length(format, 1, MAX_LENGTH)?;
    operators(format)
}

/// The fields of a JSON entry.
pub(super) fn fields(fields: &std::collections::BTreeMap<String, String>) -> Check {
    ensure(
        fields.len() <= MAX_FIELDS,
        &format!("at most {MAX_FIELDS} fields are allowed"),
    )?;
    fields.iter().try_for_each(|(name, format)| {
        let check = super::text::length(format, 0, MAX_LENGTH).and_then(|()| operators(format));
        super::at(name, check)
    })
}

fn operators(format: &str) -> Check {
    let mut rest = format;
    while let Some((_, from)) = rest.split_once('%') {
        if let Some(after) = from.strip_prefix('%') {
            rest = after;
            continue;
        }
        let Some(after) = operator(from) else {
            let start: String = from.chars().take(40).collect();
            return fail(format!(
                "%{start} doesn't start with a supported command operator; double literal percent signs, or use one of \
                 {}, or one of {} followed by a header name in parentheses, such as %REQ(user-agent)%",
                PLAIN.join(", "),
                OF_HEADERS.join(", "),
            ));
        };
        rest = after;
    }
    Ok(())
}

/// The text after the operator whose text, without the first percent sign, `from` starts with.
fn operator(from: &str) -> Option<&str> {
    let name_end = from.find(|c: char| !c.is_ascii_uppercase() && !c.is_ascii_digit() && c != '_');
    let (name, after) = from.split_at(name_end?);
    if let Some(after) = after.strip_prefix('%') {
        return PLAIN.contains(&name).then_some(after);
    }
    let (argument, after) = after.strip_prefix('(')?.split_once(')')?;
    if name == "START_TIME" {
        return is_time(argument).then_some(after)?.strip_prefix('%');
    }
    let valid = OF_HEADERS.contains(&name) && is_header(argument);
    let after = valid.then_some(after)?;
    let (length, after) = after.split_once('%')?;
    let digits = |text: &str| {
        (1..=5).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let valid = length.is_empty() || length.strip_prefix(':').is_some_and(digits);
    valid.then_some(after)
}

/// A header's name, optionally followed by another one, which replaces it if it is missing.
fn is_header(argument: &str) -> bool {
    let (first, second) = match argument.split_once('?') {
        Some((first, second)) => (first, Some(second)),
        None => (argument, None),
    };
    let name = |text: &str| {
        let text = text.strip_prefix(':').unwrap_or(text);
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
        (1..=128).contains(&text.len()) && text.bytes().all(valid)
    };
    name(first) && second.is_none_or(name)
}

fn is_time(argument: &str) -> bool {
    let mut rest = argument.chars();
    while let Some(next) = rest.next() {
        let valid = match next {
            '%' => match rest.next() {
                Some('1'..='9') => rest.next().is_some_and(|next| OF_TIME.contains(next)),
                Some(next) => OF_TIME.contains(next),
                None => false,
            },
            next => next.is_ascii_alphanumeric() || BETWEEN.contains(next),
        };
        if !valid {
            return false;
        }
    }
    !argument.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_consist_of_text_and_supported_operators() {
        for valid in [
            "plain",
            "100%%",
            "%START_TIME% %REQ(:METHOD)% %REQ(X-ENVOY-ORIGINAL-PATH?:PATH)% %RESPONSE_CODE%\n",
            "%START_TIME(%Y-%m-%dT%H:%M:%S.%3fZ)%%%",
            "%REQ(user-agent):100%%RESP(server)%",
            "é%PROTOCOL%é",
        ] {
            assert!(text(valid).is_ok(), "{valid}");
        }
        for invalid in [
            "",
            "%",
            "100%",
            "%PROTOCOL",
            "%UNKNOWN%",
            "%protocol%",
            "%PROTOCOL()%",
            "%REQ%",
            "%REQ()%",
            "%REQ(a b)%",
            "%REQ(a?b?c)%",
            "%REQ(a):%",
            "%REQ(a):123456%",
            "%REQ(a)b%",
            "%START_TIME()%",
            "%START_TIME(%n)%",
            "%START_TIME(%)%",
            "%START_TIME(a",
        ] {
            assert!(text(invalid).is_err(), "{invalid}");
        }
    }
}
