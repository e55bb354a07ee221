//! Support for tests, benches and the demo. Never a normal dependency of another crate.

pub mod api_server;
pub mod auth;
pub mod backend;
pub mod certs;
pub mod client;
pub mod dns;
pub mod fake_envoy;
pub mod generate;
pub mod jwt;
pub mod loopback;
pub mod many;
pub mod rates;
