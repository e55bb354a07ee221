//! The thread that translates, and owns all its state.
//!
//! In: messages. Out: resources for Envoys, statuses for the status store, requests for the runner of fleets, events.
//! Messages that are queued at the same time become one change: there is no timer, and no intermediate state is visible.

mod publish;
mod statuses;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_api::ObjectKey;
use sesame_model::{FleetId, FleetRequest, FleetState, Port};
use sesame_sources::change::Change;
use sesame_sources::files::{ChangeSet, Unsupported};
use sesame_status::Writer;
use sesame_translate::fleet::Rejected;
use sesame_xds as xds;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::publish::merged;
pub(crate) use self::publish::xds_fleet;
use crate::core::{Core, Input, Step};
use crate::event::{ChangeKind, EventSender, ObjectChange, ProblemView, RunEvent, cut, millis};
use crate::metrics::Metrics;
use crate::progress::Progress;
use crate::runner::{FleetRunner, Requests};
use crate::status_store::StatusStore;

/// Messages per turn, so that a flood doesn't delay the first of them.
const MOST_AT_ONCE: usize = 1024;

/// A message to the owner.
pub(crate) enum Message {
    /// Objects changed. The first set holds all objects.
    Source(ChangeSet),
    /// An Envoy has acknowledged its resources.
    EnvoyServes(FleetId),
    /// An Envoy ended or can't be started, whether or not it will be restarted.
    EnvoyDown(FleetId),
    /// The last Envoy of a removed fleet has ended.
    FleetEnded(FleetId),
    /// An Envoy rejected a resource, with its message; `None`: it accepted the resource.
    Rejection(Rejected, Option<String>),
    /// The release of the installed Gateway API CRDs, if known.
    Release(Option<String>),
    /// All fleet-owning objects are known; fleets without an owner are orphans.
    Complete,
    /// The runner has new states of its fleets.
    News,
    /// Reads the tables.
    Inspect(Box<dyn FnOnce(&Core) + Send>),
}

/// Reads the tables on the thread that owns them; `None` if it is gone.
pub(crate) async fn inspect<T: Send + 'static>(
    owner: &mpsc::WeakSender<Message>,
    look: impl FnOnce(&Core) -> T + Send + 'static,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    let look = Box::new(move |core: &Core| {
        // The caller may be gone.
        let _ = reply.send(look(core));
    });
    let owner = owner.upgrade()?;
    owner.send(Message::Inspect(look)).await.ok()?;
    // A reader must not keep the owner running.
    drop(owner);
    answer.await.ok()
}

/// Outputs of the owner.
#[derive(Clone, Debug)]
pub(crate) struct Outputs {
    pub(crate) registry: xds::Registry,
    pub(crate) status_store: Arc<StatusStore>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: EventSender,
    /// Writes statuses to the API server; `None` in a local run.
    pub(crate) statuses: Option<Writer>,
    /// How long Envoys take to replace a listener and to drain its connections.
    pub(crate) drain: Duration,
    /// Cancelled at shutdown: from then on no events about Envoys are sent.
    pub(crate) ending: CancellationToken,
}

/// State of the thread.
pub(crate) struct Owner {
    core: Core,
    runner: Box<dyn FleetRunner>,
    outputs: Outputs,
    start: Instant,
    /// All objects have been read once; nothing is served before.
    synced: bool,
    /// Inputs received before `synced`.
    early: Vec<Input>,
    /// Event `Ready` has been sent.
    announced: bool,
    /// All fleet-owning objects are known.
    complete: bool,
    /// All objects of the start have a status.
    judged: bool,
    known: Known,
    requests: Requests,
    /// As in the engine.
    states: BTreeMap<FleetId, FleetState>,
    /// Fleets whose Envoys serve.
    serving: BTreeSet<FleetId>,
    /// Fleets whose Envoys have served or failed.
    settled: BTreeSet<FleetId>,
    rejected: BTreeSet<Rejected>,
    /// Fleets in the registry.
    published: BTreeSet<FleetId>,
    /// Unsupported objects that have been reported.
    noted: BTreeSet<String>,
    /// The core's last count of replaced listeners.
    replaced: u64,
    /// When their last connection is drained.
    settled_at: Option<Instant>,
}

