//! The rooms, wired: from a source of objects to running Envoys, and to data for whoever looks.
//!
//! In: objects and settings, as plain values. Out: what Envoys get, statuses, events. It must not know how a
//! command line is written or a terminal drawn, and it translates nothing itself: that is `sesame-translate`'s.
//!
//! - [`translate()`]: once, without Envoys and without a network.
//! - [`local`]: for as long as wanted, with Envoys of its own on this machine.
//! - [`serve`]: as a replica in a cluster.
//! - [`cluster`]: a look at the statuses in a cluster.
//! - [`bootstrap()`]: what an Envoy starts with that somebody else runs.

mod admin;
pub mod board;
mod bootstrap;
mod class;
pub mod cluster;
pub mod core;
pub mod event;
pub mod local;
mod metrics;
mod owner;
mod place;
mod plan;
mod progress;
mod running;
pub mod serve;
mod streams;
mod translate;

pub use self::bootstrap::{BootstrapError, bootstrap};
pub use self::translate::{Resources, StatusView, Translation, translate};

/// What a bootstrap depends on.
pub use sesame_envoy::{Admin, BootstrapOptions, MAX_CONNECTIONS, XdsAddress, XdsTls};
/// What a translation depends on beside the objects.
pub use sesame_envoy::{Options, Sharding};
/// The process beside each Envoy of a managed fleet.
pub use sesame_fleet::kube::sidecar;
/// The version of Envoy that Sesame is made for and tested with.
pub use sesame_fleet::local::binary::VERSION as ENVOY_VERSION;
/// Which Envoy to run, and what it logs.
pub use sesame_fleet::local::{Level as EnvoyLog, binary};
/// What lies beside every Envoy for it to load.
pub use sesame_fleet::module;
/// The name of a fleet.
pub use sesame_model::FleetId;
/// Files as a source of objects.
pub use sesame_sources::files;
