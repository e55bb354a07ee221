//! Leadership and its consequences.
//!
//! In: the Lease, and the progress of this replica. Out: whether the writers to the API server may write. Statuses wait
//! until every fleet has been observed, since a Gateway whose address isn't known yet looks like one that has none.

use std::sync::Arc;
use std::time::Duration;

use sesame_fleet::kube::{Provisioner, identity};
use sesame_model::FleetId;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::health::Health;
use super::start::Parts;
use super::{ServeConfig, lease};
use crate::core::Core;
use crate::owner::{Message, inspect};
use crate::streams::Envoys;

/// How long statuses wait at most until every fleet has been observed.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// Everything that depends on leadership.
pub(super) struct Following {
    pub(super) leads: watch::Receiver<bool>,
    /// True when every fleet has been observed.
    pub(super) first_look: watch::Receiver<bool>,
    pub(super) owner: mpsc::WeakSender<Message>,
    pub(super) health: Arc<Health>,
    pub(super) statuses: sesame_status::Writer,
    pub(super) provisioner: Option<Provisioner>,
    pub(super) keeper: Option<identity::Handle>,
}

/// State of the leader election.
pub(super) struct Election {
    pub(super) leads: watch::Receiver<bool>,
    /// Why it fails, if it does.
    pub(super) trouble: watch::Receiver<lease::Trouble>,
    /// Closes when the Lease has been released.
    pub(super) stepped_down: watch::Receiver<bool>,
}

/// Takes part in the election, if leader election is on; otherwise always leads.
pub(super) fn run(
    config: &ServeConfig,
    client: &kube::Client,
    step_down: &CancellationToken,
    parts: &mut Parts,
) -> Election {
    let (held, stepped_down) = watch::channel(false);
    let (in_the_way, trouble) = watch::channel(None);
    if !config.leader_election {
        let (leads, leading) = watch::channel(true);
        let step_down = step_down.clone();
        parts.forever(async move {
            step_down.cancelled().await;
            drop((leads, held));
            std::future::pending().await
        });
        return Election {
            leads: leading,
            trouble,
            stepped_down,
        };
    }
    let (leads, election) = lease::start(
        client.clone(),
        lease::LeaseConfig::new(&config.namespace, &config.replica),
        in_the_way,
        step_down.clone(),
    );
    parts.forever(async move {
        election.await;
        drop(held);
        std::future::pending().await
    });
    Election {
        leads,
        trouble,
        stepped_down,
    }
}

/// Passes on leadership, for as long as there is an election.
pub(super) async fn follow(mut following: Following) {
    let (owner, health) = (following.owner.clone(), Arc::clone(&following.health));
    let mut looked = following.first_look.clone();
    let mut ready = std::pin::pin!(async move {
        first_state(&owner).await;
        health.synced();
        let _ = tokio::time::timeout(FIRST_LOOK, looked.wait_for(|looked| *looked)).await;
        // When the owner answers, all observed states have been translated.
        first_state(&owner).await;
    });
    let mut is_ready = false;
    let mut leads = *following.leads.borrow_and_update();
    tracing::info!(leads, "this replica");
    loop {
        following.tell(leads, is_ready);
        tokio::select! {
            () = &mut ready, if !is_ready => is_ready = true,
            changed = following.leads.changed() => {
                // The election is over, so this replica doesn't lead.
                leads = changed.is_ok() && *following.leads.borrow_and_update();
                tracing::info!(leads, "this replica");
                if changed.is_err() {
                    following.tell(false, is_ready);
                    return std::future::pending().await;
                }
            }
        }
    }
}

impl Following {
    fn tell(&self, leads: bool, is_ready: bool) {
        self.statuses.set_leading(leads && is_ready);
        if let Some(provisioner) = &self.provisioner {
            provisioner.set_leading(leads);
        }
        if let Some(keeper) = &self.keeper {
            keeper.set_leading(leads);
        }
    }
}

/// Waits until there has been a commit, and all earlier messages have been handled.
async fn first_state(owner: &mpsc::WeakSender<Message>) {
    loop {
        match inspect(owner, Core::committed).await {
            Some(true) => return,
            Some(false) => tokio::time::sleep(Duration::from_millis(20)).await,
            None => return std::future::pending().await,
        }
    }
}

/// Envoys in pods: Kubernetes decides whether they are ready.
pub(super) struct Pods;

impl Envoys for Pods {
    fn readies(&self) -> bool {
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
    async fn an_empty_cluster_is_a_state_too() {
        let (sender, mut messages) = mpsc::channel(1);
        let mut core = Core::in_cluster(Settings::new(Mode::Managed), Sharding::Auto);
        let answering = async {
            for _ in 0..3 {
                let Some(Message::Inspect(look)) = messages.recv().await else {
                    panic!("it looks at nothing");
                };
                look(&core);
                core.apply([]);
            }
            panic!("it waits for more than a commit of nothing");
        };
        let owner = sender.downgrade();
        tokio::select! {
            () = first_state(&owner) => {}
            () = answering => {}
        }
        assert!(core.committed());
    }
}
