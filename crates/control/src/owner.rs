//! The one thread that translates.
//!
//! In: messages. Out: resources for Envoys, statuses for the board, fleets for whoever runs them, events. Whatever has
//! come by the time it looks becomes one change: there is no timer, and nobody sees a part of it.

mod publish;
mod statuses;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_api::{GATEWAY_GROUP, ObjectKey};
use sesame_model::FleetId;
use sesame_sources::change::Change;
use sesame_sources::files::ChangeSet;
use sesame_status::Writer;
use sesame_translate::fleet::{FleetRequest, FleetState, Rejected, RejectedKind};
use sesame_translate::pipeline;
use sesame_xds as xds;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use self::publish::merged;
pub(crate) use self::publish::xds_fleet;
use crate::board::Board;
use crate::core::{Core, Input, Step};
use crate::event::{ChangeKind, Event, ObjectChange, ProblemView, Teller, cut, millis};
use crate::metrics::Metrics;
use crate::place::{Place, Requests};
use crate::progress::Progress;

/// Messages that are taken at once, so that a flood can't keep what came first from being served.
const MOST_AT_ONCE: usize = 1024;

/// Something that the owner should know.
pub(crate) enum Message {
    /// Objects changed. The first of these is everything.
    Source(ChangeSet),
    /// An Envoy has acknowledged what it was given.
    EnvoyServes(FleetId),
    /// An Envoy ended or can't be started, and is or isn't started again.
    EnvoyDown(FleetId),
    /// The last Envoy of a fleet has ended because the fleet is gone.
    FleetEnded(FleetId),
    /// What an Envoy said to a resource; `None`: it took it.
    Rejection(Rejected, Option<String>),
    /// The release of the Gateway API whose definitions are installed, if that is known.
    Release(Option<String>),
    /// Every object was told that may ask for a fleet: what nobody asks for is left over.
    Complete,
    /// The place knows more of its fleets than when it was last asked.
    News,
    /// A look at the tables.
    Inspect(Box<dyn FnOnce(&Core) + Send>),
}

/// Looks at the tables from the thread that owns them; `None` if it is gone.
pub(crate) async fn inspect<T: Send + 'static>(
    owner: &mpsc::WeakSender<Message>,
    look: impl FnOnce(&Core) -> T + Send + 'static,
) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    let look = Box::new(move |core: &Core| {
        // Whoever asked may have gone.
        let _ = reply.send(look(core));
    });
    let owner = owner.upgrade()?;
    owner.send(Message::Inspect(look)).await.ok()?;
    // Who only looks doesn't keep the owner up.
    drop(owner);
    answer.await.ok()
}

/// What the owner tells others.
#[derive(Clone, Debug)]
pub(crate) struct Outlets {
    pub(crate) registry: xds::Registry,
    pub(crate) board: Arc<Board>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: Teller,
    /// Writes statuses to where objects come from; `None`: they can't be written there.
    pub(crate) statuses: Option<Writer>,
    /// How long Envoys take to put another listener in place of one and to drain the connections of that.
    pub(crate) drain: Duration,
    /// Cancelled when all is about to end: what then happens to Envoys is no news.
    pub(crate) ending: CancellationToken,
}

/// The state of the thread.
pub(crate) struct Owner {
    core: Core,
    place: Box<dyn Place>,
    outlets: Outlets,
    start: Instant,
    /// Everything has been read once; nothing is served before.
    synced: bool,
    /// What was told before everything had been read.
    early: Vec<Input>,
    /// Event `Ready` has been sent.
    announced: bool,
    /// Every object was told that may ask for a fleet.
    complete: bool,
    /// Every object that was there at the start has its status.
    judged: bool,
    known: Known,
    requests: Requests,
    /// As the engine has them.
    states: BTreeMap<FleetId, FleetState>,
    /// Fleets whose Envoys serve.
    serving: BTreeSet<FleetId>,
    /// Fleets whose Envoys have served or failed to.
    settled: BTreeSet<FleetId>,
    rejected: BTreeSet<Rejected>,
    /// Fleets that the registry knows.
    published: BTreeSet<FleetId>,
    noted: BTreeSet<String>,
    /// As the core last counted them.
    replaced: u64,
    /// When no connection to any of them is left.
    settled_at: Option<Instant>,
}

/// The keys of all objects, as hashes: there may be many of them, and one that is taken for another would only be counted
/// wrongly.
#[derive(Default)]
struct Known {
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl Known {
    /// Whether it is a new one.
    fn insert(&mut self, key: &ObjectKey) -> bool {
        self.hashes.insert(self.hasher.hash_one(key))
    }

    fn remove(&mut self, key: &ObjectKey) {
        self.hashes.remove(&self.hasher.hash_one(key));
        // Seldom enough that it costs nothing.
        let (len, capacity) = (self.hashes.len(), self.hashes.capacity());
        if capacity > 64 && len < capacity / 4 {
            self.hashes.shrink_to(2 * len);
        }
    }
}

/// What the messages of one turn amount to.
#[derive(Default)]
struct Turn {
    inputs: Vec<Input>,
    objects: Vec<ObjectChange>,
    /// When the first of the changes was noticed.
    noticed: Option<Instant>,
    /// The place may have something to say.
    plan: bool,
    /// Fleets whose requests changed.
    fleets: BTreeSet<FleetId>,
}

impl Owner {
    pub(crate) fn new(core: Core, place: Box<dyn Place>, outlets: Outlets, start: Instant) -> Self {
        Self {
            core,
            place,
            outlets,
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

    /// Starts the thread, from within a Tokio runtime. The result becomes true when it ends as it should, and closes if it
    /// panics.
    ///
    /// # Errors
    /// If the system has no thread to give.
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

    /// Works until nobody can send messages any more.
    async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        loop {
            let mut taken = Vec::new();
            let due = [self.place.due(), self.settled_at]
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
                () = self.outlets.ending.cancelled() => return,
            }
            self.turn(taken);
        }
    }

