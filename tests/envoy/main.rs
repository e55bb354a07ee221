//! Real requests through a real Envoy that `sesame local` runs: one file for each subject.
//!
//! Every test starts its own Sesame with its own folder and loopback addresses, so that tests run in parallel. It ends with
//! the test, even if the test fails. Expected answers are those that the Gateway API defines.

#![allow(
    clippy::print_stderr,
    reason = "a test that fails shows what its Sesame said"
)]

mod backends;
mod changes;
mod cors;
mod endpoints;
mod files;
mod grpc;
mod harness;
mod headers;
mod hostnames;
mod mirrors;
mod paths;
mod redirects;
mod rewrites;
mod routing;
mod sessions;
mod shards;
mod status;
mod supervisor;
mod timeouts;
mod tls;
