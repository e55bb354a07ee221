//! Envoys in a cluster: reconciles the objects that run them.
//!
//! In: the desired fleets. Out: Kubernetes objects, and the state of each fleet. Must not depend on routes or on
//! Envoy's configuration.
//!
//! Each fleet has a Deployment or a DaemonSet, a Service and related objects. A Gateway's fleet lives in the Gateway's
//! namespace, and its ownerReferences delete it with the Gateway; a fleet without an owner lives in Sesame's own
//! namespace, as do all fleets if so configured. Every replica of Sesame watches these objects; the leader writes them
//! by server-side apply, and only where they differ from the desired state. Fields added by other clients are kept,
//! fields overwritten by them are restored, and an object of the same name that Sesame didn't create is never modified.
//!
//! - [`start`]: starts the reconciling task; [`Provisioner`] sets the desired state, [`FleetStates`] reports the
//!   observed state.
//! - [`pod_services`]: Services for XBackends, so that Kubernetes finds their Pods.
//! - [`identity`]: the certificates for mutual TLS between Envoys and Sesame.
//! - [`sidecar`]: each Envoy's sidecar, for readiness and graceful shutdown.
//! - [`layout`], [`names`], [`pods_selector`]: shared paths, ports, names and labels.

pub mod identity;
pub mod layout;
pub mod names;
pub mod pod_services;
pub mod sidecar;

mod addresses;
mod apply;
mod class_finalizer;
mod desired;
mod fingerprint;
mod fleet;
mod fleets;
mod kind;
mod labels;
mod observed;
mod provisioner;
mod removal;
mod spec;
#[cfg(test)]
mod testing;
mod upgrades;
mod watch;

pub use class_finalizer::{release_classes, set_class_finalizer};
pub use labels::pods_selector;
pub use provisioner::{FleetStates, Provisioner, start};
pub use removal::remove_fleets;
pub use spec::{FleetSpec, FleetsConfig};
