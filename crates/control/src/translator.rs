//! The translator: the thread that owns the engine.
//!
//! In: messages. Out: resources for Envoys, statuses for the status store, requests for the fleet runner, pending changes
//! to the Services of XBackends, events.
//! Messages that are queued at the same time become one change: there is no timer, and no intermediate state is
//! visible.

mod changes;
mod class_finalizers;
mod pod_services;
mod publish;
mod shared_fleets;
mod statuses;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use sesame_api::{Kind, LoggingConfiguration, Object, ObjectKey, Release, SesameConfiguration};
use sesame_envoy::{Bytes, Part, RejectedVersion, names};
use sesame_fleet::kube::pod_services::PodServiceWriter;
use sesame_model::{FleetId, FleetRequest, FleetState, PodServiceId, Port, UpgradeProgress};
use sesame_sources::files::ChangeSet;
use sesame_status::Writer;
use sesame_translate::fleet::{Rejected, RejectedKind};
use sesame_xds as xds;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::publish::merged;
pub(crate) use self::publish::xds_fleet;
use crate::containment::Containment;
use crate::core::{Core, Input, Step};
use crate::event::{EventSender, ObjectChange, RunEvent, millis, truncate};
use crate::metrics::Metrics;
use crate::progress::Progress;
use crate::runner::{FleetRunner, Requests};
use crate::serve::class_finalizers::ClassFinalizers;
use crate::status_store::StatusStore;

/// Maximum number of messages per turn, which bounds the delay of the first one.
const MAX_BATCH: usize = 1024;

/// A message to the translator.
pub(crate) enum Message {
    /// Changed objects. The first set contains all objects.
    Changes(ChangeSet),
    /// The instance's configuration, if it is a file.
    Configuration(Box<SesameConfiguration>),
    /// An Envoy has ACKed its resources.
    EnvoyReady(FleetId),
    /// An Envoy exited or can't be started, whether or not it will be restarted.
    EnvoyDown(FleetId),
    /// The last Envoy of a removed fleet has exited.
    FleetStopped(FleetId),
    /// An Envoy rejected a resource; `None` if it accepted the resource.
    Rejection(Rejected, Option<Rejection>),
    /// An Envoy has acknowledged this revision. Rejections of its resources are sent before this.
    Acked(FleetId, u64),
    /// Why the Service of an XBackend can't be written; `None` once it can.
    PodServiceFailure(PodServiceId, Option<String>),
    /// The installed Gateway API; `None` if unknown.
    Release(Option<Release>),
    /// The kinds that the API server doesn't serve.
    Absent(BTreeSet<Kind>),
    /// All fleet-owning objects are known; fleets without an owner are orphans.
    FleetOwnersKnown,
    /// The runner has new fleet states.
    FleetStates,
    /// The progress in upgrading fleets; `None` if it is unknown.
    Upgrades(Option<UpgradeProgress>),
    /// Runs a function on the tables.
    Inspect(Box<dyn FnOnce(&Core) + Send>),
}

/// A rejected version of a resource.
pub(crate) struct Rejection {
    /// Envoy's message.
    pub(crate) message: String,
    /// The rejected version.
    pub(crate) body: Bytes,
    /// The last accepted version.
    pub(crate) last_good: Option<Bytes>,
}

/// Runs a function on the tables, on the translator thread; `None` if the translator has ended.
pub(crate) async fn inspect<T: Send + 'static>(
    translator: &mpsc::WeakSender<Message>,
    read: impl FnOnce(&Core) -> T + Send + 'static,
) -> Option<T> {
    let (sender, result) = oneshot::channel();
    let read = Box::new(move |core: &Core| {
        // The caller may be gone.
        let _ = sender.send(read(core));
    });
    let translator = translator.upgrade()?;
    translator.send(Message::Inspect(read)).await.ok()?;
    // The translator ends when the last sender is dropped.
    drop(translator);
    result.await.ok()
}

