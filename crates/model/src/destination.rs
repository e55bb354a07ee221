use std::fmt;
use std::sync::Arc;

use crate::ListenerKey;

/// Identifies connections that are forwarded to one cluster. A destination is a separate resource, so changing its
/// cluster doesn't replace a [`Chain`](crate::Chain).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestinationKey {
    /// The port; never a UDP port.
    pub listener: ListenerKey,
    /// The server name: exact, with a `*.` prefix, or `*` for all connections.
    pub domain: Arc<str>,
}

/// `443/example.com`, `9000/*`. Never equal to a cluster name, which contains a colon.
impl fmt::Display for DestinationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.listener.name(), self.domain)
    }
}
