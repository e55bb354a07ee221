//! Counts of sent responses and bytes, by resource type.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::resource::ResourceType;

/// Counters across all of a registry's streams.
#[derive(Debug, Default)]
pub(crate) struct SentCounters {
    by_type: [Counter; ResourceType::ALL.len()],
}

#[derive(Debug, Default)]
struct Counter {
    responses: AtomicU64,
    bytes: AtomicU64,
}

/// Totals sent to all clients for one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SentTotals {
    /// The type.
    pub resource_type: ResourceType,
    /// Responses.
    pub responses: u64,
    /// Bytes of resources and removed names.
    pub bytes: u64,
}

impl SentCounters {
    pub(crate) fn add(&self, ty: ResourceType, bytes: usize) {
        let counter = &self.by_type[ty.index()];
        counter.responses.fetch_add(1, Ordering::Relaxed);
        counter.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn totals(&self) -> [SentTotals; ResourceType::ALL.len()] {
        ResourceType::ALL.map(|resource_type| {
            let counter = &self.by_type[resource_type.index()];
            SentTotals {
                resource_type,
                responses: counter.responses.load(Ordering::Relaxed),
                bytes: counter.bytes.load(Ordering::Relaxed),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_has_its_own_counters() {
        let counters = SentCounters::default();
        for ty in ResourceType::ALL {
            counters.add(ty, 14);
        }
        counters.add(ResourceType::Route, 0);
        for totals in counters.totals() {
            let twice = totals.resource_type == ResourceType::Route;
            assert_eq!(totals.responses, 1 + u64::from(twice));
            assert_eq!(totals.bytes, 14);
        }
    }
}
