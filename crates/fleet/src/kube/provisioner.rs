//! The task that reconciles all fleets.
//!
//! In: the desired fleets. Out: objects on the API server, and fleet states. [`Fleets`] makes the decisions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use sesame_model::{FleetId, FleetState, UpgradeProgress};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinSet;

use super::apply;
use super::desired;
use super::fleets::{Fleets, scopes};
use super::identity::FleetSecret;
use super::kind::ObjectKind;
use super::labels;
use super::names;
use super::observed::FleetKey;
use super::spec::{FleetSpec, FleetsConfig};
use super::watch as watches;

/// The capacity of the state channel. While it is full, later states of a fleet replace earlier ones.
const STATE_CAPACITY: usize = 64;

/// The capacity of the watch event channel. While it is full, watches wait.
const EVENT_CAPACITY: usize = 256;

/// The state of a fleet whenever it changes; `None` means that the fleet has been removed.
pub type FleetStates = mpsc::Receiver<(FleetId, Option<FleetState>)>;

/// Sets the desired fleets. Calls return immediately and may come from any thread; the last call for a fleet wins. The
/// task ends when the state receiver is dropped; all objects are kept.
#[derive(Clone, Debug)]
pub struct Provisioner {
    config: Arc<FleetsConfig>,
    shared: Arc<Shared>,
    progress: watch::Receiver<Option<UpgradeProgress>>,
}

/// Shared by handles and the task.
#[derive(Debug, Default)]
struct Shared {
    pending: Mutex<PendingChanges>,
    changed: Notify,
}

/// Calls that the task has not handled yet.
#[derive(Debug, Default)]
struct PendingChanges {
    fleets: BTreeMap<FleetId, Option<Box<FleetSpec>>>,
    leading: Option<bool>,
    sesame_rolled_out: Option<bool>,
    complete: bool,
}

impl Shared {
    fn update(&self, change: impl FnOnce(&mut PendingChanges)) {
        change(&mut self.lock());
        self.changed.notify_one();
    }

    fn take(&self) -> PendingChanges {
        std::mem::take(&mut *self.lock())
    }

    /// Ignores poisoning: the lock guards single inserts.
    fn lock(&self) -> MutexGuard<'_, PendingChanges> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provisioner {
    /// Sets the desired state of a fleet. `None` deletes its objects, because its Gateway was deleted or changed its
    /// class.
    pub fn set_fleet(&self, fleet: FleetId, spec: Option<FleetSpec>) {
        self.shared
            .update(|pending| drop(pending.fleets.insert(fleet, spec.map(Box::new))));
    }

    /// Sets whether this replica leads; initially false. Only the leader writes; followers also report states.
    pub fn set_leading(&self, leading: bool) {
        self.shared
            .update(|pending| pending.leading = Some(leading));
    }

    /// Sets whether all replicas of Sesame run the same release; initially false. Until then, Envoys whose workload was
    /// applied by another release aren't upgraded.
    pub fn set_sesame_rolled_out(&self, rolled_out: bool) {
        self.shared
            .update(|pending| pending.sesame_rolled_out = Some(rolled_out));
    }

    /// The progress of upgrades; `None` if it is unknown, as on replicas that don't lead.
    pub fn upgrade_progress(&self) -> watch::Receiver<Option<UpgradeProgress>> {
        self.progress.clone()
    }

    /// Declares that all desired fleets are known. From now on, other fleets are orphans and are deleted: their
    /// Gateway's class changed while Sesame wasn't running.
    pub fn mark_complete(&self) {
        self.shared.update(|pending| pending.complete = true);
    }

    /// The namespace, name and metadata of the Secret with the certificate of a fleet's Envoys.
    pub fn fleet_secret(&self, fleet: &FleetId, spec: &FleetSpec) -> FleetSecret {
        FleetSecret {
            namespace: FleetKey::new(&self.config, fleet).namespace.to_string(),
            name: names::certificate_secret(fleet),
            labels: labels::labels(&self.config, spec, fleet),
            annotations: labels::annotations(spec),
            owner_reference: desired::owner_reference(&self.config, spec),
        }
    }
}

/// Starts the task. Must be called within a Tokio runtime.
pub fn start(client: Client, config: FleetsConfig) -> (Provisioner, FleetStates) {
    let (state_sender, states) = mpsc::channel(STATE_CAPACITY);
    let config = Arc::new(config);
    let shared = Arc::new(Shared::default());
    let (progress_sender, progress) = watch::channel(None);
    let provisioner = Provisioner {
        config: Arc::clone(&config),
        shared: Arc::clone(&shared),
        progress,
    };
    tokio::spawn(run(client, config, shared, state_sender, progress_sender));
    (provisioner, states)
}

async fn run(
    client: Client,
    config: Arc<FleetsConfig>,
    shared: Arc<Shared>,
    states: mpsc::Sender<(FleetId, Option<FleetState>)>,
    progress: watch::Sender<Option<UpgradeProgress>>,
) {
    let (event_sender, mut events) = mpsc::channel(EVENT_CAPACITY);
    // Dropping this future aborts all watches and jobs.
    let mut watching = JoinSet::new();
    for kind in ObjectKind::ALL {
        for scope in scopes(&config, kind) {
            let (client, config, events) = (
                client.clone(),
                FleetsConfig::clone(&config),
                event_sender.clone(),
            );
            watching.spawn(watches::watch(client, config, kind, scope, events));
        }
    }
    drop(event_sender);
    let mut jobs = JoinSet::new();
    let mut fleets = Fleets::new((*config).clone());
    loop {
        while jobs.len() < config.concurrency.max(1)
            && let Some(job) = fleets.next_job(Instant::now())
        {
            let (client, config) = (client.clone(), Arc::clone(&config));
            jobs.spawn(async move { apply::run(&client, &config, job).await });
        }
        if let Some(changed) = fleets.next_progress() {
            progress.send_replace(changed);
        }
        // Without a free slot, the end of a job wakes the loop.
        let next = fleets
            .next_time()
            .filter(|_| jobs.len() < config.concurrency.max(1));
        let sleep = next.map_or(Duration::from_secs(3600), |at| {
            at.saturating_duration_since(Instant::now())
        });
        tokio::select! {
            () = shared.changed.notified() => {
                let pending = shared.take();
                for (fleet, spec) in pending.fleets {
                    fleets.set_fleet(fleet, spec.map(|spec| *spec));
                }
                // After `set_fleet`: the fleets in this batch aren't orphans.
                if pending.complete {
                    fleets.mark_complete();
                }
                if let Some(rolled_out) = pending.sesame_rolled_out {
                    fleets.set_sesame_rolled_out(rolled_out);
                }
                if let Some(leading) = pending.leading {
                    fleets.set_leading(leading);
                }
            }
            Some(event) = events.recv() => fleets.handle_event(event, Instant::now()),
            Some(result) = jobs.join_next() => match result {
                Ok((key, outcomes)) => fleets.done(key, outcomes, Instant::now()),
                // Unexpected: a job only sends requests.
                Err(error) => tracing::error!("a fleet job panicked: {error}"),
            },
            permit = states.reserve(), if fleets.has_state() => match permit {
                Ok(permit) => {
                    if let Some(state) = fleets.next_state() {
                        permit.send(state);
                    }
                }
                Err(_) => return,
            },
            () = states.closed() => return,
            () = tokio::time::sleep(sleep) => {}
        }
    }
}
