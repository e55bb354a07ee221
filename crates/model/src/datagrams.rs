use crate::EndpointShare;

/// The backends of a UDP port. They are no part of its [`Listener`](crate::Listener), so changing them ends no session
/// but those with endpoints that are gone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Datagrams {
    /// The backends' shares of sessions. Sorted by cluster, without duplicates.
    pub shares: Vec<EndpointShare>,
    /// The weight of sessions whose datagrams are dropped: those for invalid backends and for backends without
    /// endpoints.
    pub dropped: u32,
}
