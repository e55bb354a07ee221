//! Whether a route table is one resource or sharded, and how many shards it has.

use std::ops::Range;

use crate::Sharding;
use crate::shard::SHARDS;

/// The number that a host in every shard has instead of a hash of its domain.
pub(super) const EVERYWHERE: u32 = SHARDS;

/// With this many hosts, a table becomes sharded.
const MANY: usize = 400;
/// With hosts of this size in total, in bytes, a table becomes sharded.
const LARGE: usize = 1024 * 1024;
/// A sharded table stays sharded until it is below the limits above divided by this, and keeps its form until the copies of
/// hosts exceed their limit multiplied by this. Otherwise, a single flapping host would replace the listener each time.
const STAYS_SHARDED: usize = 2;
/// The copies of hosts in all shards may take this many times the size of the other hosts, up to [`LARGE_COPIES`].
const COPIES_OF_SMALL: usize = 8;
/// Above this size in total, in bytes, the copies may take only as much as the other hosts.
const LARGE_COPIES: usize = 8 * LARGE;
/// The size of a reserved domain, in bytes.
const RESERVED: usize = 128;
/// Above this size, in bytes, a table's former form doesn't get new hosts, so that changes of its hosts take effect before an
/// Envoy has the whole current form.
pub(super) const MAX_GROWN: usize = LARGE;
/// Above this size, in bytes, a table's former form isn't updated for draining connections: it would delay changes to the
/// current form.
pub(super) const MAX_FORMER: usize = 4 * LARGE;

/// How a table is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Form {
    /// The number of resources: 1, or else a divisor of [`SHARDS`].
    pub(super) resources: u32,
}

impl Form {
    pub(super) const WHOLE: Self = Self { resources: 1 };
    /// All forms, the finest first.
    pub(super) const ALL: [Self; 5] = [
        Self { resources: SHARDS },
        Self { resources: 64 },
        Self { resources: 16 },
        Self { resources: 4 },
        Self::WHOLE,
    ];

    /// The shard for a host's number.
    pub(super) fn shard(self, number: u32) -> u32 {
        number / (SHARDS / self.resources)
    }

    /// The numbers of a shard.
    pub(super) fn numbers(self, shard: u32) -> Range<u32> {
        let each = SHARDS / self.resources;
        shard * each..(shard + 1) * each
    }
}

impl Default for Form {
    fn default() -> Self {
        Self::WHOLE
    }
}

/// Number and size of hosts.
#[derive(Clone, Copy, Debug, Default)]
struct Size {
    hosts: usize,
    bytes: usize,
}

/// The size of a host before and after a commit, in bytes; `None` without the host.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resized {
    pub(super) before: Option<usize>,
    pub(super) after: Option<usize>,
}

/// The sizes on which a table's form depends.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sizes {
    /// Hosts in a single shard.
    own: Size,
    /// Hosts in every shard.
    everywhere: Size,
    /// Number of reserved domains in every shard.
    pub(super) reserved_everywhere: usize,
}

impl Sizes {
    /// The form that suits the table, given the current form.
    pub(super) fn suited(&self, so_far: Form, sharding: Sharding) -> Form {
        let finest = Form::ALL[0];
        match sharding {
            Sharding::Never => return Form::WHOLE,
            Sharding::Always => return finest,
            Sharding::Auto => {}
        }
        let Size { hosts, bytes } = self.own;
        let less = match so_far == Form::WHOLE {
            true => 1,
            false => STAYS_SHARDED,
        };
        let forms = match (hosts >= MANY / less, bytes >= LARGE / less) {
            (_, true) => &Form::ALL[..],
            (true, false) => &[finest],
            (false, false) => &[],
        };
        // A host in every shard costs memory in each of them, and changing it changes all shards.
        let everywhere = self.everywhere.bytes + self.reserved_everywhere * RESERVED;
        let limit = bytes.max(LARGE_COPIES.min(bytes * COPIES_OF_SMALL));
        let fits = |form: &&Form| {
            let copies = everywhere.saturating_mul(form.resources as usize);
            let more = if **form == so_far { STAYS_SHARDED } else { 1 };
            copies <= limit * more
        };
        forms.iter().find(fits).copied().unwrap_or_default()
    }

    /// Adds, changes or removes a host with this number.
    pub(super) fn resize(&mut self, number: u32, Resized { before, after }: Resized) {
        let size = match number {
            EVERYWHERE => &mut self.everywhere,
            _ => &mut self.own,
        };
        size.hosts += usize::from(after.is_some());
        size.hosts -= usize::from(before.is_some());
        size.bytes += after.unwrap_or(0);
        size.bytes -= before.unwrap_or(0);
    }

    /// The size of the hosts in all resources of a form, in bytes.
    pub(super) fn bytes(&self, form: Form) -> usize {
        self.own.bytes + form.resources as usize * self.everywhere.bytes
    }
}