/// Outputs of the translator.
#[derive(Clone, Debug)]
pub(crate) struct TranslatorOutputs {
    pub(crate) registry: xds::Registry,
    pub(crate) status_store: Arc<StatusStore>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: EventSender,
    /// Writes statuses to the API server; `None` in a local run.
    pub(crate) statuses: Option<Writer>,
    /// Writes the Services of XBackends; `None` in a local run.
    pub(crate) pod_services: Option<PodServiceWriter>,
    /// Writes the finalizers of GatewayClasses; `None` in a local run.
    pub(crate) class_finalizers: Option<ClassFinalizers>,
    /// Follows the `logging` section of the instance's configuration.
    pub(crate) logging: Arc<watch::Sender<LoggingConfiguration>>,
    /// Time limit for Envoys to replace a listener and drain its connections.
    pub(crate) drain: Duration,
    /// Cancelled when shutdown begins: the translator ends, and Envoy exits are expected.
    pub(crate) shutdown: CancellationToken,
}

/// State of the translator thread.
pub(crate) struct Translator {
    core: Core,
    runner: Box<dyn FleetRunner>,
    outputs: TranslatorOutputs,
    start: Instant,
    /// Whether all objects have been read once; nothing is translated before that.
    synced: bool,
    /// Inputs received before `synced`.
    early_inputs: Vec<Input>,
    /// Whether [`RunEvent::Ready`] has been sent.
    ready_sent: bool,
    /// Whether all fleet-owning objects are known.
    fleet_owners_known: bool,
    /// Whether the writer has the statuses of all objects.
    statuses_complete: bool,
    object_keys: ObjectKeys,
    requests: Requests,
    /// Fleet states, the same as in the engine.
    states: BTreeMap<FleetId, FleetState>,
    /// Fleets whose Envoys serve.
    serving: BTreeSet<FleetId>,
    /// Fleets with an Envoy that has served or failed.
    started: BTreeSet<FleetId>,
    rejected: BTreeSet<Rejected>,
    containment: Containment,
    /// The date in the engine.
    today: Option<i64>,
    /// The settings of listeners that changed in the last commit. The next one records them, since it may make a
    /// configuration invalid.
    valid_settings: Vec<Input>,
    /// Reported problems of fleets without a Gateway.
    fleet_problems: BTreeMap<FleetId, String>,
    /// Fleets in the registry.
    published: BTreeSet<FleetId>,
    /// The core's last count of replaced listeners.
    replaced: u64,
    /// When the connections of the last replaced listeners have drained.
    settled_at: Option<Instant>,
}

/// Hashes of the keys of all objects, which take less memory than the keys. A collision only makes a metric inaccurate.
#[derive(Default)]
struct ObjectKeys {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl ObjectKeys {
    /// Whether the key is new.
    fn insert(&mut self, key: &ObjectKey) -> bool {
        self.hashes.insert(self.hasher.hash_one(key))
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.hashes.remove(&self.hasher.hash_one(key));
        // Shrinks only once three quarters of the capacity is unused, so the cost is amortized.
        let (len, capacity) = (self.hashes.len(), self.hashes.capacity());
        if capacity > 64 && len < capacity / 4 {
            self.hashes.shrink_to(2 * len);
        }
    }
}

/// Messages that are handled together.
#[derive(Default)]
struct Turn {
    inputs: Vec<Input>,
    objects: Vec<ObjectChange>,
    /// When the oldest of the changes was detected.
    detected: Option<Instant>,
    /// Whether the runner may have new fleet states.
    plan: bool,
    /// Fleets whose requests changed.
    fleets: BTreeSet<FleetId>,
}

const DAY: u64 = 24 * 60 * 60;

/// The time since 1970, in seconds; 0 if the clock is earlier.
fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// The date (UTC), in days since 1970.
fn today() -> i64 {
    i64::try_from(seconds() / DAY).unwrap_or_default()
}

/// The start of the next day.
fn tomorrow() -> Instant {
    Instant::now() + Duration::from_secs(DAY - seconds() % DAY)
}

impl Translator {
    pub(crate) fn new(
        core: Core,
        runner: Box<dyn FleetRunner>,
        outputs: TranslatorOutputs,
        start: Instant,
    ) -> Self {
        Self {
            core,
            runner,
            outputs,
            start,
            synced: false,
            early_inputs: Vec::new(),
            ready_sent: false,
            fleet_owners_known: false,
            statuses_complete: false,
            object_keys: ObjectKeys::default(),
            requests: Requests::new(),
            states: BTreeMap::new(),
            serving: BTreeSet::new(),
            started: BTreeSet::new(),
            rejected: BTreeSet::new(),
            containment: Containment::default(),
            today: None,
            valid_settings: Vec::new(),
            fleet_problems: BTreeMap::new(),
            published: BTreeSet::new(),
            replaced: 0,
            settled_at: None,
        }
    }

