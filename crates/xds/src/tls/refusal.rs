//! Who was turned away, and why.
//!
//! In: refusals. Out: the same, to any number of receivers, counted, and in the log as often as a person
//! can read. However many there are, they cost no more than a few numbers. It must not know who listens.

use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::broadcast;

use crate::resource::FleetId;

/// How many refusals wait at most for a receiver that doesn't read; older ones are dropped.
const UNREAD: usize = 64;
/// How often refusals for the same reason are logged at most.
const LOGGED: Duration = Duration::from_secs(10);

/// Why a connection or stream was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reason {
    /// We have no certificate to show yet.
    NotReady,
    /// What came is not TLS, or not of a version or protocol that we speak.
    NotTls,
    /// The handshake took too long.
    Slow,
    /// More handshakes were under way than we allow, and this was the oldest.
    Crowded,
    /// The client ended the connection within the handshake without a word.
    Broken,
    /// The client did not take our certificate.
    Distrusted,
    /// The client showed no certificate.
    NoCertificate,
    /// The client's certificate is of no authority that we trust.
    UnknownAuthority,
    /// The client's certificate is not valid any more.
    Expired,
    /// The client's certificate is not valid yet: one of our clocks is wrong.
    NotYetValid,
    /// The client's certificate can't be used in another way.
    BadCertificate,
    /// The client's certificate names no fleet, or more than one.
    NoFleet,
    /// The client says that it is of another fleet than its certificate.
    WrongFleet,
}

impl Reason {
    /// All reasons.
    pub const ALL: [Reason; 13] = [
        Reason::NotReady,
        Reason::NotTls,
        Reason::Slow,
        Reason::Crowded,
        Reason::Broken,
        Reason::Distrusted,
        Reason::NoCertificate,
        Reason::UnknownAuthority,
        Reason::Expired,
        Reason::NotYetValid,
        Reason::BadCertificate,
        Reason::NoFleet,
        Reason::WrongFleet,
    ];

    /// A word for metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Reason::NotReady => "not_ready",
            Reason::NotTls => "not_tls",
            Reason::Slow => "slow",
            Reason::Crowded => "crowded",
            Reason::Broken => "broken",
            Reason::Distrusted => "distrusted",
            Reason::NoCertificate => "no_certificate",
            Reason::UnknownAuthority => "unknown_authority",
            Reason::Expired => "expired",
            Reason::NotYetValid => "not_yet_valid",
            Reason::BadCertificate => "bad_certificate",
            Reason::NoFleet => "no_fleet",
            Reason::WrongFleet => "wrong_fleet",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Somebody was turned away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Who: the other end's address.
    pub peer: SocketAddr,
    /// Why.
    pub reason: Reason,
    /// The fleet of its certificate, if it showed a good one.
    pub fleet: Option<FleetId>,
    /// The same for people.
    pub message: String,
}

#[derive(Debug, Default, Clone, Copy)]
struct Count {
    total: u64,
    /// Of them, those not logged since the last that was.
    silent: u64,
    logged: Option<Instant>,
}

#[derive(Debug)]
struct Inner {
    counts: Mutex<[Count; Reason::ALL.len()]>,
    told: broadcast::Sender<Refusal>,
}

/// The record of refusals. A handle: clones are the same record.
#[derive(Debug, Clone)]
pub struct Refusals {
    inner: Arc<Inner>,
}

impl Default for Refusals {
    fn default() -> Refusals {
        Refusals {
            inner: Arc::new(Inner {
                counts: Mutex::default(),
                told: broadcast::Sender::new(UNREAD),
            }),
        }
    }
}

impl Refusals {
    /// How many there were of each reason, those of which there were none too, in the order of [`Reason::ALL`].
    pub fn counts(&self) -> [(Reason, u64); Reason::ALL.len()] {
        let counts = self
            .inner
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        Reason::ALL.map(|reason| (reason, counts[reason as usize].total))
    }

    /// A receiver of those that come from now on. One that doesn't keep up loses the oldest.
    pub fn subscribe(&self) -> broadcast::Receiver<Refusal> {
        self.inner.told.subscribe()
    }

    pub(super) fn tell(&self, refusal: Refusal) {
        let mut counts = self
            .inner
            .counts
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let count = &mut counts[refusal.reason as usize];
        count.total += 1;
        let now = Instant::now();
        let due = count
            .logged
            .is_none_or(|logged| now.duration_since(logged) >= LOGGED);
        let unlogged = count.silent;
        if due {
            count.logged = Some(now);
            count.silent = 0;
        } else {
            count.silent += 1;
        }
        drop(counts);
        if due {
            let fleet = refusal.fleet.as_ref().map(FleetId::as_str);
            // Port probes look like this; they are nobody's worry.
            if refusal.reason == Reason::Broken {
                tracing::debug!(peer = %refusal.peer, unlogged, "discovery client gone: {}", refusal.message);
            } else {
                tracing::warn!(
                    peer = %refusal.peer, reason = %refusal.reason, fleet, unlogged,
                    "discovery client refused: {}", refusal.message
                );
            }
        }
        // Nobody has to listen.
        let _: Result<usize, _> = self.inner.told.send(refusal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_where_their_counts_do() {
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at);
        }
    }

    #[test]
    fn refusals_are_counted_and_told_however_many() {
        let refusals = Refusals::default();
        let mut told = refusals.subscribe();
        let refusal = |n: usize| Refusal {
            peer: SocketAddr::from(([127, 0, 0, 1], 1)),
            reason: Reason::Expired,
            fleet: None,
            message: n.to_string(),
        };
        for n in 0..1_000 {
            refusals.tell(refusal(n));
        }
        let counts = refusals.counts();
        assert_eq!(counts[Reason::Expired as usize], (Reason::Expired, 1_000));
        assert_eq!(counts.iter().map(|(_, n)| n).sum::<u64>(), 1_000);
        assert!(matches!(
            told.try_recv(),
            Err(broadcast::error::TryRecvError::Lagged(_))
        ));
        assert_eq!(told.try_recv().unwrap(), refusal(1_000 - UNREAD));
    }
}
