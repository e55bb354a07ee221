//! Refused connections and streams: counted, broadcast, and logged at a limited rate.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::broadcast;

use crate::resource::FleetId;

/// Maximum number of unread refusals per receiver; older ones are dropped.
const UNREAD: usize = 64;
/// The minimum interval between log messages for the same reason.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Why a connection or stream was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RefusalReason {
    /// The server doesn't have a certificate yet.
    NotReady,
    /// The connection doesn't use TLS, or uses an unsupported version or protocol.
    NotTls,
    /// The handshake took too long.
    HandshakeTimeout,
    /// There were too many concurrent handshakes, and this was the oldest.
    TooManyHandshakes,
    /// The client closed the connection during the handshake.
    ConnectionClosed,
    /// The client rejected the server's certificate.
    ServerCertificateRejected,
    /// The client didn't send a certificate.
    NoCertificate,
    /// The client's certificate was issued by an unknown CA.
    UnknownCa,
    /// The client's certificate has expired.
    Expired,
    /// The client's certificate is not valid yet, so a clock is wrong.
    NotYetValid,
    /// The client's certificate is invalid for another reason.
    BadCertificate,
    /// The client's certificate doesn't name exactly one fleet.
    NoFleet,
    /// The client claims a fleet other than the one in its certificate.
    WrongFleet,
    /// The fleet has too many connections.
    TooManyConnections,
}

impl RefusalReason {
    /// The label value in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            RefusalReason::NotReady => "not_ready",
            RefusalReason::NotTls => "not_tls",
            RefusalReason::HandshakeTimeout => "handshake_timeout",
            RefusalReason::TooManyHandshakes => "too_many_handshakes",
            RefusalReason::ConnectionClosed => "connection_closed",
            RefusalReason::ServerCertificateRejected => "server_certificate_rejected",
            RefusalReason::NoCertificate => "no_certificate",
            RefusalReason::UnknownCa => "unknown_ca",
            RefusalReason::Expired => "expired",
            RefusalReason::NotYetValid => "not_yet_valid",
            RefusalReason::BadCertificate => "bad_certificate",
            RefusalReason::NoFleet => "no_fleet",
            RefusalReason::WrongFleet => "wrong_fleet",
            RefusalReason::TooManyConnections => "too_many_connections",
        }
    }
}

/// A refused connection or stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The client's address.
    pub peer: SocketAddr,
    /// The reason.
    pub reason: RefusalReason,
    /// The fleet in the client's certificate, if the certificate is valid.
    pub fleet: Option<FleetId>,
    /// The error.
    pub message: String,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    total: u64,
    /// Refusals since the last logged one.
    unlogged: u64,
    logged: Option<Instant>,
}

type Counts = BTreeMap<RefusalReason, Count>;

/// The record of refusals. Clones share the same state.
#[derive(Debug, Clone)]
pub struct Refusals {
    counts: Arc<Mutex<Counts>>,
    sender: broadcast::Sender<Refusal>,
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals {
            counts: Arc::default(),
            sender: broadcast::Sender::new(UNREAD),
        }
    }
}

impl Refusals {
    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of refusals by reason, without zeros.
    pub fn counts(&self) -> BTreeMap<RefusalReason, u64> {
        let counts = self.lock();
        let totals = counts.iter().map(|(reason, count)| (*reason, count.total));
        totals.collect()
    }

    /// Subscribes to future refusals. A receiver that lags behind loses the oldest refusals.
    pub fn subscribe(&self) -> broadcast::Receiver<Refusal> {
        self.sender.subscribe()
    }

    pub(super) fn record(&self, refusal: Refusal) {
        let mut counts = self.lock();
        let count = counts.entry(refusal.reason).or_default();
        count.total += 1;
        let now = Instant::now();
        let due = count
            .logged
            .is_none_or(|logged| now.duration_since(logged) >= LOG_INTERVAL);
        let unlogged = count.unlogged;
        if due {
            count.logged = Some(now);
            count.unlogged = 0;
        } else {
            count.unlogged += 1;
        }
        drop(counts);
        if due {
            let fleet = refusal.fleet.as_ref().map(FleetId::as_str);
            // Port probes look like this.
            if refusal.reason == RefusalReason::ConnectionClosed {
                tracing::debug!(peer = %refusal.peer, unlogged, "xDS connection closed: {}", refusal.message);
            } else {
                tracing::warn!(
                    peer = %refusal.peer, reason = refusal.reason.as_str(), fleet, unlogged,
                    "refused an xDS client: {}", refusal.message
                );
            }
        }
        // Fails if there is no receiver.
        let _: Result<usize, _> = self.sender.send(refusal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_counted_and_broadcast() {
        let refusals = Refusals::default();
        let mut receiver = refusals.subscribe();
        let refusal = |n: usize| Refusal {
            peer: SocketAddr::from(([127, 0, 0, 1], 1)),
            reason: RefusalReason::Expired,
            fleet: None,
            message: n.to_string(),
        };
        for n in 0..1_000 {
            refusals.record(refusal(n));
        }
        let expected = BTreeMap::from([(RefusalReason::Expired, 1_000)]);
        assert_eq!(refusals.counts(), expected);
        assert!(matches!(
            receiver.try_recv(),
            Err(broadcast::error::TryRecvError::Lagged(_))
        ));
        assert_eq!(receiver.try_recv().unwrap(), refusal(1_000 - UNREAD));
    }
}
