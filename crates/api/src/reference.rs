//! References from one object to another, shared by all kinds.
//!
//! Decoding fills in defaults, so a reference always has a group and kind. A missing namespace
//! stays `None`: it means the referring object's namespace and needs no ReferenceGrant.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::key::ObjectKey;
use crate::kind::Kind;
use crate::kind_name::{Group, KindName};

/// A reference within the same namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LocalObjectReference {
    /// The group; empty for the core group.
    pub group: Group,
    /// The kind.
    pub kind: KindName,
    /// The name.
    pub name: Arc<str>,
}

/// A reference to an object of any kind in any namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ObjectReference {
    /// The group; empty for the core group.
    pub group: Group,
    /// The kind.
    pub kind: KindName,
    /// The name.
    pub name: Arc<str>,
    /// The namespace; defaults to the referring object's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
}

/// A reference to a Secret, or to another kind that holds a certificate.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretObjectReference {
    /// The group; the core group by default.
    #[serde(default = "Group::core")]
    pub group: Group,
    /// The kind; Secret by default.
    #[serde(default = "KindName::secret")]
    pub kind: KindName,
    /// The name.
    pub name: Arc<str>,
    /// The namespace; defaults to the referring object's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
}

/// A reference to a backend.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendObjectReference {
    /// The group; the core group by default.
    #[serde(default = "Group::core")]
    pub group: Group,
    /// The kind; Service by default.
    #[serde(default = "KindName::service")]
    pub kind: KindName,
    /// The name.
    pub name: Arc<str>,
    /// The namespace; defaults to the referring object's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
    /// The port of the Service (not of its Pods), 1 to 65535. Required for a Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

/// A route's reference to a parent that it attaches to.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentReference {
    /// The group; the Gateway API group by default.
    #[serde(default = "Group::gateway")]
    pub group: Group,
    /// The kind; Gateway by default.
    #[serde(default = "KindName::gateway")]
    pub kind: KindName,
    /// The namespace; defaults to the referring object's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
    /// The name.
    pub name: Arc<str>,
    /// The name of one listener; all listeners if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub section_name: Option<Arc<str>>,
    /// The port of the listeners, 1 to 65535; any if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<u16>,
}

impl ParentReference {
    /// A reference to a whole Gateway.
    pub fn to_gateway(gateway: ObjectKey) -> Self {
        Self {
            group: Group::gateway(),
            kind: KindName::gateway(),
            namespace: Some(gateway.namespace),
            name: gateway.name,
            section_name: None,
            port: None,
        }
    }
}

/// A ListenerSet's reference to its Gateway.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ParentGatewayReference {
    /// The group; the Gateway API group by default.
    #[serde(default = "Group::gateway")]
    pub group: Group,
    /// The kind; Gateway by default.
    #[serde(default = "KindName::gateway")]
    pub kind: KindName,
    /// The name.
    pub name: Arc<str>,
    /// The namespace; defaults to the referring object's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<Arc<str>>,
}

/// Implements `known_kind` and `resolve` for references across namespaces.
macro_rules! resolvable {
    ($($name:ident),+) => {$(
        impl $name {
            /// The kind, if it is in the table of kinds.
            pub fn known_kind(&self) -> Option<$crate::kind::Kind> {
                $crate::kind::Kind::from_group_kind(&self.group, &self.kind)
            }

            /// The target's name, if the referring object is in `own_namespace`.
            pub fn resolve(&self, own_namespace: &std::sync::Arc<str>) -> $crate::key::NamespacedName {
                $crate::key::NamespacedName {
                    namespace: self.namespace.as_ref().unwrap_or(own_namespace).clone(),
                    name: self.name.clone(),
                }
            }
        }
    )+};
}

resolvable!(
    ObjectReference,
    SecretObjectReference,
    BackendObjectReference,
    ParentReference,
    ParentGatewayReference
);

pub(crate) use resolvable;

impl LocalObjectReference {
    /// The kind, if it is in the table of kinds.
    pub fn known_kind(&self) -> Option<Kind> {
        Kind::from_group_kind(&self.group, &self.kind)
    }
}
