//! One of the two that changes are timed at: Sesame, or the floor.
//!
//! In: a change. Out: how long it took until an Envoy answered by it. One clock starts when the request to the API server
//! leaves, another one when a watch of the bench's own tells of the change; both stop when the prober, one connection that asks
//! again every 150 µs, gets the new answer.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sesame_testkit::many;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::cluster::{Cluster, Told, Write};
use super::floor::WatchedFloor;
use super::prober::Tally;
use super::site::{self, Shown, Step};
use crate::probe::Probe;
use crate::{objects, rig};

/// Between two questions.
const PACE: Duration = Duration::from_micros(150);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);
/// A change that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// When the API server told of changes since the last look.
type Events = Arc<Mutex<Vec<Instant>>>;

/// What takes changes, and an Envoy that shows them.
pub(crate) struct Side {
    feed: Feed,
    probe: Probe,
    events: Events,
    /// Watches.
    _runtime: Runtime,
    /// Every answer, judged.
    pub(crate) tally: Tally,
}

/// What stands between the API server and the Envoy.
pub(crate) enum Feed {
    Sesame,
    Floor(Box<WatchedFloor>),
}

/// Milliseconds of one change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// From the request to the new answer.
    pub(crate) shown: f64,
    /// From the watch's event to the new answer.
    pub(crate) followed: f64,
}

impl Side {
    /// Waits until the Envoy at this port listens.
    pub(crate) fn new(cluster: &Cluster, feed: Feed, port: u16) -> Result<Self> {
        let namespace = match feed {
            Feed::Sesame => many::NAMESPACE,
            Feed::Floor(_) => site::FLOOR,
        };
        let runtime = rig::runtime("side-watch")?;
        let events = Events::default();
        for like in [
            many::route("any", "any.example.com", &[]),
            many::slice("any", many::endpoint(0)),
        ] {
            let told = cluster.watch(&site::within(namespace, like), runtime.handle())?;
            runtime.spawn(note(told, Arc::clone(&events)));
        }
        let address = SocketAddr::from((objects::ADDRESS, port));
        let since = Instant::now();
        let probe = loop {
            match Probe::connect(address) {
                Ok(probe) => break probe,
                Err(_) if since.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(error) => return Err(error).context("Envoy doesn't listen"),
            }
        };
        Ok(Self {
            feed,
            probe,
            events,
            _runtime: runtime,
            tally: Tally::default(),
        })
    }

    /// Makes a change and waits for the answer that shows it.
    pub(crate) fn change(&mut self, cluster: &Cluster, step: Step) -> Result<Taken> {
        let write = match &mut self.feed {
            Feed::Sesame => step.write,
            Feed::Floor(floor) => {
                floor.arm(&step.write);
                match step.write {
                    Write::Create(value) => Write::Create(site::within(site::FLOOR, value)),
                    Write::Change(value) => Write::Change(site::within(site::FLOOR, value)),
                    Write::Delete(value) => Write::Delete(site::within(site::FLOOR, value)),
                }
            }
        };
        lock(&self.events).clear();
        let start = Instant::now();
        let begun = cluster.begin(write);
        let shown = self.until(&step.host, step.before, step.after);
        let end = Instant::now();
        cluster.finish(begun)?;
        shown?;
        // The answer may come before the bench has heard of the change.
        let event = loop {
            if let Some(at) = lock(&self.events).first() {
                break *at;
            }
            ensure!(end.elapsed() < PATIENCE, "no watch told of the change");
            thread::sleep(PACE);
        };
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        Ok(Taken {
            shown: millis(end - start),
            followed: millis(end.saturating_duration_since(event)),
        })
    }

    /// Waits for the answer `after`; until then none but `before` is right.
    pub(crate) fn until(&mut self, host: &str, before: Shown, after: Shown) -> Result<()> {
        let since = Instant::now();
        loop {
            let answer = self.probe.ask(host);
            self.tally.judge(host, &answer, &[before, after]);
            if answer.as_ref().is_ok_and(|answer| after.is(answer)) {
                return Ok(());
            }
            if since.elapsed() > PATIENCE {
                bail!("{host} goes on answering {answer:?}");
            }
            thread::sleep(PACE);
        }
    }

    pub(crate) fn close(self) -> Tally {
        if let Feed::Floor(floor) = self.feed {
            floor.close();
        }
        self.tally
    }
}

/// Notes when objects came, went or were changed; that a status was written is no change.
async fn note(mut told: mpsc::Receiver<Told>, events: Events) {
    let mut generations = BTreeMap::new();
    while let Some(told) = told.recv().await {
        let metadata = told.object.metadata;
        let name = metadata.name.unwrap_or_default();
        let before = generations.insert(name, metadata.generation);
        if !told.changed || before != Some(metadata.generation) {
            lock(&events).push(told.at);
        }
    }
}

fn lock(events: &Events) -> MutexGuard<'_, Vec<Instant>> {
    events.lock().unwrap_or_else(PoisonError::into_inner)
}
