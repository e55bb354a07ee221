//! Fleets: what they are called, and what may be chosen about them.

mod parameters;

use std::fmt;
use std::sync::Arc;

pub use parameters::{
    Autoscaling, FleetLogLevel, FleetParameters, ServiceType, TaintEffect, Toleration,
    TrafficPolicy, Workload,
};

/// The name of a fleet: a set of Envoys with the same configuration. Envoy says it as `node.cluster`.
///
/// A Gateway's own fleet is called `namespace/name`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetId(pub Arc<str>);

impl FleetId {
    /// The fleet of the Gateway `namespace/name`.
    pub fn of_gateway(namespace: &str, name: &str) -> Self {
        Self(format!("{namespace}/{name}").into())
    }

    /// The only fleet where somebody else runs the Envoys. No Gateway's own fleet is called so.
    pub fn unmanaged() -> Self {
        Self("unmanaged".into())
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
