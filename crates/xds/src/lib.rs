//! A delta aggregated discovery server for fleets of Envoys.
//!
//! In: per fleet, [`Update`]s of resources, each a type, a name and encoded bytes ([`Registry::apply`]).
//! Out: what each Envoy of the fleet lacks, in an order that never lets traffic meet a half-made
//! config, and [`Event`]s that say what became of it.
//!
//! It must not know: what is inside a resource. It never decodes one; the little it has to know of
//! the types (their urls and their order) is the table in [`resource`].
//!
//! The parts, from the inside out:
//!
//! - [`resource`]: the data, and the table of types.
//! - `pending`: names that wait to be sent, ordered by the change that made them wait.
//! - `subscription`: what one client asked for of one type.
//! - `nack`: whom a rejection accuses.
//! - `ordering`: which changes may go out now (make before break).
//! - `lane`: one type on one stream. `session`: all types of one stream. Both are pure state machines:
//!   requests, time and the fleet go in, responses come out; no IO.
//! - `fleet`: what all clients of a fleet share: tables, change log, verdicts.
//! - `codec`, `stream`, `server`: the thin shell of gRPC and tasks around it.
//! - [`tls`]: the same for clients that have to prove which fleet they are of.

mod codec;
mod config;
mod event;
mod fleet;
mod lane;
mod nack;
mod ordering;
mod pending;
pub mod resource;
mod server;
mod session;
mod stream;
mod subscription;
mod thrift;
pub mod tls;
mod traffic;

pub use config::{Authorize, Config, Limits, TakesVariants};
pub use event::{Event, Events};
pub use fleet::{ClientStatus, FleetStatus, Rejection, TypeStatus};
pub use resource::{FleetId, Resource, ResourceType, Update, Version};
pub use server::{AdsService, Registry, ServeError};
pub use traffic::Traffic;

/// The encoded bytes of a resource: cheap to clone, shared by all streams.
pub use prost::bytes::Bytes;
