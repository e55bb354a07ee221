//! Decides which object's status to write next. Pure: the caller supplies the time and sends the writes.
//!
//! - An object is queued at most once.
//! - A write waits for [`INITIAL_DELAY`], so that Envoys get the same change first.
//! - An object has at most one write in flight. Its writes are at least [`WRITE_INTERVAL`] apart ([`GATEWAY_INTERVAL`]
//!   for Gateways), and back off while another client reverts them.
//! - Gateways, GatewayClasses and ListenerSets have a separate queue that takes turns with the one for routes and
//!   policies, so thousands of routes don't delay a Gateway.
//! - A status is written when it observes the live generation. If it observes a newer generation, it waits until that
//!   generation is live, since writing now would conflict. If it observes an older generation, it waits up to
//!   [`STALE_DELAY`] for a newer status and is then written anyway: the new spec may be unreadable.
//! - An unavailable server delays all writes; any other failure delays its object.

mod backoff;
mod object;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use sesame_api::{Kind, LiveStatus, ObjectKey, ObjectStatus};

use self::backoff::ServerBackoff;
use self::object::{Object, QueueState};
use crate::failure::{FailureReason, Failures, StatusFailure};
use crate::merge::{self, Desired};

/// The delay before a new status is written. It lets Envoys get the same change first, since the API server may share
/// its CPUs with Sesame.
pub(crate) const INITIAL_DELAY: Duration = Duration::from_millis(25);
/// Minimum time between writes of a route or policy.
pub(crate) const WRITE_INTERVAL: Duration = Duration::from_millis(100);
/// Minimum time between writes of a Gateway, GatewayClass or ListenerSet. A Gateway's status includes a count of
/// routes, so it changes often.
pub(crate) const GATEWAY_INTERVAL: Duration = Duration::from_millis(250);
/// How long a status for an older generation waits for a newer one.
pub(crate) const STALE_DELAY: Duration = Duration::from_secs(1);
/// The delay before removing our entries from an object without a desired status.
pub(crate) const COMPLETE_DELAY: Duration = Duration::from_secs(2);
/// Maximum backoff for an object.
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// If the same status must be rewritten within this time, another client has reverted it.
const REVERT_WINDOW: Duration = Duration::from_secs(60);

/// A status to compare and write.
#[derive(Clone, Debug)]
pub(crate) struct Job {
    pub key: ObjectKey,
    /// Our name in status entries.
    pub controller: Arc<str>,
    pub desired: Desired,
    /// The last known live status.
    pub live: Arc<LiveStatus>,
}

/// The result of a job.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// There was nothing to write.
    UpToDate,
    /// The live status observes a later generation, so nothing was written.
    Stale,
    /// The status was written, except for this many of our entries that exceed a limit.
    Written(LiveStatus, usize),
    /// Another client wrote first. Holds the current live status.
    Conflict(LiveStatus),
    /// The object doesn't exist.
    NotFound,
    /// The write failed.
    Failed(WriteFailure),
}

/// Why a write failed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WriteFailure {
    pub reason: FailureReason,
    pub message: String,
    /// From the `Retry-After` header.
    pub retry_after: Option<Duration>,
}

/// All objects, and the order in which to write them.
#[derive(Debug)]
pub(crate) struct Queue {
    controller: Arc<str>,
    concurrency: usize,
    initial_delay: Duration,
    objects: BTreeMap<ObjectKey, Object>,
    /// The keys in the state `Ready`, without duplicates: first Gateways, GatewayClasses and ListenerSets, then routes
    /// and policies.
    ready: [VecDeque<ObjectKey>; 2],
    /// The ready queue used last.
    turn: usize,
    /// The keys in the state `Waiting`, by time.
    timers: BTreeSet<(Instant, ObjectKey)>,
    in_flight: usize,
    leading: bool,
    complete: bool,
    backoff: ServerBackoff,
    failures: Failures,
}

