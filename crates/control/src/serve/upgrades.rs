//! Upgrades of managed Envoys, which wait for the upgrade of Sesame.
//!
//! In: Sesame's own Deployment, and the progress of the upgrades. Out: whether all replicas of Sesame run the same release,
//! for the provisioner; the progress, for the log and the translator.

use std::pin::pin;

use futures::StreamExt;
use k8s_openapi::api::apps::v1::Deployment;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use sesame_fleet::kube::Provisioner;
use sesame_model::UpgradeProgress;
use tokio::sync::{mpsc, watch};

use crate::streams::send;
use crate::translator::Message;

/// Watches the Deployment of a pod named `replica`. Upgrades don't wait for a Deployment that doesn't exist or can't be
/// read: Sesame runs in another way. Never returns.
pub(super) async fn watch_own(
    client: Client,
    namespace: String,
    replica: String,
    provisioner: Provisioner,
) {
    let Some(name) = deployment_of(&replica) else {
        provisioner.set_sesame_rolled_out(true);
        return std::future::pending().await;
    };
    let api: Api<Deployment> = Api::namespaced(client, &namespace);
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut current = None;
    let mut reported = None;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => {
                current = None;
                continue;
            }
            Ok(Event::InitApply(deployment)) => {
                current = Some(deployment);
                continue;
            }
            Ok(Event::InitDone) => {}
            Ok(Event::Apply(deployment)) => current = Some(deployment),
            Ok(Event::Delete(_)) => current = None,
            Err(error) if is_forbidden(&error) => current = None,
            Err(error) => {
                tracing::debug!(name, %error, "cannot watch Sesame's Deployment");
                continue;
            }
        }
        let rolled_out = current.as_ref().is_none_or(is_rolled_out);
        if reported.replace(rolled_out) != Some(rolled_out) {
            tracing::info!(name, rolled_out, "rollout of Sesame's Deployment");
            provisioner.set_sesame_rolled_out(rolled_out);
        }
    }
    std::future::pending().await
}

/// Logs the progress of upgrades, and forwards it. Never returns.
pub(super) async fn report(
    mut progress: watch::Receiver<Option<UpgradeProgress>>,
    translator: mpsc::WeakSender<Message>,
) {
    while progress.changed().await.is_ok() {
        let current = progress.borrow_and_update().clone();
        match &current {
            Some(paused @ UpgradeProgress::Paused { .. }) => tracing::warn!("{paused}"),
            Some(progress) => tracing::info!("{progress}"),
            None => {}
        }
        send(&translator, Message::Upgrades(current)).await;
    }
    std::future::pending().await
}

/// The name of the Deployment of a pod, if the pod's name is one that Kubernetes makes for Deployments: the name of its
/// ReplicaSet, which ends with a hash, and five more characters.
fn deployment_of(pod: &str) -> Option<&str> {
    let (replica_set, suffix) = pod.rsplit_once('-')?;
    let (deployment, hash) = replica_set.rsplit_once('-')?;
    (suffix.len() == 5 && !hash.is_empty() && !deployment.is_empty()).then_some(deployment)
}

/// Whether all pods of the Deployment have its current template and are available, and no other pods are left.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let desired = deployment.spec.replicas.unwrap_or(1);
    let Some(status) = &deployment.status else {
        return false;
    };
    let count = |count: Option<i32>| count.unwrap_or(0);
    status.observed_generation >= deployment.metadata.generation
        && count(status.updated_replicas) == desired
        && count(status.replicas) == desired
        && count(status.available_replicas) == desired
        && count(status.terminating_replicas) == 0
}

fn is_forbidden(error: &watcher::Error) -> bool {
    let refused =
        |error: &kube::Error| matches!(error, kube::Error::Api(status) if status.code == 403);
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => refused(error),
        watcher::Error::WatchError(status) => status.code == 403,
        watcher::Error::NoResourceVersion => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{from_value, json};

    use super::*;

    #[test]
    fn pods_are_named_after_their_deployment() {
        assert_eq!(deployment_of("sesame-5d9c7bd7b8-x2x7v"), Some("sesame"));
        assert_eq!(deployment_of("my-sesame-abc-x2x7v"), Some("my-sesame"));
        for other in ["sesame", "sesame-0", "edge-host-1", "-abc-x2x7v"] {
            assert_eq!(deployment_of(other), None, "{other}");
        }
    }

    #[test]
    fn a_deployment_is_rolled_out_once_all_its_pods_are_new_and_available() {
        let rolled_out = |observed: u32, [replicas, updated, available, terminating]: [u32; 4]| {
            let deployment = from_value(json!({
                "metadata": {"name": "sesame", "generation": 3},
                "spec": {"replicas": 2, "selector": {}, "template": {}},
                "status": {
                    "observedGeneration": observed,
                    "replicas": replicas,
                    "updatedReplicas": updated,
                    "availableReplicas": available,
                    "terminatingReplicas": terminating,
                },
            }));
            is_rolled_out(&deployment.unwrap())
        };
        assert!(rolled_out(3, [2, 2, 2, 0]));
        assert!(!rolled_out(2, [2, 2, 2, 0]), "a newer template");
        assert!(!rolled_out(3, [3, 2, 3, 0]), "an old pod");
        assert!(!rolled_out(3, [2, 2, 1, 0]), "an unavailable pod");
        assert!(!rolled_out(3, [2, 2, 2, 1]), "a pod that terminates");
    }
}
