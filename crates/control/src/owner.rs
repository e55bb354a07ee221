//! The one thread that translates.
//!
//! In: messages. Out: resources for Envoys, statuses for the board, fleets for whoever runs them, events. Whatever has
//! come by the time it looks becomes one change: there is no timer, and nobody sees a part of it.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use sesame_api::{GATEWAY_GROUP, Kind, ObjectKey};
use sesame_engine::Commit;
use sesame_envoy::ResourceChange;
use sesame_model::FleetId;
use sesame_sources::change::Change;
use sesame_sources::files::ChangeSet;
use sesame_translate::fleet::{FleetRequest, FleetState, Rejected};
use sesame_translate::pipeline;
use sesame_xds as xds;
use tokio::sync::{broadcast, mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::board::{Board, Status};
use crate::core::{Core, Input, Step};
use crate::event::{ChangeKind, Event, ObjectChange, ProblemView, cut, millis};
use crate::local::ports::Ports;
use crate::metrics::Metrics;
use crate::progress::Progress;

/// Messages that are taken at once, so that a flood can't keep what came first from being served.
const MOST_AT_ONCE: usize = 1024;

/// Something that the owner should know.
pub(crate) enum Message {
    /// Files changed. The first of these is everything.
    Source(ChangeSet),
    /// An Envoy has acknowledged what it was given.
    EnvoyServes(FleetId),
    /// An Envoy ended or can't be started, and is or isn't started again.
    EnvoyDown(FleetId),
    /// The last Envoy of a fleet has ended because the fleet is gone.
    FleetEnded(FleetId),
    /// What an Envoy said to a resource; `None`: it took it.
    Rejection(Rejected, Option<String>),
    /// A look at the tables.
    Inspect(Box<dyn FnOnce(&Core) + Send>),
}

/// What the owner tells others.
#[derive(Clone, Debug)]
pub(crate) struct Outlets {
    pub(crate) registry: xds::Registry,
    pub(crate) board: Arc<Board>,
    pub(crate) progress: Arc<Progress>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) events: broadcast::Sender<Event>,
    /// Fleets whose Envoys should run.
    pub(crate) wanted: watch::Sender<BTreeSet<FleetId>>,
    /// Cancelled when all is about to end: what then happens to Envoys is no news.
    pub(crate) ending: CancellationToken,
}

/// The state of the thread.
pub(crate) struct Owner {
    core: Core,
    ports: Ports,
    outlets: Outlets,
    start: Instant,
    /// Everything has been read once; nothing is served before.
    synced: bool,
    /// Event `Ready` has been sent.
    announced: bool,
    known: HashSet<ObjectKey>,
    requests: BTreeMap<FleetId, FleetRequest>,
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
}

/// What the messages of one turn amount to.
#[derive(Default)]
struct Turn {
    inputs: Vec<Input>,
    objects: Vec<ObjectChange>,
    /// When the first of the changes was noticed.
    noticed: Option<Instant>,
    /// Ports may be free now that weren't.
    plan: bool,
}

impl Owner {
    pub(crate) fn new(core: Core, ports: Ports, outlets: Outlets, start: Instant) -> Self {
        Self {
            core,
            ports,
            outlets,
            start,
            synced: false,
            announced: false,
            known: HashSet::new(),
            requests: BTreeMap::new(),
            states: BTreeMap::new(),
            serving: BTreeSet::new(),
            settled: BTreeSet::new(),
            rejected: BTreeSet::new(),
            published: BTreeSet::new(),
            noted: BTreeSet::new(),
        }
    }

