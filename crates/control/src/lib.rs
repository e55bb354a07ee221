//! Wires the crates together: from a source of objects to running Envoys, statuses and events.
//!
//! In: objects and settings, as plain values. Out: resources for Envoys, statuses, events. It must not depend on
//! command lines or terminals, and it doesn't translate: that is the job of `sesame-translate`.
//!
//! - [`translate()`]: once, without Envoys and without a network.
//! - [`local`]: a local run, with its own Envoys on this machine.
//! - [`serve`]: a replica in a cluster.
//! - [`operator`]: the operator, which runs instances of Sesame.
//! - [`cluster`]: reads the statuses in a cluster.
//! - [`bootstrap()`]: the bootstrap of an unmanaged Envoy.

mod admin;
mod bootstrap;
mod class;
pub mod cluster;
mod containment;
pub mod core;
pub mod event;
mod liveness;
pub mod local;
mod metrics;
pub mod operator;
mod plan;
mod progress;
mod runner;
mod running;
pub mod serve;
pub mod status_store;
mod streams;
mod translate;
mod translator;

pub use self::bootstrap::{BootstrapError, bootstrap};
pub use self::translate::{Resources, StatusView, Translation, translate, translate_with};

/// Input for a bootstrap.
pub use sesame_envoy::{Admin, BootstrapOptions, HeapLimit, MAX_CONNECTIONS, XdsAddress, XdsTls};
/// Options for a translation.
pub use sesame_envoy::{Options, Sharding};
/// The sidecar of each Envoy of a managed fleet.
pub use sesame_fleet::kube::sidecar;
/// The version of Envoy that Sesame supports and is tested with.
pub use sesame_fleet::local::binary::VERSION as ENVOY_VERSION;
/// Which Envoy to run, and its log levels.
pub use sesame_fleet::local::{Level as EnvoyLog, binary};
/// Sesame's module, which Envoys load from a file.
pub use sesame_fleet::module;
/// The name of a fleet.
pub use sesame_model::{FleetId, Port};
/// Files as a source of objects.
pub use sesame_sources::files;
/// The settings in a SesameConfiguration.
pub use sesame_translate::configuration::settings as configured_settings;
/// A problem with a field.
pub use sesame_translate::problem::FieldError;
/// The settings for a translation, and their defaults.
pub use sesame_translate::settings::{
    ElectionSettings, INGRESS_CLASS, IngressSettings, Mode, RATE_LIMIT_DOMAIN, RateLimitSettings,
    Settings, StartSettings,
};
