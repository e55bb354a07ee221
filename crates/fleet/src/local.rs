//! Fleets of one Envoy each, as child processes on this machine.
//!
//! In: an Envoy binary and bootstraps. Out: supervised processes, their loopback addresses, and the reason if a port
//! can't be bound. Must not depend on Envoy's configuration.

pub mod addresses;
pub mod admin;
pub mod binary;
pub mod memory;
pub mod ports;

mod backoff;
mod event;
mod launch;
mod log;
mod paths;
mod supervisor;
mod worker;

pub use backoff::RestartBackoff;
pub use event::{ProcessEvent, ProcessEvents};
pub use log::{Level, Line};
pub use paths::FleetDir;
pub use supervisor::{BootstrapFormat, EnvoySpec, Supervisor, SupervisorConfig};
