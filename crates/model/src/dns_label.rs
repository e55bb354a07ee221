//! Names of objects that are created for others.

/// A DNS label (RFC 1035) of at most `max` bytes: a readable part of `name`, and `suffix`, which makes it unique. If
/// `name` has no letters, `fallback` replaces it.
///
/// Names of Gateways and XBackends can have 253 characters, contain dots and start with a digit. A Service's name has at
/// most 63 characters, no dots, and starts with a letter.
pub fn dns_label(name: &str, fallback: &str, suffix: &str, max: usize) -> String {
    let readable: String = name
        .chars()
        .map(|c| match c {
            'a'..='z' | '0'..='9' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            _ => '-',
        })
        .skip_while(|c| !c.is_ascii_lowercase())
        .take(max.saturating_sub(suffix.len() + 1))
        .collect();
    let readable = match readable.trim_end_matches('-') {
        "" => fallback,
        some => some,
    };
    format!("{readable}-{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_readable_and_short() {
        let label = |name| dns_label(name, "none", "x1", 10);
        assert_eq!(label("Web"), "web-x1");
        assert_eq!(label("a.b"), "a-b-x1");
        assert_eq!(label("7.seas"), "seas-x1");
        assert_eq!(label("42"), "none-x1");
        assert_eq!(label("abcdef-ghi"), "abcdef-x1");
        assert_eq!(label("abcdefghi"), "abcdefg-x1");
    }
}
