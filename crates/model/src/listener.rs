use std::net::SocketAddr;
use std::sync::Arc;

use crate::{
    CertificateKey, FleetId, ListenerSettings, Port, RouteTableKey, Target, TlsVersions, Tracing,
    TrustBundleKey,
};

/// Identifies a port of a fleet.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerKey {
    /// The fleet.
    pub fleet: FleetId,
    /// The port in the owner's spec. The bound port may differ; see [`Listener::bind`].
    pub port: Port,
}

impl ListenerKey {
    /// The listener's resource name within its fleet: `80`, `53/udp`.
    pub fn name(&self) -> String {
        self.port.to_string()
    }
}

/// All listeners on one port, merged into one listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// The addresses to bind: sorted, without duplicates, never empty.
    pub bind: Vec<SocketAddr>,
    /// Either one chain without TLS, or chains with TLS, sorted by server name without duplicates. A connection whose
    /// server name has no chain is closed. Empty only for a UDP port, which has [`Datagrams`](crate::Datagrams).
    pub chains: Vec<Chain>,
    /// How HTTP requests are traced; `None` if they are not. Only with a chain that serves HTTP.
    pub tracing: Option<Arc<Tracing>>,
    /// The settings of the fleet's listeners; the default for a UDP port.
    pub settings: Arc<ListenerSettings>,
}

/// A filter chain, which handles some or all connections to a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chain {
    /// Which TLS connections the chain handles; `None` for all connections, without TLS.
    pub tls: Option<ChainTls>,
    /// Where the connections go.
    pub target: ChainTarget,
}

impl Chain {
    /// The server name of the chain's connections.
    pub fn server_name(&self) -> Option<&str> {
        self.tls.as_ref()?.server_name.as_deref()
    }
}

/// Selects TLS connections by server name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainTls {
    /// `example.com`, `*.example.com` (any number of labels), or `None` for any server name or none at all.
    pub server_name: Option<Arc<str>>,
    /// Whether TLS is terminated.
    pub mode: TlsMode,
}

/// Whether TLS is terminated, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TlsMode {
    /// The gateway terminates TLS.
    Terminate(Arc<Termination>),
    /// The backend terminates TLS.
    Passthrough,
}

/// How TLS is terminated.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Termination {
    /// The certificates to present, in order of preference. Never empty in a [`Listener`].
    pub certificates: Vec<CertificateKey>,
    /// How client certificates are verified; `None` if none are requested.
    pub clients: Option<Arc<ClientValidation>>,
    /// The TLS versions; `None` for the default.
    pub versions: Option<TlsVersions>,
}

/// How client certificates are verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientValidation {
    /// The CAs; one of them must have issued the client certificate. `None` only if clients are accepted with any
    /// certificate or without one: Envoy requires certificates only if it has CAs.
    pub authorities: Option<TrustBundleKey>,
    /// Whether clients are accepted without a certificate.
    pub optional: bool,
    /// Whether clients are accepted with a certificate that can't be verified.
    pub untrusted: bool,
    /// Whether only the client's own certificate is checked against the CRLs, if any. If false, there must be a CRL for
    /// each CA in its chain.
    pub revocable_leaf: bool,
    /// The parts of the certificate to send to backends in `x-forwarded-client-cert`; `None` removes the header.
    pub forwarded: Option<ForwardedCertificate>,
}

/// The parts of a client certificate to send to backends, besides its hash.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ForwardedCertificate {
    /// The subject.
    pub subject: bool,
    /// The whole certificate.
    pub certificate: bool,
    /// The whole chain.
    pub chain: bool,
    /// The DNS names.
    pub dns: bool,
    /// The first URI.
    pub uri: bool,
}

/// Where a chain sends its connections. Destinations are separate values, keyed by
/// [`DestinationKey`](crate::DestinationKey).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChainTarget {
    /// Serve HTTP requests from this route table.
    Http(RouteTableKey),
    /// Forward connections to the destination with the chain's server name; close them while it doesn't exist.
    Destination,
    /// Forward connections to the destination with their own server name; close them if it doesn't exist. Only for
    /// TLS chains.
    DestinationByServerName,
    /// Forward each connection to one of these backends. Never empty.
    Weighted(Vec<WeightedBackend>),
}

/// A backend for a share of connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WeightedBackend {
    /// A cluster, or [`Target::Refused`] to close the connections.
    pub target: Target,
    /// The weight, relative to the sum of all weights; at least 1.
    pub weight: u32,
}

impl WeightedBackend {
    /// Closes all connections.
    pub const CLOSED: WeightedBackend = WeightedBackend {
        target: Target::Refused,
        weight: 1,
    };
}
