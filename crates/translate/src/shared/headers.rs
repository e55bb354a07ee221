//! The headers that configuration may set, add or remove.
//!
//! Envoy frames messages itself and shares connections to backends between clients. A filter that changed framing
//! headers could make a backend read one request's body as another request (request smuggling).

use sesame_model::{HOP_BY_HOP, INTERNAL};

use crate::problem::FieldError;

/// The maximum length of the name of a header or query parameter, in bytes, as in the Gateway API. Envoy's own limits are 16 KiB
/// and 1 KiB.
pub(crate) const MAX_NAME: usize = 256;

/// Whether a text is a token, such as the name of a header (RFC 9110, section 5.6.2), of at most [`MAX_NAME`] bytes.
pub(crate) fn is_token(text: &str) -> bool {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    (1..=MAX_NAME).contains(&text.len()) && text.bytes().all(token)
}

/// Checks that configuration may change the header `name`, in requests and in responses. `field` is the path of the
/// name.
///
/// # Errors
/// If it may not.
pub(crate) fn check_name(field: String, name: &str) -> Result<(), FieldError> {
    let lower = name.to_ascii_lowercase();
    let message = if lower == "host" {
        "the Host header cannot be changed; use a URLRewrite filter with hostname".to_owned()
    } else if lower.starts_with(':') {
        format!("{name:?} is a pseudo-header, which cannot be changed; remove this entry")
    } else if name.len() > MAX_NAME {
        format!(
            "a header name has at most {MAX_NAME} bytes; this one has {}",
            name.len()
        )
    } else if !is_token(name) {
        format!("{name:?} is not a valid header name")
    } else if HOP_BY_HOP.contains(&&*lower) {
        format!(
            "{name} is a framing or hop-by-hop header, which cannot be changed; remove this entry"
        )
    } else if INTERNAL.iter().any(|prefix| lower.starts_with(prefix)) {
        format!("{name} is reserved (cdn-loop, x-envoy-* and x-sesame-*); use another name")
    } else {
        return Ok(());
    };
    Err(FieldError::new(field, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_end_to_end_headers_can_be_changed() {
        for name in [
            "x-a",
            "Content-Type",
            "x-envoy",
            "TE2",
            "set-cookie",
            "!#$%&'*+-.^_`|~",
        ] {
            assert_eq!(check_name("f".to_owned(), name), Ok(()), "{name}");
        }
        let reserved = [
            "Content-LENGTH",
            "CDN-Loop",
            "te",
            "Host",
            ":path",
            "X-Envoy-Retry-On",
            "x-sesame-shard",
        ];
        let long = "x".repeat(257);
        for name in reserved.into_iter().chain(["", "a b", "x:y", "ü", &long]) {
            assert!(check_name("f".to_owned(), name).is_err(), "{name}");
        }
    }
}
