//! The shard [`number`] of a host in a large route table.
//!
//! Envoy has no hash function for this. So regular expressions can compute the number as well, from [`BITS`], and the function is
//! also compiled to a library of a few kilobytes ([`MODULE`]) that Envoy loads.

mod number;

/// Compiled by the build script, as a library of its own.
#[cfg(any())]
mod module;

pub use number::{BITS, Bit, is_of_hosts, number};

/// The number of shards.
pub const SHARDS: u32 = 1 << BITS.len();

/// The name of the module in Envoy's configuration. It changes with the numbers and with the configuration of the module.
pub const MODULE_NAME: &str = "sesame_shard_1";

/// The file name from which Envoy loads the module.
pub const MODULE_FILE: &str = "libsesame_shard_1.so";

/// The Envoy version, major and minor, whose ABI for dynamic modules (`abi.h`) the module implements.
pub const MODULE_ENVOY: (u32, u32) = (1, 40);

/// The module, for the target platform of this build; `None` on platforms without an Envoy.
///
/// As an `early_header_mutation` extension of a connection manager it sets the header `x-sesame-shard` of each request to its
/// configuration, a text of at most 512 bytes, followed by the decimal number.
pub const MODULE: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/module.in"));

#[cfg(test)]
mod tests;
