//! The status that all kinds of policies share.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::reference::ParentReference;

/// Status of a policy: one entry per ancestor (a Gateway) and controller.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PolicyStatus {
    /// The entries of all controllers; at most 16.
    #[serde(default)]
    pub ancestors: Vec<PolicyAncestorStatus>,
}

impl PolicyStatus {
    /// Whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.ancestors.is_empty()
    }
}

/// The status of a policy for one ancestor.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PolicyAncestorStatus {
    /// The ancestor.
    pub ancestor_ref: ParentReference,
    /// The controller that wrote the entry.
    pub controller_name: Arc<str>,
    /// The conditions; see [`crate::condition::policy`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
