//! Fleets: their identity, what is requested of them and what is known about them.

mod id;
mod parameters;
mod request;
mod state;

pub use id::{FleetId, ParseFleetIdError};
pub use parameters::{
    Autoscaling, FleetLogLevel, FleetParameters, ServiceType, TaintEffect, Toleration,
    TrafficPolicy, Workload,
};
pub use request::{AddressRequest, FleetRequest, GatewayOwner};
pub use state::{FleetAddress, FleetProblem, FleetState};
