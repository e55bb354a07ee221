//! Runs Envoys. A fleet is a set of Envoys with the same configuration.
//!
//! In: the desired fleets, with each fleet's bootstrap. Out: processes or pods, and events about them. Must not depend
//! on the contents of a bootstrap, on routes or on xDS.
//!
//! - [`local`]: processes on this machine.
//! - `kube`: pods in a cluster; behind the feature of the same name, which is on by default.
//! - [`module`]: the dynamic module that Envoys load.

#[cfg(feature = "kube")]
pub mod kube;
pub mod local;
pub mod module;

/// Envoy's argument for not searching resources for unknown fields, which takes nearly half of the time for a route
/// table. Envoy would accept such fields anyway, and only log them.
const IGNORE_UNKNOWN: &str = "--ignore-unknown-dynamic-fields";
