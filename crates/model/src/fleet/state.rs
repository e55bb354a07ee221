use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use super::Routability;
use crate::Port;

/// The observed state of a fleet that exists or is being created.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetState {
    /// The addresses at which clients reach the fleet. Without duplicates; sorted where order doesn't matter.
    pub addresses: Vec<FleetAddress>,
    /// The routability of each address for which it isn't the default.
    pub routability: BTreeMap<FleetAddress, Routability>,
    /// The requested addresses that aren't assigned, each with its field and the reason. Empty outside a cluster.
    pub unassigned: Vec<String>,
    /// Why the fleet can't be created or can't get the requested addresses.
    pub problem: Option<FleetProblem>,
    /// Requested ports that are unavailable, with the reason as a sentence. Empty in a cluster.
    pub ports: BTreeMap<Port, String>,
    /// The offset from a requested port to the bound port. 0 in a cluster.
    pub port_offset: u16,
    /// True if an Envoy is running and has its listeners.
    pub ready: bool,
}

/// An address of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetAddress {
    /// An IP address.
    Ip(IpAddr),
    /// A hostname, such as a cloud load balancer's.
    Hostname(String),
}

impl FleetAddress {
    /// Parses an IP address; any other text is a hostname.
    pub fn parse(text: &str) -> Self {
        match text.parse() {
            Ok(ip) => Self::Ip(ip),
            Err(_) => Self::Hostname(text.to_owned()),
        }
    }

    /// The IP address; `None` for a hostname.
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::Ip(ip) => Some(*ip),
            Self::Hostname(_) => None,
        }
    }
}

impl fmt::Display for FleetAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip) => ip.fmt(f),
            Self::Hostname(name) => f.write_str(name),
        }
    }
}

/// Why a fleet is not as requested, with the reason as a sentence. More severe problems sort first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FleetProblem {
    /// An address of an unsupported type is requested.
    UnsupportedAddress(String),
    /// The fleet's objects can't be created.
    NoResources(String),
    /// A requested address is not available.
    AddressNotUsable(String),
    /// No address is assigned yet.
    AddressNotAssigned(String),
}

impl FleetProblem {
    /// The reason.
    pub fn message(&self) -> &str {
        match self {
            Self::UnsupportedAddress(message)
            | Self::NoResources(message)
            | Self::AddressNotUsable(message)
            | Self::AddressNotAssigned(message) => message,
        }
    }
}
