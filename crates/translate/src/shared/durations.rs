//! Durations in Ingresses and HTTPProxies: Go's syntax (a sum of decimal numbers with units), or `infinity`.

use std::time::Duration;

/// Describes valid durations in error messages.
pub(crate) const EXPECTED: &str = "use a duration such as 30s or 1m30s, or infinity";

/// A time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    /// Empty or zero: the default applies.
    Default,
    /// No limit, not even the default.
    Infinite,
    /// This limit.
    After(Duration),
}

/// Reads a time limit; `None` if the text is invalid.
pub(crate) fn read_limit(text: &str) -> Option<Limit> {
    match text {
        "" => Some(Limit::Default),
        "infinity" | "infinite" => Some(Limit::Infinite),
        text => read(text).map(|duration| match duration.is_zero() {
            true => Limit::Default,
            false => Limit::After(duration),
        }),
    }
}

/// Reads a duration; `None` if the text is invalid, negative, or longer than Envoy accepts. A duration below a
/// millisecond is rounded up: Envoy rounds most durations down, and zero would mean no limit.
pub(crate) fn read(text: &str) -> Option<Duration> {
    /// In nanoseconds: Envoy's durations are at most 315,576,000,000 seconds.
    const MAX: u128 = 315_576_000_000 * 1_000_000_000;
    const MILLISECOND: u128 = 1_000_000;
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos: u128 = 0;
    let mut rest = text;
    while !rest.is_empty() {
        let end = rest.find(|c: char| c != '.' && !c.is_ascii_digit())?;
        let (number, after) = rest.split_at(end);
        let unit_end = after
            .find(|c: char| c == '.' || c.is_ascii_digit())
            .unwrap_or(after.len());
        let (unit, after) = after.split_at(unit_end);
        nanos = nanos.checked_add(product(number, nanos_of(unit)?)?)?;
        rest = after;
    }
    let valid = !text.is_empty() && nanos <= MAX;
    let nanos = match nanos {
        1..MILLISECOND => MILLISECOND,
        nanos => nanos,
    };
    let nanos_of_second = u32::try_from(nanos % 1_000_000_000).ok()?;
    let seconds = u64::try_from(nanos / 1_000_000_000).ok()?;
    valid.then(|| Duration::new(seconds, nanos_of_second))
}

fn nanos_of(unit: &str) -> Option<u128> {
    Some(match unit {
        "h" => 3_600_000_000_000,
        "m" => 60_000_000_000,
        "s" => 1_000_000_000,
        "ms" => 1_000_000,
        "us" | "µs" | "μs" => 1_000,
        "ns" => 1,
        _ => return None,
    })
}

/// A decimal number times a unit, rounded down.
fn product(number: &str, unit: u128) -> Option<u128> {
    /// Further digits of a fraction are below a nanosecond.
    const DIGITS: usize = 13;
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    let parse = |text: &str| match text {
        "" => Some(0),
        text => text.parse::<u64>().ok().map(u128::from),
    };
    let fraction = &fraction[..fraction.len().min(DIGITS)];
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    Some(parse(whole)? * unit + parse(fraction)? * unit / scale)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_sums() {
        for (text, millis) in [
            ("0", 0),
            ("0s", 0),
            ("30s", 30_000),
            ("1m30s", 90_000),
            ("1.5h", 5_400_000),
            (".5s", 500),
            ("1.s", 1_000),
            ("250ms", 250),
            ("1h1m1s1ms", 3_661_001),
            ("1s2s", 3_000),
        ] {
            assert_eq!(read(text), Some(Duration::from_millis(millis)), "{text}");
        }
        assert_eq!(read("1ns"), Some(Duration::from_millis(1)));
        assert_eq!(read("1500us"), Some(Duration::from_micros(1_500)));
        assert_eq!(
            read("0.1234567890123456s"),
            Some(Duration::from_nanos(123_456_789))
        );
    }

    #[test]
    fn other_texts_are_invalid() {
        for text in [
            "",
            "5",
            "s",
            ".s",
            "1..5s",
            "-1s",
            "1 s",
            "1d",
            "1sx",
            "infinity",
            "99999999999999999999h",
            "9999999999h",
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn zero_is_the_default_limit() {
        assert_eq!(read_limit(""), Some(Limit::Default));
        assert_eq!(read_limit("0s"), Some(Limit::Default));
        assert_eq!(read_limit("infinity"), Some(Limit::Infinite));
        assert_eq!(read_limit("infinite"), Some(Limit::Infinite));
        assert_eq!(read_limit("2s"), Some(Limit::After(Duration::from_secs(2))));
        assert_eq!(read_limit("never"), None);
    }
}
