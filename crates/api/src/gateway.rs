//! Gateway: listeners on addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::condition::Condition;
use crate::listener::{FromNamespaces, FrontendTls, Listener, ListenerStatus};
use crate::meta::{LabelSelector, Meta};
use crate::named::Named;
use crate::object::resource;
use crate::open_enum::open_enum;
use crate::reference::{LocalObjectReference, SecretObjectReference};
use crate::route::DefaultScope;

/// A Gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gateway {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// The spec.
    pub spec: GatewaySpec,
    /// The status.
    #[serde(default, skip_serializing_if = "GatewayStatus::is_empty")]
    pub status: GatewayStatus,
}

resource! { Gateway {
    fn check(&self) -> Check {
        check::at("spec", check::gateway::gateway(&self.spec))
    }

    fn references(&self, named: &mut Named) {
        named.by_gateway(self);
    }
} }

/// The spec of a Gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// The name of the Gateway's class.
    pub gateway_class_name: Arc<str>,
    /// The listeners, 1 to 64.
    pub listeners: Vec<Listener>,
    /// The requested addresses; if empty, any address.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<GatewaySpecAddress>,
    /// Settings for the generated infrastructure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure: Option<Box<GatewayInfrastructure>>,
    /// The ListenerSets that may attach; none if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_listeners: Option<Box<AllowedListeners>>,
    /// TLS settings for clients and backends, for all listeners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Box<GatewayTls>>,
    /// The routes for which this is a default Gateway (experimental).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_scope: Option<DefaultScope>,
}

/// The ListenerSets that may attach to a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowedListeners {
    /// The allowed namespaces; none by default.
    #[serde(default)]
    pub namespaces: ListenerNamespaces,
}

/// The namespaces from which ListenerSets may attach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerNamespaces {
    /// The rule; `None` by default.
    #[serde(default = "FromNamespaces::none")]
    pub from: FromNamespaces,
    /// The labels of the allowed namespaces, if `from` is `Selector`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub selector: Option<LabelSelector>,
}

impl Default for ListenerNamespaces {
    fn default() -> Self {
        ListenerNamespaces {
            from: FromNamespaces::None,
            selector: None,
        }
    }
}

/// TLS settings for all listeners of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayTls {
    /// TLS settings for connections to backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendTls>,
    /// TLS settings for client connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontend: Option<FrontendTls>,
}

/// TLS settings for connections from a Gateway to its backends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTls {
    /// The client certificate of the Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_ref: Option<SecretObjectReference>,
}

/// Settings for the infrastructure generated for a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayInfrastructure {
    /// Labels for all generated objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations for all generated objects.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// The object with the parameters of this Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<LocalObjectReference>,
}

/// A requested address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpecAddress {
    /// The type; IPAddress by default.
    #[serde(rename = "type", default)]
    pub type_: AddressType,
    /// The address; if empty, any address of the type.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The required routability (experimental).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routability: Option<Routability>,
}

/// An assigned address.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatusAddress {
    /// The type; IPAddress by default.
    #[serde(rename = "type", default)]
    pub type_: AddressType,
    /// The address.
    pub value: String,
    /// The routability (experimental). `None` means unknown, which is not the same as empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routability: Option<Routability>,
}

open_enum! {
    /// The type of an address.
    #[derive(Default)]
    pub enum AddressType {
        /// An IPv4 or IPv6 address.
        #[default]
        IpAddress = "IPAddress",
        /// A hostname.
        Hostname = "Hostname",
        /// An implementation-specific name.
        NamedAddress = "NamedAddress",
    }
}

open_enum! {
    /// The routability of an address (experimental, GEP-5093).
    #[derive(Default)]
    pub enum Routability {
        /// Decided by the implementation; written as the empty string.
        #[default]
        Default = "",
        /// Inside the cluster.
        Cluster = "Cluster",
    }
}

/// The status of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// The assigned addresses.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<GatewayStatusAddress>,
    /// The conditions; see [`crate::condition::gateway`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// The Gateway's own listeners, not those of ListenerSets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerStatus>,
    /// The number of attached ListenerSets.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_listener_sets: Option<i32>,
}

impl GatewayStatus {
    /// Whether every field is empty.
    pub fn is_empty(&self) -> bool {
        *self == GatewayStatus::default()
    }
}
