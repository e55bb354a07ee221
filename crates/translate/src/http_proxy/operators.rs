//! References in header values, such as `%REQ(x-id)%`.
//!
//! Only some of Envoy's command operators are allowed, since the rest could expose data that a tenant must not see. All
//! other percent signs are literal.

use std::fmt::Write as _;

use super::text::{MAX_TEXT, check_value};

/// The allowed operators without arguments.
const OPERATORS: [&str; 26] = [
    "DOWNSTREAM_DIRECT_REMOTE_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS",
    "DOWNSTREAM_LOCAL_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_LOCAL_PORT",
    "DOWNSTREAM_LOCAL_SUBJECT",
    "DOWNSTREAM_LOCAL_URI_SAN",
    "DOWNSTREAM_PEER_CERT",
    "DOWNSTREAM_PEER_CERT_V_END",
    "DOWNSTREAM_PEER_CERT_V_START",
    "DOWNSTREAM_PEER_FINGERPRINT_1",
    "DOWNSTREAM_PEER_FINGERPRINT_256",
    "DOWNSTREAM_PEER_ISSUER",
    "DOWNSTREAM_PEER_SERIAL",
    "DOWNSTREAM_PEER_SUBJECT",
    "DOWNSTREAM_PEER_URI_SAN",
    "DOWNSTREAM_REMOTE_ADDRESS",
    "DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT",
    "DOWNSTREAM_TLS_CIPHER",
    "DOWNSTREAM_TLS_SESSION_ID",
    "DOWNSTREAM_TLS_VERSION",
    "HOSTNAME",
    "PROTOCOL",
    "RESPONSE_CODE",
    "RESPONSE_CODE_DETAILS",
    "RESPONSE_FLAGS",
    "UPSTREAM_REMOTE_ADDRESS",
];

/// Values for Sesame's own references, such as `%SESAME_NAMESPACE%`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Names<'a> {
    pub(super) namespace: &'a str,
    /// The Service and its port, if the header value applies to a single Service.
    pub(super) service: Option<(&'a str, u16)>,
}

/// The maximum length of a value after references are replaced and percent signs are doubled. Envoy's limit is 16,384
/// bytes; the percent signs in a plain value are doubled later.
const MAX_EXPANDED: usize = 2 * MAX_TEXT;

/// The length in bytes after which Envoy cuts off the value of a header that replaces a reference.
const MAX_HEADER: usize = 8_192;
/// The maximum number of references in the values of a policy, so that a request doesn't become many times as large.
pub(super) const MAX_REFERENCES: usize = 32;

/// The value of a header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum HeaderText {
    /// Sent unchanged.
    Plain(String),
    /// Contains references that Envoy replaces; all other percent signs are doubled.
    Computed { value: String, references: usize },
}

/// Reads the value of a header.
///
/// # Errors
/// If the value isn't valid in a header, or is too long.
pub(super) fn read(value: &str, names: Names<'_>) -> Result<HeaderText, String> {
    check_value(value)?;
    let text = expanded(value, names);
    let (HeaderText::Plain(expanded)
    | HeaderText::Computed {
        value: expanded, ..
    }) = &text;
    match expanded.len() > MAX_EXPANDED {
        true => Err(format!(
            "is longer than {MAX_EXPANDED} bytes after its operators are expanded; use a shorter value"
        )),
        false => Ok(text),
    }
}

fn expanded(value: &str, names: Names<'_>) -> HeaderText {
    let mut plain = String::with_capacity(value.len());
    let mut computed = None;
    let mut references = 0;
    let mut rest = value;
    while let Some(start) = rest.find('%') {
        let (literal, from) = rest.split_at(start);
        push(&mut plain, &mut computed, literal);
        let inner = &from[1..];
        let end = inner.find('%');
        let reference = end.and_then(|end| inner.get(..end)).unwrap_or_default();
        if let Some(text) = own(reference, names) {
            push(&mut plain, &mut computed, &text);
            rest = &inner[reference.len() + 1..];
        } else if is_operator(reference) {
            let computed = computed.get_or_insert_with(|| plain.replace('%', "%%"));
            references += 1;
            // Writing to a string can't fail.
            let _ = match argument(reference) {
                Some(_) => write!(computed, "%{reference}:{MAX_HEADER}%"),
                None => write!(computed, "%{reference}%"),
            };
            rest = &inner[reference.len() + 1..];
        } else {
            push(&mut plain, &mut computed, "%");
            rest = inner;
        }
    }
    push(&mut plain, &mut computed, rest);
    match computed {
        Some(value) => HeaderText::Computed { value, references },
        None => HeaderText::Plain(plain),
    }
}

