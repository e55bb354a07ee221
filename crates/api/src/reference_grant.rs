//! ReferenceGrant: permission to refer into a namespace.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::kind::{Group, KindName};
use crate::meta::Meta;

/// A ReferenceGrant. It has no status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceGrant {
    /// The metadata; the namespace is the one that is opened.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// What is granted.
    pub spec: ReferenceGrantSpec,
}

/// Who may refer to what; every pair of both lists is granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceGrantSpec {
    /// Who may refer, 1 to 16 entries.
    pub from: Vec<ReferenceGrantFrom>,
    /// What may be referred to, 1 to 16 entries.
    pub to: Vec<ReferenceGrantTo>,
}

/// Objects of one kind in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReferenceGrantFrom {
    /// The group; empty for the core group.
    pub group: Group,
    /// The kind.
    pub kind: KindName,
    /// The namespace.
    pub namespace: Arc<str>,
}

/// Objects of one kind, or one of them, in the grant's namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReferenceGrantTo {
    /// The group; empty for the core group.
    pub group: Group,
    /// The kind.
    pub kind: KindName,
    /// The name; all of the kind when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
}
