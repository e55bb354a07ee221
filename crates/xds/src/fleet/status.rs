//! The observable state of a fleet.

use std::sync::Arc;

use crate::resource::{ResourceType, Version};

/// A fleet and its clients, from [`crate::Registry::status`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FleetStatus {
    /// The revision of the latest update; `None` before the first one.
    pub revision: Option<u64>,
    /// The number of resources of each type.
    pub resources: Vec<(ResourceType, usize)>,
    /// The connected clients, oldest stream first.
    pub clients: Vec<ClientStatus>,
    /// Resources with a rejected version that no accepted version has replaced yet.
    pub rejections: Vec<Rejection>,
}

/// A connected client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClientStatus {
    /// Its stream number, as in [`crate::ClientId`].
    pub stream: u64,
    /// Its `node.id`.
    pub node_id: Arc<str>,
    /// The latest revision that it has fully acknowledged.
    pub acked_revision: Option<u64>,
    /// The types that it has subscribed to.
    pub types: Vec<TypeStatus>,
}

/// One type on a client's stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TypeStatus {
    /// The type.
    pub resource_type: ResourceType,
    /// Whether the client has a wildcard subscription.
    pub wildcard: bool,
    /// Names subscribed to.
    pub subscribed: usize,
    /// Resources sent on this stream, including repeats.
    pub sent: u64,
    /// Resources acknowledged on this stream or present at its start.
    pub acked: usize,
    /// Resources waiting to be sent or removed.
    pub pending: usize,
    /// Rejected responses.
    pub nacks: u64,
}

/// A version of a resource that a client rejected.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rejection {
    /// The type.
    pub resource_type: ResourceType,
    /// The name.
    pub name: Arc<str>,
    /// The rejected version.
    pub version: Version,
    /// The client's error for this resource, shortened if very long.
    pub message: Arc<str>,
}
