//! The task that keeps all fleets as they are wanted.
//!
//! In: wishes, and an API server. Out: objects there, and observations. What is to be done is decided by [`Fleets`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use kube::Client;
use sesame_model::FleetId;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use super::apply;
use super::desired;
use super::fleets::{Fleets, scopes};
use super::identity::FleetOwner;
use super::kind::Kind;
use super::labels;
use super::names;
use super::spec::{Config, FleetSpec, Observation};
use super::watch;

/// Observations that wait for somebody to take them. Later ones of the same fleet replace those that have no room.
const OBSERVATIONS: usize = 64;

/// News that wait to be taken in, before watches have to wait.
const NEWS: usize = 256;

/// What has become of a fleet; `None`: nobody wants it any more.
pub type Observations = mpsc::Receiver<(FleetId, Option<Observation>)>;

/// Says which fleets there should be. Its calls return at once and may come from any thread; the latest about a fleet counts.
/// When the receiver of observations is dropped, the task ends and leaves everything as it is.
#[derive(Clone, Debug)]
pub struct Provisioner {
    config: Arc<Config>,
    shared: Arc<Shared>,
}

/// Between those who give orders and the task.
#[derive(Debug, Default)]
struct Shared {
    orders: Mutex<Orders>,
    bell: Notify,
}

/// What was said and not yet heard.
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

    /// The lock guards plain inserts, which leave nothing half done: a panic elsewhere is no reason to stop.
    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Provisioner {
    /// What a fleet should be; `None`: its objects are taken away (its Gateway is gone, or isn't ours any more).
    pub fn want(&self, fleet: FleetId, spec: Option<FleetSpec>) {
        self.shared
            .say(|orders| drop(orders.wanted.insert(fleet, spec.map(Box::new))));
    }

    /// Whether this process is the one that writes. At first it isn't. Observations are made either way.
    pub fn lead(&self, leading: bool) {
        self.shared.say(|orders| orders.leading = Some(leading));
    }

    /// All fleets that there should be have been said once. From now on objects of fleets that nobody wants are taken
    /// away, too: their Gateways went to another class while no Sesame was running.
    pub fn settled(&self) {
        self.shared.say(|orders| orders.settled = true);
    }

    /// What is to be on the Secret with which a fleet's Envoys prove who they are.
    pub fn secret_owner(&self, fleet: &FleetId, spec: &FleetSpec) -> FleetOwner {
        FleetOwner {
            namespace: spec.gateway.namespace.to_string(),
            secret_name: names::certificate_secret(fleet),
            labels: labels::labels(&self.config, spec, &names::object(fleet)),
            annotations: labels::annotations(spec),
            owner_reference: Some(desired::owner_reference(spec)),
        }
    }
}

/// Starts to watch. Must be called within a Tokio runtime.
pub fn start(client: Client, config: Config) -> (Provisioner, Observations) {
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
    config: Arc<Config>,
    shared: Arc<Shared>,
    observations: mpsc::Sender<(FleetId, Option<Observation>)>,
) {
    let (news, mut learned) = mpsc::channel(NEWS);
    // Dropped with this future, and what is under way with it.
    let mut watches = JoinSet::new();
    for kind in Kind::ALL {
        for scope in scopes(&config) {
            let (client, config, news) = (client.clone(), Config::clone(&config), news.clone());
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
                // Behind the wishes, which it speaks of.
                if orders.settled {
                    fleets.settle();
                }
                if let Some(leading) = orders.leading {
                    fleets.lead(leading);
                }
            }
            Some(news) = learned.recv() => fleets.learn(news, Instant::now()),
            Some(done) = jobs.join_next() => match done {
                Ok((place, outcomes)) => fleets.done(place, outcomes, Instant::now()),
                // A job never panics: it is requests and answers.
                Err(error) => tracing::error!("a fleet's job broke off: {error}"),
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
