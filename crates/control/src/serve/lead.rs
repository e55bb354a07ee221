//! Who leads, and what follows from it.
//!
//! In: the lease, and how far this replica is. Out: orders to whoever writes to the API server. Statuses wait until
//! every fleet has been looked at, since a Gateway whose address isn't known yet looks like one that has none.

use std::sync::Arc;
use std::time::Duration;

use sesame_fleet::kube::{Provisioner, identity};
use sesame_model::FleetId;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use super::health::Health;
use super::start::Parts;
use super::{Config, lease};
use crate::core::Core;
use crate::owner::{Message, inspect};
use crate::streams::Envoys;

/// How long statuses wait at most for a first look at every fleet.
const FIRST_LOOK: Duration = Duration::from_secs(10);

/// Everybody to whom it matters who leads.
pub(super) struct Following {
    pub(super) leads: watch::Receiver<bool>,
    /// True when every fleet has been looked at.
    pub(super) first_look: watch::Receiver<bool>,
    pub(super) owner: mpsc::WeakSender<Message>,
    pub(super) health: Arc<Health>,
    pub(super) statuses: sesame_status::Writer,
    pub(super) provisioner: Option<Provisioner>,
    pub(super) keeper: Option<identity::Handle>,
}

/// What is known of an election.
pub(super) struct Election {
    /// Whether this replica leads.
    pub(super) leads: watch::Receiver<bool>,
    /// What is in the way of it.
    pub(super) trouble: watch::Receiver<lease::Trouble>,
    /// Closed when what was held has been given back.
    pub(super) stepped_down: watch::Receiver<bool>,
}

/// Takes part in the election, if there is one.
pub(super) fn run(
    config: &Config,
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
        lease::Config::new(&config.namespace, &config.replica),
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

/// Tells everybody, for as long as there is an election.
pub(super) async fn follow(mut following: Following) {
    let (owner, health) = (following.owner.clone(), Arc::clone(&following.health));
    let mut looked = following.first_look.clone();
    let mut ready = std::pin::pin!(async move {
        first_state(&owner).await;
        health.synced();
        let _ = tokio::time::timeout(FIRST_LOOK, looked.wait_for(|looked| *looked)).await;
        // What was seen has been translated when the owner answers.
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
                // Without an election any more nobody leads here.
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
        self.statuses.lead(leads && is_ready);
        if let Some(provisioner) = &self.provisioner {
            provisioner.lead(leads);
        }
        if let Some(keeper) = &self.keeper {
            keeper.lead(leads);
        }
    }
}

/// Waits until there has been a commit, and all that was told before has been taken in.
async fn first_state(owner: &mpsc::WeakSender<Message>) {
    loop {
        match inspect(owner, Core::committed).await {
            Some(true) => return,
            Some(false) => tokio::time::sleep(Duration::from_millis(20)).await,
            None => return std::future::pending().await,
        }
    }
}

/// Envoys in pods: whether they are ready is for Kubernetes to say.
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
        assert_eq!(core.engine().revision(), 0);
    }
}
