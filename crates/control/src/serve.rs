//! A replica in a cluster: objects come from the API server, statuses are written back to it, and Envoys are pods.
//!
//! In: settings. Out: every replica serves xDS over mutual TLS to every Envoy; the leader writes statuses and the
//! objects that run Envoys. Failures are retried. While the API server is unavailable, Envoys keep their
//! configuration.

mod addresses;
pub(crate) mod class_finalizers;
mod configuration;
mod feed;
mod fleet_updates;
pub(crate) mod health;
mod kube_events;
mod leadership;
pub(crate) mod lease;
mod managed;
mod server_identity;
pub(crate) mod start;
mod unmanaged;
mod upgrades;

use std::net::SocketAddr;
use std::path::PathBuf;

use sesame_api::{Kind, LoggingConfiguration, NamespacedName};
use sesame_envoy::Sharding;
use sesame_translate::settings::{ElectionSettings, Settings};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::running::Running;

pub use self::configuration::await_configuration;
pub use self::server_identity::UNMANAGED_SECRET;
pub use self::start::StartError;
pub use crate::running::RunError;

/// The Service through which Envoys reach Sesame.
pub const SERVICE: &str = "sesame-xds";

/// Settings for a replica.
#[derive(Clone, Debug)]
pub struct ServeConfig {
    /// The kubeconfig; `None` means the pod's service account or `KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
    /// Sesame's own namespace.
    pub namespace: String,
    /// The unique name of this replica: its pod's name.
    pub replica: String,
    /// The namespaces to watch; `None` means all.
    pub watch_namespaces: Option<Vec<String>>,
    /// The initial settings for the translation; `ipv6` is overwritten, depending on whether this node has IPv6.
    /// Settings from a SesameConfiguration, in the cluster or in `configuration_file`, follow its changes.
    pub settings: Settings,
    /// The watched file with the SesameConfiguration; `None` if the configuration is an object, or doesn't exist.
    pub configuration_file: Option<PathBuf>,
    /// Whether Contour's objects are served.
    pub contour: ContourCompat,
    /// How Envoys run.
    pub envoys: Envoys,
    /// Address of the xDS server.
    pub xds: SocketAddr,
    /// A folder with `tls.crt`, `tls.key` and `ca.crt` for the xDS server; `None` means that Sesame issues them
    /// and stores them in Secrets.
    pub certificates: Option<PathBuf>,
    /// Which route tables are sharded.
    pub sharding: Sharding,
    /// Whether Envoys get and load Sesame's module.
    pub module: bool,
    /// The leader election. If it is disabled, this replica always leads.
    pub election: ElectionSettings,
    /// Address of the pages for the kubelet; `None` disables them.
    pub probes: Option<SocketAddr>,
    /// Address of `/metrics`; `None` means that it is among the pages for the kubelet.
    pub metrics: Option<SocketAddr>,
    /// Address of all admin pages, a loopback address; `None` disables them. They show all configuration, but no
    /// private keys.
    pub admin: Option<SocketAddr>,
}

impl ServeConfig {
    /// The namespaces where managed fleets may run: the watched ones, and Sesame's own, where the default fleet runs.
    /// `None` means all.
    fn fleet_namespaces(&self) -> Option<Vec<String>> {
        if let Envoys::Managed {
            own_namespace: true,
            ..
        } = self.envoys
        {
            return Some(vec![self.namespace.clone()]);
        }
        let mut namespaces = self.watch_namespaces.clone()?;
        if !namespaces.contains(&self.namespace) {
            namespaces.push(self.namespace.clone());
        }
        Some(namespaces)
    }
}

/// Whether Contour's objects and annotations are read as Sesame's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ContourCompat {
    /// No.
    #[default]
    Off,
    /// Yes, but their statuses, and those of Ingresses, are left to Contour.
    Read,
    /// Yes, and their statuses are written.
    Write,
}

impl ContourCompat {
    /// Whether Contour's objects are read.
    pub fn reads(self) -> bool {
        self != ContourCompat::Off
    }

    /// The kinds whose statuses Contour writes.
    fn unwritten(self) -> &'static [Kind] {
        const SERVED_BY_CONTOUR: &[Kind] = &[
            Kind::ContourHTTPProxy,
            Kind::ContourTLSCertificateDelegation,
            Kind::ContourExtensionService,
            Kind::Ingress,
        ];
        match self {
            ContourCompat::Read => SERVED_BY_CONTOUR,
            ContourCompat::Off | ContourCompat::Write => &[],
        }
    }
}

/// How Envoys run.
#[derive(Clone, Debug)]
pub enum Envoys {
    /// Sesame runs them: one Deployment or DaemonSet per Gateway, and a Deployment for objects without a Gateway.
    Managed {
        /// The image of Envoy.
        envoy_image: String,
        /// Sesame's own image, for the sidecar of each Envoy.
        sidecar_image: String,
        /// Whether the Envoys of all Gateways run in Sesame's own namespace, instead of the Gateways' namespaces.
        own_namespace: bool,
        /// The DNS name through which pods reach [`ServeConfig::xds`]; `None` means the name of [`SERVICE`].
        xds_host: Option<String>,
        /// The port on that host; `None` means the port of [`ServeConfig::xds`].
        xds_port: Option<u16>,
    },
    /// Envoys run outside Sesame (unmanaged), with the output of `sesame bootstrap`. They form one fleet, which serves
    /// one Gateway, and all objects without a Gateway.
    Unmanaged {
        /// Addresses and hostnames that clients connect to.
        addresses: Vec<String>,
        /// A Service whose status contains the addresses.
        service: Option<NamespacedName>,
    },
}

/// A running replica. Dropping it stops it immediately; [`Serve::shutdown`] stops it gracefully.
#[derive(Debug)]
pub struct Serve {
    xds: SocketAddr,
    probes: Option<SocketAddr>,
    metrics: Option<SocketAddr>,
    admin: Option<SocketAddr>,
    logging: watch::Receiver<LoggingConfiguration>,
    /// Releases the Lease, so that another replica can lead.
    step_down: CancellationToken,
    /// Ends all tasks.
    stop: CancellationToken,
    /// Closes when the Lease has been released.
    stepped_down: watch::Receiver<bool>,
    running: Running,
}

impl Serve {
    /// Address of the xDS server.
    pub fn xds(&self) -> SocketAddr {
        self.xds
    }

    /// Address of the pages for the kubelet and Prometheus.
    pub fn probes(&self) -> Option<SocketAddr> {
        self.probes
    }

    /// Address of a server for `/metrics` alone.
    pub fn metrics(&self) -> Option<SocketAddr> {
        self.metrics
    }

    /// The `logging` section of the instance's configuration, with its changes.
    pub fn logging(&self) -> watch::Receiver<LoggingConfiguration> {
        self.logging.clone()
    }

    /// Address of the admin pages.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// Completes when the replica can't continue, with the reason. Cancel safe.
    pub async fn failed(&mut self) -> RunError {
        self.running.failed().await
    }

    /// Releases the Lease, so that another replica can lead immediately, then closes all streams: Envoys keep their
    /// configuration and connect to another replica.
    pub async fn shutdown(mut self) {
        self.step_down.cancel();
        // Closes once the Lease is released.
        while self.stepped_down.changed().await.is_ok() {}
        self.stop.cancel();
        // Aborts any tasks that are still waiting for an unresponsive API server.
        let _ = tokio::time::timeout(start::SHUTDOWN_TIMEOUT, self.running.finish()).await;
        self.running.shutdown().await;
    }
}
