//! ListenerSet: additional listeners for a Gateway, possibly from another namespace; and XListenerSet, its early kind.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::check::{self, Check};
use crate::condition::Condition;
use crate::decode::{DecodeError, typed};
use crate::listener::{Listener, ListenerStatus};
use crate::meta::Meta;
use crate::named::Named;
use crate::object::{Metadata, Resource, resource};
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

/// An XListenerSet: the kind from which ListenerSet emerged, in the experimental channel of Gateway API v1.3 and v1.4.
///
/// It differs in that the port of a listener may be 0, which is the default: Sesame assigns a port and reports it in the
/// status. Its listeners don't have filters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct XListenerSet(pub ListenerSet);

impl Resource for XListenerSet {
    fn metadata(&self) -> Metadata<'_> {
        self.0.metadata()
    }

    fn set_generation(&mut self, generation: i64) {
        self.0.set_generation(generation);
    }

    fn check(&self) -> Check {
        check::at("spec", check::gateway::early_listener_set(&self.0.spec))
    }

    fn references(&self, named: &mut Named) {
        self.0.references(named);
    }

    fn from_value(mut value: Value) -> Result<Box<Self>, DecodeError> {
        let listeners = value
            .pointer_mut("/spec/listeners")
            .and_then(Value::as_array_mut);
        for listener in listeners
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            listener.entry("port").or_insert(0.into());
            listener.remove("filters");
        }
        typed(value)
    }
}

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
