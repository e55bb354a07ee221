//! ListenerSet: additional listeners for a Gateway, possibly from another namespace.

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::condition::Condition;
use crate::listener::{Listener, ListenerStatus};
use crate::meta::Meta;
use crate::named::Named;
use crate::object::resource;
use crate::reference::ParentGatewayReference;

/// A ListenerSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListenerSet {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// The spec.
    pub spec: ListenerSetSpec,
    /// The status.
    #[serde(default, skip_serializing_if = "ListenerSetStatus::is_empty")]
    pub status: ListenerSetStatus,
}

resource! { ListenerSet {
    fn check(&self) -> Check {
        check::at("spec", check::gateway::listener_set(&self.spec))
    }

    fn references(&self, named: &mut Named) {
        named.by_listeners(&self.meta.namespace, &self.spec.listeners);
    }
} }

/// The spec of a ListenerSet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerSetSpec {
    /// The Gateway to attach to.
    pub parent_ref: ParentGatewayReference,
    /// The listeners, 1 to 64.
    pub listeners: Vec<Listener>,
}

/// The status of a ListenerSet.
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
    /// Whether every field is empty.
    pub fn is_empty(&self) -> bool {
        self.conditions.is_empty() && self.listeners.is_empty()
    }
}
