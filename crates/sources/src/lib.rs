//! Where objects come from.
//!
//! In: the outside world (files now, a Kubernetes API server beside them). Out: decoded objects as
//! [`change::Change`]s, and what could not be read as problems that name the place.
//! This crate must not know what objects mean together: nothing here knows Envoy, the model, or which
//! Gateway a route belongs to.

pub mod change;
pub mod files;
pub mod kube;
