//! How much was sent.
//!
//! In: responses. Out: their number and their bytes, by type, since the registry was made. It must not know to whom they
//! were sent.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::resource::ResourceType;
use crate::session::Response;

/// Counts of all streams together.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    by_type: [Count; ResourceType::ALL.len()],
}

#[derive(Debug, Default)]
struct Count {
    responses: AtomicU64,
    bytes: AtomicU64,
}

/// What was sent of one type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Traffic {
    /// The type.
    pub resource_type: ResourceType,
    /// Responses, to all clients together.
    pub responses: u64,
    /// Bytes of the resources in them, and of the names of those that were removed.
    pub bytes: u64,
}

impl Counts {
    pub(crate) fn add(&self, response: &Response) {
        let bodies = response.upserts.iter().map(|sent| sent.body().len());
        let names = response.removals.iter().map(|name| name.len());
        let bytes: usize = bodies.chain(names).sum();
        let count = &self.by_type[response.ty as usize];
        count.responses.fetch_add(1, Ordering::Relaxed);
        count.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> [Traffic; ResourceType::ALL.len()] {
        ResourceType::ALL.map(|resource_type| {
            let count = &self.by_type[resource_type as usize];
            Traffic {
                resource_type,
                responses: count.responses.load(Ordering::Relaxed),
                bytes: count.bytes.load(Ordering::Relaxed),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resource::Resource;

    #[test]
    fn every_type_is_counted_by_itself() {
        let counts = Counts::default();
        for ty in ResourceType::ALL {
            counts.add(&Response {
                ty,
                nonce: String::new(),
                upserts: vec![Resource::new("a", vec![0; 10])],
                removals: vec!["gone".into()],
            });
        }
        counts.add(&Response {
            ty: ResourceType::Route,
            nonce: String::new(),
            upserts: Vec::new(),
            removals: Vec::new(),
        });
        for traffic in counts.read() {
            let twice = traffic.resource_type == ResourceType::Route;
            assert_eq!(traffic.responses, 1 + u64::from(twice));
            assert_eq!(traffic.bytes, 14);
        }
    }
}
