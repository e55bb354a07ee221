//! ReferenceGrant: permission for references into a namespace.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::kind_name::{Group, KindName};
use crate::meta::Meta;
use crate::object::resource;

/// A ReferenceGrant. It has no status.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceGrant {
    /// The metadata. References may point into the grant's namespace.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// The spec.
    pub spec: ReferenceGrantSpec,
}

resource! { ReferenceGrant {
    fn check(&self) -> Check {
        check::at("spec", check::policy::reference_grant(&self.spec))
    }
} }

/// The spec of a ReferenceGrant: every pair of `from` and `to` is granted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferenceGrantSpec {
    /// The sources of references, 1 to 16 entries.
    pub from: Vec<ReferenceGrantFrom>,
    /// The targets, 1 to 16 entries.
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

/// All objects of one kind in the grant's namespace, or one of them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReferenceGrantTo {
    /// The group; empty for the core group.
    pub group: Group,
    /// The kind.
    pub kind: KindName,
    /// The name; all objects of the kind if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
}
