//! Counts requests and events.

use std::sync::atomic::{AtomicU64, Ordering};

/// Requests and events since startup, for metrics and tests.
#[derive(Debug, Default)]
pub struct Counters {
    lists: AtomicU64,
    watches: AtomicU64,
    gets: AtomicU64,
    discoveries: AtomicU64,
    events: AtomicU64,
}

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident, $count:ident;)*) => {
        impl Counters {
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
    /// Streaming lists and pages of lists.
    lists, count_list;
    /// Watches from a known version.
    watches, count_watch;
    /// GETs of Secrets and ConfigMaps.
    gets, count_get;
    /// Discovery requests.
    discoveries, count_discovery;
    /// Objects received in lists and watches.
    events, count_event;
}
