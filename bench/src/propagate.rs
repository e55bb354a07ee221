//! `propagate`: from an object that changed to the answer by a real Envoy, beside a floor that does nothing but push.
//!
//! Two Envoys run at the same time, started from the same binary with the same bootstrap, one worker thread each. One is
//! fed by Sesame as `sesame local` runs it, in this process: the thread that translates, the discovery server, statuses, events. The other is fed by the
//! [`Floor`], a thread of this process that holds resources that were encoded before the clock starts, byte for byte those
//! that Sesame makes of the same change. Both have the same routes, hosts, clusters.
//!
//! A clock starts when the change is handed over: to Sesame the objects (decoded, as a source delivers them), to the floor
//! the encoded resources. It stops when the prober, one connection that asks again every 150 µs, gets the new answer. Rounds
//! of both take turns, and which is first changes from round to round. Between changes there is a pause, in which
//! everything comes to rest.
//!
//! In each round a route appears with a Service and a slice of its own (404 → 200), another route is led to another Service
//! that is in use already (answered by the other backend), and the first one is deleted with its Service and slice
//! (200 → 404).

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;
use sesame_control::core::Core;
use sesame_envoy::{Options, XdsAddress};
use sesame_sources::change::Change;
use sesame_testkit::many;

use crate::Settings;
use crate::floor::{Floor, Push};
use crate::machine;
use crate::objects;
use crate::probe::{Answer, Probe};
use crate::report::{Figure, Samples, Unit};
use crate::rig::{self, Rig};
use crate::sesame::{Sesame, THREADS};

/// Between two questions.
const PACE: Duration = Duration::from_micros(150);
/// Between two changes.
const REST: Duration = Duration::from_millis(60);
/// A change that takes longer has failed.
const PATIENCE: Duration = Duration::from_secs(20);
/// Rounds before those that count.
const WARM_UP: usize = 3;

const BLUE: &str = "blue";
const GREEN: &str = "green";
const SWAPPED: &str = "swapped.example.com";

/// What takes changes and an Envoy that shows them.
struct Side {
    feed: Feed,
    probe: Probe,
}

enum Feed {
    Sesame(Box<Sesame>),
    Floor {
        /// Of all resources pushed so far.
        bytes: usize,
        /// Makes the resources before the clock starts.
        scribe: Box<Core>,
        floor: Floor,
    },
}

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let (count, rounds) = (settings.hosts, settings.rounds);
    eprintln!(
        "propagate: {count} routes, {rounds} rounds of 3 changes, Sesame and the floor in turn"
    );
    let rig = Rig::new(settings.envoy.as_deref())?;
    let blue = rig.backend(BLUE, objects::ADDRESS)?;
    let green = rig.backend(GREEN, objects::ADDRESS)?;
    let backends = [blue.address(), green.address()];
    let mut sides = [
        sesame(&rig, count, backends)?,
        floor(&rig, count, backends)?,
    ];
    for side in &mut sides {
        side.until(SWAPPED, |answer| answer.status == 200)?;
    }

    let mut taken: [[Samples; 2]; 3] = Default::default();
    let mut cost = [0.0; 2];
    for round in 0..WARM_UP + rounds {
        for (step, samples) in steps(round, blue.address()).iter().zip(&mut taken) {
            for which in [round % 2, 1 - round % 2] {
                thread::sleep(REST);
                let before = sides[which].cost()?;
                let took = sides[which].change(step)?;
                if round >= WARM_UP {
                    samples[which].push(took);
                    // What comes behind the answer, statuses and events, is paid for too.
                    thread::sleep(REST);
                    cost[which] += sides[which].cost()? - before;
                }
            }
        }
    }
    for side in sides {
        if let Feed::Sesame(sesame) = side.feed {
            sesame.close();
        }
    }
    rig.close();

    let names = [
        "new route, own Service and slice",
        "backend swap",
        "route deleted",
    ];
    let mut figures = Vec::new();
    for (name, [sesame, floor]) in names.iter().zip(&taken) {
        let of =
            |who: &str, samples| Figure::of(format!("{name}: {who}"), Unit::Milliseconds, samples);
        figures
            .push(of("Sesame", sesame).note(format!("{} times, at {count} routes", sesame.len())));
        figures.push(of("floor", floor).note("pushes the same bytes"));
        for (share, text) in [(0.5, "median"), (0.99, "p99")] {
            let ratio = sesame.quantile(share) / floor.quantile(share);
            let name = format!("{name}: Sesame / floor, {text}");
            figures.push(Figure::new(name, Unit::Ratio, ratio).at_most(1.3));
        }
    }
    let changes = (3 * rounds) as f64;
    figures.push(
        Figure::new(
            "Sesame's processor time per change",
            Unit::Milliseconds,
            cost[0] / changes,
        )
        .note("all its threads"),
    );
    figures.push(Figure::new(
        "resources pushed per change",
        Unit::Kibibytes,
        cost[1] / changes / 1024.0,
    ));
    Ok(figures)
}

