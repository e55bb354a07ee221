//! Translates Kubernetes objects into the model of a gateway, and into the status of each object.
//!
//! In: objects, through [`inputs::Inputs`]. Out: tables of the model and of statuses, from the same stages, so that
//! they can't disagree. Translation can't fail: an error in an object becomes a condition on it and doesn't affect
//! other objects. It must depend neither on the source of objects nor on Envoy's terms.

pub mod configuration;
pub mod fleet;
pub mod gateway_api;
pub(crate) mod http_proxy;
pub(crate) mod ingress;
pub mod inputs;
pub mod pipeline;
pub mod problem;
pub mod settings;
pub mod shared;
