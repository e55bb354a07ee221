//! A replica of the operator. The leader runs instances of Sesame.
//!
//! In: settings. Out: instances, as `sesame-operator` makes them.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use kube::Client;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::admin;
use crate::serve::StartError;
use crate::serve::lease::{self, LeaseConfig};
use crate::serve::start;

/// The Lease of the operator's replicas.
const LEASE: &str = "sesame-operator-leader";

/// Settings for a replica of the operator.
#[derive(Clone, Debug)]
pub struct OperatorConfig {
    /// The kubeconfig; `None` means the pod's service account or `KUBECONFIG`.
    pub kubeconfig: Option<PathBuf>,
    /// The operator's own namespace.
    pub namespace: String,
    /// The unique name of this replica: its pod's name.
    pub replica: String,
    /// The image of Sesame.
    pub image: String,
    /// The image of Envoy.
    pub envoy_image: String,
    /// The release of Sesame.
    pub version: String,
    /// Address of the pages for the kubelet; `None` disables them.
    pub probes: Option<SocketAddr>,
}

/// A running replica. Dropping it stops it immediately; [`Operator::shutdown`] releases the Lease first.
#[derive(Debug)]
pub struct Operator {
    step_down: CancellationToken,
    election: JoinSet<()>,
    /// The pages, and the controller while this replica leads.
    tasks: JoinSet<()>,
}

impl Operator {
    /// Starts a replica. Must be called within a Tokio runtime with IO and time.
    ///
    /// # Errors
    /// If no API server is configured, or an address is in use.
    pub async fn start(config: OperatorConfig) -> Result<Self, StartError> {
        let client = start::client(config.kubeconfig.as_deref()).await?;
        let probes = start::listen_if("--probes", config.probes)?;
        let step_down = CancellationToken::new();
        let (failure, _) = watch::channel(None);
        let lease = LeaseConfig {
            name: LEASE.to_owned(),
            ..LeaseConfig::new(&config.namespace, &config.replica)
        };
        let (is_leader, running) = lease::start(client.clone(), lease, failure, step_down.clone());
        let (mut election, mut tasks) = (JoinSet::new(), JoinSet::new());
        election.spawn(running);
        if let Some(listener) = probes {
            tasks.spawn(admin::serve(listener, admin::operator()));
        }
        tasks.spawn(lead(
            client,
            sesame_operator::OperatorConfig {
                image: config.image,
                envoy_image: config.envoy_image,
                version: config.version,
            },
            is_leader,
        ));
        Ok(Self {
            step_down,
            election,
            tasks,
        })
    }

    /// Releases the Lease, so that another replica can lead immediately.
    pub async fn shutdown(mut self) {
        self.step_down.cancel();
        while self.election.join_next().await.is_some() {}
        self.tasks.shutdown().await;
    }
}

/// Removes the Envoys, certificates and finalizers of the instance in a namespace, when neither Sesame nor the operator runs.
/// Reports the number of objects of Envoys that remain.
///
/// # Errors
/// If no API server is configured, Sesame still runs, or a request fails.
pub async fn uninstall(
    kubeconfig: Option<&Path>,
    namespace: &str,
    remaining: impl FnMut(usize),
) -> anyhow::Result<()> {
    let client = start::client(kubeconfig).await?;
    Ok(sesame_operator::uninstall(&client, namespace, remaining).await?)
}

/// Runs the controller while this replica leads.
async fn lead(
    client: Client,
    config: sesame_operator::OperatorConfig,
    mut is_leader: watch::Receiver<bool>,
) {
    loop {
        if is_leader.wait_for(|leader| *leader).await.is_err() {
            return;
        }
        tracing::info!("leading");
        tokio::select! {
            () = sesame_operator::run(client.clone(), config.clone()) => {}
            _ = is_leader.wait_for(|leader| !*leader) => tracing::info!("no longer leading"),
        }
    }
}
