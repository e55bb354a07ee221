//! Writes Services for XBackends, so that Kubernetes finds their Pods.
//!
//! In: pending changes. Out: Services on the API server, and failures that require user action. [`PodServices`] makes
//! the decisions. A change is pending until its effect has been observed, so a lost or reverted write is repeated, with
//! exponential backoff.

mod queue;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Service;
use kube::api::{Api, DeleteParams, Preconditions};
use kube::{Client, Error};
use serde_json::{Value, json};
use sesame_model::{PodService, PodServiceChange, PodServiceId, XBACKEND_LABEL};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;

use self::queue::{Job, PodServices, Written};
use super::apply::{apply, error_message, is_transient};
use super::labels::{MANAGED_BY, SESAME};
use super::names;

/// The maximum number of concurrent writes.
const CONCURRENCY: usize = 8;

/// The capacity of the failure channel. While it is full, later failures of a Service replace earlier ones.
const FAILURE_CAPACITY: usize = 64;

/// The timeout of each write.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The reason that a Service can't be written, sent whenever it changes; `None` once it can be.
pub type PodServiceFailures = mpsc::Receiver<(PodServiceId, Option<String>)>;

/// Sets the pending changes. Calls return immediately and may come from any thread. The task ends when the failure
/// receiver is dropped.
#[derive(Clone, Debug)]
pub struct PodServiceWriter(Arc<Shared>);

/// Shared by handles and the task.
#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<PendingCalls>,
    changed: Notify,
}

/// Calls that the task has not handled yet.
#[derive(Debug, Default)]
struct PendingCalls {
    changes: BTreeMap<PodServiceId, Option<PodServiceChange>>,
    leading: Option<bool>,
}

impl Shared {
    /// Ignores poisoning: the lock guards single inserts.
    fn lock(&self) -> MutexGuard<'_, PendingCalls> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PodServiceWriter {
    /// Sets the pending change of a Service; `None` if it matches its desired state.
    pub fn set(&self, id: PodServiceId, change: Option<PodServiceChange>) {
        self.0.lock().changes.insert(id, change);
        self.0.changed.notify_one();
    }

    /// Sets whether this replica leads; initially false. Only the leader writes.
    pub fn set_leading(&self, leading: bool) {
        self.0.lock().leading = Some(leading);
        self.0.changed.notify_one();
    }
}

/// Starts the task. Must be called within a Tokio runtime.
pub fn start(client: Client) -> (PodServiceWriter, PodServiceFailures) {
    let (sender, failures) = mpsc::channel(FAILURE_CAPACITY);
    let shared = Arc::new(Shared::default());
    tokio::spawn(run(client, Arc::clone(&shared), sender));
    (PodServiceWriter(shared), failures)
}

async fn run(
    client: Client,
    shared: Arc<Shared>,
    failures: mpsc::Sender<(PodServiceId, Option<String>)>,
) {
    // Dropping this future aborts all writes.
    let mut jobs = JoinSet::new();
    let mut services = PodServices::default();
    loop {
        while jobs.len() < CONCURRENCY
            && let Some(job) = services.next_job(Instant::now())
        {
            jobs.spawn(write(client.clone(), job));
        }
        // Without a free slot, the end of a job wakes the loop.
        let next = services.next_time().filter(|_| jobs.len() < CONCURRENCY);
        let sleep = next.map_or(Duration::from_secs(3600), |at| {
            at.saturating_duration_since(Instant::now())
        });
        tokio::select! {
            () = shared.changed.notified() => {
                let calls = std::mem::take(&mut *shared.lock());
                for (id, change) in calls.changes {
                    services.set(id, change, Instant::now());
                }
                if let Some(leading) = calls.leading {
                    services.set_leading(leading);
                }
            }
            Some(result) = jobs.join_next() => match result {
                Ok((id, written)) => services.done(id, written, Instant::now()),
                // Unexpected: a job only sends requests.
                Err(error) => tracing::error!("the task that writes a Service panicked: {error}"),
            },
            permit = failures.reserve(), if services.has_failure() => match permit {
                Ok(permit) => {
                    if let Some(failure) = services.next_failure() {
                        permit.send(failure);
                    }
                }
                Err(_) => return,
            },
            () = failures.closed() => return,
            () = tokio::time::sleep(sleep) => {}
        }
    }
}

/// Sends a job's request.
async fn write(client: Client, Job { id, change }: Job) -> (PodServiceId, Written) {
    let name = change.name();
    let object = format!("Service {}/{name}", id.namespace);
    let api: Api<Service> = Api::namespaced(client, &id.namespace);
    let (result, verb) = match &change {
        PodServiceChange::Create(service) => (
            timeout(TIMEOUT, write_object(&api, &id, service, None)).await,
            "create",
        ),
        PodServiceChange::Update { uid, service } => {
            let uid = Some(uid.clone());
            (
                timeout(TIMEOUT, write_object(&api, &id, service, uid)).await,
                "update",
            )
        }
        PodServiceChange::Delete { uid, .. } => {
            (timeout(TIMEOUT, delete(&api, name, uid)).await, "delete")
        }
    };
    let written = match result {
        Ok(Ok(())) => Written::Done,
        Ok(Err(error)) => {
            let message = error_message(&object, verb, &error);
            tracing::warn!("{message}");
            match is_transient(&error) {
                true => Written::Transient(message),
                false => Written::Failed(message),
            }
        }
        Err(_) => {
            let message = format!("no response from the API server for {object}");
            tracing::warn!("{message}");
            Written::Transient(message)
        }
    };
    (id, written)
}

async fn write_object(
    api: &Api<Service>,
    id: &PodServiceId,
    service: &PodService,
    uid: Option<String>,
) -> Result<(), Error> {
    apply(api, &service.name, object(id, service), uid)
        .await
        .map(drop)
}

async fn delete(api: &Api<Service>, name: &str, uid: &str) -> Result<(), Error> {
    let params = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        }),
        ..DeleteParams::default()
    };
    match api.delete(name, &params).await {
        Ok(_) => Ok(()),
        // The Service is gone, or another one has its name.
        Err(Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        Err(error) => Err(error),
    }
}

/// The desired object.
fn object(id: &PodServiceId, service: &PodService) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": service.name,
            "namespace": id.namespace,
            // Kubernetes copies these labels to the EndpointSlices.
            "labels": {
                (MANAGED_BY): SESAME,
                (XBACKEND_LABEL): names::label_value(&id.xbackend),
            },
            "ownerReferences": [{
                "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
                "kind": "XBackend",
                "name": id.xbackend,
                "uid": service.owner_uid,
                "controller": true,
                "blockOwnerDeletion": false,
            }],
        },
        "spec": {
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": false,
            "selector": service.selector,
        },
    })
}
