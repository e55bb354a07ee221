//! Watching a real API server.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod bulk;
mod changes;
mod definitions;
mod outage;
mod permissions;
mod secrets;
mod subscriber;
