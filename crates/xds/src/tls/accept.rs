//! TLS handshakes, limited in time and number.
//!
//! Handshakes run concurrently, one task each. At the limit, the oldest handshake is aborted: a valid client finishes
//! within milliseconds, so idle connections displace only each other. A fleet has a limited number of connections, so that
//! its key can't be used to exhaust memory.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::connection::{Connection, Peer};
use super::identity::Identity;
use super::refusal::{Refusal, RefusalReason};
use super::verify::{self, NoFleet};
use crate::resource::FleetId;

/// The maximum number of concurrent handshakes.
pub const MAX_HANDSHAKES: usize = 256;
/// The handshake deadline.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The pause after a failed accept, such as when the process is out of file descriptors.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

/// Accepts connections. Refused connections are recorded in the identity's [`super::Refusals`]. The stream never ends.
pub fn incoming(
    listener: TcpListener,
    identity: Identity,
    fleet_connections: usize,
) -> impl Stream<Item = io::Result<Connection>> {
    let acceptor = Acceptor {
        listener,
        identity,
        handshakes: JoinSet::new(),
        by_age: BTreeMap::new(),
        next: 0,
        connected: HashMap::new(),
        fleet_connections,
    };
    futures::stream::unfold(acceptor, |mut acceptor| async {
        let connection = acceptor.next().await;
        Some((Ok(connection), acceptor))
    })
}

struct Acceptor {
    listener: TcpListener,
    identity: Identity,
    /// Each task returns its number in `by_age` and its result.
    handshakes: JoinSet<(u64, Result<Connection, Refusal>)>,
    by_age: BTreeMap<u64, (SocketAddr, AbortHandle)>,
    next: u64,
    /// A marker for each fleet, which its open connections share.
    connected: HashMap<FleetId, Arc<()>>,
    /// The maximum number of open connections of a fleet.
    fleet_connections: usize,
}

impl Acceptor {
    async fn next(&mut self) -> Connection {
        loop {
            tokio::select! {
                // Completed handshakes first, to make room for new ones.
                biased;
                Some(done) = self.handshakes.join_next() => {
                    // An aborted handshake is already recorded.
                    let Ok((number, result)) = done else { continue };
                    self.by_age.remove(&number);
                    match result.and_then(|connection| self.admit(connection)) {
                        Ok(connection) => return connection,
                        Err(refusal) => self.identity.refusals().record(refusal),
                    }
                }
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => self.begin(stream, peer),
                    Err(error) => {
                        tracing::debug!(%error, "cannot accept an xDS connection");
                        tokio::time::sleep(ACCEPT_RETRY).await;
                    }
                },
            }
        }
    }

    /// Counts a new connection of a fleet, unless there are too many.
    fn admit(&mut self, mut connection: Connection) -> Result<Connection, Refusal> {
        self.connected
            .retain(|_, marker| Arc::strong_count(marker) > 1);
        let peer = connection.peer();
        let marker = self.connected.entry(peer.fleet.clone()).or_default();
        if Arc::strong_count(marker) > self.fleet_connections {
            return Err(Refusal {
                peer: peer.address,
                reason: RefusalReason::TooManyConnections,
                fleet: Some(peer.fleet.clone()),
                message: format!(
                    "the fleet already has {} connections",
                    self.fleet_connections
                ),
            });
        }
        connection.hold(Arc::clone(marker));
        Ok(connection)
    }

    fn begin(&mut self, stream: TcpStream, peer: SocketAddr) {
        if self.by_age.len() >= MAX_HANDSHAKES
            && let Some((_, (peer, oldest))) = self.by_age.pop_first()
        {
            oldest.abort();
            self.identity.refusals().record(Refusal {
                peer,
                reason: RefusalReason::TooManyHandshakes,
                fleet: None,
                message: format!(
                    "handshake aborted: more than {MAX_HANDSHAKES} in progress, and this was the oldest"
                ),
            });
        }
        let number = self.next;
        self.next += 1;
        let identity = self.identity.clone();
        let task = async move { (number, handshake(stream, peer, &identity).await) };
        let handle = self.handshakes.spawn(task);
        self.by_age.insert(number, (peer, handle));
    }
}

async fn handshake(
    stream: TcpStream,
    peer: SocketAddr,
    identity: &Identity,
) -> Result<Connection, Refusal> {
    let refusal = |reason, message: String| Refusal {
        peer,
        reason,
        fleet: None,
        message,
    };
    let Some(config) = identity.config() else {
        let message = "the server has no certificate yet".to_owned();
        return Err(refusal(RefusalReason::NotReady, message));
    };
    // Don't delay small messages. Failure only costs latency.
    let _: io::Result<()> = stream.set_nodelay(true);
    let handshake = TlsAcceptor::from(config).accept(stream);
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(refusal(reason(&error), error.to_string())),
        Err(_) => {
            let message = format!(
                "handshake not completed within {} s",
                HANDSHAKE_TIMEOUT.as_secs()
            );
            return Err(refusal(RefusalReason::HandshakeTimeout, message));
        }
    };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(<[_]>::first);
    // Can't fail as long as the configuration uses our verifier, which makes the same check.
    let claim = certificate.ok_or(NoFleet).and_then(verify::claim);
    let claim = claim.map_err(|error| refusal(RefusalReason::NoFleet, error.to_string()))?;
    let peer = Peer {
        address: peer,
        fleet: claim.fleet,
        expires: claim.expires,
    };
    Ok(Connection::new(stream, peer))
}

/// The reason for a failed handshake.
fn reason(error: &io::Error) -> RefusalReason {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};
    let Some(error) = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<Error>())
    else {
        return RefusalReason::ConnectionClosed;
    };
    match error {
        Error::NoCertificatesPresented => RefusalReason::NoCertificate,
        Error::InvalidCertificate(certificate) => match certificate {
            Certificate::Expired | Certificate::ExpiredContext { .. } => RefusalReason::Expired,
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                RefusalReason::NotYetValid
            }
            // A bad signature means an unknown CA with the same name as one of ours.
            Certificate::UnknownIssuer | Certificate::BadSignature => RefusalReason::UnknownCa,
            Certificate::Other(other) if other.0.is::<NoFleet>() => RefusalReason::NoFleet,
            _ => RefusalReason::BadCertificate,
        },
        Error::AlertReceived(
            Alert::UnknownCA
            | Alert::BadCertificate
            | Alert::CertificateUnknown
            | Alert::CertificateExpired
            | Alert::CertificateRevoked
            | Alert::UnsupportedCertificate
            | Alert::DecryptError
            | Alert::AccessDenied,
        ) => RefusalReason::ServerCertificateRejected,
        _ => RefusalReason::NotTls,
    }
}
