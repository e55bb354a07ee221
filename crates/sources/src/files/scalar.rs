//! Resolves unquoted YAML scalars as kubectl does (sigs.k8s.io/yaml, which follows YAML 1.1 with a few exceptions):
//!
//! - `y yes on true` and `n no off false`, in the three usual capitalizations, are booleans;
//! - `010` and `0o10` are 8, `0x10` is 16, `0b10` is 2, and underscores in numbers are ignored;
//! - `08` is not octal, so it is the decimal 8;
//! - a number with a zero fraction is an integer in JSON: `1.0` and `1e0` are 1;
//! - dates stay strings, and base-60 numbers are not supported;
//! - an empty scalar, `~` and `null` are null.
//!
//! Infinity and NaN are errors, since JSON has neither.

use serde_json::Number;

use super::tree::Value;

/// Whole numbers below this are integers, since JSON writes them without an exponent.
const EXPONENT_FROM: f64 = 1e21;

/// The value of an unquoted scalar without a tag.
///
/// # Errors
/// Returns a message for numbers that JSON can't represent.
pub(super) fn resolve(text: &str) -> Result<Value, String> {
    match text {
        "" | "~" | "null" | "Null" | "NULL" => return Ok(Value::Null),
        "y" | "Y" | "yes" | "Yes" | "YES" | "on" | "On" | "ON" | "true" | "True" | "TRUE" => {
            return Ok(Value::Bool(true));
        }
        "n" | "N" | "no" | "No" | "NO" | "off" | "Off" | "OFF" | "false" | "False" | "FALSE" => {
            return Ok(Value::Bool(false));
        }
        ".nan" | ".NaN" | ".NAN" | ".inf" | ".Inf" | ".INF" | "+.inf" | "+.Inf" | "+.INF"
        | "-.inf" | "-.Inf" | "-.INF" => {
            return Err(format!(
                "`{text}` is not a JSON number: quote it to make it a string"
            ));
        }
        _ => {}
    }
    let number = match text.as_bytes()[0] {
        b'0'..=b'9' | b'+' | b'-' => {
            let digits: std::borrow::Cow<'_, str> = if text.contains('_') {
                text.replace('_', "").into()
            } else {
                text.into()
            };
            integer(&digits).or_else(|| float(&digits))
        }
        b'.' => float(text),
        _ => None,
    };
    Ok(number.map_or_else(|| Value::String(text.to_owned()), Value::Number))
}

/// An integer of up to 64 bits, in base 10 or, with a prefix, in base 2, 8 or 16.
fn integer(text: &str) -> Option<Number> {
    let (negative, digits) = match text.as_bytes() {
        [b'-', ..] => (true, &text[1..]),
        [b'+', ..] => (false, &text[1..]),
        _ => (false, text),
    };
    let (radix, digits) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (16, &digits[2..]),
        [b'0', b'o' | b'O', ..] => (8, &digits[2..]),
        [b'0', b'b' | b'B', ..] => (2, &digits[2..]),
        [b'0', _, ..] => (8, &digits[1..]),
        _ => (10, digits),
    };
    // `from_str_radix` accepts a second sign, as in `--1`.
    if !digits.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return None;
    }
    let magnitude = u64::from_str_radix(digits, radix).ok()?;
    if negative {
        0i64.checked_sub_unsigned(magnitude).map(Number::from)
    } else {
        Some(Number::from(magnitude))
    }
}

/// A decimal number with a fraction or an exponent.
fn float(text: &str) -> Option<Number> {
    let unsigned = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.len() + fraction.len() == 0 || !digits(whole) || !digits(fraction) {
        return None;
    }
    if let Some(exponent) = exponent {
        let unsigned = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
        if unsigned.is_empty() || !digits(unsigned) {
            return None;
        }
    }
    // Overflow gives infinity, which `from_f64` rejects.
    let value: f64 = text.parse().ok()?;
    if value.fract() == 0.0 && value.abs() < EXPONENT_FROM {
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
        if value >= 0.0 && value < u64::MAX as f64 {
            return Some(Number::from(value as u64));
        } else if value < 0.0 && value >= i64::MIN as f64 {
            return Some(Number::from(value as i64));
        }
    }
    Number::from_f64(value)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::tree::Node;
    use super::*;

    fn json_of(text: &str) -> serde_json::Value {
        let value = resolve(text).unwrap();
        Node { at: 0, value }.to_json()
    }

    #[test]
    fn scalars_are_read_as_in_kubectl() {
        for (text, expected) in [
            ("", json!(null)),
            ("~", json!(null)),
            ("NULL", json!(null)),
            ("nUll", json!("nUll")),
            ("yes", json!(true)),
            ("On", json!(true)),
            ("y", json!(true)),
            ("No", json!(false)),
            ("OFF", json!(false)),
            ("oN", json!("oN")),
            ("truely", json!("truely")),
            ("0", json!(0)),
            ("-0", json!(0)),
            ("42", json!(42)),
            ("+42", json!(42)),
            ("-42", json!(-42)),
            ("1_000", json!(1000)),
            ("010", json!(8)),
            ("0o10", json!(8)),
            ("-010", json!(-8)),
            ("08", json!(8)),
            ("0x1F", json!(31)),
            ("-0x10", json!(-16)),
            ("0b101", json!(5)),
            ("18446744073709551615", json!(u64::MAX)),
            ("-9223372036854775808", json!(i64::MIN)),
            ("18446744073709551616", json!(18446744073709551616.0)),
            ("1.5", json!(1.5)),
            ("1.0", json!(1)),
            ("1.", json!(1)),
            (".5", json!(0.5)),
            ("-.5", json!(-0.5)),
            ("1e3", json!(1000)),
            ("1E-3", json!(0.001)),
            ("1e400", json!("1e400")),
            ("1e", json!("1e")),
            (".", json!(".")),
            ("-", json!("-")),
            ("+", json!("+")),
            ("--1", json!("--1")),
            ("0x-1", json!("0x-1")),
            ("0x", json!("0x")),
            ("10s", json!("10s")),
            ("1.2.3", json!("1.2.3")),
            ("10.0.0.1", json!("10.0.0.1")),
            ("12:30", json!("12:30")),
            ("2001-12-14", json!("2001-12-14")),
            ("2001-12-14T21:59:43Z", json!("2001-12-14T21:59:43Z")),
            ("_1", json!("_1")),
            ("éa", json!("éa")),
        ] {
            assert_eq!(json_of(text), expected, "{text:?}");
        }
    }

    #[test]
    fn numbers_that_json_cannot_represent_are_errors() {
        for text in [".nan", ".inf", "-.INF", "+.Inf"] {
            assert!(resolve(text).unwrap_err().contains(text));
        }
    }
}
