//! Handshakes, bounded in time and number.
//!
//! In: a listener and an identity. Out: connections whose handshake is done. It must not know what goes over
//! them.
//!
//! Each handshake runs in a task of its own, so that none waits for another. When as many are under way as
//! we allow, the oldest makes room: a good client is done within milliseconds, so that those who hold a
//! connection open and say nothing push out each other, not it.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use futures::Stream;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::connection::{Connection, Peer};
use super::identity::Identity;
use super::refusal::{Reason, Refusal};
use super::verify::{self, NoFleet};

/// How many handshakes may be under way at the same time.
pub const HANDSHAKES: usize = 256;
/// How long a handshake may take.
pub const HANDSHAKE_TIME: Duration = Duration::from_secs(10);

/// How long we wait before we accept again when the process has no file descriptors left.
const PAUSE: Duration = Duration::from_millis(100);

/// The connections that come in, each when its handshake is done; those that are refused are in the
/// identity's [`super::Refusals`] instead. The stream doesn't end.
pub fn incoming(
    listener: TcpListener,
    identity: Identity,
) -> impl Stream<Item = io::Result<Connection>> {
    let door = Door {
        listener,
        identity,
        handshakes: JoinSet::new(),
        by_age: BTreeMap::new(),
        next: 0,
    };
    futures::stream::unfold(door, |mut door| async {
        let connection = door.next().await;
        Some((Ok(connection), door))
    })
}

struct Door {
    listener: TcpListener,
    identity: Identity,
    /// Each gives its number, by which it is taken from `by_age`, and what came of it.
    handshakes: JoinSet<(u64, Result<Connection, Refusal>)>,
    by_age: BTreeMap<u64, (SocketAddr, AbortHandle)>,
    next: u64,
}

impl Door {
    /// The next connection whose handshake is done.
    async fn next(&mut self) -> Connection {
        loop {
            tokio::select! {
                // What is done makes room for what comes.
                biased;
                Some(done) = self.handshakes.join_next() => {
                    // One that was pushed out has been told already.
                    let Ok((number, done)) = done else { continue };
                    self.by_age.remove(&number);
                    match done {
                        Ok(connection) => return connection,
                        Err(refusal) => self.identity.refusals().tell(refusal),
                    }
                }
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, peer)) => self.begin(stream, peer),
                    Err(error) => {
                        // It was the connection's fault, or there are too many files open: either passes.
                        tracing::debug!(%error, "a discovery connection could not be accepted");
                        tokio::time::sleep(PAUSE).await;
                    }
                },
            }
        }
    }

    fn begin(&mut self, stream: TcpStream, peer: SocketAddr) {
        if self.by_age.len() >= HANDSHAKES
            && let Some((_, (peer, oldest))) = self.by_age.pop_first()
        {
            oldest.abort();
            self.identity.refusals().tell(Refusal {
                peer,
                reason: Reason::Crowded,
                fleet: None,
                message: format!("{HANDSHAKES} handshakes are under way, this was the oldest"),
            });
        }
        let number = self.next;
        self.next += 1;
        let identity = self.identity.clone();
        let task = async move { (number, shake_hands(stream, peer, &identity).await) };
        let handle = self.handshakes.spawn(task);
        self.by_age.insert(number, (peer, handle));
    }
}

async fn shake_hands(
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
        let message = "there is no certificate to show yet".to_owned();
        return Err(refusal(Reason::NotReady, message));
    };
    // What is sent are whole messages; without this small ones would wait for an acknowledgement. Without
    // it they would come late, so that it doesn't matter if it fails.
    let _: io::Result<()> = stream.set_nodelay(true);
    let handshake = TlsAcceptor::from(config).accept(stream);
    let stream = match tokio::time::timeout(HANDSHAKE_TIME, handshake).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(refusal(reason(&error), error.to_string())),
        Err(_) => {
            let message = format!("no handshake within {} s", HANDSHAKE_TIME.as_secs());
            return Err(refusal(Reason::Slow, message));
        }
    };
    let certificate = stream
        .get_ref()
        .1
        .peer_certificates()
        .and_then(<[_]>::first);
    let claim = certificate.ok_or(NoFleet).and_then(verify::claim);
    // The verifier has asked the same already.
    let claim = claim.map_err(|error| refusal(Reason::NoFleet, error.to_string()))?;
    let peer = Peer {
        address: peer,
        fleet: claim.fleet,
        expires: claim.expires,
    };
    Ok(Connection::new(stream, peer))
}

/// What a failed handshake comes from.
fn reason(error: &io::Error) -> Reason {
    use rustls::{AlertDescription as Alert, CertificateError as Certificate, Error};
    let Some(error) = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<Error>())
    else {
        return Reason::Broken;
    };
    match error {
        Error::NoCertificatesPresented => Reason::NoCertificate,
        Error::InvalidCertificate(certificate) => match certificate {
            Certificate::Expired | Certificate::ExpiredContext { .. } => Reason::Expired,
            Certificate::NotValidYet | Certificate::NotValidYetContext { .. } => {
                Reason::NotYetValid
            }
            // A name may be an authority's of ours and the key behind it somebody else's.
            Certificate::UnknownIssuer | Certificate::BadSignature => Reason::UnknownAuthority,
            Certificate::Other(other) if other.0.is::<NoFleet>() => Reason::NoFleet,
            _ => Reason::BadCertificate,
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
        ) => Reason::Distrusted,
        _ => Reason::NotTls,
    }
}
