//! Names of generated objects, derived from the names of Gateways and XBackends.

use sha2::{Digest, Sha256};

/// Characters of [`name_hash`].
const HASH_LEN: usize = 10;

/// A DNS label (RFC 1035) of at most `max` bytes: a readable part of `name`, and a hash of `id`, which makes it unique.
/// If `name` has no letters, `fallback` replaces it.
///
/// Names of Gateways and XBackends can have 253 characters, contain dots and start with a digit. A Service's name has
/// at most 63 characters, doesn't contain dots, and starts with a letter.
pub fn dns_label(name: &str, fallback: &str, id: &str, max: usize) -> String {
    let readable: String = name
        .chars()
        .map(|c| match c {
            'a'..='z' | '0'..='9' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            _ => '-',
        })
        .skip_while(|c| !c.is_ascii_lowercase())
        .take(max.saturating_sub(HASH_LEN + 1))
        .collect();
    let readable = match readable.trim_end_matches('-') {
        "" => fallback,
        some => some,
    };
    format!("{readable}-{}", name_hash(id))
}

/// A hash of ten characters (49 bits) that are valid in names. It doesn't contain vowels, so it can't spell words.
pub fn name_hash(text: &str) -> String {
    const ALPHABET: &[u8; 31] = b"bcdfghjklmnpqrstvwxyz0123456789";
    let digest = Sha256::digest(text.as_bytes());
    digest[..HASH_LEN]
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte % 31)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_readable_and_short() {
        let hash = name_hash("id");
        let label = |name| dns_label(name, "none", "id", 18);
        for (name, readable) in [
            ("Web", "web"),
            ("a.b", "a-b"),
            ("7.seas", "seas"),
            ("42", "none"),
            ("abcdef-ghi", "abcdef"),
            ("abcdefghi", "abcdefg"),
        ] {
            assert_eq!(label(name), format!("{readable}-{hash}"));
        }
        assert_ne!(label("a"), dns_label("a", "none", "other", 18));
    }
}
