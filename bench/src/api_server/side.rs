//! One of the two that changes are timed at: Sesame, or the floor.
//!
//! In: a change. Out: how long it took until an Envoy answered by it. The clock starts when the request to the API server
//! leaves; it stops when the prober, one connection that asks again every 150 µs, gets the new answer.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::cluster::{Cluster, Write};
use super::floor::WatchedFloor;
use super::prober::Tally;
use super::site::{self, Shown, Step};
use crate::objects;
use crate::probe::Probe;

/// Between two questions.
const PACE: Duration = Duration::from_micros(150);
/// Between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(20);
/// A change that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(60);

/// What takes changes, and an Envoy that shows them.
pub(crate) struct Side {
    feed: Feed,
    probe: Probe,
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
    /// From the request to the API server's own answer.
    pub(crate) written: f64,
}

impl Side {
    /// Waits until the Envoy at this port listens.
    pub(crate) fn new(feed: Feed, port: u16) -> Result<Self> {
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
        let start = Instant::now();
        let begun = cluster.begin(write);
        let shown = self.until(&step.host, step.before, step.after);
        let shown = shown.map(|()| start.elapsed().as_secs_f64() * 1e3);
        let written = cluster.finish(begun)?.as_secs_f64() * 1e3;
        Ok(Taken {
            shown: shown?,
            written,
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
