//! Gateway: listeners on addresses, and who may use them.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::condition::Condition;
use crate::listener::{FromNamespaces, FrontendTls, Listener, ListenerStatus};
use crate::meta::{LabelSelector, Meta};
use crate::open_enum::open_enum;
use crate::reference::{LocalObjectReference, SecretObjectReference};
use crate::route::DefaultScope;

/// A Gateway.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gateway {
    /// The metadata.
    #[serde(rename = "metadata")]
    pub meta: Meta,
    /// What is wanted.
    pub spec: GatewaySpec,
    /// What became of it.
    #[serde(default, skip_serializing_if = "GatewayStatus::is_empty")]
    pub status: GatewayStatus,
}

/// What a Gateway wants.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpec {
    /// The name of its GatewayClass.
    pub gateway_class_name: Arc<str>,
    /// The listeners, 1 to 64.
    pub listeners: Vec<Listener>,
    /// The addresses asked for; any when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<GatewaySpecAddress>,
    /// Wishes about the generated infrastructure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub infrastructure: Option<Box<GatewayInfrastructure>>,
    /// Which ListenerSets may attach; none when missing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allowed_listeners: Option<Box<AllowedListeners>>,
    /// TLS towards clients and backends, for all listeners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Box<GatewayTls>>,
    /// For which routes this is a default Gateway (experimental).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_scope: Option<DefaultScope>,
}

/// Which ListenerSets may attach to a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllowedListeners {
    /// From which namespaces; none by default.
    #[serde(default)]
    pub namespaces: ListenerNamespaces,
}

/// From which namespaces ListenerSets may attach.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListenerNamespaces {
    /// The rule; `None` by default.
    #[serde(default = "FromNamespaces::none")]
    pub from: FromNamespaces,
    /// The namespaces' labels, with `Selector`.
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

/// TLS for all listeners of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayTls {
    /// Towards backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backend: Option<BackendTls>,
    /// Towards clients.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub frontend: Option<FrontendTls>,
}

/// TLS of a Gateway towards backends.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BackendTls {
    /// The certificate that the Gateway shows to backends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate_ref: Option<SecretObjectReference>,
}

/// Wishes about the infrastructure generated for a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayInfrastructure {
    /// Labels for every generated object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// Annotations for every generated object.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// An object with parameters of this one Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_ref: Option<LocalObjectReference>,
}

/// An address that a Gateway asks for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewaySpecAddress {
    /// The type; IPAddress by default.
    #[serde(rename = "type", default)]
    pub type_: AddressType,
    /// The address; any of that type when empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// From where it must be reachable (experimental).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routability: Option<Routability>,
}

/// An address that a Gateway has.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatusAddress {
    /// The type; IPAddress by default.
    #[serde(rename = "type", default)]
    pub type_: AddressType,
    /// The address.
    pub value: String,
    /// From where it is reachable (experimental). Missing and empty differ: missing says nothing.
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
        /// A name that the implementation understands.
        NamedAddress = "NamedAddress",
    }
}

open_enum! {
    /// From where an address is reachable (experimental, GEP-5093).
    #[derive(Default)]
    pub enum Routability {
        /// From wherever the implementation decides; written as the empty string.
        #[default]
        Default = "",
        /// From inside the cluster.
        Cluster = "Cluster",
    }
}

/// What became of a Gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GatewayStatus {
    /// The addresses it has.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<GatewayStatusAddress>,
    /// The conditions; see [`crate::condition::gateway`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Its own listeners, not those of ListenerSets.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub listeners: Vec<ListenerStatus>,
    /// How many ListenerSets are attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attached_listener_sets: Option<i32>,
}

impl GatewayStatus {
    /// Whether nothing is reported.
    pub fn is_empty(&self) -> bool {
        *self == GatewayStatus::default()
    }
}
