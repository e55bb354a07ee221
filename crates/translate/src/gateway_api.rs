//! Gateway API objects → model and statuses. One folder or file a question:
//!
//! - `class`: is a GatewayClass ours, and may it be used?
//! - `parameters`: what do classes and Gateways choose about fleets?
//! - `unmanaged`: which Gateway is served where only one can be?
//! - `gateway`, `listener`, `conflicts`: which listeners can be served?
//! - `attach`: which routes belong to which listeners?
//! - `http_route`: what do HTTPRoutes say, and in which order are they tried?
//! - `ports`: what listens, and with which tables?
//! - `fleet_request`: which Envoys does it take?
//! - `gateway_status`, `route_status`: what the objects' owners are told.

pub mod attach;
pub mod class;
mod conflicts;
pub(crate) mod fleet_request;
pub mod gateway;
pub(crate) mod gateway_status;
pub mod http_route;
mod listener;
pub mod parameters;
pub(crate) mod ports;
pub mod problem;
pub(crate) mod route_status;
pub(crate) mod unmanaged;
