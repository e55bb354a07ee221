//! `steady`: changes under requests, and every answer judged.
//!
//! Sesame runs in this process as in `propagate`, with one real Envoy and the routes of `propagate`. Some of the apps are changed, in turns of
//! one to three changes handed in together without a pause; the next turn begins when Envoy has acknowledged the last one.
//! Meanwhile clients with one connection each ask a host every millisecond, half of them hosts that are changing right now.
//! Each change is one of: a new route, another backend, weights, a filter, another hostname, another Service port,
//! everything of an app deleted, everything of it created again. What belongs together is handed in together.
//!
//! An answer is right if it is that of a configuration that held between the sending of the request and the arrival of the
//! answer: from the moment it was handed to Sesame until the moment Envoy acknowledged the next one (plus [`SLACK`], in
//! which Envoy hands it to its workers). Everything else is wrong, also an error or a closed connection. Clients go on for
//! two seconds after the last change.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sesame_sources::change::Change;
use sesame_testkit::many;

use crate::Settings;
use crate::objects;
use crate::probe::{Answer, Probe};
use crate::report::{Figure, Samples, Unit};
use crate::rig::{self, Rig};
use crate::sesame::Sesame;

const CLIENTS: usize = 4;
/// Between two requests of a client.
const PACE: Duration = Duration::from_millis(1);
/// How long after its acknowledgement an Envoy may go on as before.
const SLACK: Duration = Duration::from_millis(5);
/// How long clients go on after the last change.
const AFTERWARDS: Duration = Duration::from_secs(2);
/// How many apps are changed; the others are there to make tables long.
const CHANGED: usize = 40;
/// Answers that are shown if they are wrong.
const SHOWN: usize = 5;

const BLUE: &str = "blue";
const GREEN: &str = "green";
const VERSION: &str = "x-version";

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let (count, changes) = (settings.hosts, settings.changes);
    eprintln!("steady: {changes} changes at {count} routes, under requests");
    let rig = Rig::new(settings.envoy.as_deref())?;
    let blue = rig.backend(BLUE, objects::ADDRESS)?;
    let green = rig.backend(GREEN, objects::ADDRESS)?;
    let backends = [blue.address(), green.address()];
    let port = rig::free_port()?;
    let mut sesame = rig.sesame()?;

    let mut apps: Vec<App> = (0..CHANGED).map(App::new).collect();
    let mut first: Vec<Change> = objects::site(port, count, |_| backends[0])
        .into_iter()
        .map(Change::Upsert)
        .collect();
    let board = Board::default();
    for app in &apps {
        first.extend(objects::upserts(&app.objects(backends)));
        board.expect(&App::absent(app.index), app);
    }
    let number = sesame.change(first)?;
    sesame.served(number)?;
    let address = SocketAddr::from((objects::ADDRESS, port));
    wait_for(address, &many::host(0))?;
    board.acknowledged(Instant::now());

    let stop = AtomicBool::new(false);
    let mut waits = Samples::default();
    let (tallies, changed) = thread::scope(|scope| {
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| {
                let (board, stop) = (&board, &stop);
                scope.spawn(move || ask_on(address, client, board, stop))
            })
            .collect();
        let changed = change_on(
            &mut sesame,
            &mut apps,
            backends,
            &board,
            changes,
            &mut waits,
        );
        if changed.is_ok() {
            thread::sleep(AFTERWARDS);
        }
        stop.store(true, Ordering::Relaxed);
        let tallies: Vec<_> = clients
            .into_iter()
            .filter_map(|client| client.join().ok())
            .collect();
        (tallies, changed)
    });
    changed?;
    sesame.close();
    rig.close();

    let mut all = Tally::default();
    for tally in tallies {
        all.add(tally?);
    }
    for line in all.shown.iter().take(SHOWN) {
        eprintln!("wrong: {line}");
    }
    let wrong: u64 = all.wrong.values().sum();
    let statuses: Vec<String> = all
        .wrong
        .iter()
        .map(|(status, count)| format!("{count} × {status}"))
        .collect();
    Ok(vec![
        Figure::new(
            format!("wrong answers during {changes} changes"),
            Unit::Count,
            wrong as f64,
        )
        .exactly(0.0)
        .note(format!(
            "of {} requests, {} of them to hosts that were changing {}",
            all.requests,
            all.changing,
            statuses.join(", ")
        )),
        Figure::of(
            "change acknowledged, under requests",
            Unit::Milliseconds,
            &waits,
        )
        .note("turns of one to three changes"),
    ])
}