    /// Starts the thread, from within a Tokio runtime. The result becomes true when the thread ends normally, and
    /// closes if it panics.
    ///
    /// # Errors
    /// If the system can't start a thread.
    pub(crate) fn spawn(
        self,
        messages: mpsc::Receiver<Message>,
    ) -> io::Result<watch::Receiver<bool>> {
        let (done, ended) = watch::channel(false);
        let runtime = tokio::runtime::Handle::current();
        std::thread::Builder::new()
            .name("translate".to_owned())
            .spawn(move || {
                runtime.block_on(self.run(messages));
                done.send_replace(true);
            })?;
        Ok(ended)
    }

    /// Runs until all senders are gone.
    async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        loop {
            let mut batch = Vec::new();
            let due = [self.runner.due(), self.settled_at].into_iter().flatten();
            let due = due.fold(tomorrow(), Instant::min);
            tokio::select! {
                number = messages.recv_many(&mut batch, MAX_BATCH) => if number == 0 {
                    return;
                },
                () = tokio::time::sleep_until(due.into()) => {}
                () = self.outputs.shutdown.cancelled() => return,
            }
            self.turn(batch);
        }
    }

    /// Handles messages as one change.
    pub(crate) fn turn(&mut self, messages: Vec<Message>) {
        let begin = Instant::now();
        let mut turn = Turn {
            plan: self.runner.due().is_some_and(|due| due <= begin),
            inputs: std::mem::take(&mut self.early_inputs),
            ..Turn::default()
        };
        for message in messages {
            self.handle(message, &mut turn);
        }
        let today = today();
        if self.today.replace(today) != Some(today) {
            turn.inputs.push(Input::Today(today));
        }
        if !self.synced {
            self.early_inputs = turn.inputs;
            return;
        }
        let settled = self.settled_at.take_if(|at| *at <= begin);
        if turn.inputs.is_empty() && !turn.plan && settled.is_none() {
            return self.send_ready();
        }
        let settled_changes = settled.map(|_| self.core.settle()).unwrap_or_default();
        let inputs = std::mem::take(&mut turn.inputs);
        let mut steps = self.commit(inputs, &mut turn);
        let replaced = self.core.replaced();
        if std::mem::replace(&mut self.replaced, replaced) != replaced {
            self.settled_at = Some(begin + self.outputs.drain);
        }
        let revision = self.core.engine().revision();
        let changes = merged(settled_changes, &mut steps);
        if !turn.objects.is_empty() {
            let (objects, more) = truncate(std::mem::take(&mut turn.objects));
            self.emit(RunEvent::Change {
                revision,
                objects,
                more,
                resources: changes.len(),
                took_ms: millis(begin.elapsed()),
            });
        }
        self.publish(changes, revision, &turn);
        self.containment.sent(revision);
        self.runner.apply(&self.requests, &turn.fleets);
        self.update_pod_services(&steps);
        self.update_class_finalizers(&steps);
        let keys: usize = steps
            .iter()
            .flat_map(|step| step.commit.work())
            .map(|(_, keys)| keys)
            .sum();
        self.outputs.metrics.committed(keys, begin.elapsed());
        self.update_rejections();
        let expiring = self.core.outputs().expiring;
        self.outputs
            .metrics
            .expiring(self.core.engine().len(expiring));
        self.update_statuses(&steps, revision);
        self.update_notices(&steps, revision);
        self.update_shared_fleets();
        self.update_logging();
        self.send_ready();
    }

