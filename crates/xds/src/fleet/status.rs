//! What an administrator sees of a fleet.
//!
//! In: counts, from sessions. Out: plain values, copied. It must not know: who shows them.

use std::sync::Arc;

use crate::resource::{ResourceType, Version};

/// A fleet and its clients, from [`crate::Registry::status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetStatus {
    /// The revision of the latest update; none while the fleet is only waited for.
    pub revision: Option<u64>,
    /// How many resources of each type the fleet has.
    pub resources: Vec<(ResourceType, usize)>,
    /// The connected clients, in the order of their connecting.
    pub clients: Vec<ClientStatus>,
    /// The resources whose newest version some client rejected, or that have not recovered since.
    pub rejections: Vec<Rejection>,
}

/// One connected client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientStatus {
    /// The number of its stream, as in [`crate::Event`].
    pub client: u64,
    /// Its `node.id`.
    pub node_id: Arc<str>,
    /// The revision that it has acknowledged all of, if any.
    pub acked_revision: Option<u64>,
    /// The types that it has asked for.
    pub types: Vec<TypeStatus>,
}

/// One type on one client's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeStatus {
    /// The type.
    pub resource_type: ResourceType,
    /// The client asked for all.
    pub wildcard: bool,
    /// How many names it asked for besides.
    pub subscribed: usize,
    /// How many resources it has been sent on this stream, those sent again counted again.
    pub sent: u64,
    /// How many resources it has: acknowledged, or brought along.
    pub acked: usize,
    /// How many resources wait to be sent or removed.
    pub pending: usize,
    /// How many responses it has rejected.
    pub nacks: u64,
}

/// A version of a resource that a client rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The type.
    pub resource_type: ResourceType,
    /// The name.
    pub name: Arc<str>,
    /// The version that was rejected.
    pub version: Version,
    /// The client's words on this resource, shortened if very long.
    pub message: Arc<str>,
}

/// What a fleet remembers of a connected client.
#[derive(Debug)]
pub(crate) struct Client {
    pub(super) node_id: Arc<str>,
    pub(super) acked_revision: Option<u64>,
    types: [Option<TypeStatus>; ResourceType::ALL.len()],
}

impl Client {
    pub(super) fn new(node_id: Arc<str>) -> Client {
        Client {
            node_id,
            acked_revision: None,
            types: Default::default(),
        }
    }

    pub(crate) fn report(&mut self, status: TypeStatus) {
        self.types[status.resource_type.index()] = Some(status);
    }

    pub(super) fn status(&self, client: u64) -> ClientStatus {
        ClientStatus {
            client,
            node_id: Arc::clone(&self.node_id),
            acked_revision: self.acked_revision,
            types: self.types.iter().flatten().copied().collect(),
        }
    }
}