/// Hands in changes, turn by turn.
fn change_on(
    sesame: &mut Sesame,
    apps: &mut Vec<App>,
    backends: [SocketAddr; 2],
    board: &Board,
    changes: usize,
    waits: &mut Samples,
) -> Result<()> {
    let mut done = 0;
    while done < changes {
        let turn = (1 + done % 3).min(changes - done);
        let start = Instant::now();
        let mut number = 0;
        board.begin();
        for change in done..done + turn {
            let kind = Kind::ALL[change % Kind::ALL.len()];
            let which = change / Kind::ALL.len() * 7 + kind.offset();
            let which = match kind {
                Kind::New => {
                    apps.push(App::absent(1_000_000 + change));
                    apps.len() - 1
                }
                _ => which % CHANGED,
            };
            let before = apps[which].clone();
            apps[which].change(kind);
            let difference = difference(&before.objects(backends), &apps[which].objects(backends));
            board.expect(&before, &apps[which]);
            number = sesame.change(difference)?;
        }
        sesame.served(number)?;
        waits.push(start.elapsed().as_secs_f64() * 1e3);
        board.acknowledged(Instant::now());
        done += turn;
    }
    Ok(())
}

/// Asks until told to stop.
fn ask_on(address: SocketAddr, client: usize, board: &Board, stop: &AtomicBool) -> Result<Tally> {
    let mut probe = Probe::connect(address)?;
    let mut tally = Tally::default();
    let mut turn = client;
    while !stop.load(Ordering::Relaxed) {
        turn += 1;
        let Some((host, changing)) = board.host(turn) else {
            continue;
        };
        let sent = Instant::now();
        let answer = probe.ask(&host);
        let received = Instant::now();
        tally.requests += 1;
        tally.changing += u64::from(changing);
        let seen = match &answer {
            Ok(answer) => Seen::of(answer),
            Err(error) => Seen {
                status: format!("{error:#}"),
                ..Seen::default()
            },
        };
        if let Err(expected) = board.judge(&host, sent, received, &seen) {
            *tally.wrong.entry(seen.status.clone()).or_default() += 1;
            if tally.shown.len() < SHOWN {
                tally
                    .shown
                    .push(format!("{host}: {seen:?}, not {expected}"));
            }
        }
        thread::sleep(PACE);
    }
    Ok(tally)
}

/// What a client counted.
#[derive(Debug, Default)]
struct Tally {
    requests: u64,
    /// Requests to hosts that were changing.
    changing: u64,
    /// By status.
    wrong: BTreeMap<String, u64>,
    shown: Vec<String>,
}

impl Tally {
    fn add(&mut self, other: Self) {
        self.requests += other.requests;
        self.changing += other.changing;
        for (status, count) in other.wrong {
            *self.wrong.entry(status).or_default() += count;
        }
        self.shown.extend(other.shown);
    }
}

/// An answer, as far as it matters.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Seen {
    status: String,
    backend: Option<String>,
    version: Option<String>,
}

impl Seen {
    fn of(answer: &Answer) -> Self {
        Self {
            status: answer.status.to_string(),
            backend: answer.backend(),
            version: answer.header(VERSION).map(str::to_owned),
        }
    }
}

/// What hosts should answer, and since when.
#[derive(Debug, Default)]
struct Board {
    inner: Mutex<Hosts>,
}

#[derive(Debug, Default)]
struct Hosts {
    /// The configurations of each host, oldest first.
    epochs: BTreeMap<String, Vec<Epoch>>,
    names: Vec<String>,
    changing: Vec<String>,
}

