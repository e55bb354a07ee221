//! The names of a fleet's objects.
//!
//! A Gateway's name may have 253 characters, dots, and a digit in front; a Service's has 63 at most, no dots, and begins
//! with a letter. So each name is a readable part and a hash of the fleet's whole name, which keeps apart what the
//! readable part doesn't.

use sesame_model::FleetId;
use sha2::{Digest, Sha256};

/// The longest name of an object, in bytes. A Deployment's pods get 16 more, and no name of a pod is to be cut.
const LONGEST_NAME: usize = 47;

/// The longest value of a label, in bytes.
const LONGEST_LABEL: usize = 63;

/// Characters of a hash: 49 bits.
const HASH: usize = 10;

/// The name of all objects of a fleet but its Secret: a DNS label (RFC 1035) of at most 47 bytes.
pub fn object(fleet: &FleetId) -> String {
    let id = fleet.to_string();
    let name = match fleet {
        FleetId::Gateway { name, .. } => name,
        FleetId::Default | FleetId::Unmanaged => &*id,
    };
    let readable: String = name
        .chars()
        .map(|c| match c {
            'a'..='z' | '0'..='9' => c,
            'A'..='Z' => c.to_ascii_lowercase(),
            _ => '-',
        })
        .skip_while(|c| !c.is_ascii_lowercase())
        .take(LONGEST_NAME - HASH - 1)
        .collect();
    let readable = match readable.trim_end_matches('-') {
        "" => "gateway",
        some => some,
    };
    format!("{readable}-{}", hash(&id))
}

/// The name of the Secret with the certificate of a fleet's Envoys.
pub fn certificate_secret(fleet: &FleetId) -> String {
    format!("{}-xds", object(fleet))
}

/// A Gateway's or class's name as the value of a label: as it is where that fits, else cut and hashed.
pub fn label_value(name: &str) -> String {
    if name.len() <= LONGEST_LABEL {
        return name.to_owned();
    }
    let mut end = LONGEST_LABEL - HASH - 1;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    let readable = name[..end].trim_end_matches(['-', '.', '_']);
    format!("{readable}-{}", hash(name))
}

/// Ten characters that a name may have, out of SHA-256. No vowels, so that no word appears.
fn hash(text: &str) -> String {
    const LETTERS: &[u8; 31] = b"bcdfghjklmnpqrstvwxyz0123456789";
    let digest = Sha256::digest(text.as_bytes());
    digest[..HASH]
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 31)]))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    fn is_dns_label(name: &str) -> bool {
        name.len() <= 63
            && name.starts_with(|c: char| c.is_ascii_lowercase())
            && !name.ends_with('-')
            && name
                .chars()
                .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
    }

    fn is_label_value(value: &str) -> bool {
        let edge = |c: char| c.is_ascii_alphanumeric();
        value.len() <= 63
            && value.starts_with(edge)
            && value.ends_with(edge)
            && value
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c))
    }

    #[test]
    fn names_are_readable_and_stay() {
        let of = |namespace, name| object(&FleetId::of_gateway(namespace, name));
        assert!(of("default", "web").starts_with("web-"));
        assert!(of("default", "a.b.c").starts_with("a-b-c-"));
        assert!(of("default", "7.seas").starts_with("seas-"));
        assert!(of("default", "42").starts_with("gateway-"));
        // A name that changes leaves every fleet of an older version behind.
        assert_eq!(of("default", "web"), "web-j3xv1q2kpt");
    }

    #[test]
    fn names_that_read_alike_differ() {
        let long = "a".repeat(253);
        let longer = "a".repeat(252);
        let names = ["a.b", "a-b", "1.a-b", &long, &longer];
        let mut seen = HashSet::new();
        for namespace in ["x", "y"] {
            for name in names {
                assert!(seen.insert(object(&FleetId::of_gateway(namespace, name))));
            }
        }
        assert_ne!(label_value(&long), label_value(&longer));
    }

    proptest! {
        #[test]
        fn every_gateway_gets_a_name_that_kubernetes_takes(
            namespace in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
            name in "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?){0,4}",
        ) {
            let fleet = FleetId::of_gateway(namespace, name.as_str());
            let object = object(&fleet);
            prop_assert!(is_dns_label(&object), "{object}");
            prop_assert!(object.len() <= LONGEST_NAME);
            prop_assert!(certificate_secret(&fleet).len() <= 63);
            prop_assert!(is_label_value(&label_value(&name)), "{}", label_value(&name));
        }

        #[test]
        fn any_text_gets_a_name(text in ".{0,300}") {
            prop_assert!(is_dns_label(&object(&FleetId::of_gateway("ns", text.as_str()))));
            let _ = label_value(&text);
        }
    }
}
