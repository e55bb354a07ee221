//! Fleets: their identity, requested configuration and observed state.

mod id;
mod parameters;
mod request;
mod state;
mod upgrades;

pub use id::{FleetId, ParseFleetIdError};
pub use parameters::{
    Autoscaling, ClassParameters, CreatedClass, FleetLogLevel, FleetParameters, OuterClass,
    Publishing, TaintEffect, Toleration, TrafficPolicy, Workload,
};
pub use request::{
    AddressRequest, AddressValue, FLEET_LABEL, FleetRequest, GatewayOwner, Routability,
};
pub use state::{FleetAddress, FleetProblem, FleetState};
pub use upgrades::UpgradeProgress;
