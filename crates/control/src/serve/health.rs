//! How a replica of `sesame serve` is.
//!
//! In: what its parts find wrong. Out: whether it can serve, and sentences for whoever asks. A replica that can serve what
//! it has read is ready, whatever else is wrong: to take it from its Service would help nobody.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use sesame_sources::kube::Trouble;
use sesame_xds::tls::Identity;
use tokio::sync::watch;

use super::lease;

/// What is known. Readers may look at any time.
#[derive(Debug)]
pub(crate) struct Health {
    /// Everything has been read and translated once.
    synced: AtomicBool,
    /// What is wrong with what the API server tells.
    source: RwLock<Vec<Trouble>>,
    statuses: sesame_status::Writer,
    identity: Identity,
    /// What is wrong with certificates.
    identity_trouble: Option<watch::Receiver<Option<Arc<str>>>>,
    /// What is wrong with the election.
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

    /// Everything has been read and translated.
    pub(super) fn synced(&self) {
        self.synced.store(true, Ordering::Release);
    }

    /// What is wrong with what the API server tells, from now on.
    pub(super) fn source(&self, troubles: Vec<Trouble>) {
        *self.source.write().unwrap_or_else(PoisonError::into_inner) = troubles;
    }

    /// Whether this replica leads.
    pub(crate) fn leads(&self) -> bool {
        *self.leads.borrow()
    }

    /// What is wrong with what the API server tells.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        let source = self.source.read().unwrap_or_else(PoisonError::into_inner);
        source.clone()
    }

    /// What Envoys that connect now wait for, if for anything.
    pub(crate) fn waits_for(&self) -> Option<&'static str> {
        if !self.synced.load(Ordering::Acquire) {
            return Some("the objects have not been read yet");
        }
        let identified = self.identity.config().is_some();
        (!identified).then_some("there is no certificate to show to Envoys yet")
    }

    /// All that is wrong, a sentence each.
    pub(crate) fn wrong(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.troubles().iter().map(sentence).collect();
        wrong.extend(self.statuses.troubles().iter().map(ToString::to_string));
        let identity = self.identity_trouble.as_ref();
        let identity = identity.and_then(|trouble| trouble.borrow().clone());
        wrong.extend(identity.map(|trouble| trouble.to_string()));
        let election = self.election_trouble.borrow().clone();
        wrong.extend(election.map(|error| {
            format!(
                "nobody may lead, and then no status is written: the Lease can't be had: {error}"
            )
        }));
        wrong
    }
}

/// Where something is wrong, and what.
pub(super) fn sentence(trouble: &Trouble) -> String {
    format!("{}: {}", trouble.place, trouble.message)
}
