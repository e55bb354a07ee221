//! What objects mean: Kubernetes objects → the model of a gateway, and what each object's owner is told.
//!
//! In: objects, by [`pipeline::Inputs`]. Out: tables of the model and of statuses, from the same stages, so that they can't
//! disagree. Translation cannot fail: what is wrong with an object becomes a condition on it, and its neighbours are served.
//! It must know neither how objects arrive nor what Envoy calls things.

pub mod fleet;
pub mod gateway_api;
pub mod pipeline;
pub mod settings;
pub mod shared;
