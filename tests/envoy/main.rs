//! Real requests through a real Envoy that `sesame local` runs: one file a subject.
//!
//! Every test starts a Sesame of its own, on a folder and loopback addresses of its own, so that all can run at the same
//! time; it ends with the test, however the test ends. What a test expects of an answer is what the Gateway API says.

#![allow(
    clippy::print_stderr,
    reason = "a test that fails shows what its Sesame said"
)]

mod backends;
mod changes;
mod cors;
mod endpoints;
mod files;
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
