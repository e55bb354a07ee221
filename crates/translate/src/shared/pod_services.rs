//! Services that select the Pods of XBackends: their names, and whether a Service matches its desired state.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use sesame_api::Kind;
use sesame_model::{PodService, dns_label};

/// The maximum length of a Service's name, in bytes.
const MAX_NAME: usize = 63;

/// A Service that an XBackend owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// The UID of the Service; empty outside a cluster.
    pub uid: String,
    /// The name of the XBackend.
    pub xbackend: Box<str>,
    /// The UID of the XBackend; empty outside a cluster.
    owner_uid: Box<str>,
    selector: BTreeMap<String, String>,
    /// Whether it has no cluster IP, and selects only ready Pods.
    headless: bool,
}

impl Selection {
    pub(super) fn read(service: &core::Service) -> Option<Self> {
        let metadata = &service.metadata;
        let owner = metadata.owner_references.iter().flatten().find(|owner| {
            let group = owner.api_version.split_once('/').map(|(group, _)| group);
            owner.kind == Kind::XBackend.as_str() && group == Some(Kind::XBackend.group())
        })?;
        let spec = service.spec.as_ref();
        let headless = spec.is_some_and(|spec| {
            let type_ = spec.type_.as_deref();
            spec.cluster_ip.as_deref() == Some("None")
                && type_.is_none_or(|type_| type_ == "ClusterIP")
                && spec.publish_not_ready_addresses != Some(true)
        });
        Some(Self {
            uid: metadata.uid.clone().unwrap_or_default(),
            xbackend: owner.name.as_str().into(),
            owner_uid: owner.uid.as_str().into(),
            selector: spec
                .and_then(|spec| spec.selector.clone())
                .unwrap_or_default(),
            headless,
        })
    }

    /// Whether its XBackend has this UID.
    pub(crate) fn is_of(&self, owner_uid: &str) -> bool {
        *self.owner_uid == *owner_uid
    }

    /// Whether the Service matches the desired one.
    pub(crate) fn satisfies(&self, desired: &PodService) -> bool {
        self.is_of(&desired.owner_uid) && self.selector == desired.selector && self.headless
    }
}

/// The name of an XBackend's Service: a readable part of the XBackend's name, and a hash.
pub fn name(xbackend: &str) -> Arc<str> {
    let id = format!("xbackend {xbackend}");
    dns_label(xbackend, "xbackend", &id, MAX_NAME).into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn service(spec: &Value) -> Option<Selection> {
        let owner = json!({
            "apiVersion": "gateway.networking.x-k8s.io/v1alpha1", "kind": "XBackend", "name": "api", "uid": "1",
            "controller": true, "blockOwnerDeletion": false,
        });
        let service = json!({"metadata": {"uid": "2", "ownerReferences": [owner]}, "spec": spec});
        Selection::read(&serde_json::from_value(service).unwrap())
    }

    #[test]
    fn names_are_readable_and_stable() {
        // Changing it would orphan the Services of older versions.
        assert_eq!(&*name("api"), "api-d5r8znc63x");
        assert!(name("7.a").starts_with("a-"));
        assert!(name("7").starts_with("xbackend-"));
        assert_ne!(name("a.b"), name("a-b"));
    }

    proptest! {
        #[test]
        fn every_name_of_an_xbackend_yields_a_valid_name(text in ".{0,260}") {
            let name = name(&text);
            prop_assert!(name.len() <= MAX_NAME && name.starts_with(|c: char| c.is_ascii_lowercase()));
            prop_assert!(name.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()));
            prop_assert!(name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-'));
        }
    }

    #[test]
    fn edited_services_differ() {
        let spec = json!({
            "clusterIP": "None", "type": "ClusterIP", "selector": {"app": "a"},
        });
        let desired = PodService {
            name: "api".into(),
            owner_uid: "1".to_owned(),
            selector: BTreeMap::from([("app".to_owned(), "a".to_owned())]),
        };
        let satisfies = |spec: &Value| service(spec).unwrap().satisfies(&desired);
        assert!(satisfies(&spec));
        for (field, value, expected) in [
            ("ports", json!([{"port": 80, "targetPort": 81}]), true),
            ("internalTrafficPolicy", json!("Local"), true),
            ("selector", json!({"app": "a", "tier": "b"}), false),
            ("selector", Value::Null, false),
            ("clusterIP", json!("10.0.0.1"), false),
            ("type", json!("ExternalName"), false),
            ("publishNotReadyAddresses", json!(true), false),
        ] {
            let mut edited = spec.clone();
            edited[field] = value;
            assert_eq!(satisfies(&edited), expected, "{edited}");
        }
    }
}
