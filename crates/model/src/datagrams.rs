use crate::EndpointShare;

/// The backends of a UDP port. They aren't part of its [`Listener`](crate::Listener), so a change ends only sessions
/// with removed endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// The backends' shares of sessions. Sorted by cluster, without duplicates.
    pub shares: Vec<EndpointShare>,
    /// The weight of sessions whose datagrams are dropped: those for invalid backends and for backends without
    /// endpoints.
    pub dropped: u32,
}