/// A configuration of a host.
#[derive(Debug)]
struct Epoch {
    /// The answers that it may give.
    right: BTreeSet<Seen>,
    from: Instant,
    until: Option<Instant>,
}

impl Board {
    /// A panic under the lock leaves it whole.
    fn lock(&self) -> MutexGuard<'_, Hosts> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A new turn.
    fn begin(&self) {
        self.lock().changing.clear();
    }

    /// From now on an app may also answer as it is after a change.
    fn expect(&self, before: &App, after: &App) {
        let mut hosts = self.lock();
        for host in [before.host(), after.host()] {
            let known = hosts.epochs.contains_key(&host);
            if !known {
                hosts.names.push(host.clone());
            }
            let first = (!known).then_some(before);
            let epochs = hosts.epochs.entry(host.clone()).or_default();
            epochs.extend(first.into_iter().chain([after]).map(|app| Epoch {
                right: app.right(&host),
                from: Instant::now(),
                until: None,
            }));
            hosts.changing.push(host);
        }
    }

    /// Envoy has all of it, so only the last configuration of each host counts any more.
    fn acknowledged(&self, now: Instant) {
        let mut hosts = self.lock();
        let changing = std::mem::take(&mut hosts.changing);
        for host in &changing {
            if let Some([before @ .., _]) = hosts.epochs.get_mut(host).map(Vec::as_mut_slice) {
                for epoch in before {
                    epoch.until.get_or_insert(now + SLACK);
                }
            }
        }
        hosts.changing = changing;
    }

    /// A host to ask, in turns one that is changing and any; and whether it is one of the first kind.
    fn host(&self, turn: usize) -> Option<(String, bool)> {
        let hosts = self.lock();
        let pick = |names: &[String]| {
            let place = turn.wrapping_mul(7919) % names.len().max(1);
            names.get(place).cloned()
        };
        if turn.is_multiple_of(2)
            && let Some(host) = pick(&hosts.changing)
        {
            return Some((host, true));
        }
        Some((pick(&hosts.names)?, false))
    }

    /// Whether an answer is right.
    ///
    /// # Errors
    /// With what would have been.
    fn judge(
        &self,
        host: &str,
        sent: Instant,
        received: Instant,
        seen: &Seen,
    ) -> Result<(), String> {
        let hosts = self.lock();
        let held: Vec<&Epoch> = hosts
            .epochs
            .get(host)
            .into_iter()
            .flatten()
            .filter(|epoch| epoch.from <= received && epoch.until.is_none_or(|until| until >= sent))
            .collect();
        if held.iter().any(|epoch| epoch.right.contains(seen)) {
            return Ok(());
        }
        let right: Vec<_> = held.iter().map(|epoch| &epoch.right).collect();
        Err(format!("{right:?}"))
    }
}

/// What can happen to an app.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    New,
    Swap,
    Weight,
    Filter,
    Move,
    Port,
    Delete,
    Recreate,
}

impl Kind {
    const ALL: [Self; 8] = [
        Self::New,
        Self::Swap,
        Self::Weight,
        Self::Filter,
        Self::Move,
        Self::Port,
        Self::Delete,
        Self::Recreate,
    ];

    /// So that different apps change; one that was deleted is the one that is created again.
    fn offset(self) -> usize {
        match self {
            Self::Recreate => Self::Delete as usize,
            kind => kind as usize,
        }
    }
}

/// A route, its two Services and their slices.
#[derive(Clone, Debug)]
struct App {
    index: usize,
    /// Answered on its other host.
    moved: bool,
    /// Of the blue and the green Service; the route doesn't name one that has none.
    weights: [Option<u32>; 2],
    version: Option<usize>,
    port: u16,
    alive: bool,
}

impl App {
    fn new(index: usize) -> Self {
        Self {
            alive: true,
            ..Self::absent(index)
        }
    }

    fn absent(index: usize) -> Self {
        Self {
            index,
            moved: false,
            weights: [Some(1), None],
            version: None,
            port: many::SERVICE_PORT,
            alive: false,
        }
    }

