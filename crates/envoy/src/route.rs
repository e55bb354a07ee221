//! Routes as RDS resources.
//!
//! In: [`RouteTable`](sesame_model::RouteTable) and [`VirtualHost`](sesame_model::VirtualHost). Out: `RouteConfiguration`
//! and `VirtualHost`. It must not know where endpoints are or which listener asks.
//!
//! An Envoy digests a table as a whole at every change, at tens of microseconds a host: what holds for all routes is
//! said once for the table, and a route says only what differs from Envoy's defaults.

mod cors;
mod forward;
mod headers;
mod matching;
mod redirect;
mod rewrite;
mod session;
mod tree;
mod virtual_host;

pub(crate) use virtual_host::{reserved, scope, shard_tail, table_head, table_tail};
pub use virtual_host::{route_table, virtual_host};

#[cfg(test)]
mod tests;
