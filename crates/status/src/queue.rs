//! Whose status is written next.
//!
//! In: what each object should say, what it says, who leads, how writes ended, the time. Out: one job after the other. Pure: it
//! neither asks for the time nor sends anything.
//!
//! - One slot for each object: what comes later replaces what was there, so that an object waits once, however often it changes.
//! - A status waits for [`HEAD_START`], in which Envoys get what it tells of.
//! - An object whose write is under way waits for its answer. From write to write of one object goes [`INTERVAL`], of a Gateway
//!   [`GATEWAYS`], longer while somebody keeps undoing what we write.
//! - Gateways and their like have a lane of their own beside that of routes, and the two take turns: a Gateway doesn't wait for
//!   thousands of routes, nor they for it.
//! - A status is written when it is about the generation that is in the cluster. A newer one waits until the cluster shows that
//!   generation: the version that a write would ask for would be the wrong one. An older one waits for [`HOLD`], as a newer one
//!   is on its way, and is then written: maybe the object can't be read any more, and the rest of its status still tells.
//! - An answer that says that the server can't take more stops everything for a while, and one write then tries. An answer that is
//!   about one object delays that object.

mod gate;
mod slot;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_api::{Kind, LiveStatus, ObjectKey, ObjectStatus};

use self::gate::Gate;
use self::slot::{Due, Slot, State};
use crate::merge::Want;
use crate::trouble::{Reason, Trouble, Troubles};

/// How long a status waits from the moment at which it is asked for. The same change is on its way to Envoys then, which matters
/// more: API servers are slow in comparison, and may share processors with everything else.
pub(crate) const HEAD_START: Duration = Duration::from_millis(25);
/// The least time from a write of an object to its next one.
pub(crate) const INTERVAL: Duration = Duration::from_millis(100);
/// The same of a Gateway or its like, which counts the routes that come and go.
pub(crate) const GATEWAYS: Duration = Duration::from_millis(250);
/// How long a status about an older generation waits for a newer one.
pub(crate) const HOLD: Duration = Duration::from_secs(1);
/// How long entries of ours that nobody has spoken of stay before they are taken away.
pub(crate) const SETTLE: Duration = Duration::from_secs(2);
/// The longest that an object waits after a write that failed.
const LONGEST_WAIT: Duration = Duration::from_secs(60);
/// Within this time after a write, having to write the same again means that somebody undid it.
const UNDONE_WITHIN: Duration = Duration::from_secs(60);

/// What to write, and over what.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    /// The object.
    pub key: ObjectKey,
    /// What it should say.
    pub want: Want,
    /// What it says, as far as is known.
    pub live: Arc<LiveStatus>,
}

/// How a job ended.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Nothing had to be sent.
    Right,
    /// The object speaks of a later generation than we do: nothing was sent, and nothing will be until we know more.
    Behind,
    /// It was written, and this stands there now. So many entries of ours found no room.
    Written(LiveStatus, usize),
    /// Somebody was faster, and this stands there now.
    Conflict(LiveStatus),
    /// The object is gone.
    Gone,
    /// It wasn't written.
    Failed(Failure),
}

/// Why something wasn't written.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Failure {
    /// The reason.
    pub reason: Reason,
    /// For people.
    pub message: String,
    /// How long the server asks to wait.
    pub retry_after: Option<Duration>,
}

/// All objects, and what is to be written.
#[derive(Debug)]
pub(crate) struct Queue {
    controller: Arc<str>,
    concurrency: usize,
    head_start: Duration,
    slots: BTreeMap<ObjectKey, Slot>,
    /// Of Gateways and their like, and of routes and policies. Each key that stands here is in the state `Ready`, once.
    lanes: [VecDeque<ObjectKey>; 2],
    /// The lane whose turn it is.
    turn: usize,
    /// Keys in the state `Waiting`, by the time for which they wait.
    timers: BTreeSet<(Instant, ObjectKey)>,
    in_flight: usize,
    leading: bool,
    complete: bool,
    gate: Gate,
    troubles: Troubles,
}

