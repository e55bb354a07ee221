//! The task that reconciles all fleets.
//!
//! In: the wanted fleets, and an API server. Out: its objects, and observations. [`Fleets`] makes the decisions.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use sesame_model::{FleetId, FleetState};
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::apply;
use super::desired;
use super::fleets::{Fleets, scopes};
use super::identity::FleetOwner;
use super::kind::Kind;
use super::labels;
use super::names;
use super::seen::FleetKey;
use super::spec::{FleetSpec, FleetsConfig};
use super::watch;

/// The capacity of the channel of observations. When it is full, later observations of a fleet replace earlier ones.
const OBSERVATIONS: usize = 64;

/// The capacity of the channel of watch events. When it is full, the watches wait.
const NEWS: usize = 256;

/// The state of a fleet whenever it changes; `None`: the fleet is no longer wanted.
pub type FleetStates = mpsc::Receiver<(FleetId, Option<FleetState>)>;

/// Sets the wanted fleets. Its calls return at once and may come from any thread; the latest call for a fleet counts.
/// When the receiver of observations is dropped, the task ends and leaves all objects as they are.
#[derive(Clone, Debug)]
pub struct Provisioner {
    config: Arc<FleetsConfig>,
    shared: Arc<Shared>,
}

/// Shared by handles and the task.
#[derive(Debug, Default)]
struct Shared {
    orders: Mutex<Orders>,
    bell: Notify,
}

/// Calls that the task has not handled yet.
#[derive(Debug, Default)]
struct Orders {
    wanted: BTreeMap<FleetId, Option<Box<FleetSpec>>>,
    leading: Option<bool>,
    settled: bool,
}

impl Shared {
    fn say(&self, what: impl FnOnce(&mut Orders)) {
        what(&mut self.lock());
        self.bell.notify_one();
    }

    fn take(&self) -> Orders {
        std::mem::take(&mut *self.lock())
    }

    /// Ignores poisoning: the lock guards single inserts.
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provisioner {
    /// Sets the desired state of a fleet; `None`: its objects are deleted (its Gateway is gone, or has another class).
    pub fn want(&self, fleet: FleetId, spec: Option<FleetSpec>) {
        self.shared
            .say(|orders| drop(orders.wanted.insert(fleet, spec.map(Box::new))));
    }

    /// Whether this replica leads. Only the leader writes; followers observe, too. False at first.
    pub fn lead(&self, leading: bool) {
        self.shared.say(|orders| orders.leading = Some(leading));
    }

    /// All wanted fleets are known. From now on other fleets are orphans and deleted: their Gateways changed their class while
    /// Sesame wasn't running.
    pub fn settled(&self) {
        self.shared.say(|orders| orders.settled = true);
    }

    /// The place and the metadata of the Secret with the certificate of a fleet's Envoys.
    pub fn secret_owner(&self, fleet: &FleetId, spec: &FleetSpec) -> FleetOwner {
        FleetOwner {
            namespace: FleetKey::of(&self.config, fleet).namespace.to_string(),
            secret_name: names::certificate_secret(fleet),
            labels: labels::labels(&self.config, spec, &names::object(fleet)),
            annotations: labels::annotations(spec),
            owner_reference: spec.request.owner.as_ref().map(desired::owner_reference),
        }
    }
}

/// Starts the task. Must be called within a Tokio runtime.
pub fn start(client: Client, config: FleetsConfig) -> (Provisioner, FleetStates) {
    let (observations, observed) = mpsc::channel(OBSERVATIONS);
    let config = Arc::new(config);
    let shared = Arc::new(Shared::default());
    let provisioner = Provisioner {
        config: Arc::clone(&config),
        shared: Arc::clone(&shared),
    };
    tokio::spawn(run(client, config, shared, observations));
    (provisioner, observed)
}

async fn run(
    client: Client,
    config: Arc<FleetsConfig>,
    shared: Arc<Shared>,
    observations: mpsc::Sender<(FleetId, Option<FleetState>)>,
) {
    let (news, mut learned) = mpsc::channel(NEWS);
    // Dropping this future aborts all watches and jobs.
    let mut watches = JoinSet::new();
    for kind in Kind::ALL {
        for scope in scopes(&config) {
            let (client, config, news) =
                (client.clone(), FleetsConfig::clone(&config), news.clone());
            watches.spawn(watch::watch(client, config, kind, scope, news));
        }
    }
    drop(news);
    let mut jobs = JoinSet::new();
    let mut fleets = Fleets::new((*config).clone());
    loop {
        while jobs.len() < config.concurrency.max(1)
            && let Some(job) = fleets.next_job(Instant::now())
        {
            let (client, config) = (client.clone(), Arc::clone(&config));
            jobs.spawn(async move { apply::work(&client, &config, job).await });
        }
        let pause = fleets.next_time().map_or(Duration::from_secs(3600), |at| {
            at.saturating_duration_since(Instant::now())
        });
        tokio::select! {
            () = shared.bell.notified() => {
                let orders = shared.take();
                for (fleet, spec) in orders.wanted {
                    fleets.want(fleet, spec.map(|spec| *spec));
                }
                // After the fleets of the same batch.
                if orders.settled {
                    fleets.settle();
                }
                if let Some(leading) = orders.leading {
                    fleets.lead(leading);
                }
            }
            Some(news) = learned.recv() => fleets.learn(news, Instant::now()),
            Some(done) = jobs.join_next() => match done {
                Ok((key, outcomes)) => fleets.done(key, outcomes, Instant::now()),
                // Not expected: a job only sends requests.
                Err(error) => tracing::error!("a job of a fleet panicked: {error}"),
            },
            room = observations.reserve(), if fleets.has_observation() => match room {
                Ok(room) => {
                    if let Some(observation) = fleets.take_observation() {
                        room.send(observation);
                    }
                }
                Err(_) => return,
            },
            () = observations.closed() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}
