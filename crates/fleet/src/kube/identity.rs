//! Who is who between Sesame and its Envoys: authorities, certificates, and the Secrets in which they are kept.
//!
//! In: which fleets there are, and where each one's Secret belongs. Out: Secrets; and for the discovery server of
//! this replica what it is to show and whom to trust, each time that changes. It must not know how discovery is
//! served, nor how Envoys are run.
//!
//! The leader makes what is missing, renews what grows old, and mends what somebody has spoiled. Every replica
//! watches the Secrets and follows. An Envoy reads its Secret as files and reads them again when they change.
//! So nothing is restarted and no stream is dropped, whoever is renewed.
//!
//! - [`issue`]: makes keys and certificates.
//! - [`read`]: says what a certificate is worth.
//! - [`plan`]: what to do next, and when.
//! - [`secret`]: what stands in Secrets.
//! - `state`: what is known of all of them; gives one job after the other.
//! - `watch`, `store`: reads and writes them.

pub mod issue;
pub mod plan;
pub mod read;
pub mod secret;
mod state;
mod store;
mod watch;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Api, Client};
use sesame_model::FleetId;
use tokio::sync::{Notify, mpsc, watch as latest};

pub use issue::{Certified, Periods, fleet_uri};
pub use read::Files;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Settings of [`start`].
#[derive(Clone)]
pub struct Config {
    /// The namespace of Sesame, in which the Secrets [`secret::AUTHORITY`] and [`secret::SERVER`] are.
    pub namespace: String,
    /// The DNS names by which Envoys know Sesame, such as `sesame-xds.sesame-system.svc`.
    pub dns_names: Vec<String>,
    /// The namespaces in which fleets may be; `None`: all.
    pub fleet_namespaces: Option<Vec<String>>,
    /// How long things last.
    pub periods: Periods,
    /// Tells the time; tests have their own.
    pub clock: Clock,
}

impl Config {
    /// For a Sesame in this namespace that Envoys know by these names: fleets anywhere, the usual periods.
    pub fn new(namespace: impl Into<String>, dns_names: Vec<String>) -> Self {
        Self {
            namespace: namespace.into(),
            dns_names,
            fleet_namespaces: None,
            periods: Periods::default(),
            clock: Arc::new(Timestamp::now),
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("namespace", &self.namespace)
            .field("dns_names", &self.dns_names)
            .field("fleet_namespaces", &self.fleet_namespaces)
            .field("periods", &self.periods)
            .finish_non_exhaustive()
    }
}

/// What the discovery server shows and whom it trusts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerIdentity {
    /// The certificate, its key, and the authorities that vouch for Envoys.
    pub files: Files,
    /// When the certificate ends to be valid.
    pub expires: Timestamp,
}

/// Where a fleet's Secret belongs, and what is to be on it.
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
    /// With whom it goes; without one it stays until the fleet is said to be gone.
    pub owner_reference: Option<OwnerReference>,
}

/// What was said to the task and not yet heard by it.
#[derive(Debug, Default)]
struct Orders {
    fleets: BTreeMap<FleetId, Option<FleetOwner>>,
    lead: bool,
    settled: bool,
}

#[derive(Debug, Default)]
struct Shared {
    orders: Mutex<Orders>,
    bell: Notify,
}

impl Shared {
    fn with<R>(&self, f: impl FnOnce(&mut Orders) -> R) -> R {
        f(&mut self.orders.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Tells the task what there should be. Never blocks. When the last clone is dropped, the task ends.
#[derive(Clone, Debug)]
pub struct Handle {
    shared: Arc<Shared>,
    trouble: latest::Receiver<Option<Arc<str>>>,
    /// The task sees when the last of these is gone.
    _alive: mpsc::Sender<Infallible>,
}

impl Handle {
    /// Keeps a fleet's Secret from now on; `None`: the fleet is gone, and its Secret goes too.
    ///
    /// A fleet that somebody else runs is kept in the same way, without an owner reference.
    pub fn fleet(&self, fleet: FleetId, owner: Option<FleetOwner>) {
        self.shared
            .with(|orders| orders.fleets.insert(fleet, owner));
        self.shared.bell.notify_one();
    }

    /// Whether this replica leads: only a leader writes.
    pub fn lead(&self, lead: bool) {
        self.shared.with(|orders| orders.lead = lead);
        self.shared.bell.notify_one();
    }

    /// All fleets that there should be have been said once. From now on Secrets of fleets that nobody wants are taken
    /// away, too.
    pub fn settled(&self) {
        self.shared.with(|orders| orders.settled = true);
        self.shared.bell.notify_one();
    }

    /// What is wrong now, for people; `None`: nothing.
    pub fn trouble(&self) -> latest::Receiver<Option<Arc<str>>> {
        self.trouble.clone()
    }
}

/// Starts to keep certificates, in a task of its own. The receiver has what the discovery server is to show, `None`
/// until there is something; a replica that doesn't lead waits for the leader to make it.
pub fn start(client: Client, config: Config) -> (Handle, latest::Receiver<Option<ServerIdentity>>) {
    let shared = Arc::new(Shared::default());
    let (alive, ended) = mpsc::channel(1);
    let (identity, shown) = latest::channel(None);
    let (told, trouble) = latest::channel(None);
    let store = store::Store::new(client, config, Arc::clone(&shared), identity, told);
    tokio::spawn(store.run(ended));
    let handle = Handle {
        shared,
        trouble,
        _alive: alive,
    };
    (handle, shown)
}

/// Why no certificate was issued.
#[derive(Debug, thiserror::Error)]
pub enum IssueOnceError {
    /// The API server says no, or nothing.
    #[error("cannot read the Secret {namespace}/{}: {source}", secret::AUTHORITY)]
    Read {
        /// Sesame's namespace.
        namespace: String,
        /// Why not.
        source: kube::Error,
    },
    /// What stands in the Secret is of no use.
    #[error("the Secret {namespace}/{} is of no use: {source}", secret::AUTHORITY)]
    Flaw {
        /// Sesame's namespace.
        namespace: String,
        /// Why.
        source: read::Flaw,
    },
    /// No certificate could be made.
    #[error(transparent)]
    Issue(#[from] issue::IssueError),
}

/// Issues a certificate, once, for a fleet whose Envoys run outside of the cluster: somebody carries the files
/// there, and has to come again before it expires (after [`Periods::leaf`]).
///
/// # Errors
/// The authority's Secret can't be read or used.
pub async fn issue_once(
    client: Client,
    namespace: &str,
    fleet: FleetId,
    periods: &Periods,
) -> Result<Files, IssueOnceError> {
    let api: Api<Secret> = Api::namespaced(client, namespace);
    let read = api.get(secret::AUTHORITY).await;
    let kept = read.map_err(|source| IssueOnceError::Read {
        namespace: namespace.to_owned(),
        source,
    })?;
    let flaw = |source| IssueOnceError::Flaw {
        namespace: namespace.to_owned(),
        source,
    };
    let authorities = secret::read_authorities(&kept).map_err(flaw)?;
    let subject = issue::Subject::Fleet(fleet);
    let files = plan::issue(Timestamp::now(), periods, &authorities, &subject)?;
    files.ok_or_else(|| flaw(read::Flaw::Certificate("tls.crt")))
}
