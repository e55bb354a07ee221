//! Fleets of one Envoy each, as child processes on this machine.
//!
//! In: an Envoy binary and bootstraps. Out: supervised processes, the loopback addresses that they may use, and
//! what stands in the way of a port.
//! It must not know what the Envoys serve.

pub mod binary;
