//! The kinds of Contour's API group, and Contour's names for the annotations that Sesame reads.
//!
//! Contour's kinds have their own rows in the table of kinds, so that each object gets its own status. They are decoded like
//! Sesame's kinds. If both groups have an object with the same name, `translate` gives precedence to Sesame's.

use std::collections::BTreeMap;

use crate::extension_service::ExtensionService;
use crate::http_proxy::HTTPProxy;
use crate::key::ObjectKey;
use crate::kind::{Kind, Object};
use crate::tls_certificate_delegation::TLSCertificateDelegation;

/// An HTTPProxy of Contour's group.
pub type ContourHTTPProxy = HTTPProxy;
/// A TLSCertificateDelegation of Contour's group.
pub type ContourTLSCertificateDelegation = TLSCertificateDelegation;
/// An ExtensionService of Contour's group.
pub type ContourExtensionService = ExtensionService;

/// The prefixes of annotations.
const CONTOUR: &str = "projectcontour.io/";
const SESAME: &str = "projectsesame.io/";

/// Pairs of Sesame's kind and Contour's kind.
const PAIRS: [(Kind, Kind); 3] = [
    (Kind::HTTPProxy, Kind::ContourHTTPProxy),
    (
        Kind::TLSCertificateDelegation,
        Kind::ContourTLSCertificateDelegation,
    ),
    (Kind::ExtensionService, Kind::ContourExtensionService),
];

impl Kind {
    /// The kinds of Contour's group.
    pub const OF_CONTOUR: [Kind; 3] = [PAIRS[0].1, PAIRS[1].1, PAIRS[2].1];

    /// Whether this is a kind of Contour's group.
    pub fn is_of_contour(self) -> bool {
        Kind::OF_CONTOUR.contains(&self)
    }

    /// Whether this is HTTPProxy, of either group.
    pub fn is_http_proxy(self) -> bool {
        matches!(self, Kind::HTTPProxy | Kind::ContourHTTPProxy)
    }
}

impl ObjectKey {
    /// For an object of Contour's group, the key of Sesame's own object with the same name.
    pub fn of_sesame(&self) -> Option<ObjectKey> {
        let (kind, _) = PAIRS.into_iter().find(|(_, of)| *of == self.kind)?;
        Some(self.with_kind(kind))
    }

    /// For one of Sesame's own objects, the key of the object of Contour's group with the same name.
    pub fn of_contour(&self) -> Option<ObjectKey> {
        let (_, kind) = PAIRS.into_iter().find(|(own, _)| *own == self.kind)?;
        Some(self.with_kind(kind))
    }

    fn with_kind(&self, kind: Kind) -> ObjectKey {
        ObjectKey {
            kind,
            ..self.clone()
        }
    }
}

impl Object {
    /// Replaces Contour's names in annotations and references with Sesame's. An annotation with Sesame's name takes precedence.
    pub fn adopt_contour(&mut self) {
        match self {
            Object::HTTPProxy(proxy) | Object::ContourHTTPProxy(proxy) => {
                adopt_annotations(&mut proxy.meta.annotations);
                adopt_references(proxy);
            }
            Object::Ingress(ingress) => adopt_annotations(&mut ingress.meta.annotations),
            Object::Service(service) => {
                if let Some(annotations) = &mut service.metadata.annotations {
                    adopt_annotations(annotations);
                }
            }
            _ => {}
        }
    }
}

fn adopt_annotations(annotations: &mut BTreeMap<String, String>) {
    let theirs = annotations.keys().filter_map(|name| {
        let own = format!("{SESAME}{}", name.strip_prefix(CONTOUR)?);
        Some((name.clone(), own))
    });
    for (name, own) in theirs.collect::<Vec<_>>() {
        if let Some(value) = annotations.remove(&name) {
            annotations.entry(own).or_insert(value);
        }
    }
}

fn adopt_references(proxy: &mut HTTPProxy) {
    let host = proxy.spec.virtual_host.as_mut();
    let authorization = host.and_then(|host| host.authorization.as_mut());
    let reference = authorization.and_then(|server| server.extension_ref.as_mut());
    if let Some(version) = reference.and_then(|reference| reference.api_version.as_mut())
        && **version == *Kind::ContourExtensionService.api_version()
    {
        *version = Kind::ExtensionService.api_version().into();
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn decode(value: serde_json::Value) -> Object {
        let mut object = Object::decode(value).unwrap().unwrap();
        object.adopt_contour();
        object
    }

    #[test]
    fn keys_of_both_groups_lead_to_each_other() {
        for (own, theirs) in PAIRS {
            assert_eq!(own.as_str(), theirs.as_str());
            assert!(theirs.is_of_contour() && !own.is_of_contour());
            let key = ObjectKey::new(own, "shop", "a");
            let other = key.of_contour().unwrap();
            assert_eq!(other.kind, theirs);
            assert_eq!(other.of_sesame(), Some(key.clone()));
            assert_eq!((key.of_sesame(), other.of_contour()), (None, None));
        }
        assert_eq!(
            ObjectKey::new(Kind::ContourHTTPProxy, "shop", "a").to_string(),
            "HTTPProxy.projectcontour.io/shop/a"
        );
    }

    #[test]
    fn annotations_and_references_are_read_as_our_own() {
        let proxy = decode(json!({
            "apiVersion": "projectcontour.io/v1", "kind": "HTTPProxy",
            "metadata": {"name": "a", "annotations": {
                "projectcontour.io/ingress.class": "theirs", "projectsesame.io/a": "1", "projectcontour.io/a": "2",
                "projectcontour.iox/b": "3",
            }},
            "spec": {"virtualhost": {"fqdn": "a.example", "tls": {"secretName": "a"}, "authorization": {
                "extensionRef": {"apiVersion": "projectcontour.io/v1alpha1", "name": "check"},
            }}},
        }));
        let Object::ContourHTTPProxy(proxy) = proxy else {
            panic!("{proxy:?}")
        };
        let annotations = proxy.meta.annotations.iter();
        let annotations: Vec<_> = annotations
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        assert_eq!(
            annotations,
            [
                "projectcontour.iox/b=3",
                "projectsesame.io/a=1",
                "projectsesame.io/ingress.class=theirs"
            ]
        );
        let authorization = proxy.spec.virtual_host.unwrap().authorization.unwrap();
        let reference = authorization.extension_ref.unwrap();
        assert_eq!(
            reference.api_version.as_deref(),
            Some("projectsesame.io/v1alpha1")
        );
        let service = decode(json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {"name": "a", "annotations": {"projectcontour.io/upstream-protocol.h2c": "80"}},
            "spec": {"ports": [{"port": 80}]},
        }));
        let Object::Service(service) = service else {
            panic!("{service:?}")
        };
        let annotations = service.metadata.annotations.unwrap();
        assert!(annotations.contains_key("projectsesame.io/upstream-protocol.h2c"));
    }
}
