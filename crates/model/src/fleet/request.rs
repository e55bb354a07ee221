use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use super::FleetParameters;
use crate::Port;

/// The label with the name of a fleet, on its objects in a cluster.
pub const FLEET_LABEL: &str = "projectsesame.io/fleet";

/// A fleet that should exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetRequest {
    /// The Gateway that owns the fleet's objects; `None` for a fleet shared by several objects.
    pub owner: Option<GatewayOwner>,
    /// Labels for all objects of the fleet (`spec.infrastructure.labels`).
    pub labels: BTreeMap<String, String>,
    /// Annotations for all objects of the fleet (`spec.infrastructure.annotations`).
    pub annotations: BTreeMap<String, String>,
    /// The requested addresses; if empty, any address.
    pub addresses: Vec<AddressRequest>,
    /// The ports that clients connect to; may be empty. In a cluster, they include ports of listeners whose certificate
    /// is missing, so that the fleet keeps its address if a Secret is missing.
    pub ports: BTreeSet<Port>,
    /// The parameters of the owner and its class. `None` while they are invalid: an existing fleet keeps the last valid
    /// ones, and a new fleet isn't created.
    pub parameters: Option<FleetParameters>,
}

/// The Gateway that owns a fleet's objects, which are deleted with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayOwner {
    /// The Gateway's name; its namespace is the fleet's.
    pub name: Arc<str>,
    /// The Gateway's UID, which changes when it is recreated. Empty outside a cluster.
    pub uid: String,
    /// The name of the Gateway's class.
    pub class: Arc<str>,
}

/// A requested address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AddressRequest {
    /// The address.
    pub address: AddressValue,
    /// The scope from which it must be reachable.
    pub routability: Routability,
}

/// The scope from which an address is reachable (GEP-5093).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Routability {
    /// Decided by Sesame; in a cluster, by the load balancer.
    #[default]
    Default,
    /// From inside the cluster: a cluster IP.
    Cluster,
    /// A domain-prefixed name.
    Other(String),
}

impl fmt::Display for Routability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Default => "",
            Self::Cluster => "Cluster",
            Self::Other(name) => name,
        })
    }
}

/// The type and value of a requested address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressValue {
    /// Any IP address.
    Any,
    /// This IP address.
    Ip(IpAddr),
    /// A value that should be an IP address but isn't.
    InvalidIp(String),
    /// This hostname; if empty, any hostname.
    Hostname(String),
    /// An address of another type, with that type's name.
    Other(String),
}

impl From<AddressValue> for AddressRequest {
    fn from(address: AddressValue) -> Self {
        Self {
            address,
            routability: Routability::Default,
        }
    }
}

impl FleetRequest {
    /// A fleet without an owner or ports, with default parameters.
    pub fn new() -> Self {
        Self {
            owner: None,
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            addresses: Vec::new(),
            ports: BTreeSet::new(),
            parameters: Some(FleetParameters::default()),
        }
    }
}

impl Default for FleetRequest {
    fn default() -> Self {
        Self::new()
    }
}
