//! A replica in a cluster: objects come from the API server, statuses go back there, and Envoys are pods.
//!
//! In: settings. Out: discovery over mutual TLS for every Envoy, from every replica; and from the one that leads, statuses
//! and the objects that run Envoys. What one part can't do, it tries again: of what was read, nothing is taken away from
//! Envoys because the API server is gone.

mod addresses;
mod feed;
pub(crate) mod health;
mod identify;
mod inbox;
mod lead;
mod lease;
mod managed;
mod reports;
mod start;
mod unmanaged;

use std::net::SocketAddr;
use std::path::PathBuf;

use sesame_api::NamespacedName;
use sesame_envoy::Sharding;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::running::Running;

pub use self::identify::UNMANAGED_SECRET;
pub use self::start::StartError;
pub use crate::running::RunError;

/// The Service under which Envoys find Sesame.
pub const SERVICE: &str = "sesame-xds";

/// What a replica depends on.
#[derive(Clone, Debug)]
pub struct Config {
    /// How to reach the API server; `None`: as a pod's service account or `KUBECONFIG` says.
    pub kubeconfig: Option<PathBuf>,
    /// Sesame's own namespace.
    pub namespace: String,
    /// What tells this replica from others: the name of its pod.
    pub replica: String,
    /// The namespaces to look into; `None`: all.
    pub watch_namespaces: Option<Vec<String>>,
    /// Who runs the Envoys.
    pub envoys: Envoys,
    /// Where discovery is served.
    pub xds: SocketAddr,
    /// A folder with `tls.crt`, `tls.key` and `ca.crt` for it; `None`: Sesame makes them and keeps them in Secrets.
    pub certificates: Option<PathBuf>,
    /// Which route tables are in shards.
    pub sharding: Sharding,
    /// Whether Envoys are given Sesame's module, and load it.
    pub module: bool,
    /// Whether several replicas agree on who leads; without it this one always does.
    pub leader_election: bool,
    /// Where the pages for the kubelet and for Prometheus are; `None`: nowhere.
    pub probes: Option<SocketAddr>,
    /// Where all pages are; `None`: nowhere. Whoever reaches them sees all configuration, but no private key.
    pub admin: Option<SocketAddr>,
}

/// Who runs the Envoys.
#[derive(Clone, Debug)]
pub enum Envoys {
    /// Sesame: one Deployment or DaemonSet for each Gateway.
    Managed {
        /// The image of Envoy.
        envoy_image: String,
        /// Sesame's own image, for the process beside each Envoy.
        sidecar_image: String,
        /// The name by which pods reach [`Config::xds`]; `None`: that of [`SERVICE`].
        xds_host: Option<String>,
        /// The port there; `None`: the same.
        xds_port: Option<u16>,
    },
    /// Somebody else, from `sesame bootstrap`. They are one fleet, which serves one Gateway.
    Unmanaged {
        /// The Gateway; `None`: the oldest one of the oldest GatewayClass of ours.
        gateway: Option<NamespacedName>,
        /// Where clients reach them: numbers and names.
        addresses: Vec<String>,
        /// A Service whose status says it.
        service: Option<NamespacedName>,
    },
}

/// A running replica. Dropping it ends it at once; [`Serve::shutdown`] hands over first.
#[derive(Debug)]
pub struct Serve {
    xds: SocketAddr,
    probes: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    /// Ends leading, so that another may start.
    step_down: CancellationToken,
    /// Ends everything else.
    stop: CancellationToken,
    /// Becomes closed when the lease has been given back.
    stepped_down: watch::Receiver<bool>,
    running: Running,
}

impl Serve {
    /// Where discovery is served.
    pub fn xds(&self) -> SocketAddr {
        self.xds
    }

    /// Where the pages for the kubelet and for Prometheus are.
    pub fn probes(&self) -> Option<SocketAddr> {
        self.probes
    }

    /// Where all pages are.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Completes if something that everything depends on has failed. Cancel safe.
    pub async fn failed(&mut self) -> RunError {
        self.running.failed().await
    }

    /// Gives up leading, so that another replica need not wait, then ends all streams: Envoys go on with what they have and
    /// connect to another replica.
    pub async fn shutdown(mut self) {
        self.step_down.cancel();
        // It is closed as soon as whoever held it is done.
        while self.stepped_down.changed().await.is_ok() {}
        self.stop.cancel();
        // Whatever waits for an API server that doesn't answer is given up.
        let _ = tokio::time::timeout(start::PATIENCE, self.running.finish()).await;
        self.running.shutdown().await;
    }
}
