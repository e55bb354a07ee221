//! Mutual TLS between Sesame and its Envoys: CAs, certificates, and the Secrets in which they are kept.
//!
//! In: the fleets and where each one's Secret belongs. Out: Secrets, and the files for this replica's discovery server. Must
//! not depend on how discovery is served or how Envoys run.
//!
//! The leader issues, renews and repairs. Every replica watches the Secrets and serves with what they hold. An Envoy reads
//! its Secret as files and reads them again when they change. So a renewal restarts nothing and closes no stream.
//!
//! - [`cert`]: issues and reads certificates.
//! - [`ca`]: CAs and their rotation.
//! - [`secret`]: the layout of the Secrets.
//! - `state`: what each Secret needs, and when.
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

/// Returns the current time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Settings of [`start`].
#[derive(Clone)]
pub struct CaConfig {
    /// Sesame's namespace, with the Secrets [`secret::CA`] and [`secret::SERVER`].
    pub namespace: String,
    /// The DNS names by which Envoys reach Sesame, such as `sesame-xds.sesame-system.svc`.
    pub dns_names: Vec<String>,
    /// The namespaces of fleets; `None`: all.
    pub fleet_namespaces: Option<Vec<String>>,
    /// The clock.
    pub clock: Clock,
}

impl CaConfig {
    /// Fleets in all namespaces, the system's clock.
    pub fn new(namespace: impl Into<String>, dns_names: Vec<String>) -> Self {
        Self {
            namespace: namespace.into(),
            dns_names,
            fleet_namespaces: None,
            clock: Arc::new(Timestamp::now),
        }
    }
}

/// A fleet's Secret: where it is, and its metadata.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FleetOwner {
    /// The Secret's namespace.
    pub namespace: String,
    /// The Secret's name.
    pub secret_name: String,
    /// Its labels, besides Sesame's own.
    pub labels: BTreeMap<String, String>,
    /// Its annotations, besides Sesame's own.
    pub annotations: BTreeMap<String, String>,
    /// Its owner; without one it stays until [`Handle::fleet`] deletes it.
    pub owner_reference: Option<OwnerReference>,
}

/// Calls that the task has not handled yet.
#[derive(Debug, Default)]
struct Orders {
    fleets: BTreeMap<FleetId, Option<FleetOwner>>,
    leading: Option<bool>,
    settled: bool,
}

/// A handle of the task. Its calls return at once. When the last clone is dropped, the task ends.
#[derive(Clone, Debug)]
pub struct Handle {
    orders: Arc<Mutex<Orders>>,
    bell: watch::Sender<()>,
    failure: watch::Receiver<Option<Arc<str>>>,
}

impl Handle {
    /// Keeps a fleet's Secret from now on; `None`: deletes it.
    pub fn fleet(&self, fleet: FleetId, owner: Option<FleetOwner>) {
        self.send(|orders| {
            orders.fleets.insert(fleet, owner);
        });
    }

    /// Whether this replica leads. Only the leader writes. False at first.
    pub fn lead(&self, leading: bool) {
        self.send(|orders| orders.leading = Some(leading));
    }

    /// All fleets are known. From now on Secrets of other fleets are orphans and deleted.
    pub fn settled(&self) {
        self.send(|orders| orders.settled = true);
    }

    /// Why Secrets can't be watched or written; `None`: they can.
    pub fn failure(&self) -> watch::Receiver<Option<Arc<str>>> {
        self.failure.clone()
    }

    fn send(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner));
        self.bell.send_replace(());
    }
}

/// Starts to keep certificates, in a task of its own. The receiver has the discovery server's files: `None` until the leader
/// has issued them.
pub fn start(client: Client, config: CaConfig) -> (Handle, watch::Receiver<Option<TlsFiles>>) {
    let orders = Arc::new(Mutex::new(Orders::default()));
    let (bell, rung) = watch::channel(());
    let (served, files) = watch::channel(None);
    let (failed, failure) = watch::channel(None);
    let store = store::Store::new(client, config, served, failed);
    tokio::spawn(store.run(Arc::clone(&orders), rung));
    let handle = Handle {
        orders,
        bell,
        failure,
    };
    (handle, files)
}