/// The keys of all objects, as hashes to save memory. A collision only makes a count wrong.
#[derive(Default)]
struct Known {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl Known {
    /// Whether the key is new.
    fn insert(&mut self, key: &ObjectKey) -> bool {
        self.hashes.insert(self.hasher.hash_one(key))
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.hashes.remove(&self.hasher.hash_one(key));
        // Rare enough to be cheap.
        let (len, capacity) = (self.hashes.len(), self.hashes.capacity());
        if capacity > 64 && len < capacity / 4 {
            self.hashes.shrink_to(2 * len);
        }
    }
}

/// The messages of one turn, combined.
#[derive(Default)]
struct Turn {
    inputs: Vec<Input>,
    objects: Vec<ObjectChange>,
    /// When the first of the changes was noticed.
    noticed: Option<Instant>,
    /// The runner may have new states.
    plan: bool,
    /// Fleets whose requests changed.
    fleets: BTreeSet<FleetId>,
}

impl Owner {
    pub(crate) fn new(
        core: Core,
        runner: Box<dyn FleetRunner>,
        outputs: Outputs,
        start: Instant,
    ) -> Self {
        Self {
            core,
            runner,
            outputs,
            start,
            synced: false,
            early: Vec::new(),
            announced: false,
            complete: false,
            judged: false,
            known: Known::default(),
            requests: Requests::new(),
            states: BTreeMap::new(),
            serving: BTreeSet::new(),
            settled: BTreeSet::new(),
            rejected: BTreeSet::new(),
            published: BTreeSet::new(),
            noted: BTreeSet::new(),
            replaced: 0,
            settled_at: None,
        }
    }

