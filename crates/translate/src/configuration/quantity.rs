//! Kubernetes quantities, such as `500m` of CPU or `1.5Gi` of memory.

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

/// Parses an amount of CPU into millicores, rounded up; `None` if it isn't a positive quantity.
pub(super) fn millicores(text: &str) -> Option<u64> {
    parse(text, 1_000)
}

/// Parses an amount of memory into bytes, rounded up; `None` if it isn't a positive quantity.
pub(super) fn bytes(text: &str) -> Option<u64> {
    parse(text, 1)
}

/// Parses a quantity into units of 1/`parts`, rounded up; `None` if it isn't a positive quantity.
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