/// One change, the host that shows it, and what is answered then.
struct Step {
    changes: Vec<Change>,
    host: String,
    shown: Box<dyn Fn(&Answer) -> bool>,
}

fn steps(round: usize, backend: SocketAddr) -> [Step; 3] {
    let name = format!("new-{round}");
    let host = format!("{name}.example.com");
    let own = [
        many::route(&name, &host, &[(&name, 1)]),
        many::service(&name),
        many::slice(&name, backend),
    ];
    let to = if round.is_multiple_of(2) { GREEN } else { BLUE };
    let status = |status| Box::new(move |answer: &Answer| answer.status == status);
    [
        Step {
            changes: objects::upserts(&own),
            host: host.clone(),
            shown: status(200),
        },
        Step {
            changes: objects::upserts(&[swapped(to)]),
            host: SWAPPED.to_owned(),
            shown: Box::new(move |answer| answer.backend().as_deref() == Some(to)),
        },
        Step {
            changes: objects::removals(&own),
            host,
            shown: status(404),
        },
    ]
}

fn swapped(to: &str) -> Value {
    many::route("swapped", SWAPPED, &[(to, 1)])
}

/// All objects at the start.
fn site(port: u16, count: usize, [blue, green]: [SocketAddr; 2]) -> Vec<Change> {
    let mut changes: Vec<Change> = objects::site(port, count, |_| blue)
        .into_iter()
        .map(Change::Upsert)
        .collect();
    for (name, address) in [(BLUE, blue), (GREEN, green)] {
        // The route keeps the Service in use.
        let host = format!("{name}.example.com");
        changes.extend(objects::upserts(&[
            many::service(name),
            many::slice(name, address),
            many::route(name, &host, &[(name, 1)]),
        ]));
    }
    changes.extend(objects::upserts(&[swapped(BLUE)]));
    changes
}

fn sesame(rig: &Rig, count: usize, backends: [SocketAddr; 2]) -> Result<Side> {
    let port = rig::free_port()?;
    let mut sesame = rig.sesame()?;
    let number = sesame.change(site(port, count, backends))?;
    sesame.served(number)?;
    Side::new(Feed::Sesame(Box::new(sesame)), port)
}

fn floor(rig: &Rig, count: usize, backends: [SocketAddr; 2]) -> Result<Side> {
    let port = rig::free_port()?;
    let socket = rig.socket("floor");
    let mut scribe = Core::new(Options::default());
    let changes = site(port, count, backends).into_iter();
    let inputs = changes.map(objects::input).chain([objects::ready()]);
    let first = scribe.apply(inputs);
    let floor = Floor::start(&socket, Push::new(&first.resources))?;
    rig.envoy(&objects::fleet(), "floor", XdsAddress::Unix(socket))?;
    let scribe = Box::new(scribe);
    let feed = Feed::Floor {
        bytes: 0,
        scribe,
        floor,
    };
    Side::new(feed, port)
}

impl Side {
    fn new(feed: Feed, port: u16) -> Result<Self> {
        let address = SocketAddr::from((objects::ADDRESS, port));
        let since = Instant::now();
        loop {
            match Probe::connect(address) {
                Ok(probe) => return Ok(Self { feed, probe }),
                Err(_) if since.elapsed() < PATIENCE => thread::sleep(REST),
                Err(error) => return Err(error).context("Envoy doesn't listen"),
            }
        }
    }

    /// Hands over a change and waits for the answer that shows it. Returns milliseconds.
    fn change(&mut self, step: &Step) -> Result<f64> {
        let changes = step.changes.clone();
        let start = match &mut self.feed {
            Feed::Sesame(sesame) => {
                let start = Instant::now();
                sesame.change(changes)?;
                start
            }
            Feed::Floor {
                bytes,
                scribe,
                floor,
            } => {
                let resources = scribe
                    .apply(changes.into_iter().map(objects::input))
                    .resources;
                let bodies = resources.iter().filter_map(|change| change.body.as_ref());
                *bytes += bodies.map(|body| body.len()).sum::<usize>();
                let push = Push::new(&resources);
                let start = Instant::now();
                floor.push(push)?;
                start
            }
        };
        self.until(&step.host, &step.shown)?;
        Ok(start.elapsed().as_secs_f64() * 1e3)
    }

    fn until(&mut self, host: &str, shown: impl Fn(&Answer) -> bool) -> Result<()> {
        let since = Instant::now();
        loop {
            let answer = self.probe.ask(host)?;
            if shown(&answer) {
                return Ok(());
            }
            if since.elapsed() > PATIENCE {
                bail!("{host} goes on answering {answer:?}");
            }
            thread::sleep(PACE);
        }
    }

    /// What it has used so far: Sesame milliseconds of processor time, the floor bytes.
    fn cost(&self) -> Result<f64> {
        match &self.feed {
            Feed::Sesame(_) => machine::thread_milliseconds(&THREADS),
            Feed::Floor { bytes, .. } => Ok(*bytes as f64),
        }
    }
}
