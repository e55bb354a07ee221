//! Health of a replica of `sesame serve`.
//!
//! In: failures of its parts. Out: readiness, and the failures as sentences. A replica that can serve the objects it has
//! read is ready despite other failures: removing it from its Service would fix none of them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sesame_sources::kube::WatchFailure;
use sesame_xds::tls::Identity;
use tokio::sync::watch;

use super::lease;

/// The state. Readers may read it at any time.
#[derive(Debug)]
pub(crate) struct Health {
    /// All objects have been read and translated once.
    synced: AtomicBool,
    /// Failures of the watches.
    source: RwLock<Vec<WatchFailure>>,
    statuses: sesame_status::Writer,
    identity: Identity,
    /// Failures of the certificates.
    identity_trouble: Option<watch::Receiver<Option<Arc<str>>>>,
    /// Failure of the leader election.
    election_trouble: watch::Receiver<lease::Trouble>,
    leads: watch::Receiver<bool>,
}

impl Health {
    pub(super) fn new(
        statuses: sesame_status::Writer,
        identity: Identity,
        identity_trouble: Option<watch::Receiver<Option<Arc<str>>>>,
        election_trouble: watch::Receiver<lease::Trouble>,
        leads: watch::Receiver<bool>,
    ) -> Self {
        Self {
            synced: AtomicBool::new(false),
            source: RwLock::default(),
            statuses,
            identity,
            identity_trouble,
            election_trouble,
            leads,
        }
    }

    /// All objects have been read and translated.
    pub(super) fn synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// Replaces the failures of the watches.
    pub(super) fn source(&self, failures: Vec<WatchFailure>) {
        *self.source.write().unwrap_or_else(PoisonError::into_inner) = failures;
    }

    pub(crate) fn leads(&self) -> bool {
        *self.leads.borrow()
    }

    /// Failures of the watches.
    pub(crate) fn troubles(&self) -> Vec<WatchFailure> {
        let source = self.source.read().unwrap_or_else(PoisonError::into_inner);
        source.clone()
    }

    /// What connecting Envoys have to wait for; `None`: nothing.
    pub(crate) fn waits_for(&self) -> Option<&'static str> {
        if !self.synced.load(Ordering::Acquire) {
            return Some("the objects have not been read yet");
        }
        let identified = self.identity.config().is_some();
        (!identified).then_some("there is no certificate to show to Envoys yet")
    }

    /// All failures, a sentence each.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.troubles().iter().map(sentence).collect();
        wrong.extend(self.statuses.failures().iter().map(ToString::to_string));
        let identity = self.identity_trouble.as_ref();
        let identity = identity.and_then(|trouble| trouble.borrow().clone());
        wrong.extend(identity.map(|trouble| trouble.to_string()));
        let election = self.election_trouble.borrow().clone();
        wrong.extend(election.map(|error| {
            format!("no leader, so no status is written: the Lease is unavailable: {error}")
        }));
        wrong
    }
}

/// A watch failure as a sentence.
pub(super) fn sentence(failure: &WatchFailure) -> String {
    format!("{}: {}", failure.subject, failure.message)
}