    /// Takes messages as one change.
    pub(crate) fn turn(&mut self, messages: Vec<Message>) {
        let begin = Instant::now();
        let mut turn = Turn {
            plan: self.place.due().is_some_and(|due| due <= begin),
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
            self.settled_at = Some(begin + self.outlets.drain);
        }
        let revision = self.core.engine().revision();
        let changes = merged(former, &mut steps);
        if !turn.objects.is_empty() {
            let (objects, more) = cut(std::mem::take(&mut turn.objects));
            self.tell(Event::Change {
                revision,
                objects,
                more,
                resources: changes.len(),
                took_ms: millis(begin.elapsed()),
            });
        }
        self.publish(changes, revision, &turn);
        self.place.follow(&self.requests, &turn.fleets);
        let keys: usize = steps
            .iter()
            .flat_map(|step| step.commit.work())
            .map(|(_, keys)| keys)
            .sum();
        self.outlets.metrics.committed(keys, begin.elapsed());
        self.update_board(&steps, revision);
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
                self.place.ended(&fleet);
                turn.plan = true;
            }
            Message::Rejection(rejected, message) => {
                if let (RejectedKind::Listener, Some(message)) = (rejected.what, &message)
                    && let Ok(port) = rejected.name.parse()
                {
                    turn.plan |= self.place.refused(&rejected.fleet, port, message);
                }
                match message {
                    Some(_) if !self.requests.contains_key(&rejected.fleet) => return,
                    Some(_) => self.rejected.insert(rejected.clone()),
                    None => self.rejected.remove(&rejected),
                };
                self.outlets.metrics.rejected(self.rejected.len());
                turn.inputs.push(Input::Rejection(rejected, message));
            }
            Message::Release(release) => turn.inputs.push(Input::ApiVersion(release)),
            Message::Complete => {
                self.complete = true;
                self.place.complete();
                turn.plan = true;
            }
            Message::News => turn.plan = true,
            Message::Inspect(look) => look(&self.core),
        }
    }

    fn take_set(&mut self, set: ChangeSet, turn: &mut Turn) {
        self.synced = true;
        // An empty first set is a state, too.
        turn.plan |= self.core.engine().revision() == 0;
        if !set.changes.is_empty() {
            let noticed = turn.noticed.unwrap_or(set.detected);
            turn.noticed = Some(noticed.min(set.detected));
        }
        for change in set.changes {
            self.take_change(change, turn);
        }
        self.outlets.metrics.problems(set.problems.len());
        let (new, solved) = self.outlets.board.set_problems(set.problems);
        for problem in &solved {
            self.tell(Event::ProblemSolved(ProblemView::from(problem)));
        }
        for problem in &new {
            self.tell(Event::Problem(ProblemView::from(problem)));
        }
        for (kind, count) in set.skipped {
            // Other kinds of a cluster are nobody's business; of the Gateway API's the user expects something.
            if kind.contains(GATEWAY_GROUP) || kind.contains("gateway.networking.x-k8s.io") {
                self.note(format!(
                    "{kind} is not a kind that Sesame reads ({count} of it)"
                ));
            }
        }
    }

    fn take_change(&mut self, change: Change, turn: &mut Turn) {
        let key = change.key();
        let kind = match &change {
            Change::Upsert(object) => {
                self.outlets.board.sketch(object);
                match self.known.insert(&key) {
                    true => ChangeKind::Added,
                    false => ChangeKind::Changed,
                }
            }
            Change::Remove(_) => {
                self.outlets.board.forget(&key);
                self.known.remove(&key);
                ChangeKind::Removed
            }
        };
        match kind {
            ChangeKind::Added => self.outlets.metrics.object(key.kind, 1),
            ChangeKind::Removed => self.outlets.metrics.object(key.kind, -1),
            ChangeKind::Changed => {}
        }
        if key.kind.group() == GATEWAY_GROUP && !pipeline::Inputs::takes(key.kind) {
            self.note(format!("objects of kind {} are not served yet", key.kind));
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

    /// Commits, and once more if that asks for other fleets than before: where they listen is known before anything
    /// leaves this thread.
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
        for (fleet, state) in self.place.plan(&self.requests, changed, Instant::now()) {
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
        self.outlets.metrics.rejected(self.rejected.len());
        self.outlets.metrics.fleets(self.states.len());
        inputs
    }

    /// A fleet is gone.
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

    /// Says once that all is served that can be.
    fn announce(&mut self) {
        if self.announced || !self.synced {
            return;
        }
        if self.place.awaited().is_subset(&self.settled) {
            self.announced = true;
            self.tell(Event::Ready {
                gateways: self.serving.len(),
                after_ms: millis(self.start.elapsed()),
            });
        }
    }

    /// Says something once.
    fn note(&mut self, message: String) {
        if self.noted.len() < crate::event::LONGEST_LIST && self.noted.insert(message.clone()) {
            self.tell(Event::Note { message });
        }
    }

    fn tell(&self, event: Event) {
        self.outlets.events.tell(event);
    }
}

#[cfg(test)]
mod tests;