impl Queue {
    /// `head_start` is how long a status waits at least, [`HEAD_START`] but for tests.
    pub(crate) fn new(controller: Arc<str>, concurrency: usize, head_start: Duration) -> Self {
        Self {
            controller,
            concurrency: concurrency.max(1),
            head_start,
            slots: BTreeMap::new(),
            lanes: Default::default(),
            turn: 0,
            timers: BTreeSet::new(),
            in_flight: 0,
            leading: false,
            complete: false,
            gate: Gate::default(),
            troubles: Troubles::default(),
        }
    }

    /// What an object should say.
    pub(crate) fn desired(&mut self, key: ObjectKey, status: Option<ObjectStatus>, now: Instant) {
        if status.is_none() && !self.slots.contains_key(&key) {
            return;
        }
        let slot = slot(&mut self.slots, &key);
        if slot.told(status, now, self.head_start) {
            self.schedule(&key, now);
        }
        self.tidy(&key);
    }

    /// What an object says; `None`: it is gone.
    pub(crate) fn live(&mut self, key: ObjectKey, live: Option<LiveStatus>, now: Instant) {
        match live {
            Some(live) => {
                let slot = slot(&mut self.slots, &key);
                if slot.seen(live, now) {
                    self.schedule(&key, now);
                }
            }
            None => self.gone(&key),
        }
        self.tidy(&key);
    }

    /// Whether we lead: only a leader writes. Who comes to lead looks at everything.
    pub(crate) fn lead(&mut self, leads: bool, now: Instant) {
        if leads == self.leading {
            return;
        }
        self.leading = leads;
        if leads {
            for slot in self.slots.values_mut() {
                slot.lead(now);
            }
            self.schedule_all(now);
            return;
        }
        self.timers.clear();
        self.lanes = Default::default();
        self.gate = Gate::default();
        self.troubles = Troubles::default();
        self.slots.retain(|_, slot| {
            slot.rest();
            !slot.is_empty()
        });
    }

    /// Everything that was there at the start has been judged: entries of ours of which nobody has spoken by now are left-overs.
    pub(crate) fn complete(&mut self, now: Instant) {
        if !self.complete {
            self.complete = true;
            self.schedule_all(now);
        }
    }

    /// The next job, if one may start now.
    pub(crate) fn next(&mut self, now: Instant) -> Option<Job> {
        if !self.leading {
            return None;
        }
        self.ring(now);
        while self.in_flight < self.concurrency && self.gate.lets(self.in_flight, now) {
            let key = self.pop()?;
            let slot = self.slots.get_mut(&key).expect("a slot in a lane stays");
            slot.state = State::Idle;
            match slot.due(&key, &self.controller, self.complete) {
                Due::Never => self.tidy(&key),
                Due::At(at) if at > now => self.wait(&key, at),
                Due::At(_) => {
                    let job = slot.start(&key, now);
                    self.in_flight += 1;
                    return Some(job);
                }
            }
        }
        None
    }

