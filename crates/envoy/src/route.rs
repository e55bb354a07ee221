//! Routes as RDS resources.
//!
//! In: [`RouteTable`](sesame_model::RouteTable) and [`VirtualHost`](sesame_model::VirtualHost). Out:
//! `RouteConfiguration` and `VirtualHost`. It must not depend on endpoints or listeners.
//!
//! Envoy rebuilds the whole table on every change, which takes tens of microseconds per host. So settings common to
//! all routes are in the table, and a route sets only fields that differ from Envoy's defaults.

mod auth;
mod cookies;
mod cors;
mod forward;
mod global_rate;
mod headers;
mod jwt;
mod matching;
mod options;
mod parts;
mod policy;
mod redirect;
mod rewrite;
mod session;
mod tree;
mod virtual_host;

pub(crate) use auth::ContextFilter;
pub(crate) use cookies::changes_cookies;
pub(crate) use parts::{PartKey, may_have_parts, parts, tree};
pub(crate) use policy::no_rate;
pub(crate) use tree::Outline;
pub(crate) use virtual_host::{reserved, scope, script, table_tail, unavailable, without_routes};
pub use virtual_host::{route_table, virtual_host};

#[cfg(test)]
mod tests;