    fn change(&mut self, kind: Kind) {
        match kind {
            Kind::New | Kind::Recreate => self.alive = true,
            Kind::Delete => self.alive = false,
            Kind::Swap => {
                self.weights = match self.weights {
                    [Some(_), None] => [None, Some(1)],
                    _ => [Some(1), None],
                };
            }
            Kind::Weight => {
                self.weights = match self.weights {
                    [Some(1), Some(1)] => [Some(1), Some(0)],
                    [Some(1), Some(0)] => [Some(0), Some(1)],
                    _ => [Some(1), Some(1)],
                };
            }
            Kind::Filter => self.version = Some(self.version.map_or(1, |version| version + 1)),
            Kind::Move => self.moved = !self.moved,
            Kind::Port => self.port = if self.port == 80 { 81 } else { 80 },
        }
    }

    fn name(&self) -> String {
        format!("changed-{}", self.index)
    }

    fn host(&self) -> String {
        let other = if self.moved { "other-" } else { "" };
        format!("{other}{}.example.com", self.name())
    }

    fn services(&self) -> [String; 2] {
        [BLUE, GREEN].map(|colour| format!("{}-{colour}", self.name()))
    }

    fn objects(&self, backends: [SocketAddr; 2]) -> Vec<Value> {
        if !self.alive {
            return Vec::new();
        }
        let services = self.services();
        let weighted: Vec<(&str, u32)> = services
            .iter()
            .zip(self.weights)
            .filter_map(|(service, weight)| Some((service.as_str(), weight?)))
            .collect();
        let mut route = many::route(&self.name(), &self.host(), &weighted);
        let rule = &mut route["spec"]["rules"][0];
        for backend in rule["backendRefs"].as_array_mut().into_iter().flatten() {
            backend["port"] = json!(self.port);
        }
        if let Some(version) = self.version {
            rule["filters"] = json!([{
                "type": "ResponseHeaderModifier",
                "responseHeaderModifier": {"set": [{"name": VERSION, "value": version.to_string()}]},
            }]);
        }
        let mut objects = vec![route];
        for (name, address) in services.iter().zip(backends) {
            let mut service = many::service(name);
            service["spec"]["ports"][0]["port"] = json!(self.port);
            objects.extend([service, many::slice(name, address)]);
        }
        objects
    }

    /// What a host may answer.
    fn right(&self, host: &str) -> BTreeSet<Seen> {
        if !self.alive || host != self.host() {
            return BTreeSet::from([Seen {
                status: "404".to_owned(),
                ..Seen::default()
            }]);
        }
        [BLUE, GREEN]
            .iter()
            .zip(self.weights)
            .filter(|(_, weight)| weight.unwrap_or_default() > 0)
            .map(|(colour, _)| Seen {
                status: "200".to_owned(),
                backend: Some((*colour).to_owned()),
                version: self.version.map(|version| version.to_string()),
            })
            .collect()
    }
}

/// What makes the second list of the first.
fn difference(before: &[Value], after: &[Value]) -> Vec<Change> {
    let id = |value: &Value| [value["kind"].clone(), value["metadata"]["name"].clone()];
    let left: BTreeSet<String> = after
        .iter()
        .map(|value| format!("{:?}", id(value)))
        .collect();
    let gone: Vec<Value> = before
        .iter()
        .filter(|value| !left.contains(&format!("{:?}", id(value))))
        .cloned()
        .collect();
    let new: Vec<Value> = after
        .iter()
        .filter(|value| !before.contains(value))
        .cloned()
        .collect();
    let mut changes = objects::upserts(&new);
    changes.extend(objects::removals(&gone));
    changes
}

fn wait_for(address: SocketAddr, host: &str) -> Result<()> {
    let since = Instant::now();
    loop {
        let answer = Probe::connect(address).and_then(|mut probe| probe.ask(host));
        match answer {
            Ok(answer) if answer.status == 200 => return Ok(()),
            Ok(_) | Err(_) if since.elapsed() < Duration::from_secs(20) => thread::sleep(PACE),
            other => {
                return other.map(|_| ()).context("Envoy doesn't serve");
            }
        }
    }
}