    /// When to ask again, if nothing comes before.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        if !self.leading {
            return None;
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        let ready = self.lanes.iter().any(|lane| !lane.is_empty());
        // While something is under way its answer comes first.
        let gate = self.gate.opens().filter(|_| ready && self.in_flight == 0);
        timer.into_iter().chain(gate).min()
    }

    /// How a job ended. Gives the time from when the status was asked for to now, if it now says so.
    pub(crate) fn ended(
        &mut self,
        key: &ObjectKey,
        outcome: Outcome,
        now: Instant,
    ) -> Option<Duration> {
        self.in_flight -= 1;
        if !matches!(&outcome, Outcome::Right | Outcome::Behind) {
            match &outcome {
                Outcome::Failed(failure) if failure.reason == Reason::Unanswered => {
                    self.gate.close(failure.retry_after, now);
                }
                _ => self.gate.open(),
            }
        }
        let slot = self.slots.get_mut(key)?;
        slot.state = State::Idle;
        let took = slot.ended(&outcome, now);
        match outcome {
            Outcome::Gone => self.gone(key),
            _ if !self.leading => {}
            Outcome::Failed(failure) => self.troubles.set(key, failure.reason, failure.message),
            Outcome::Written(_, left_out) if left_out > 0 => {
                let message = format!("others fill the list: {left_out} of ours found no room");
                self.troubles.set(key, Reason::Full, message);
            }
            Outcome::Right | Outcome::Written(..) => self.troubles.clear(key),
            Outcome::Conflict(_) | Outcome::Behind => {}
        }
        let again = self.slots.get(key).is_some_and(|slot| slot.dirty);
        if again {
            self.schedule(key, now);
        }
        self.tidy(key);
        took
    }

    /// How many objects wait or are being written.
    pub(crate) fn len(&self) -> usize {
        let waiting: usize = self.lanes.iter().map(VecDeque::len).sum();
        waiting + self.timers.len() + self.in_flight
    }

    /// What keeps us from writing.
    pub(crate) fn troubles(&self) -> Vec<Trouble> {
        self.troubles.all()
    }

    fn schedule_all(&mut self, now: Instant) {
        let keys: Vec<_> = self.slots.keys().cloned().collect();
        for key in keys {
            self.schedule(&key, now);
        }
    }

    /// Finds the time for an object of which something changed.
    fn schedule(&mut self, key: &ObjectKey, now: Instant) {
        let Some(slot) = self.slots.get_mut(key).filter(|_| self.leading) else {
            return;
        };
        match slot.state {
            State::InFlight => slot.dirty = true,
            // What it is worth is asked when its turn comes.
            State::Ready => {}
            State::Idle | State::Waiting(_) => {
                slot.dirty = false;
                if let State::Waiting(at) = slot.state {
                    self.timers.remove(&(at, key.clone()));
                    slot.state = State::Idle;
                }
                match slot.due(key, &self.controller, self.complete) {
                    Due::Never => {}
                    Due::At(at) if at > now => self.wait(key, at),
                    Due::At(_) => self.line_up(key),
                }
            }
        }
    }

    fn wait(&mut self, key: &ObjectKey, at: Instant) {
        slot(&mut self.slots, key).state = State::Waiting(at);
        self.timers.insert((at, key.clone()));
    }

    fn line_up(&mut self, key: &ObjectKey) {
        slot(&mut self.slots, key).state = State::Ready;
        self.lanes[lane(key.kind)].push_back(key.clone());
    }

    /// Lines up those whose time has come.
    fn ring(&mut self, now: Instant) {
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.timers.pop_first() {
                self.line_up(&key);
            }
        }
    }

    /// The first of the lane whose turn it is, or else of the other.
    fn pop(&mut self) -> Option<ObjectKey> {
        self.turn = 1 - self.turn;
        let other = 1 - self.turn;
        self.lanes[self.turn]
            .pop_front()
            .or_else(|| self.lanes[other].pop_front())
    }

    fn gone(&mut self, key: &ObjectKey) {
        if let Some(slot) = self.slots.get_mut(key) {
            slot.gone();
        }
        self.troubles.clear(key);
    }

    /// Forgets an object of which there is nothing to know. One that stands in a lane is forgotten when its turn comes.
    fn tidy(&mut self, key: &ObjectKey) {
        let Some(slot) = self.slots.get(key).filter(|slot| slot.is_empty()) else {
            return;
        };
        if let State::Waiting(at) = slot.state {
            self.timers.remove(&(at, key.clone()));
        }
        self.slots.remove(key);
        self.troubles.clear(key);
    }
}

fn lane(kind: Kind) -> usize {
    usize::from(crate::merge::has_entries(kind))
}

/// What is known of an object, from now on if nothing is yet.
fn slot<'a>(slots: &'a mut BTreeMap<ObjectKey, Slot>, key: &ObjectKey) -> &'a mut Slot {
    let interval = [GATEWAYS, INTERVAL][lane(key.kind)];
    slots
        .entry(key.clone())
        .or_insert_with(|| Slot::new(interval))
}
