//! Health of a replica of `sesame serve`.
//!
//! In: failures of its parts. Out: readiness, and the failures as text. A replica that can serve the objects it has
//! read is ready despite other failures: removing it from its Service wouldn't fix them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sesame_sources::kube::WatchFailure;
use sesame_xds::tls::Identity;
use tokio::sync::watch;

use super::lease;

/// Health of a replica; readable at any time.
#[derive(Debug)]
pub(crate) struct Health {
    /// All objects have been read and translated once.
    synced: AtomicBool,
    /// Failures of the watches.
    watch_failures: RwLock<Vec<WatchFailure>>,
    statuses: sesame_status::Writer,
    identity: Identity,
    /// Failures of the certificates.
    identity_failure: Option<watch::Receiver<Option<Arc<str>>>>,
    /// Failure of the leader election.
    election_failure: watch::Receiver<lease::ElectionFailure>,
    is_leader: watch::Receiver<bool>,
}

impl Health {
    pub(super) fn new(
        statuses: sesame_status::Writer,
        identity: Identity,
        identity_failure: Option<watch::Receiver<Option<Arc<str>>>>,
        election_failure: watch::Receiver<lease::ElectionFailure>,
        is_leader: watch::Receiver<bool>,
    ) -> Self {
        Self {
            synced: AtomicBool::new(false),
            watch_failures: RwLock::default(),
            statuses,
            identity,
            identity_failure,
            election_failure,
            is_leader,
        }
    }

    /// All objects have been read and translated.
    pub(super) fn set_synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// Replaces the failures of the watches.
    pub(super) fn set_watch_failures(&self, failures: Vec<WatchFailure>) {
        *self
            .watch_failures
            .write()
            .unwrap_or_else(PoisonError::into_inner) = failures;
    }

    /// Changes of leadership.
    pub(super) fn leadership(&self) -> watch::Receiver<bool> {
        self.is_leader.clone()
    }

    pub(crate) fn is_leader(&self) -> bool {
        *self.is_leader.borrow()
    }

    /// Failures of the watches.
    pub(crate) fn watch_failures(&self) -> Vec<WatchFailure> {
        let failures = self.watch_failures.read();
        failures.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Why connecting Envoys would have to wait; `None` if they are served.
    pub(crate) fn not_ready_reason(&self) -> Option<&'static str> {
        if !self.synced.load(Ordering::Acquire) {
            return Some("waiting for the initial sync of objects");
        }
        let pending = self.identity.config().is_none();
        pending.then_some("the xDS server has no certificate yet")
    }

    /// All failures, as text.
    pub(crate) fn failures(&self) -> Vec<String> {
        let mut failures: Vec<String> = self.watch_failures().iter().map(describe).collect();
        failures.extend(self.statuses.failures().iter().map(ToString::to_string));
        let identity = self.identity_failure.as_ref();
        let identity = identity.and_then(|failure| failure.borrow().clone());
        failures.extend(identity.map(|failure| failure.to_string()));
        let election = self.election_failure.borrow().clone();
        failures.extend(election.map(|error| {
            format!("leader election failed ({error}), so this replica does not write statuses")
        }));
        failures
    }
}

/// A watch failure as text.
pub(super) fn describe(failure: &WatchFailure) -> String {
    format!("{}: {}", failure.subject, failure.message)
}
