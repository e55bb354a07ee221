//! The model as Envoy resources.
//!
//! In: values of [`sesame_model`]. Out: protobuf messages of Envoy's API, and their bytes.
//! It must know neither Kubernetes nor how resources travel, and it does no IO.
//!
//! Three ways in, from the smallest to the largest:
//! - pure builders, one per kind of resource: [`listener()`], [`route_table`], [`virtual_host`], [`cluster()`],
//!   [`endpoints`], [`secret()`];

pub mod names;

mod cluster;
mod endpoint;
mod hcm;
mod listener;
mod route;
mod secret;
mod wire;

pub use cluster::cluster;
pub use endpoint::endpoints;
pub use listener::listener;
pub use route::{route_table, virtual_host};
pub use secret::secret;
