//! Mutual TLS between Sesame and its Envoys: CAs, certificates, and the Secrets that store them.
//!
//! In: the fleets, and the namespace and name of each fleet's Secret. Out: Secrets, and the files for this replica's
//! xDS server. Must not depend on how discovery is served or how Envoys run.
//!
//! The leader issues, renews and repairs certificates. Every replica watches the Secrets and serves with their
//! contents. An Envoy has its Secret mounted as files and reloads them when they change, so a renewal doesn't restart
//! Envoys or close streams.
//!
//! - [`cert`]: issues and reads certificates.
//! - [`ca`]: CAs and their rotation.
//! - [`secret`]: the layout of the Secrets.
//! - `state`: decides which Secrets to write, and when.
//! - `store`: watches and writes them.

pub mod ca;
pub mod cert;
pub mod secret;
mod state;
mod store;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use sesame_model::FleetId;
use tokio::sync::watch;

pub use cert::TlsFiles;
pub use secret::{CA as CA_SECRET, SERVER as SERVER_SECRET};

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Settings for [`start`].
#[derive(Clone)]
pub struct CaConfig {
    /// Sesame's namespace, with the Secrets [`secret::CA`] and [`secret::SERVER`].
    pub namespace: String,
    /// The DNS names at which Envoys reach Sesame, such as `sesame-xds.sesame-system.svc`.
    pub dns_names: Vec<String>,
    /// The namespaces of fleets; `None` means all.
    pub fleet_namespaces: Option<Vec<String>>,
    /// The clock.
    pub clock: Clock,
}

impl CaConfig {
    /// Settings for fleets in all namespaces, with the system clock.
    pub fn new(namespace: impl Into<String>, dns_names: Vec<String>) -> Self {
        Self {
            namespace: namespace.into(),
            dns_names,
            fleet_namespaces: None,
            clock: Arc::new(Timestamp::now),
        }
    }
}

/// The desired Secret of a fleet: its name and metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetSecret {
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub name: String,
    /// The Secret's labels, besides Sesame's own.
    pub labels: BTreeMap<String, String>,
    /// The Secret's annotations, besides Sesame's own.
    pub annotations: BTreeMap<String, String>,
    /// The Secret's owner. Without an owner, the Secret exists until [`Handle::set_fleet`] deletes it.
    pub owner_reference: Option<OwnerReference>,
}

/// Calls that the task has not handled yet.
#[derive(Debug, Default)]
struct PendingChanges {
    fleets: BTreeMap<FleetId, Option<FleetSecret>>,
    leading: Option<bool>,
    complete: bool,
}

/// A handle to the task. Calls return immediately. The task ends when the last clone is dropped.
#[derive(Clone, Debug)]
pub struct Handle {
    pending: Arc<Mutex<PendingChanges>>,
    changed: watch::Sender<()>,
    failure: watch::Receiver<Option<Arc<str>>>,
}

impl Handle {
    /// Sets the desired Secret of a fleet; `None` deletes it.
    pub fn set_fleet(&self, fleet: FleetId, secret: Option<FleetSecret>) {
        self.update(|pending| {
            pending.fleets.insert(fleet, secret);
        });
    }

    /// Sets whether this replica leads; initially false. Only the leader writes.
    pub fn set_leading(&self, leading: bool) {
        self.update(|pending| pending.leading = Some(leading));
    }

    /// Declares that all desired fleets are known. From now on, other fleets' Secrets are orphans and are deleted.
    pub fn mark_complete(&self) {
        self.update(|pending| pending.complete = true);
    }

    /// The reason that Secrets can't be watched or written, if any.
    pub fn failure(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.failure.clone()
    }

    fn update(&self, change: impl FnOnce(&mut PendingChanges)) {
        change(&mut self.pending.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_replace(());
    }
}

/// Starts the task. The receiver holds the xDS server's files: `None` until the leader has issued them.
pub fn start(client: Client, config: CaConfig) -> (Handle, watch::Receiver<Option<TlsFiles>>) {
    let pending = Arc::new(Mutex::new(PendingChanges::default()));
    let (changed, changes) = watch::channel(());
    let (server_files, files) = watch::channel(None);
    let (failed, failure) = watch::channel(None);
    let store = store::Store::new(client, config, server_files, failed);
    tokio::spawn(store.run(Arc::clone(&pending), changes));
    let handle = Handle {
        pending,
        changed,
        failure,
    };
    (handle, files)
}
