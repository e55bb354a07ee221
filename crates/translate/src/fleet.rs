//! What is known of fleets from outside: where they listen, and what their Envoys have refused.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use sesame_api::{GatewaySpecAddress, NamespacedName};
use sesame_model::FleetId;

/// A fleet that there should be.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetRequest {
    /// The Gateway that it serves.
    pub gateway: NamespacedName,
    /// The addresses that the Gateway asks for; empty: any.
    pub addresses: Vec<GatewaySpecAddress>,
    /// The ports on which it is to listen.
    pub ports: BTreeSet<u16>,
}

/// A fleet as it is.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetState {
    /// Where clients reach it.
    pub addresses: Vec<FleetAddress>,
    /// What is wrong with the addresses asked for.
    pub problem: Option<AddressProblem>,
    /// Ports of the Gateway that can't be had, each with a sentence that says why.
    pub ports: BTreeMap<u16, String>,
    /// Added to a Gateway's port to get the one that is bound.
    pub port_offset: u16,
    /// True when an Envoy runs and has its listeners.
    pub ready: bool,
}

/// An address of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetAddress {
    /// As clients write it.
    pub value: String,
    /// Present where Envoy binds it.
    pub ip: Option<IpAddr>,
}

/// What is wrong with the addresses that a Gateway asks for: each a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressProblem {
    /// An address of a type that we can't give.
    Unsupported(String),
    /// An address that can't be had here.
    NotUsable(String),
    /// No address could be found.
    NotAssigned(String),
}

/// A resource that an Envoy has refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rejected {
    /// Whose Envoy.
    pub fleet: FleetId,
    /// What it is.
    pub what: RejectedKind,
    /// Its name on the wire.
    pub name: Arc<str>,
}

/// Kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectedKind {
    /// A port.
    Listener,
    /// A route table.
    Routes,
    /// A Service port.
    Cluster,
    /// Its endpoints.
    Endpoints,
    /// A certificate.
    Secret,
}