/// The header name in `%REQ(name)%`, if the value consists only of this reference.
pub(super) fn request_header(value: &str) -> Option<&str> {
    let reference = value.strip_prefix('%')?.strip_suffix('%')?;
    argument(reference)
}

fn push(plain: &mut String, computed: &mut Option<String>, literal: &str) {
    match computed {
        Some(computed) => computed.push_str(&literal.replace('%', "%%")),
        None => plain.push_str(literal),
    }
}

/// The text for one of Sesame's own references. The prefix `CONTOUR_` supports older configurations.
fn own(reference: &str, names: Names<'_>) -> Option<String> {
    let name = reference
        .strip_prefix("SESAME_")
        .or_else(|| reference.strip_prefix("CONTOUR_"))?;
    match (name, names.service) {
        ("NAMESPACE", _) => Some(names.namespace.to_owned()),
        ("SERVICE_NAME", Some((service, _))) => Some(service.to_owned()),
        ("SERVICE_PORT", Some((_, port))) => Some(port.to_string()),
        _ => None,
    }
}

fn is_operator(reference: &str) -> bool {
    OPERATORS.contains(&reference) || argument(reference).is_some()
}

/// The argument of `REQ(…)`.
fn argument(reference: &str) -> Option<&str> {
    let name = reference.strip_prefix("REQ(")?.strip_suffix(')')?;
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    (!name.is_empty() && name.bytes().all(valid)).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names<'_> = Names {
        namespace: "shop",
        service: Some(("api", 80)),
    };

    fn plain(text: &str) -> HeaderText {
        HeaderText::Plain(text.to_owned())
    }

    fn computed(text: &str) -> HeaderText {
        HeaderText::Computed {
            value: text.to_owned(),
            references: 1,
        }
    }

    #[test]
    fn only_listed_operators_are_references() {
        for (value, expected) in [
            ("plain", plain("plain")),
            ("100%", plain("100%")),
            ("50% of %", plain("50% of %")),
            ("%%", plain("%%")),
            ("%START_TIME%", plain("%START_TIME%")),
            ("%REQ(:path)%", plain("%REQ(:path)%")),
            ("%REQ(a b)%", plain("%REQ(a b)%")),
            ("%REQ(x-id)%", computed("%REQ(x-id):8192%")),
            ("5% %HOSTNAME% 6%", computed("5%% %HOSTNAME% 6%%")),
            ("%%HOSTNAME%", computed("%%%HOSTNAME%")),
            ("%a%PROTOCOL%b%", computed("%%a%PROTOCOL%b%%")),
            ("é%HOSTNAME%é", computed("é%HOSTNAME%é")),
        ] {
            assert_eq!(read(value, NAMES), Ok(expected), "{value}");
        }
    }

    #[test]
    fn long_values_are_errors() {
        let percent = "%".repeat(4_096);
        assert_eq!(read(&percent, NAMES), Ok(plain(&percent)));
        assert!(read(&"a".repeat(4_097), NAMES).is_err());
        let service = "s".repeat(250);
        let names = Names {
            namespace: "shop",
            service: Some((&service, 80)),
        };
        assert!(read(&"%SESAME_SERVICE_NAME%".repeat(32), names).is_ok());
        assert!(read(&"%SESAME_SERVICE_NAME%".repeat(33), names).is_err());
    }

    #[test]
    fn names_of_own_objects_are_filled_in() {
        let value = "%SESAME_NAMESPACE%/%CONTOUR_SERVICE_NAME%:%SESAME_SERVICE_PORT%";
        assert_eq!(read(value, NAMES), Ok(plain("shop/api:80")));
        let of_route = Names {
            service: None,
            ..NAMES
        };
        assert_eq!(
            read("%SESAME_SERVICE_NAME% %CONTOUR_NAMESPACE%", of_route),
            Ok(plain("%SESAME_SERVICE_NAME% shop"))
        );
        assert_eq!(read("%SESAME_OTHER%", NAMES), Ok(plain("%SESAME_OTHER%")));
    }
}
