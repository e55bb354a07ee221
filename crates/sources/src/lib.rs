//! Sources of objects: files, and a Kubernetes API server.
//!
//! In: files, or the Kubernetes API. Out: decoded objects as [`change::Change`]s, and errors with their location. Must
//! not depend on relations between objects: Envoy, the model, and which Gateway a route belongs to are out of scope.

pub mod change;
pub mod files;
mod fingerprint;
pub mod kube;
