//! Which shard of a large route table a host is in, and how Envoys come to know.
//!
//! In: a host. Out: the [`number`] of its shard. It must know neither route tables nor Envoy's configuration.
//!
//! An Envoy has no hash for this. So the function is one that regular expressions can compute, too, from [`BITS`]; and it is
//! compiled a second time, to a library of a few kilobytes ([`MODULE`]) that an Envoy loads.

mod number;

/// Compiled by the build script, as a library of its own.
#[cfg(any())]
mod module;

pub use number::{BITS, Bit, is_of_hosts, number};

/// How many shards there are.
pub const SHARDS: u32 = 1 << BITS.len();

/// What the module is called in an Envoy's configuration. A module that numbers otherwise, or that is spoken to otherwise,
/// is called otherwise.
pub const MODULE_NAME: &str = "sesame_shard_1";

/// The file in which an Envoy looks for the module.
pub const MODULE_FILE: &str = "libsesame_shard_1.so";

/// Of which Envoys the module speaks the language (`abi.h` of Envoy's dynamic modules): major and minor version.
pub const MODULE_ENVOY: (u32, u32) = (1, 40);

/// The module, for machines like the one that this program is compiled for; `None` where Envoy loads none.
///
/// As an extension `early_header_mutation` of a connection manager it sets the header `x-sesame-shard` of each request to
/// the text that it was configured with, at most 512 bytes, and behind it the number, in decimals.
pub const MODULE: Option<&[u8]> = include!(concat!(env!("OUT_DIR"), "/module.in"));

#[cfg(test)]
mod tests;
