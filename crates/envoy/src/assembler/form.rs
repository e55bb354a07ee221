//! Whether a route table is one resource or sharded.

use prost::bytes::Bytes;

use crate::Sharding;
use crate::shard::SHARDS;

/// With this many hosts, a table becomes sharded.
const MANY: usize = 400;
/// With hosts of this size in total, in bytes, a table becomes sharded.
const LARGE: usize = 1024 * 1024;
/// The limits for a sharded table are divided by this. Hysteresis keeps a single flapping host from replacing the
/// listener each time.
const STAYS_SHARDED: usize = 2;
/// The size of a reserved domain, in bytes.
const RESERVED: usize = 128;
/// Above this size, in bytes, the former form of a table is no longer updated for draining connections: it would delay
/// changes to the current form.
pub(super) const MAX_FORMER: usize = 8 * LARGE;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Form {
    #[default]
    Whole,
    Shards,
}

/// Number and size of hosts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Size {
    hosts: usize,
    bytes: usize,
}

/// The sizes on which a table's form depends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    /// Hosts in a single shard.
    pub(super) own: Size,
    /// Hosts in every shard.
    pub(super) everywhere: Size,
    /// Number of reserved domains in every shard.
    pub(super) reserved_everywhere: usize,
}

impl Sizes {
    /// The form that suits the table, given the current form.
    pub(super) fn suited(&self, so_far: Form, sharding: Sharding) -> Form {
        let less = match so_far {
            Form::Whole => 1,
            Form::Shards => STAYS_SHARDED,
        };
        let Size { hosts, bytes } = self.own;
        let large = hosts >= MANY / less || bytes >= LARGE / less;
        // A host in every shard costs memory in each of them, and changing it changes all shards.
        let everywhere = self.everywhere.bytes + self.reserved_everywhere * RESERVED;
        let copies = everywhere.saturating_mul(SHARDS as usize);
        let few_copies = copies <= bytes.max(LARGE) * less;
        match sharding {
            Sharding::Never => Form::Whole,
            Sharding::Always => Form::Shards,
            Sharding::Auto if large && few_copies => Form::Shards,
            Sharding::Auto => Form::Whole,
        }
    }

    /// The size of the hosts in all resources of a form, in bytes.
    pub(super) fn bytes(&self, form: Form) -> usize {
        let copies = match form {
            Form::Whole => 1,
            Form::Shards => SHARDS as usize,
        };
        self.own.bytes + copies * self.everywhere.bytes
    }
}

impl Size {
    /// Replaces a host.
    pub(super) fn replace(&mut self, before: Option<&Bytes>, after: Option<&Bytes>) {
        self.hosts += usize::from(after.is_some());
        self.hosts -= usize::from(before.is_some());
        self.bytes += after.map_or(0, Bytes::len);
        self.bytes -= before.map_or(0, Bytes::len);
    }
}

impl Form {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Whole => Self::Shards,
            Self::Shards => Self::Whole,
        }
    }
}