    fn update_logging(&self) {
        let (sender, desired) = (&self.outputs.logging, self.core.logging());
        if *sender.borrow() != *desired {
            sender.send_replace(desired.clone());
        }
    }

    fn handle(&mut self, message: Message, turn: &mut Turn) {
        match message {
            Message::Changes(set) => self.handle_changes(set, turn),
            Message::Configuration(configuration) => {
                let object = Object::SesameConfiguration(configuration);
                turn.inputs.push(Input::Upsert(object));
            }
            Message::EnvoyReady(fleet) if !self.requests.contains_key(&fleet) => {}
            Message::EnvoyReady(fleet) => {
                self.started.insert(fleet.clone());
                if self.serving.insert(fleet.clone()) {
                    self.set_ready(&fleet, true, turn);
                }
            }
            Message::EnvoyDown(fleet) if !self.requests.contains_key(&fleet) => {}
            Message::EnvoyDown(fleet) => {
                self.started.insert(fleet.clone());
                if self.serving.remove(&fleet) {
                    self.set_ready(&fleet, false, turn);
                }
            }
            Message::FleetStopped(fleet) => {
                self.runner.stopped(&fleet);
                turn.plan = true;
            }
            Message::Rejection(rejected, Some(rejection)) => {
                if !self.requests.contains_key(&rejected.fleet) {
                    return;
                }
                let message = &rejection.message;
                if let Some(port) = self.rejected_port(&rejected) {
                    turn.plan |= self
                        .runner
                        .listener_rejected(&rejected.fleet, port, message);
                }
                let type_url = match rejected.what {
                    RejectedKind::Listener => Some(names::LISTENER),
                    RejectedKind::Routes => Some(names::ROUTES),
                    _ => None,
                };
                if let Some(type_url) = type_url {
                    let suspects = self.core.suspects(RejectedVersion {
                        fleet: &rejected.fleet,
                        type_url,
                        name: &rejected.name,
                        body: &rejection.body,
                        last_good: rejection.last_good.as_deref(),
                        message,
                    });
                    let holds = self.containment.rejected(&rejected, suspects, message);
                    turn.inputs.extend(holds);
                }
                self.rejected.insert(rejected.clone());
                turn.inputs
                    .push(Input::Rejection(rejected, Some(rejection.message)));
            }
            Message::Rejection(rejected, None) => {
                self.rejected.remove(&rejected);
                turn.inputs.push(Input::Rejection(rejected, None));
            }
            Message::Acked(fleet, revision) => {
                turn.inputs.extend(self.containment.acked(&fleet, revision));
            }
            Message::PodServiceFailure(id, message) => {
                let xbackend = ObjectKey::new(Kind::XBackend, id.namespace, id.xbackend);
                turn.inputs
                    .push(Input::PodServiceFailure(xbackend, message));
            }
            Message::Release(release) => turn.inputs.push(Input::Release(release)),
            Message::Absent(kinds) => turn.inputs.push(Input::Absent(kinds)),
            Message::FleetOwnersKnown => {
                self.fleet_owners_known = true;
                self.runner.requests_complete();
                turn.plan = true;
            }
            Message::FleetStates => turn.plan = true,
            Message::Upgrades(progress) => turn.inputs.push(Input::Upgrades(progress)),
            Message::Inspect(read) => read(&self.core),
        }
    }

    /// The port of a rejected listener, if its fleet still has it.
    fn rejected_port(&self, rejected: &Rejected) -> Option<Port> {
        let request = self.requests.get(&rejected.fleet)?;
        let mut ports = request.ports.iter().copied();
        ports.find(|&port| *rejected == Rejected::listener(rejected.fleet.clone(), port))
    }

