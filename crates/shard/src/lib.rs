//! The shard [`number`] of a host in a large route table.
//!
//! Envoy doesn't provide a hash function for this. The number can therefore be computed in two ways: by regular
//! expressions built from [`BITS`], or by a library of a few kilobytes ([`MODULE`]) that Envoy loads.

mod number;

/// Compiled by the build script, as a separate library.
#[cfg(any())]
mod module;

pub use number::{BITS, Bit, is_of_hosts, number};

/// The number of shards.
pub const SHARDS: u32 = 1 << BITS.len();

/// The version of the numbers. It is part of the module's name and of all shard names: after an upgrade, Envoys that
/// still compute the old numbers, with an old module or in a draining listener, must not use the new shards.
pub const VERSION: u32 = 3;

/// The module's name in Envoy's configuration. Must change if the numbers or the module's configuration change.
pub const MODULE_NAME: &str = "sesame_shard_3";

/// The file name from which Envoy loads the module.
pub const MODULE_FILE: &str = "libsesame_shard_3.so";

/// The Envoy version (major, minor) whose dynamic module ABI (`abi.h`) the module implements.
pub const MODULE_ENVOY: (u32, u32) = (1, 40);

/// The module for this build's target platform; `None` on platforms without Envoy.
///
/// As an `early_header_mutation` extension of a connection manager, it sets each request's `x-sesame-shard` header to
/// its configuration (at most 512 bytes of text), followed by the decimal number.
pub const MODULE: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/module.in"));

#[cfg(test)]
mod tests;
