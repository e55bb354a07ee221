//! Envoys in a cluster: the objects that run them, kept as they should be.
//!
//! In: what fleets there should be. Out: Kubernetes objects, and what has become of them. It must not know what a
//! route is, nor what an Envoy is configured with.
//!
//! Each fleet has a Deployment or a DaemonSet, a Service and what belongs to them, in its Gateway's namespace and owned by
//! the Gateway, so that they go with it. Every replica of Sesame watches them; the one that leads writes, by server-side
//! apply and only where something differs from what it would say. What others add is left alone, what they overwrite is put
//! back, and an object of the same name that Sesame hasn't made is never touched.
//!
//! - [`start`]: the task that does this; [`Provisioner`] says what should be, [`Observation`] what is.
//! - [`identity`]: the certificates with which Envoys and Sesame know each other.
//! - [`sidecar`]: the process beside each Envoy, which says when it is ready and sees it off.
//! - [`layout`], [`names`]: what the parts agree on.

pub mod identity;
pub mod layout;
pub mod names;
pub mod sidecar;

mod addresses;
mod apply;
mod desired;
mod fingerprint;
mod fleet;
mod fleets;
mod kind;
mod labels;
mod provisioner;
mod seen;
mod spec;
#[cfg(test)]
mod testing;
mod watch;

pub use provisioner::{Observations, Provisioner, start};
pub use spec::{Config, FleetSpec, Observation, Port, Problem, Transport};