    fn set_ready(&mut self, fleet: &FleetId, ready: bool, turn: &mut Turn) {
        if let Some(state) = self.states.get_mut(fleet) {
            state.ready = ready;
            let input = Input::Fleet(fleet.clone(), Some(state.clone()));
            turn.inputs.push(input);
        }
    }

    /// Commits the inputs; if that changes fleet requests, also commits the resulting addresses, so that no output
    /// lacks them.
    fn commit(&mut self, inputs: Vec<Input>, turn: &mut Turn) -> Vec<Step> {
        let inputs = std::mem::take(&mut self.valid_settings)
            .into_iter()
            .chain(inputs);
        let first = self.core.apply(inputs);
        for (fleet, change) in first.commit.changes(self.core.outputs().fleets) {
            match change.value() {
                Some(request) => {
                    let request = FleetRequest::clone(request);
                    self.requests.insert(fleet.clone(), request);
                }
                None => drop(self.requests.remove(fleet)),
            }
            turn.fleets.insert(fleet.clone());
        }
        let mut steps = vec![first];
        if turn.plan || !turn.fleets.is_empty() {
            let inputs = self.plan(&turn.fleets);
            if !inputs.is_empty() {
                steps.push(self.core.apply(inputs));
            }
        }
        let changed = steps.iter().flat_map(|step| step.changed.clone());
        let changed: Vec<Part> = changed.collect();
        if !changed.is_empty() {
            changed
                .iter()
                .for_each(|part| self.containment.changed(part));
            let released = changed.into_iter().map(Input::ReleasePart);
            steps.push(self.core.apply(released));
        }
        let settings = self.core.outputs().listener_settings;
        for step in &steps {
            let changes = step.commit.changes(settings).iter();
            self.valid_settings.extend(changes.map(|(fleet, change)| {
                Input::ValidListenerSettings(fleet.clone(), change.value().cloned())
            }));
        }
        steps
    }

    fn plan(&mut self, changed: &BTreeSet<FleetId>) -> Vec<Input> {
        let mut inputs = Vec::new();
        for (fleet, state) in self.runner.plan(&self.requests, changed, Instant::now()) {
            match state {
                Some(mut state) => {
                    state.ready |= self.serving.contains(&fleet);
                    if self.states.get(&fleet) != Some(&state) {
                        inputs.push(Input::Fleet(fleet.clone(), Some(state.clone())));
                        self.states.insert(fleet, state);
                    }
                }
                None => self.forget(fleet, &mut inputs),
            }
        }
        self.outputs.metrics.fleets(self.states.len());
        inputs
    }

    /// Removes the state of a fleet that is gone.
    fn forget(&mut self, fleet: FleetId, inputs: &mut Vec<Input>) {
        if self.states.remove(&fleet).is_none() {
            return;
        }
        self.serving.remove(&fleet);
        self.started.remove(&fleet);
        self.containment.forget(&fleet);
        let gone = self
            .rejected
            .extract_if(.., |rejected| rejected.fleet == fleet);
        inputs.extend(gone.map(|rejected| Input::Rejection(rejected, None)));
        inputs.push(Input::Fleet(fleet, None));
    }

    /// Sends `Ready` once the Envoys of all fleets serve or have failed.
    fn send_ready(&mut self) {
        if self.ready_sent || !self.synced {
            return;
        }
        if self.runner.required_for_ready().is_subset(&self.started) {
            self.ready_sent = true;
            let default_fleet = self.serving.contains(&FleetId::Default);
            self.emit(RunEvent::Ready {
                gateways: self.serving.len() - usize::from(default_fleet),
                default_fleet,
                after_ms: millis(self.start.elapsed()),
            });
        }
    }

    fn emit(&self, event: RunEvent) {
        self.outputs.events.send(event);
    }
}

#[cfg(test)]
mod tests;
