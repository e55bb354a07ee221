use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use super::FleetParameters;
use crate::Port;

/// A fleet that should exist.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetRequest {
    /// The Gateway that owns the fleet's objects; `None` for a fleet that several objects share.
    pub owner: Option<GatewayOwner>,
    /// Labels for every object of the fleet (`spec.infrastructure.labels`).
    pub labels: BTreeMap<String, String>,
    /// Annotations for every object of the fleet (`spec.infrastructure.annotations`).
    pub annotations: BTreeMap<String, String>,
    /// The requested addresses; empty: any address.
    pub addresses: Vec<AddressRequest>,
    /// The ports that clients connect to; may be empty. In a cluster they include the ports of listeners whose certificate
    /// is missing, so that a missing Secret doesn't cost the fleet its address.
    pub ports: BTreeSet<Port>,
    /// The parameters of the owner and of its class. `None` while they are invalid: an existing fleet keeps the last valid
    /// ones, and a new fleet isn't created.
    pub parameters: Option<FleetParameters>,
}

/// The Gateway that owns a fleet's objects, which are deleted with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GatewayOwner {
    /// The Gateway's name; its namespace is the fleet's.
    pub name: Arc<str>,
    /// The Gateway's uid: a Gateway that is deleted and created again has another one. Empty outside a cluster.
    pub uid: String,
    /// The name of the Gateway's class.
    pub class: Arc<str>,
}

/// A requested address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressRequest {
    /// Any IP address.
    Any,
    /// This IP address.
    Ip(IpAddr),
    /// A value that should be an IP address and isn't.
    InvalidIp(String),
    /// This hostname; empty: any hostname.
    Hostname(String),
    /// An address of another type, by the type's name.
    Other(String),
}

impl FleetRequest {
    /// A fleet without owner and ports, with default parameters.
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
