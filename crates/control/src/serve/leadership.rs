//! Leadership and its consequences.
//!
//! In: the leader election, and whether this replica is synced. Out: whether the writers to the API server may write.
//! Statuses are written once every fleet has been observed: before that, a Gateway may seem to have no address.

use std::sync::Arc;
use std::time::Duration;

use sesame_fleet::kube::pod_services::PodServiceWriter;
use sesame_fleet::kube::{Provisioner, identity};
use sesame_model::FleetId;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::health::Health;
use super::start::Spawner;
use super::{ServeConfig, lease};
use crate::core::Core;
use crate::streams::StreamPolicy;
use crate::translator::{Message, inspect};

/// Time limit for observing every fleet; after that, statuses are written anyway.
const OBSERVE_TIMEOUT: Duration = Duration::from_secs(10);

/// The writers that depend on leadership, and what they wait for.
pub(super) struct Leadership {
    pub(super) is_leader: watch::Receiver<bool>,
    /// Whether every fleet has been observed.
    pub(super) all_observed: watch::Receiver<bool>,
    pub(super) translator: mpsc::WeakSender<Message>,
    pub(super) health: Arc<Health>,
    pub(super) statuses: sesame_status::Writer,
    pub(super) pod_services: PodServiceWriter,
    pub(super) provisioner: Option<Provisioner>,
    pub(super) identities: Option<identity::Handle>,
}

/// State of the leader election.
pub(super) struct ElectionState {
    pub(super) is_leader: watch::Receiver<bool>,
    pub(super) failure: watch::Receiver<lease::ElectionFailure>,
    /// Closes when the Lease has been released.
    pub(super) stepped_down: watch::Receiver<bool>,
}

/// Takes part in the leader election. If election is disabled, this replica is always the leader.
pub(super) fn start(
    config: &ServeConfig,
    client: &kube::Client,
    step_down: &CancellationToken,
    spawner: &mut Spawner,
) -> ElectionState {
    let (release_guard, stepped_down) = watch::channel(false);
    let (failure_sender, failure) = watch::channel(None);
    if !config.election.enabled {
        let (sender, is_leader) = watch::channel(true);
        let step_down = step_down.clone();
        spawner.spawn(async move {
            step_down.cancelled().await;
            drop((sender, release_guard));
            std::future::pending().await
        });
        return ElectionState {
            is_leader,
            failure,
            stepped_down,
        };
    }
    let (is_leader, election) = lease::start(
        client.clone(),
        lease::LeaseConfig {
            timings: config.election.into(),
            ..lease::LeaseConfig::new(&config.namespace, &config.replica)
        },
        failure_sender,
        step_down.clone(),
    );
    spawner.spawn(async move {
        election.await;
        drop(release_guard);
        std::future::pending().await
    });
    ElectionState {
        is_leader,
        failure,
        stepped_down,
    }
}

/// Informs the writers of every change in leadership. Never returns.
pub(super) async fn propagate(mut leadership: Leadership) {
    let (translator, health) = (
        leadership.translator.clone(),
        Arc::clone(&leadership.health),
    );
    let mut observed = leadership.all_observed.clone();
    let mut ready = std::pin::pin!(async move {
        first_commit(&translator).await;
        health.set_synced();
        let _ = tokio::time::timeout(OBSERVE_TIMEOUT, observed.wait_for(|all| *all)).await;
        // Messages are handled in order, so all observed states have been translated after this.
        first_commit(&translator).await;
    });
    let mut is_ready = false;
    let mut is_leader = *leadership.is_leader.borrow_and_update();
    tracing::info!(is_leader, "initial leadership");
    loop {
        leadership.set_leader(is_leader, is_ready);
        tokio::select! {
            () = &mut ready, if !is_ready => is_ready = true,
            changed = leadership.is_leader.changed() => {
                // After the election task has ended, this replica isn't the leader.
                is_leader = changed.is_ok() && *leadership.is_leader.borrow_and_update();
                tracing::info!(is_leader, "leadership changed");
                if changed.is_err() {
                    leadership.set_leader(false, is_ready);
                    return std::future::pending().await;
                }
            }
        }
    }
}

impl Leadership {
    fn set_leader(&self, is_leader: bool, is_ready: bool) {
        self.statuses.set_leading(is_leader && is_ready);
        self.pod_services.set_leading(is_leader);
        if let Some(provisioner) = &self.provisioner {
            provisioner.set_leading(is_leader);
        }
        if let Some(identities) = &self.identities {
            identities.set_leading(is_leader);
        }
    }
}

/// Waits for the first commit, and for all earlier messages to be handled.
async fn first_commit(translator: &mpsc::WeakSender<Message>) {
    loop {
        match inspect(translator, Core::committed).await {
            Some(true) => return,
            Some(false) => tokio::time::sleep(Duration::from_millis(20)).await,
            None => return std::future::pending().await,
        }
    }
}

/// Envoys that Sesame doesn't start as processes. Kubernetes reports the readiness of pods, and unmanaged Envoys count
/// as ready.
pub(super) struct ClusterEnvoys;

impl StreamPolicy for ClusterEnvoys {
    fn ack_means_ready(&self) -> bool {
        false
    }

    fn is_stale(&self, _fleet: &FleetId, _node_id: &str) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use sesame_envoy::Sharding;
    use sesame_translate::settings::{Mode, Settings};

    use super::*;

    #[tokio::test]
    async fn an_empty_first_commit_counts() {
        let (sender, mut messages) = mpsc::channel(1);
        let mut core = Core::in_cluster(Settings::new(Mode::Managed), Sharding::Auto);
        let translator_loop = async {
            for _ in 0..3 {
                let Some(Message::Inspect(read)) = messages.recv().await else {
                    panic!("expected an inspection");
                };
                read(&core);
                core.apply([]);
            }
            panic!("still waiting after an empty commit");
        };
        let translator = sender.downgrade();
        tokio::select! {
            () = first_commit(&translator) => {}
            () = translator_loop => {}
        }
        assert!(core.committed());
    }
}
