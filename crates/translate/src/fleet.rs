//! What is known of fleets from outside: where they listen, and what their Envoys have refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

use sesame_api::{GatewaySpecAddress, NamespacedName};
use sesame_model::{FleetId, FleetParameters};

/// A fleet that there should be.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetRequest {
    /// The Gateway that it serves.
    pub gateway: NamespacedName,
    /// The Gateway's uid: another one is another Gateway, even of the same name. Empty outside a cluster.
    pub gateway_uid: String,
    /// The name of the Gateway's class.
    pub class: Arc<str>,
    /// Labels for every object that is made for the fleet (`spec.infrastructure.labels`).
    pub labels: BTreeMap<String, String>,
    /// Annotations, likewise.
    pub annotations: BTreeMap<String, String>,
    /// The addresses that the Gateway asks for; empty: any.
    pub addresses: Vec<GatewaySpecAddress>,
    /// The TCP ports at which clients come. In a cluster those of a listener whose certificate is missing are among them, so
    /// that an address isn't given back for want of a Secret. May be empty.
    pub ports: BTreeSet<u16>,
    /// What its owner and its class's owner chose. `None`: that can't be read, so what runs of the fleet is to go on as it is,
    /// but for its ports, and nothing is to be made anew.
    pub parameters: Option<FleetParameters>,
}

impl FleetRequest {
    /// Of a Gateway that asks for nothing.
    pub fn new(gateway: NamespacedName) -> Self {
        Self {
            gateway,
            gateway_uid: String::new(),
            class: "".into(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            addresses: Vec::new(),
            ports: BTreeSet::new(),
            parameters: Some(FleetParameters::default()),
        }
    }
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
    /// Added to a Gateway's port to get the one that is bound, in [`Mode::Local`](crate::settings::Mode::Local) alone.
    pub port_offset: u16,
    /// True when an Envoy runs and has its listeners.
    pub ready: bool,
}

/// An address of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetAddress {
    /// A number; what Envoy binds in [`Mode::Local`](crate::settings::Mode::Local).
    Ip(IpAddr),
    /// A name, such as load balancers in clouds have.
    Hostname(String),
}

impl FleetAddress {
    /// The number, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Hostname(_) => None,
        }
    }
}

/// As clients write it.
impl fmt::Display for FleetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Hostname(name) => f.write_str(name),
        }
    }
}

/// What is wrong with a fleet or with the addresses that its Gateway asks for: each a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AddressProblem {
    /// An address of a type that we can't give.
    Unsupported(String),
    /// An address that can't be had here.
    NotUsable(String),
    /// No address could be found.
    NotAssigned(String),
    /// What the fleet consists of can't be made.
    NoResources(String),
}

/// A resource that an Envoy has refused.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rejected {
    /// Whose Envoy.
    pub fleet: FleetId,
    /// What it is.
    pub what: RejectedKind,
    /// Its name on the wire. A shard of a route table is called like the table, with `#` and its number behind.
    pub name: Arc<str>,
}

impl Rejected {
    /// The route table that it is or is a shard of.
    pub(crate) fn table(&self) -> Option<&str> {
        let table = self.name.split('#').next();
        table.filter(|_| self.what == RejectedKind::Routes)
    }
}

/// Kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectedKind {
    /// A port.
    Listener,
    /// A route table or a shard of one.
    Routes,
    /// A Service port.
    Cluster,
    /// Its endpoints.
    Endpoints,
    /// A certificate.
    Secret,
}
