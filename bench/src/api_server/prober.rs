//! Sends requests to Sesame's Envoy throughout the run and checks every response.
//!
//! In: the number of apps that must be served, and the number that may be. Out: counts. Two thirds of the requests go
//! to apps over new connections, which fail if there is no listener. One third goes to a permanent host over one
//! keep-alive connection, which replacing the listener would close.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use sesame_testkit::many;

use super::site::{self, BLUE, Shown};
use crate::probe::Probe;

/// Time between two requests.
const PACE: Duration = Duration::from_millis(1);
/// Upper bound for the duration of a request.
const A_REQUEST: Duration = Duration::from_millis(100);
/// Time limit for apps to be served.
const PATIENCE: Duration = Duration::from_secs(120);
/// Maximum number of wrong responses to print.
const SHOWN: usize = 5;

/// App counts.
#[derive(Debug)]
struct Apps {
    /// Apps below this number must be served.
    served: AtomicUsize,
    /// Apps from `served` up to this number may be served; others must not be.
    announced: AtomicUsize,
    stop: AtomicBool,
}

/// Counts of requests.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub(crate) requests: u64,
    pub(crate) wrong: u64,
    pub(crate) shown: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.wrong += other.wrong;
        self.shown.extend(other.shown);
    }

    fn wrong(&mut self, line: String) {
        self.wrong += 1;
        if self.shown.len() < SHOWN {
            self.shown.push(line);
        }
    }

    /// Checks a response.
    pub(crate) fn judge(
        &mut self,
        host: &str,
        response: &Result<crate::probe::Response>,
        right: &[Shown],
    ) {
        self.requests += 1;
        match response {
            Ok(response) if right.iter().any(|right| right.is(response)) => {}
            Ok(response) => self.wrong(format!(
                "{host}: got {response:?}, expected one of {right:?}"
            )),
            Err(error) => self.wrong(format!("{host}: {error:#}; expected one of {right:?}")),
        }
    }
}

/// The prober's thread.
pub(crate) struct Prober {
    address: SocketAddr,
    apps: Arc<Apps>,
    /// `None` once stopped.
    thread: Option<JoinHandle<Result<Tally>>>,
    /// Requests sent by [`Prober::until_served`].
    own: Tally,
}

impl Prober {
    /// Starts the prober. The permanent host and `served` apps must be served already.
    pub(crate) fn start(address: SocketAddr, served: usize) -> Self {
        let apps = Arc::new(Apps {
            served: served.into(),
            announced: served.into(),
            stop: false.into(),
        });
        let asked = Arc::clone(&apps);
        let thread = thread::spawn(move || ask_on(address, &asked));
        Self {
            address,
            apps,
            thread: Some(thread),
            own: Tally::default(),
        }
    }

    /// Allows apps below this number to be served, until [`Prober::until_served`] requires it.
    pub(crate) fn announce(&self, apps: usize) {
        self.apps.announced.store(apps, Ordering::SeqCst);
    }

    /// Requires only apps below this number to be served; others may be, until [`Prober::forbid_removed`].
    pub(crate) fn allow_removal(&self, apps: usize) {
        self.apps.served.store(apps, Ordering::SeqCst);
        thread::sleep(A_REQUEST);
    }

    /// From now on, removed apps must not be served.
    fn forbid_removed(&self) {
        let served = self.apps.served.load(Ordering::SeqCst);
        thread::sleep(A_REQUEST);
        self.apps.announced.store(served, Ordering::SeqCst);
    }

    /// Waits until every announced app is served, and requires it from then on.
    pub(crate) fn until_served(&mut self) -> Result<()> {
        let from = self.apps.served.load(Ordering::SeqCst);
        let to = self.apps.announced.load(Ordering::SeqCst);
        self.each(from..to, Shown::By(BLUE))?;
        self.apps.served.store(to, Ordering::SeqCst);
        Ok(())
    }

    /// Waits until no removed app is served.
    pub(crate) fn until_gone(&mut self) -> Result<()> {
        let from = self.apps.served.load(Ordering::SeqCst);
        let to = self.apps.announced.load(Ordering::SeqCst);
        self.each(from..to, Shown::Nothing)?;
        self.forbid_removed();
        Ok(())
    }

    fn each(&mut self, apps: std::ops::Range<usize>, wanted: Shown) -> Result<()> {
        let mut probe = Probe::connect(self.address)?;
        let since = std::time::Instant::now();
        for app in apps {
            let host = many::host(app);
            loop {
                let response = probe.send(&host);
                self.own
                    .judge(&host, &response, &[Shown::Nothing, Shown::By(BLUE)]);
                if response.as_ref().is_ok_and(|response| wanted.is(response)) {
                    break;
                }
                if since.elapsed() > PATIENCE {
                    bail!("{host}: expected {wanted:?} within {PATIENCE:?}, got {response:?}");
                }
                thread::sleep(PACE);
            }
        }
        Ok(())
    }

    /// Stops and returns the counts.
    pub(crate) fn pause(&mut self) -> Result<Tally> {
        self.apps.stop.store(true, Ordering::SeqCst);
        let mut tally = std::mem::take(&mut self.own);
        if let Some(thread) = self.thread.take() {
            let panicked = |_| anyhow!("the prober panicked");
            tally.add(thread.join().map_err(panicked)??);
        }
        Ok(tally)
    }
}

fn ask_on(address: SocketAddr, apps: &Apps) -> Result<Tally> {
    let mut probe = Probe::connect(address)?;
    let mut tally = Tally::default();
    for turn in 1_usize.. {
        if apps.stop.load(Ordering::SeqCst) {
            break;
        }
        // Scattered across all apps.
        let announced = apps.announced.load(Ordering::SeqCst);
        let app = turn.wrapping_mul(7919) % announced.max(1);
        let steady = announced == 0 || turn.is_multiple_of(3);
        let served = apps.served.load(Ordering::SeqCst);
        let (host, right) = match steady {
            true => (site::host(BLUE), &[Shown::By(BLUE)][..]),
            false if app < served => (many::host(app), &[Shown::By(BLUE)][..]),
            false => (many::host(app), &[Shown::By(BLUE), Shown::Nothing][..]),
        };
        let response = match steady {
            true => probe.send(&host),
            false => Probe::connect(address).and_then(|mut fresh| fresh.send(&host)),
        };
        tally.judge(&host, &response, right);
        thread::sleep(PACE);
    }
    Ok(tally)
}
