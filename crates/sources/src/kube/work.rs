//! What watching costs, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// What watching has cost so far, for metrics and tests. Cheap to read at any time.
#[derive(Debug, Default)]
pub struct Work {
    lists: AtomicU64,
    watches: AtomicU64,
    gets: AtomicU64,
    looks: AtomicU64,
    events: AtomicU64,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident, $count:ident;)*) => {
        impl Work {
            $(
                $(#[$doc])*
                pub fn $name(&self) -> u64 {
                    self.$name.load(Ordering::Relaxed)
                }

                pub(super) fn $count(&self) {
                    self.$name.fetch_add(1, Ordering::Relaxed);
                }
            )*
        }
    };
}

counters! {
    /// Lists that were begun, streamed or by pages; a page counts as one.
    lists, count_list;
    /// Watches that went on from a known version.
    watches, count_watch;
    /// Secrets and ConfigMaps that were asked for, each time.
    gets, count_get;
    /// Requests to discovery.
    looks, count_look;
    /// Objects and changes that the server told of.
    events, count_event;
}
