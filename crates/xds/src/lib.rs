//! An xDS server for fleets of Envoys: incremental (delta) aggregated discovery.
//!
//! In: [`Update`]s of a fleet's resources, each a type, a name and encoded bytes ([`Registry::apply`]). Out: the
//! resources that each Envoy of the fleet lacks, ordered so that traffic never sees a partial configuration, and
//! [`XdsEvent`]s.
//!
//! Resources are never decoded. [`resource`] holds everything type-specific.
//!
//! From the inside out:
//!
//! - `pending`: names to send, by epoch. `subscription`: the names that a client subscribed to. `nack`: finds the
//!   resources that a NACK names. `ordering`: make before break.
//! - `type_state`: one type on one stream. `session`: all types of a stream. Both are pure state machines without IO.
//! - `fleet`: state shared by a fleet's clients: resources, change log, accepted and rejected versions.
//! - `wire`, `grpc`, `stream`, `server`: messages, their framing, and tasks.
//! - [`tls`]: mutual TLS, where certificates identify fleets.

mod config;
mod event;
mod fleet;
#[cfg(fuzzing)]
pub mod fuzzing;
mod grpc;
mod nack;
mod ordering;
mod pending;
pub mod resource;
mod sent;
mod server;
mod session;
mod shrink;
mod stream;
mod subscription;
pub mod tls;
mod type_state;
mod wire;

pub use config::{Authorize, Limits, ServerConfig, SupportsVariants};
pub use event::{ClientId, EventReceiver, XdsEvent};
pub use fleet::{ClientStatus, FleetStatus, Rejection, TypeStatus};
pub use resource::{FleetId, Resource, ResourceType, Update, Version};
pub use sent::SentTotals;
pub use server::{Registry, ServeError};

/// The encoded bytes of a resource: cheap to clone, shared by all streams.
pub use prost::bytes::Bytes;
