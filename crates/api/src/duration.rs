//! Gateway API durations (GEP-2257): the sum of one to four numbers with units.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// A duration as written in an object, such as `1h30m` or `500ms`.
///
/// Keeps the text, to print it as written. Units may repeat, in any order: `10s5s` is fifteen
/// seconds.
#[derive(Clone, Serialize, Deserialize)]
#[serde(try_from = "Arc<str>", into = "Arc<str>")]
pub struct Duration {
    text: Arc<str>,
    millis: u64,
}

/// The text is not a Gateway API duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "expected a duration such as 10s, 1h30m or 500ms: one to four numbers \
     of at most five digits, each followed by h, m, s or ms"
)]
pub struct InvalidDuration;

impl Duration {
    /// Parses `^([0-9]{1,5}(h|m|s|ms)){1,4}$`.
    pub fn parse(text: &str) -> Result<Self, InvalidDuration> {
        let mut millis = 0u64;
        let mut rest = text;
        let mut parts = 0;
        while !rest.is_empty() {
            let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
            parts += 1;
            if !(1..=5).contains(&digits) || parts > 4 {
                return Err(InvalidDuration);
            }
            let (number, tail) = rest.split_at(digits);
            let number: u64 = number.parse().map_err(|_| InvalidDuration)?;
            // Tries "ms" first, because it starts with "m".
            let (unit, tail) = if let Some(tail) = tail.strip_prefix("ms") {
                (1, tail)
            } else if let Some(tail) = tail.strip_prefix('s') {
                (1_000, tail)
            } else if let Some(tail) = tail.strip_prefix('m') {
                (60_000, tail)
            } else if let Some(tail) = tail.strip_prefix('h') {
                (3_600_000, tail)
            } else {
                return Err(InvalidDuration);
            };
            // At most 4 × 99999 hours: far from overflow.
            millis += number * unit;
            rest = tail;
        }
        if parts == 0 {
            return Err(InvalidDuration);
        }
        Ok(Duration {
            text: text.into(),
            millis,
        })
    }

    /// The duration in milliseconds.
    pub fn as_millis(&self) -> u64 {
        self.millis
    }

    /// The duration as a standard library duration.
    pub fn as_std(&self) -> std::time::Duration {
        std::time::Duration::from_millis(self.millis)
    }

    /// Whether the duration is zero, which disables a timeout.
    pub fn is_zero(&self) -> bool {
        self.millis == 0
    }

    /// The text as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

/// Compares the text: `60s` and `1m` differ. To compare lengths of time, use [`Duration::as_millis`].
impl PartialEq for Duration {
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Eq for Duration {}

impl fmt::Debug for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<Arc<str>> for Duration {
    type Error = InvalidDuration;

    fn try_from(text: Arc<str>) -> Result<Self, InvalidDuration> {
        Duration::parse(&text)
    }
}

impl From<Duration> for Arc<str> {
    fn from(duration: Duration) -> Self {
        duration.text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parts_are_summed() {
        for (text, millis) in [
            ("0s", 0),
            ("10s", 10_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("1m1ms", 60_001),
            ("1ms1m", 60_001),
            ("10s5s", 15_000),
            ("99999h99999h99999h99999h", 4 * 99_999 * 3_600_000),
        ] {
            let duration = Duration::parse(text).unwrap();
            assert_eq!(duration.as_millis(), millis, "{text}");
            assert_eq!(duration.to_string(), text);
            assert_eq!(duration.as_std().as_millis(), u128::from(millis));
        }
    }

    #[test]
    fn invalid_durations_are_rejected() {
        for text in [
            "",
            "s",
            "10",
            "1.5s",
            "-1s",
            "+1s",
            " 1s",
            "1s ",
            "1 s",
            "1d",
            "1us",
            "100000s",
            "1S",
            "1s1s1s1s1s",
            "1sm",
            "٣s",
            "1m s",
        ] {
            assert_eq!(Duration::parse(text), Err(InvalidDuration), "{text}");
        }
    }

    proptest! {
        /// Compares the parser with an implementation of the pattern.
        #[test]
        fn agrees_with_the_pattern(
            parts in prop::collection::vec(("[0-9]{1,6}", "(h|m|s|ms)"), 0..6),
        ) {
            let text: String = parts.iter().map(|(n, unit)| format!("{n}{unit}")).collect();
            let valid = (1..=4).contains(&parts.len()) && parts.iter().all(|(n, _)| n.len() <= 5);
            let millis = |unit: &str| match unit {
                "h" => 3_600_000,
                "m" => 60_000,
                "s" => 1000,
                _ => 1,
            };
            let sum: u64 = parts.iter().map(|(n, u)| n.parse::<u64>().unwrap() * millis(u)).sum();
            let parsed = Duration::parse(&text).ok().map(|d| d.as_millis());
            prop_assert_eq!(parsed, valid.then_some(sum));
        }

        #[test]
        fn never_panics(text in ".{0,20}") {
            let _ = Duration::parse(&text);
        }
    }
}
