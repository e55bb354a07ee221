//! Running Envoys: a fleet is a set of Envoys with the same configuration, and this crate keeps them alive.
//!
//! In: which fleets there should be, with the bootstrap of each. Out: processes or pods, and events about them.
//! It must not know what a bootstrap says, nor routes, nor xDS.
//!
//! - [`local`]: processes on this machine.
//! - `kube`: pods of a cluster; behind the feature of that name, which is on unless asked otherwise.
//! - [`module`]: what lies beside every Envoy for it to load.

#[cfg(feature = "kube")]
pub mod kube;
pub mod local;
pub mod module;
