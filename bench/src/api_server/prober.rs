//! Asks Sesame's Envoy all the time, from the first answer to the end, and judges every answer.
//!
//! In: how many apps must be served, and how many may be. Out: counts. Two thirds of the requests go to apps, the others to a
//! host that is there all the time. Most requests have a connection of their own, which a listener that is gone wouldn't take;
//! a third of them share one that stays open, which a listener that is replaced would end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, anyhow, bail};
use sesame_testkit::many;

use super::site::{self, BLUE, Shown};
use crate::probe::Probe;

/// Between two requests.
const PACE: Duration = Duration::from_millis(1);
/// Longer than a request takes.
const A_REQUEST: Duration = Duration::from_millis(100);
/// An app that isn't served by then has failed.
const PATIENCE: Duration = Duration::from_secs(120);
/// Wrong answers that are shown.
const SHOWN: usize = 5;

/// How many apps there are.
#[derive(Debug)]
struct Apps {
    /// Apps below this number must be served.
    served: AtomicUsize,
    /// Those from there to here may be; the others must not be.
    announced: AtomicUsize,
    stop: AtomicBool,
}

/// What was counted.
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

    /// Judges an answer.
    pub(crate) fn judge(
        &mut self,
        host: &str,
        answer: &Result<crate::probe::Answer>,
        right: &[Shown],
    ) {
        self.requests += 1;
        match answer {
            Ok(answer) if right.iter().any(|right| right.is(answer)) => {}
            Ok(answer) => self.wrong(format!("{host}: {answer:?}, not one of {right:?}")),
            Err(error) => self.wrong(format!("{host}: {error:#}, not one of {right:?}")),
        }
    }
}

/// A thread that asks.
pub(crate) struct Prober {
    address: SocketAddr,
    apps: Arc<Apps>,
    /// None once it has been stopped.
    thread: Option<JoinHandle<Result<Tally>>>,
    /// Of [`Prober::until_served`].
    own: Tally,
}

impl Prober {
    /// The host that is there all the time must be served already, and so many apps.
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

    /// From now on apps below this number may or may not be served, until [`Prober::until_served`].
    pub(crate) fn announce(&self, apps: usize) {
        self.apps.announced.store(apps, Ordering::SeqCst);
    }

    /// From now on only apps below this number must be served; the others may be, until [`Prober::gone`].
    pub(crate) fn going(&self, apps: usize) {
        self.apps.served.store(apps, Ordering::SeqCst);
        thread::sleep(A_REQUEST);
    }

    /// The others must not be served any more.
    pub(crate) fn gone(&self) {
        let served = self.apps.served.load(Ordering::SeqCst);
        thread::sleep(A_REQUEST);
        self.apps.announced.store(served, Ordering::SeqCst);
    }

    /// Waits until every app that was announced is served: from now on it must be.
    pub(crate) fn until_served(&mut self) -> Result<()> {
        let from = self.apps.served.load(Ordering::SeqCst);
        let to = self.apps.announced.load(Ordering::SeqCst);
        self.each(from..to, Shown::By(BLUE))?;
        self.apps.served.store(to, Ordering::SeqCst);
        Ok(())
    }

    /// Waits until none is served that need not be.
    pub(crate) fn until_gone(&mut self) -> Result<()> {
        let from = self.apps.served.load(Ordering::SeqCst);
        let to = self.apps.announced.load(Ordering::SeqCst);
        self.each(from..to, Shown::Nothing)?;
        self.gone();
        Ok(())
    }

    fn each(&mut self, apps: std::ops::Range<usize>, wanted: Shown) -> Result<()> {
        let mut probe = Probe::connect(self.address)?;
        let since = std::time::Instant::now();
        for app in apps {
            let host = many::host(app);
            loop {
                let answer = probe.ask(&host);
                self.own
                    .judge(&host, &answer, &[Shown::Nothing, Shown::By(BLUE)]);
                if answer.as_ref().is_ok_and(|answer| wanted.is(answer)) {
                    break;
                }
                if since.elapsed() > PATIENCE {
                    bail!("{host} isn't {wanted:?} after {PATIENCE:?}, but {answer:?}");
                }
                thread::sleep(PACE);
            }
        }
        Ok(())
    }

    /// Asks nothing any more, and says what was seen.
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
        // Spread over all of them, and not in order.
        let announced = apps.announced.load(Ordering::SeqCst);
        let app = turn.wrapping_mul(7919) % announced.max(1);
        let steady = announced == 0 || turn.is_multiple_of(3);
        let served = apps.served.load(Ordering::SeqCst);
        let (host, right) = match steady {
            true => (site::host(BLUE), &[Shown::By(BLUE)][..]),
            false if app < served => (many::host(app), &[Shown::By(BLUE)][..]),
            false => (many::host(app), &[Shown::By(BLUE), Shown::Nothing][..]),
        };
        let answer = match steady {
            true => probe.ask(&host),
            false => Probe::connect(address).and_then(|mut fresh| fresh.ask(&host)),
        };
        tally.judge(&host, &answer, right);
        thread::sleep(PACE);
    }
    Ok(tally)
}