impl Queue {
    /// `initial_delay` is [`INITIAL_DELAY`] except in tests.
    pub(crate) fn new(controller: Arc<str>, concurrency: usize, initial_delay: Duration) -> Self {
        Self {
            controller,
            concurrency: concurrency.max(1),
            initial_delay,
            objects: BTreeMap::new(),
            ready: Default::default(),
            turn: 0,
            timers: BTreeSet::new(),
            in_flight: 0,
            leading: false,
            complete: false,
            backoff: ServerBackoff::default(),
            failures: Failures::default(),
        }
    }

    /// Sets our name in status entries. Entries with the previous name stay.
    pub(crate) fn set_controller(&mut self, name: Arc<str>) {
        self.controller = name;
    }

    pub(crate) fn set_desired(
        &mut self,
        key: ObjectKey,
        status: Option<ObjectStatus>,
        now: Instant,
    ) {
        if status.is_none() && !self.objects.contains_key(&key) {
            return;
        }
        let delay = self.initial_delay;
        if self.object(&key).set_desired(status, now, delay) {
            self.schedule(&key, now);
        }
        self.remove_if_empty(&key);
    }

    /// Sets the live status of an object; `None` if the object was deleted.
    pub(crate) fn set_live(&mut self, key: ObjectKey, live: Option<LiveStatus>, now: Instant) {
        match live {
            Some(live) => {
                if self.object(&key).set_live(live, now) {
                    self.schedule(&key, now);
                }
            }
            None => self.deleted(&key),
        }
        self.remove_if_empty(&key);
    }

    pub(crate) fn set_leading(&mut self, leading: bool, now: Instant) {
        if leading == self.leading {
            return;
        }
        self.leading = leading;
        if leading {
            for object in self.objects.values_mut() {
                object.start_leading(now);
            }
            self.schedule_all(now);
            return;
        }
        self.timers.clear();
        self.ready = Default::default();
        self.backoff.reset();
        self.failures = Failures::default();
        self.objects.retain(|_, object| {
            object.stop_leading();
            !object.is_empty()
        });
    }

    /// Declares that desired statuses have been set for all objects that existed at startup.
    pub(crate) fn mark_complete(&mut self, now: Instant) {
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
        while self.timers.first().is_some_and(|(at, _)| *at <= now) {
            if let Some((_, key)) = self.timers.pop_first() {
                self.enqueue(&key);
            }
        }
        while self.in_flight < self.concurrency && self.backoff.allows(self.in_flight, now) {
            let key = self.pop()?;
            let object = self
                .objects
                .get_mut(&key)
                .expect("a ready object is not removed");
            object.state = QueueState::Idle;
            match object.due(&key, &self.controller, self.complete) {
                None => self.remove_if_empty(&key),
                Some(at) if at > now => self.wait(&key, at),
                Some(_) => {
                    let job = object.start(&key, &self.controller, now);
                    self.in_flight += 1;
                    return Some(job);
                }
            }
        }
        None
    }

    /// When to call [`Queue::next`] again if nothing else happens first.
    pub(crate) fn wake_at(&self) -> Option<Instant> {
        if !self.leading {
            return None;
        }
        let timer = self.timers.first().map(|(at, _)| *at);
        let ready = self.ready.iter().any(|keys| !keys.is_empty());
        // While a write is in flight, its response will come first.
        let retry = self.backoff.retry_at();
        let retry = retry.filter(|_| ready && self.in_flight == 0);
        timer.into_iter().chain(retry).min()
    }