    /// Works until nobody can send messages any more.
    pub(crate) async fn run(mut self, mut messages: mpsc::Receiver<Message>) {
        loop {
            let mut taken = Vec::new();
            let due = self.ports.due();
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
            plan: self.ports.due().is_some_and(|due| due <= begin),
            ..Turn::default()
        };
        for message in messages {
            self.take(message, &mut turn);
        }
        if !self.synced || (turn.inputs.is_empty() && !turn.plan) {
            return self.announce();
        }
        let mut steps = self.commit(std::mem::take(&mut turn.inputs), turn.plan);
        let revision = self.core.engine().revision();
        let changes = merged(&mut steps);
        if !turn.objects.is_empty() {
            let (objects, more) = cut(turn.objects);
            self.tell(Event::Change {
                revision,
                objects,
                more,
                resources: changes.len(),
                took_ms: millis(begin.elapsed()),
            });
        }
        self.publish(changes, revision, turn.noticed);
        self.update_wanted();
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
                self.ports.ended(&fleet);
                turn.plan = true;
            }
            Message::Rejection(rejected, message) => {
                match message {
                    Some(_) if !self.requests.contains_key(&rejected.fleet) => return,
                    Some(_) => self.rejected.insert(rejected.clone()),
                    None => self.rejected.remove(&rejected),
                };
                self.outlets.metrics.rejected(self.rejected.len());
                turn.inputs.push(Input::Rejection(rejected, message));
            }
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
                match self.known.insert(key.clone()) {
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

    /// Commits, and once more if that asks for other fleets than before: which ports they get is known before anything
    /// leaves this thread.
    fn commit(&mut self, inputs: Vec<Input>, plan: bool) -> Vec<Step> {
        let first = self.core.apply(inputs);
        let changes = first.commit.changes(self.core.outputs().fleets);
        let plan = plan || !changes.is_empty();
        for (fleet, change) in changes {
            match change.value() {
                Some(request) => {
                    self.requests
                        .insert(fleet.clone(), FleetRequest::clone(request));
                }
                None => drop(self.requests.remove(fleet)),
            }
        }
        let mut steps = vec![first];
        if plan {
            let inputs = self.plan();
            if !inputs.is_empty() {
                steps.push(self.core.apply(inputs));
            }
        }
        steps
    }

    fn plan(&mut self) -> Vec<Input> {
        let mut inputs = Vec::new();
        let mut states = self.ports.plan(&self.requests, Instant::now());
        for (fleet, state) in &mut states {
            state.ready = self.serving.contains(fleet);
            if self.states.get(fleet) != Some(&*state) {
                inputs.push(Input::Fleet(fleet.clone(), Some(state.clone())));
            }
        }
        let before = std::mem::replace(&mut self.states, states);
        for fleet in before.into_keys() {
            if !self.states.contains_key(&fleet) {
                self.serving.remove(&fleet);
                self.settled.remove(&fleet);
                let of_it = |rejected: &Rejected| rejected.fleet == fleet;
                let gone = self.rejected.iter().filter(|rejected| of_it(rejected));
                inputs.extend(gone.map(|rejected| Input::Rejection(rejected.clone(), None)));
                self.rejected.retain(|rejected| !of_it(rejected));
                inputs.push(Input::Fleet(fleet, None));
            }
        }
        self.outlets.metrics.rejected(self.rejected.len());
        self.outlets.metrics.fleets(self.states.len());
        inputs
    }

    /// Hands each fleet what is new for it.
    fn publish(&mut self, changes: Vec<ResourceChange>, revision: u64, noticed: Option<Instant>) {
        let registry = &self.outlets.registry;
        let mut updates: BTreeMap<FleetId, xds::Update> = BTreeMap::new();
        for change in changes {
            let Some(resource_type) = xds::ResourceType::from_type_url(change.type_url) else {
                continue;
            };
            let update = updates.entry(change.fleet.clone()).or_default();
            match change.message() {
                Some(body) => {
                    let resource = xds::Resource::new(change.name, body);
                    update.upserts.push((resource_type, resource));
                }
                None => update.removals.push((resource_type, change.name.into())),
            }
        }
        for fleet in self.requests.keys() {
            let update = match updates.remove(fleet) {
                Some(update) => update,
                // Even one that has nothing is known, or its Envoys would wait.
                None if !self.published.contains(fleet) => xds::Update::default(),
                None => continue,
            };
            if let Some(noticed) = noticed {
                self.outlets.progress.sent(fleet, revision, noticed);
            }
            self.published.insert(fleet.clone());
            registry.apply(&xds_fleet(fleet), xds::Update { revision, ..update });
        }
        // Envoys of a fleet that is gone are drained with what they have.
        let gone = |fleet: &FleetId| !self.requests.contains_key(fleet);
        for fleet in self.published.extract_if(.., gone) {
            self.outlets.progress.forget(&fleet);
            registry.remove_fleet(&xds_fleet(&fleet));
        }
    }

    /// An Envoy starts when it has something to listen on, and stays for as long as its Gateway.
    fn update_wanted(&self) {
        self.outlets.wanted.send_if_modified(|wanted| {
            let new: BTreeSet<FleetId> = self
                .requests
                .keys()
                .filter(|fleet| wanted.contains(*fleet) || self.ports.has_any(fleet))
                .cloned()
                .collect();
            let differs = new != *wanted;
            *wanted = new;
            differs
        });
    }

    fn update_board(&mut self, steps: &[Step], revision: u64) {
        let touched: BTreeSet<ObjectKey> = steps
            .iter()
            .flat_map(|step| self.touched(&step.commit))
            .collect();
        let now = Timestamp::now();
        let mut changes = Vec::new();
        for key in touched {
            changes.extend(self.outlets.board.set(&key, self.status(&key), now));
        }
        if changes.is_empty() {
            return;
        }
        changes.sort_by_key(|change| std::cmp::Reverse(change.level));
        let (changes, more) = cut(changes);
        self.tell(Event::Status {
            revision,
            changes,
            more,
        });
    }

    /// Objects whose status is new.
    fn touched(&self, commit: &Commit) -> Vec<ObjectKey> {
        let outputs = self.core.outputs();
        let classes = commit.changes(outputs.class_status).iter();
        let gateways = commit.changes(outputs.gateway_status).iter();
        let routes = commit.changes(outputs.http_route_status).iter();
        classes
            .map(|(name, _)| ObjectKey::new(Kind::GatewayClass, "", name.clone()))
            .chain(gateways.map(|(name, _)| name.of_kind(Kind::Gateway)))
            .chain(routes.map(|(name, _)| name.of_kind(Kind::HTTPRoute)))
            .collect()
    }

    fn status(&self, key: &ObjectKey) -> Option<Status> {
        let (engine, outputs) = (self.core.engine(), self.core.outputs());
        let name = key.namespaced_name();
        match key.kind {
            Kind::GatewayClass if self.core.is_unwritten_class(&key.name) => None,
            Kind::GatewayClass => engine
                .get(outputs.class_status, &key.name)
                .map(Status::Class),
            Kind::Gateway => engine
                .get(outputs.gateway_status, &name)
                .map(Status::Gateway),
            Kind::HTTPRoute => engine
                .get(outputs.http_route_status, &name)
                .map(Status::Route),
            _ => None,
        }
    }

    /// Says once that all is served that can be.
    fn announce(&mut self) {
        if self.announced || !self.synced {
            return;
        }
        let all_settled = {
            let wanted = self.outlets.wanted.borrow();
            wanted.iter().all(|fleet| self.settled.contains(fleet))
        };
        if all_settled {
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
        // Nobody needs to look.
        let _ = self.outlets.events.send(event);
    }
}

/// As the registry names it.
pub(crate) fn xds_fleet(fleet: &FleetId) -> xds::FleetId {
    xds::FleetId::new(Arc::clone(&fleet.0))
}

/// The resource changes of all steps, the last of each resource, in the order of its fleet, type and name.
fn merged(steps: &mut [Step]) -> Vec<ResourceChange> {
    let mut all = steps
        .iter_mut()
        .map(|step| std::mem::take(&mut step.resources));
    let first = all.next().unwrap_or_default();
    let mut last = BTreeMap::new();
    for later in all {
        for change in later {
            let key = (change.fleet.clone(), change.type_url, change.name.clone());
            last.insert(key, change);
        }
    }
    if last.is_empty() {
        return first;
    }
    for change in first {
        let key = (change.fleet.clone(), change.type_url, change.name.clone());
        last.entry(key).or_insert(change);
    }
    last.into_values().collect()
}

#[cfg(test)]
mod tests;
