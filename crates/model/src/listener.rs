use std::net::SocketAddr;

use crate::{CertificateKey, FleetId, RouteTableKey};

/// One port of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerKey {
    /// The fleet that listens.
    pub fleet: FleetId,
    /// The port as the Gateway names it; what is bound may differ (see [`Listener::bind`]).
    pub port: u16,
}

/// All Gateway listeners of one port, as one thing that accepts connections.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Where it accepts connections: sorted, without duplicates, never empty.
    pub bind: Vec<SocketAddr>,
    /// What it does with a connection.
    pub kind: ListenerKind,
}

/// What a listener does with a connection.
#[derive(Clone, Debug, PartialEq)]
pub enum ListenerKind {
    /// Plain HTTP (1.1, or 2 with prior knowledge): one route table for every host.
    Http {
        /// The table that answers.
        routes: RouteTableKey,
    },
    /// HTTP over TLS that ends here: the server name the client asks for chooses the chain.
    Https {
        /// Sorted by `server_name`, each name once; a name that no chain has is refused.
        chains: Vec<TlsChain>,
    },
}

/// What happens to connections for one server name.
#[derive(Clone, Debug, PartialEq)]
pub struct TlsChain {
    /// `example.com`, `*.example.com` (any number of labels), or `None`: every name and no name.
    pub server_name: Option<String>,
    /// Offered in this order; never empty.
    pub certificates: Vec<CertificateKey>,
    /// The table that answers on these connections.
    pub routes: RouteTableKey,
}