    /// Starts the thread, from within a Tokio runtime. The result becomes true when the thread ends normally, and closes if
    /// it panics.
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
            let mut taken = Vec::new();
            let due = [self.runner.due(), self.settled_at]
                .into_iter()
                .flatten()
                .min();
            let pause = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                number = messages.recv_many(&mut taken, MOST_AT_ONCE) => if number == 0 {
                    return;
                },
                () = pause => {}
                () = self.outputs.ending.cancelled() => return,
            }
            self.turn(taken);
        }
    }

    /// Handles messages as one change.
    pub(crate) fn turn(&mut self, messages: Vec<Message>) {
        let begin = Instant::now();
        let mut turn = Turn {
            plan: self.runner.due().is_some_and(|due| due <= begin),
            inputs: std::mem::take(&mut self.early),
            ..Turn::default()
        };
        for message in messages {
            self.take(message, &mut turn);
        }
        if !self.synced {
            self.early = turn.inputs;
            return;
        }
        let settled = self.settled_at.take_if(|at| *at <= begin);
        if turn.inputs.is_empty() && !turn.plan && settled.is_none() {
            return self.announce();
        }
        let former = settled.map(|_| self.core.settle()).unwrap_or_default();
        let inputs = std::mem::take(&mut turn.inputs);
        let mut steps = self.commit(inputs, &mut turn);
        let replaced = self.core.replaced();
        if std::mem::replace(&mut self.replaced, replaced) != replaced {
            self.settled_at = Some(begin + self.outputs.drain);
        }
        let revision = self.core.engine().revision();
        let changes = merged(former, &mut steps);
        if !turn.objects.is_empty() {
            let (objects, more) = cut(std::mem::take(&mut turn.objects));
            self.tell(RunEvent::Change {
                revision,
                objects,
                more,
                resources: changes.len(),
                took_ms: millis(begin.elapsed()),
            });
        }
        self.publish(changes, revision, &turn);
        self.runner.follow(&self.requests, &turn.fleets);
        let keys: usize = steps
            .iter()
            .flat_map(|step| step.commit.work())
            .map(|(_, keys)| keys)
            .sum();
        self.outputs.metrics.committed(keys, begin.elapsed());
        self.update_statuses(&steps, revision);
        self.announce();
    }

    fn take(&mut self, message: Message, turn: &mut Turn) {
        match message {
            Message::Source(set) => self.take_set(set, turn),
            Message::EnvoyServes(fleet) if !self.requests.contains_key(&fleet) => {}
            Message::EnvoyServes(fleet) => {
                self.settled.insert(fleet.clone());
                if self.serving.insert(fleet.clone()) {
                    self.set_ready(&fleet, true, turn);
                }
            }
            Message::EnvoyDown(fleet) if !self.requests.contains_key(&fleet) => {}
            Message::EnvoyDown(fleet) => {
                self.settled.insert(fleet.clone());
                if self.serving.remove(&fleet) {
                    self.set_ready(&fleet, false, turn);
                }
            }
            Message::FleetEnded(fleet) => {
                self.runner.ended(&fleet);
                turn.plan = true;
            }
            Message::Rejection(rejected, message) => {
                if let (Some(port), Some(message)) = (self.rejected_port(&rejected), &message) {
                    turn.plan |= self.runner.refused(&rejected.fleet, port, message);
                }
                match message {
                    Some(_) if !self.requests.contains_key(&rejected.fleet) => return,
                    Some(_) => self.rejected.insert(rejected.clone()),
                    None => self.rejected.remove(&rejected),
                };
                self.outputs.metrics.rejected(self.rejected.len());
                turn.inputs.push(Input::Rejection(rejected, message));
            }
            Message::Release(release) => turn.inputs.push(Input::ApiVersion(release)),
            Message::Complete => {
                self.complete = true;
                self.runner.complete();
                turn.plan = true;
            }
            Message::News => turn.plan = true,
            Message::Inspect(look) => look(&self.core),
        }
    }

    /// The port of a rejected listener, if its fleet still has it.
    fn rejected_port(&self, rejected: &Rejected) -> Option<Port> {
        let request = self.requests.get(&rejected.fleet)?;
        let mut ports = request.ports.iter().copied();
        ports.find(|&port| *rejected == Rejected::listener(rejected.fleet.clone(), port))
    }

    fn take_set(&mut self, set: ChangeSet, turn: &mut Turn) {
        self.synced = true;
        // An empty first set counts as well.
        turn.plan |= self.core.engine().revision() == 0;
        if !set.changes.is_empty() {
            let noticed = turn.noticed.unwrap_or(set.detected);
            turn.noticed = Some(noticed.min(set.detected));
        }
        for change in set.changes {
            self.take_change(change, turn);
        }
        self.outputs.metrics.problems(set.errors.len());
        let (new, solved) = self.outputs.status_store.set_problems(set.errors);
        for problem in &solved {
            self.tell(RunEvent::ProblemSolved(ProblemView::from(problem)));
        }
        for problem in &new {
            self.tell(RunEvent::Problem(ProblemView::from(problem)));
        }
        for object in &set.unsupported {
            self.note_unsupported(object);
        }
    }

    fn take_change(&mut self, change: Change, turn: &mut Turn) {
        let key = change.key();
        let kind = match &change {
            Change::Upsert(object) => {
                self.outputs.status_store.sketch(object);
                match self.known.insert(&key) {
                    true => ChangeKind::Added,
                    false => ChangeKind::Changed,
                }
            }
            Change::Remove(_) => {
                self.outputs.status_store.forget(&key);
                self.known.remove(&key);
                ChangeKind::Removed
            }
        };
        match kind {
            ChangeKind::Added => self.outputs.metrics.object(key.kind, 1),
            ChangeKind::Removed => self.outputs.metrics.object(key.kind, -1),
            ChangeKind::Changed => {}
        }
        turn.objects.push(ObjectChange {
            object: key,
            change: kind,
        });
        turn.inputs.push(match change {
            Change::Upsert(object) => Input::Upsert(object),
            Change::Remove(key) => Input::Remove(key),
        });
    }

    fn set_ready(&mut self, fleet: &FleetId, ready: bool, turn: &mut Turn) {
        if let Some(state) = self.states.get_mut(fleet) {
            state.ready = ready;
            let input = Input::Fleet(fleet.clone(), Some(state.clone()));
            turn.inputs.push(input);
        }
    }

    /// Commits, and a second time if the first commit changed the requests for fleets: their addresses are known before any
    /// output leaves this thread.
    fn commit(&mut self, inputs: Vec<Input>, turn: &mut Turn) -> Vec<Step> {
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
        self.outputs.metrics.rejected(self.rejected.len());
        self.outputs.metrics.fleets(self.states.len());
        inputs
    }

    /// Removes the state of a fleet that is gone.
    fn forget(&mut self, fleet: FleetId, inputs: &mut Vec<Input>) {
        if self.states.remove(&fleet).is_none() {
            return;
        }
        self.serving.remove(&fleet);
        self.settled.remove(&fleet);
        let gone = self
            .rejected
            .extract_if(.., |rejected| rejected.fleet == fleet);
        inputs.extend(gone.map(|rejected| Input::Rejection(rejected, None)));
        inputs.push(Input::Fleet(fleet, None));
    }

    /// Sends `Ready` once everything that can be served is.
    fn announce(&mut self) {
        if self.announced || !self.synced {
            return;
        }
        if self.runner.awaited().is_subset(&self.settled) {
            self.announced = true;
            self.tell(RunEvent::Ready {
                gateways: self.serving.len(),
                after_ms: millis(self.start.elapsed()),
            });
        }
    }

    /// Reports an unsupported object, once.
    fn note_unsupported(&mut self, object: &Unsupported) {
        if self.noted.len() < crate::event::LONGEST_LIST && self.noted.insert(object.object.clone())
        {
            let message = object.to_string();
            self.tell(RunEvent::Note { message });
        }
    }

    fn tell(&self, event: RunEvent) {
        self.outputs.events.send(event);
    }
}

#[cfg(test)]
mod tests;
