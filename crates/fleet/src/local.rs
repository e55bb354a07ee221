//! Fleets of one Envoy each, as child processes on this machine.
//!
//! In: an Envoy binary and bootstraps. Out: supervised processes, the loopback addresses that they may use, and
//! what stands in the way of a port.
//! It must not know what the Envoys serve.

pub mod addresses;
pub mod admin;
pub mod binary;
pub mod ports;

mod backoff;
mod event;
mod launch;
mod log;
mod paths;
mod supervisor;
mod worker;

pub use backoff::Backoff;
pub use event::{Event, Events};
pub use log::{Level, Line};
pub use paths::FleetDir;
pub use supervisor::{BootstrapFormat, Config, FleetSpec, Supervisor};
