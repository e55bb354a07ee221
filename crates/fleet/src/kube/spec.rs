//! What is wanted of a fleet, and what has become of it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use sesame_api::{GatewaySpecAddress, GatewayStatusAddress, NamespacedName};
use sesame_model::FleetParameters;

/// What all fleets have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// Tells our objects from those of other Sesames in the same cluster: the value of `app.kubernetes.io/instance`, so
    /// a label's value. Sesame's own namespace will do.
    pub instance: String,
    /// The image of Envoy, where parameters name none.
    pub envoy_image: String,
    /// Sesame's own image, for the process beside each Envoy.
    pub sidecar_image: String,
    /// The namespaces that may be looked into; `None`: all.
    pub namespaces: Option<Vec<String>>,
    /// How many fleets are written at the same time.
    pub concurrency: usize,
}

impl Config {
    /// All namespaces, eight fleets at a time.
    pub fn new(
        instance: impl Into<String>,
        envoy_image: impl Into<String>,
        sidecar_image: impl Into<String>,
    ) -> Self {
        Self {
            instance: instance.into(),
            envoy_image: envoy_image.into(),
            sidecar_image: sidecar_image.into(),
            namespaces: None,
            concurrency: 8,
        }
    }
}

/// A fleet as it should be.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSpec {
    /// The Gateway that it serves, which owns all its objects.
    pub gateway: NamespacedName,
    /// The Gateway's uid.
    pub gateway_uid: String,
    /// The name of the Gateway's class.
    pub gateway_class: Arc<str>,
    /// Labels that its owner wants on every object (`spec.infrastructure.labels`).
    pub labels: BTreeMap<String, String>,
    /// Annotations that its owner wants on every object (`spec.infrastructure.annotations`).
    pub annotations: BTreeMap<String, String>,
    /// The ports at which clients come. Envoys listen on just these.
    pub ports: BTreeSet<Port>,
    /// The addresses asked for; empty: any.
    pub addresses: Vec<GatewaySpecAddress>,
    /// What its owner chose.
    pub parameters: FleetParameters,
    /// Envoy's bootstrap as JSON. It names files and sockets as [`super::layout`] has them, and no node id.
    pub bootstrap: Arc<str>,
    /// Whether Sesame's module is to lie in [`super::layout::RUN`] before Envoy starts, as the bootstrap then says.
    pub module: bool,
    /// Further files, which the bootstrap names in [`super::layout::CONFIG`].
    pub files: BTreeMap<String, String>,
}

/// A port of a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port {
    /// Its number.
    pub number: u16,
    /// What is spoken there.
    pub transport: Transport,
}

impl Port {
    /// A TCP port.
    pub fn tcp(number: u16) -> Self {
        Self {
            number,
            transport: Transport::Tcp,
        }
    }

    /// A UDP port.
    pub fn udp(number: u16) -> Self {
        Self {
            number,
            transport: Transport::Udp,
        }
    }
}

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// What has become of a fleet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// Where clients reach it: sorted, no doubles.
    pub addresses: Vec<GatewayStatusAddress>,
    /// What stands in the way, the weightiest first.
    pub problem: Option<Problem>,
    /// Envoys that have their listeners.
    pub available: u32,
    /// Envoys that there should be, as far as the cluster has said.
    pub replicas: u32,
}

/// What stands in the way of a fleet: each a sentence for its owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Problem {
    /// An address of a type that we can't give.
    UnsupportedAddress(String),
    /// Objects that can't be made: something else has the name, or we may not.
    NoResources(String),
    /// An address that was asked for and isn't there.
    AddressNotUsable(String),
    /// There is no address yet.
    AddressNotAssigned(String),
}

impl Problem {
    /// The sentence.
    pub fn message(&self) -> &str {
        match self {
            Self::UnsupportedAddress(text)
            | Self::NoResources(text)
            | Self::AddressNotUsable(text)
            | Self::AddressNotAssigned(text) => text,
        }
    }
}
