//! What tests, benches and the demo share.
//!
//! In: nothing of a user's. Out: helpers. No other crate may need this one to run.

pub mod api_server;
pub mod backend;
pub mod certs;
pub mod client;
pub mod fake_envoy;
pub mod generate;
pub mod many;
