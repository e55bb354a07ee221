//! Writing statuses to a real API server.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod cluster;
mod failures;
mod foreign;
mod lifecycle;
mod scale;
