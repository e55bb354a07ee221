//! Kubernetes quantities: `500m` CPU, `1.5Gi` of memory.

use serde::de::{Deserialize, Deserializer, Error, Visitor};

/// The maximum number of digits: enough for any machine's memory in bytes, but few enough not to overflow.
const MAX_DIGITS: usize = 15;

/// The suffixes, each with its factor as numerator and denominator.
const SUFFIXES: &[(&str, u128, u128)] = &[
    ("n", 1, 1_000_000_000),
    ("u", 1, 1_000_000),
    ("m", 1, 1_000),
    ("", 1, 1),
    ("k", 1_000, 1),
    ("M", 1_000_000, 1),
    ("G", 1_000_000_000, 1),
    ("T", 1_000_000_000_000, 1),
    ("P", 1_000_000_000_000_000, 1),
    ("Ki", 1 << 10, 1),
    ("Mi", 1 << 20, 1),
    ("Gi", 1 << 30, 1),
    ("Ti", 1 << 40, 1),
    ("Pi", 1 << 50, 1),
];

/// CPU in millicores, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Cpu(pub(super) u64);

/// Memory in bytes, rounded up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Memory(pub(super) u64);

/// The quantity in units of 1/`parts`, rounded up; `None` unless it is a positive quantity.
fn parse(text: &str, parts: u128) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let &(_, times, over) = SUFFIXES.iter().find(|(name, ..)| *name == suffix)?;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{fraction}");
    if digits.is_empty() || digits.len() > MAX_DIGITS {
        return None;
    }
    let digits: u128 = digits.parse().ok()?;
    let over = over * 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let value = (digits * times * parts).div_ceil(over);
    u64::try_from(value).ok().filter(|value| *value > 0)
}

/// Also accepts numbers without quotes.
struct Text(&'static str);

impl Visitor<'_> for Text {
    type Value = String;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.0)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<String, E> {
        Ok(text.to_owned())
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<String, E> {
        Ok(number.to_string())
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<String, E> {
        Ok(number.to_string())
    }
}

fn quantity<'de, D: Deserializer<'de>>(
    deserializer: D,
    parts: u128,
    expected: &'static str,
) -> Result<u64, D::Error> {
    let text = deserializer.deserialize_any(Text(expected))?;
    parse(&text, parts).ok_or_else(|| {
        let found = serde::de::Unexpected::Str(&text);
        D::Error::invalid_value(found, &expected)
    })
}

impl<'de> Deserialize<'de> for Cpu {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quantity(deserializer, 1_000, "a CPU quantity such as 500m or 2").map(Self)
    }
}

impl<'de> Deserialize<'de> for Memory {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        quantity(deserializer, 1, "a memory quantity such as 128Mi or 1Gi").map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantities_are_parsed_as_in_kubernetes() {
        for (text, thousandths) in [
            ("1", 1_000),
            ("100m", 100),
            ("0.5", 500),
            (".5", 500),
            ("1.", 1_000),
            ("0.0001", 1),
            ("2k", 2_000_000),
            ("1500000u", 1_500),
            ("1n", 1),
        ] {
            assert_eq!(parse(text, 1_000), Some(thousandths), "{text}");
        }
        for (text, bytes) in [
            ("128Mi", 128 << 20),
            ("1.5Gi", 3 << 29),
            ("1G", 1_000_000_000),
            ("1", 1),
        ] {
            assert_eq!(parse(text, 1), Some(bytes), "{text}");
        }
        for bad in [
            "",
            ".",
            "m",
            "-1",
            "1 Gi",
            "1gi",
            "1..2",
            "0",
            "1e3",
            "١",
            "9999999999999999",
            "99999999999Pi",
        ] {
            assert_eq!(parse(bad, 1_000), None, "{bad}");
        }
    }
}
