//! Turns the model into Envoy resources.
//!
//! In: [`sesame_model`] values. Out: protobuf messages of Envoy's API, and their bytes. It must not depend on
//! Kubernetes or the xDS protocol, and doesn't perform IO.
//!
//! - pure builders, one per resource type: [`listener()`], [`route_table`], [`virtual_host`], [`cluster()`],
//!   [`endpoints`], [`datagram_cluster`], [`datagram_endpoints`], [`secret()`], [`trust_bundle`];
//! - [`stages()`]: the builders as engine stages, which encode each changed row once;
//! - [`Assembler`]: turns engine commits into changed resources per fleet;
//! - [`bootstrap()`]: Envoy's bootstrap configuration;
//! - [`render()`]: resources as readable JSON.

pub mod names;

mod access_log;
mod assembler;
mod bootstrap;
mod cluster;
mod compression;
mod connections;
mod datagrams;
mod endpoint;
mod hcm;
mod host_bytes;
mod listener;
mod on_demand;
mod render;
mod route;
mod secret;
mod shard;
mod stages;
mod tracing;
mod wire;

pub use assembler::{Assembler, Part, RejectedVersion, ResourceChange, Suspect};
pub use bootstrap::{
    Admin, BootstrapOptions, HeapLimit, MAX_CONNECTIONS, XDS_CLUSTER, XdsAddress, XdsTls,
    bootstrap, has_module, xds_secrets,
};
pub use cluster::{cluster, destination};
pub use datagrams::{datagram_cluster, datagram_endpoints};
pub use endpoint::endpoints;
pub use host_bytes::HostBytes;
pub use listener::listener;
pub use prost::bytes::Bytes;
pub use render::{RenderError, render, to_json};
pub use route::{route_table, virtual_host};
pub use secret::{secret, trust_bundle};
pub use shard::ShardLookup;
pub use stages::{Encoded, Inputs, Options, Sharding, stages};

#[cfg(test)]
mod testing;
