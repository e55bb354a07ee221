//! Sources of objects: files, and a Kubernetes API server.
//!
//! In: the outside world. Out: decoded objects as [`change::Change`]s, and errors with their location. Must not depend on what objects
//! mean together: nothing here knows Envoy, the model, or which Gateway a route belongs to.

pub mod change;
pub mod files;
mod fingerprint;
pub mod kube;
