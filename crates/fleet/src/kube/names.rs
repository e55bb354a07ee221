//! The names of a fleet's objects.
//!
//! An object's name combines a readable part of the Gateway's name with a hash of the fleet's full name, which makes it
//! unique. There is only one default fleet, so its name doesn't need a hash, and users can refer to its Service.

use sesame_model::{CreatedClass, FleetId, dns_label, name_hash};

/// The maximum length of an object's name, in bytes. A Deployment's pod names are 16 bytes longer, and
/// Kubernetes shouldn't truncate them.
const MAX_NAME: usize = 47;

/// The maximum length of a label's value, in bytes.
const MAX_LABEL_VALUE: usize = 63;

/// The name of the default fleet's objects. It can't clash with a Gateway's objects, since their names end with a hash.
const DEFAULT_FLEET: &str = "default-fleet";

/// The name of all of a fleet's objects except its Secret: a DNS label (RFC 1035) of at most 47 bytes.
pub fn object(fleet: &FleetId) -> String {
    let id = fleet.to_string();
    let name = match fleet {
        FleetId::Default => return DEFAULT_FLEET.to_owned(),
        FleetId::Gateway { name, .. } => name,
        FleetId::Unmanaged => &*id,
    };
    dns_label(name, "gateway", &id, MAX_NAME)
}

/// The name of a GatewayClass that an instance of Sesame creates. It depends on the whole spec, so a changed spec is a new
/// class: the controller name of a GatewayClass is immutable.
pub(super) fn gateway_class(instance: &str, class: &CreatedClass) -> String {
    let id = format!("{instance} {class:?}");
    dns_label(instance, "sesame", &id, MAX_NAME)
}

/// The name of the Secret with the certificate of a fleet's Envoys.
pub fn certificate_secret(fleet: &FleetId) -> String {
    format!("{}-xds", object(fleet))
}

/// A Gateway's or class's name as a label value: unchanged if it fits, otherwise truncated with a hash.
pub fn label_value(name: &str) -> String {
    if name.len() <= MAX_LABEL_VALUE {
        return name.to_owned();
    }
    let hash = name_hash(name);
    let end = name.floor_char_boundary(MAX_LABEL_VALUE - hash.len() - 1);
    let readable = name[..end].trim_end_matches(['-', '.', '_']);
    format!("{readable}-{hash}")
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
    fn names_are_readable_and_stable() {
        let name = |namespace, name| object(&FleetId::of_gateway(namespace, name));
        assert!(name("default", "web").starts_with("web-"));
        assert!(name("default", "a.b.c").starts_with("a-b-c-"));
        assert!(name("default", "7.seas").starts_with("seas-"));
        assert!(name("default", "42").starts_with("gateway-"));
        // Changing the name would orphan the fleets of older versions.
        assert_eq!(name("default", "web"), "web-j3xv1q2kpt");
        assert_eq!(object(&FleetId::Default), "default-fleet");
        assert_eq!(certificate_secret(&FleetId::Default), "default-fleet-xds");
        assert!(name("default", "default-fleet") != object(&FleetId::Default));
    }

    #[test]
    fn similar_names_stay_distinct() {
        let long = "a".repeat(253);
        let longer = "a".repeat(252);
        let names = ["a.b", "a-b", "1.a-b", &long, &longer];
        let mut observed = HashSet::new();
        for namespace in ["x", "y"] {
            for name in names {
                assert!(observed.insert(object(&FleetId::of_gateway(namespace, name))));
            }
        }
        assert_ne!(label_value(&long), label_value(&longer));
    }

    proptest! {
        #[test]
        fn every_gateway_name_yields_valid_names(
            namespace in "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?",
            name in "[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]{0,40}[a-z0-9])?){0,4}",
        ) {
            let fleet = FleetId::of_gateway(namespace, name.as_str());
            let object = object(&fleet);
            prop_assert!(is_dns_label(&object), "{object}");
            prop_assert!(object.len() <= MAX_NAME);
            prop_assert!(certificate_secret(&fleet).len() <= 63);
            prop_assert!(is_label_value(&label_value(&name)), "{}", label_value(&name));
        }

        #[test]
        fn any_text_yields_a_valid_name(text in ".{0,300}") {
            prop_assert!(is_dns_label(&object(&FleetId::of_gateway("ns", text.as_str()))));
            let _ = label_value(&text);
        }
    }
}
