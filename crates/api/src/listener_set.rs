//! ListenerSet: further listeners for somebody else's Gateway.

use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::listener::{Listener, ListenerStatus};
use crate::meta::Meta;
use crate::reference::ParentGatewayReference;

/// A ListenerSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerSet {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// What is wanted.
    pub spec: ListenerSetSpec,
    /// What became of it.
    #[serde(default, skip_serializing_if = "ListenerSetStatus::is_empty")]
    pub status: ListenerSetStatus,
}

/// What a ListenerSet wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerSetSpec {
    /// The Gateway to attach to.
    pub parent_ref: ParentGatewayReference,
    /// The listeners, 1 to 64.
    pub listeners: Vec<Listener>,
}

/// What became of a ListenerSet.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerSetStatus {
    /// The conditions; see [`crate::condition::listener_set`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The set's listeners.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerStatus>,
}

impl ListenerSetStatus {
    /// Whether nothing is reported.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.listeners.is_empty()
    }
}