    /// Handles the outcome of a job.
    pub(crate) fn finish(&mut self, key: &ObjectKey, outcome: Outcome, now: Instant) {
        self.in_flight -= 1;
        match &outcome {
            // Nothing was sent.
            Outcome::UpToDate | Outcome::Stale => {}
            Outcome::Failed(failure) if failure.reason == FailureReason::Unavailable => {
                self.backoff.fail(failure.retry_after, now);
            }
            _ => self.backoff.reset(),
        }
        let Some(object) = self.objects.get_mut(key) else {
            return;
        };
        object.state = QueueState::Idle;
        object.finish(&outcome, now);
        match outcome {
            Outcome::NotFound => self.deleted(key),
            _ if !self.leading => {}
            Outcome::Failed(failure) => self.failures.set(key, failure.reason, failure.message),
            Outcome::Written(_, omitted) if omitted > 0 => {
                let message = format!("no room for {omitted} of Sesame's entries");
                self.failures.set(key, FailureReason::Full, message);
            }
            Outcome::UpToDate | Outcome::Written(..) => self.failures.clear(key),
            Outcome::Conflict(_) | Outcome::Stale => {}
        }
        if self.objects.get(key).is_some_and(|object| object.dirty) {
            self.schedule(key, now);
        }
        self.remove_if_empty(key);
    }

    /// The number of objects that are waiting or in flight.
    pub(crate) fn len(&self) -> usize {
        let ready: usize = self.ready.iter().map(VecDeque::len).sum();
        ready + self.timers.len() + self.in_flight
    }

    pub(crate) fn failures(&self) -> Vec<StatusFailure> {
        self.failures.all()
    }

    fn schedule_all(&mut self, now: Instant) {
        let keys: Vec<_> = self.objects.keys().cloned().collect();
        for key in keys {
            self.schedule(&key, now);
        }
    }

    /// Queues a changed object for the time when it is due.
    fn schedule(&mut self, key: &ObjectKey, now: Instant) {
        let Some(object) = self.objects.get_mut(key).filter(|_| self.leading) else {
            return;
        };
        match object.state {
            QueueState::InFlight => object.dirty = true,
            // Checked when its turn comes.
            QueueState::Ready => {}
            QueueState::Idle | QueueState::Waiting(_) => {
                object.dirty = false;
                if let QueueState::Waiting(at) = object.state {
                    self.timers.remove(&(at, key.clone()));
                    object.state = QueueState::Idle;
                }
                match object.due(key, &self.controller, self.complete) {
                    None => {}
                    Some(at) if at > now => self.wait(key, at),
                    Some(_) => self.enqueue(key),
                }
            }
        }
    }

    fn wait(&mut self, key: &ObjectKey, at: Instant) {
        self.object(key).state = QueueState::Waiting(at);
        self.timers.insert((at, key.clone()));
    }

    fn enqueue(&mut self, key: &ObjectKey) {
        self.object(key).state = QueueState::Ready;
        self.ready[ready_queue(key.kind)].push_back(key.clone());
    }

    /// Takes a key from the two ready queues, alternating between them.
    fn pop(&mut self) -> Option<ObjectKey> {
        self.turn = 1 - self.turn;
        let other = 1 - self.turn;
        self.ready[self.turn]
            .pop_front()
            .or_else(|| self.ready[other].pop_front())
    }

    fn deleted(&mut self, key: &ObjectKey) {
        if let Some(object) = self.objects.get_mut(key) {
            object.deleted();
        }
        self.failures.clear(key);
    }

    /// Removes an object without state. If its key is in a ready queue, the key is removed when its turn comes.
    fn remove_if_empty(&mut self, key: &ObjectKey) {
        let Some(object) = self.objects.get(key).filter(|object| object.is_empty()) else {
            return;
        };
        if let QueueState::Waiting(at) = object.state {
            self.timers.remove(&(at, key.clone()));
        }
        self.objects.remove(key);
        self.failures.clear(key);
    }

    fn object(&mut self, key: &ObjectKey) -> &mut Object {
        let interval = [GATEWAY_INTERVAL, WRITE_INTERVAL][ready_queue(key.kind)];
        self.objects
            .entry(key.clone())
            .or_insert_with(|| Object::new(interval))
    }
}

fn ready_queue(kind: Kind) -> usize {
    usize::from(merge::has_entries(kind))
}
