use crate::{ClusterKey, Endpoint};

/// The backends of a UDP port. They are no part of its [`Listener`](crate::Listener), so changing them ends no session
/// but those with endpoints that are gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Datagrams {
    /// Sorted by cluster, without duplicates.
    pub shares: Vec<DatagramShare>,
    /// The weight of sessions whose datagrams are dropped: those for invalid backends and for backends without
    /// endpoints.
    pub dropped: u32,
}

/// A share of the sessions of a UDP port.
#[derive(Clone, Debug, PartialEq)]
pub struct DatagramShare {
    /// The backend.
    pub cluster: ClusterKey,
    /// The share of the sum of all weights; at least 1.
    pub weight: u32,
    /// Never empty.
    pub endpoints: Vec<Endpoint>,
}
