//! Checks on strings.

/// The maximum length of a header value, of a path, and of the text or expression in a condition, in bytes.
pub(super) const MAX_TEXT: usize = 4_096;

/// Checks that a text is valid in a header value.
///
/// # Errors
/// Why the text isn't valid, as a clause that follows the field.
pub(super) fn check_value(text: &str) -> Result<(), String> {
    if text.len() > MAX_TEXT {
        return Err(format!(
            "is longer than {MAX_TEXT} bytes; use a shorter value"
        ));
    }
    match has_controls(text) {
        true => Err(CONTROLS.to_owned()),
        false => Ok(()),
    }
}

/// Why a header value is invalid.
pub(super) const CONTROLS: &str =
    "contains control characters, which are not valid in headers; remove them";

/// Whether a text contains control characters.
pub(super) fn has_controls(text: &str) -> bool {
    text.bytes().any(|byte| byte.is_ascii_control())
}

/// Whether a text may be the value of a Host header.
pub(super) fn is_authority(text: &str) -> bool {
    let valid = |byte: u8| byte.is_ascii_alphanumeric() || b"-._:[]".contains(&byte);
    !text.is_empty() && text.len() <= 255 && text.bytes().all(valid)
}

/// Whether a text is an absolute path of at most [`MAX_TEXT`] bytes, without a query.
pub(super) fn is_path(text: &str) -> bool {
    let valid = |byte: u8| !byte.is_ascii_control() && !matches!(byte, b' ' | b'?' | b'#');
    text.starts_with('/') && text.len() <= MAX_TEXT && text.bytes().all(valid)
}

/// What [`is_path`] expects.
pub(super) const PATH: &str = "expected a path of at most 4096 bytes that starts with / and has no query, fragment, spaces or control characters";
