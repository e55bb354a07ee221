//! One side of the comparison: Sesame or the baseline server.
//!
//! In: a change. Out: the time until an Envoy's response reflects it. One clock starts with the request to the API
//! server, the other with the event from the bench's own watch; both stop at the first new response on a connection
//! that sends a request every 150 µs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use sesame_testkit::many;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::cluster::{Cluster, Observed, Write};
use super::floor::WatchedFloor;
use super::prober::Tally;
use super::site::{self, Shown, Step};
use crate::probe::Probe;
use crate::{objects, rig};

/// Time between two requests.
const PACE: Duration = Duration::from_micros(150);
/// Time between connection attempts.
const PAUSE: Duration = Duration::from_millis(20);
/// Time limit for a change.
const PATIENCE: Duration = Duration::from_secs(60);

/// Times of watch events since the last change.
type Events = Arc<Mutex<Vec<Instant>>>;

/// A side: its feed and a probe for its Envoy.
pub(crate) struct Side {
    feed: Feed,
    probe: Probe,
    events: Events,
    /// Runs the watches.
    _runtime: Runtime,
    /// Response counts.
    pub(crate) tally: Tally,
}

/// The program between the API server and Envoy.
pub(crate) enum Feed {
    Sesame,
    Floor(Box<WatchedFloor>),
}

/// Times of a change, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Taken {
    /// From the request to the new response.
    pub(crate) shown: f64,
    /// From the watch event to the new response.
    pub(crate) followed: f64,
}

impl Side {
    /// Waits until the Envoy on this port listens.
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
            let event = cluster.watch(&site::within(namespace, like), runtime.handle())?;
            runtime.spawn(note(event, Arc::clone(&events)));
        }
        let address = SocketAddr::from((objects::ADDRESS, port));
        let since = Instant::now();
        let probe = loop {
            match Probe::connect(address) {
                Ok(probe) => break probe,
                Err(_) if since.elapsed() < PATIENCE => thread::sleep(PAUSE),
                Err(error) => return Err(error).context("Envoy is not listening"),
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

    /// Makes a change and waits for the response that shows it.
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
        // The response may precede the watch event.
        let event = loop {
            if let Some(at) = lock(&self.events).first() {
                break *at;
            }
            ensure!(end.elapsed() < PATIENCE, "no watch event for the change");
            thread::sleep(PACE);
        };
        let millis = |time: Duration| time.as_secs_f64() * 1e3;
        Ok(Taken {
            shown: millis(end - start),
            followed: millis(end.saturating_duration_since(event)),
        })
    }

    /// Waits for the response `after`; until then only `before` is valid.
    pub(crate) fn until(&mut self, host: &str, before: Shown, after: Shown) -> Result<()> {
        let since = Instant::now();
        loop {
            let response = self.probe.send(host);
            self.tally.judge(host, &response, &[before, after]);
            if response.as_ref().is_ok_and(|response| after.is(response)) {
                return Ok(());
            }
            if since.elapsed() > PATIENCE {
                bail!("{host} still responds with {response:?}");
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

/// Records the times of events, except status events.
async fn note(mut event: mpsc::Receiver<Observed>, events: Events) {
    let mut generations = BTreeMap::new();
    while let Some(event) = event.recv().await {
        let metadata = event.object.metadata;
        let name = metadata.name.unwrap_or_default();
        let before = generations.insert(name, metadata.generation);
        if !event.changed || before != Some(metadata.generation) {
            lock(&events).push(event.at);
        }
    }
}

fn lock(events: &Events) -> MutexGuard<'_, Vec<Instant>> {
    events.lock().unwrap_or_else(PoisonError::into_inner)
}
