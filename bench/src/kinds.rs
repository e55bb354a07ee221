//! `kinds`: changes to each kind of route, compared with HTTPRoutes, and to one child in a tree of HTTPProxies.
//!
//! `sesame local` serves many routes of one kind, each with its own host, server name or port. Rounds alternate
//! between adding a route and removing it. A new route is timed from writing its file to its first response. CPU time
//! and bytes cover both changes and everything that follows. Another client requests the other routes throughout. The
//! tree has one host; a round changes the routes of the last child twice: to those of a new Service, then to a status
//! without a Service.

mod client;
mod site;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::ValueEnum;
use sesame_testkit::backend::Backend;

use self::client::Client;
use crate::Settings;
use crate::echo::Echo;
use crate::local::{self, Local, Used};
use crate::report::{Figure, Samples, Unit};
use crate::rig;

/// The name of the only backend.
const BACKEND: &str = "blue";
/// The file with the route that is added and removed.
const NEW: &str = "new.yaml";
/// Pause between changes, so that all processes become idle.
const REST: Duration = Duration::from_millis(60);
/// Pause before CPU time is read: longer than Sesame keeps an unused cluster.
const SETTLE: Duration = Duration::from_millis(1_500);
/// Time between two requests.
const PACE: Duration = Duration::from_micros(200);
/// Time between two requests for other routes.
const OTHERS: Duration = Duration::from_millis(5);
/// Time limit for a change.
const PATIENCE: Duration = Duration::from_secs(30);
/// Target for the ratio to HTTPRoutes.
const TARGET: f64 = 1.2;
/// Target in milliseconds until a changed child is served, and for Sesame's CPU time per change.
const CHILD: [f64; 2] = [8.0, 2.0];

/// Kinds of routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Http,
    Grpc,
    Tls,
    Tcp,
    Proxy,
    Ingress,
    /// Children of a root
    Child,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Http => "HTTPRoute",
            Self::Grpc => "GRPCRoute",
            Self::Tls => "TLSRoute",
            Self::Tcp => "TCPRoute",
            Self::Proxy => "HTTPProxy",
            Self::Ingress => "Ingress",
            Self::Child => "child HTTPProxy",
        }
    }

    fn plural(self) -> String {
        match self {
            Self::Proxy => "HTTPProxies".to_owned(),
            Self::Ingress => "Ingresses".to_owned(),
            Self::Child => "child HTTPProxies".to_owned(),
            route => format!("{}s", route.name()),
        }
    }
}

/// Measurements for a kind.
struct Measured {
    added: Samples,
    /// Until the route is removed or, for a child, changed without a new Service.
    removed: Samples,
    /// Resources used per change.
    used: Used,
    requests: usize,
    wrong: usize,
}

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let runtime = rig::runtime("backend")?;
    let any_port = SocketAddr::new(local::ADDRESS, 0);
    let backend = runtime.block_on(Backend::start(BACKEND, any_port))?;
    let echo = Echo::start(BACKEND)?;
    let mut figures = Vec::new();
    let mut reference = None;
    for kind in Kind::value_variants() {
        let chosen = settings.kinds.is_empty() || settings.kinds.contains(kind);
        if *kind != Kind::Http && !chosen {
            continue;
        }
        let endpoint = match kind {
            Kind::Http | Kind::Grpc | Kind::Proxy | Kind::Ingress | Kind::Child => {
                backend.address()
            }
            Kind::Tls | Kind::Tcp => echo.tcp,
        };
        let measured = measure(settings, *kind, endpoint)?;
        let reference = reference.get_or_insert_with(|| Reference::of(&measured));
        figures.extend(reference.figures(*kind, settings.objects, &measured));
    }
    Ok(figures)
}

fn measure(settings: &Settings, kind: Kind, endpoint: SocketAddr) -> Result<Measured> {
    let count = settings.objects;
    eprintln!(
        "kinds: changes with {count} objects of kind {}",
        kind.name()
    );
    let local = Local::start_at(
        settings,
        site::port_offset(kind),
        site::files(kind, count, settings.rounds, endpoint)
            .iter()
            .map(|(name, objects)| (name.clone(), &objects[..])),
    )?;
    let mut client = Client::new(kind)?;
    client.until(count - 1, true)?;

    let stop = Arc::new(AtomicBool::new(false));
    let others = {
        let stop = Arc::clone(&stop);
        thread::spawn(move || ask_for_others(kind, count, &stop))
    };
    let (mut added, mut removed) = (Samples::default(), Samples::default());
    thread::sleep(SETTLE);
    let before = local.used()?;
    for round in 0..settings.rounds {
        let new = site::route(kind, count, round);
        let start = Instant::now();
        local.write(NEW, &[new])?;
        client.until(count, true)?;
        added.push(start.elapsed().as_secs_f64() * 1e3);
        thread::sleep(REST);
        let start = Instant::now();
        match site::other(kind, count) {
            Some(other) => local.write(NEW, &[other])?,
            None => local.remove(NEW)?,
        }
        client.until(count, false)?;
        removed.push(start.elapsed().as_secs_f64() * 1e3);
        thread::sleep(REST);
    }
    thread::sleep(SETTLE);
    let used = local.used()?.since(before, 2 * settings.rounds);
    stop.store(true, Ordering::SeqCst);
    let counts = others.join().map_err(|_| anyhow!("a client panicked"))?;
    let (requests, wrong) = counts?;
    local.end()?;
    Ok(Measured {
        added,
        removed,
        used,
        requests,
        wrong,
    })
}

/// Requests one route after another; returns the numbers of requests and wrong responses.
fn ask_for_others(kind: Kind, count: usize, stop: &AtomicBool) -> Result<(usize, usize)> {
    let mut client = Client::new(kind)?;
    let (mut requests, mut wrong) = (0, 0);
    while !stop.load(Ordering::SeqCst) {
        let index = requests * 7919 % count;
        let found = client.ask(index);
        if !matches!(&found, Ok(Some(backend)) if backend == BACKEND) {
            wrong += 1;
            eprintln!("wrong response: {} {index}: {found:?}", kind.name());
            ensure!(wrong < 100, "too many wrong responses");
        }
        requests += 1;
        thread::sleep(OTHERS);
    }
    Ok((requests, wrong))
}

/// The costs of an HTTPRoute, to compare with.
struct Reference {
    added: f64,
    used: Used,
}

impl Reference {
    fn of(measured: &Measured) -> Self {
        Self {
            added: measured.added.quantile(0.5),
            used: measured.used,
        }
    }

    fn figures(&self, kind: Kind, count: usize, measured: &Measured) -> Vec<Figure> {
        let name = format!("{count} {}", kind.plural());
        let compared = |figure: Figure, to: f64, child: Option<f64>| match (kind, child) {
            (Kind::Http, _) | (Kind::Child, None) => figure,
            (Kind::Child, Some(target)) => figure.at_most(target),
            _ => figure.at_most(to * TARGET),
        };
        let (shown, samples) = match kind {
            Kind::Child => ("changed child", &measured.removed),
            _ => ("new route", &measured.added),
        };
        let Used {
            sesame,
            envoy,
            sent,
        } = measured.used;
        let with_service = (kind == Kind::Child).then(|| {
            let name = format!("{name}: child with a new Service to first response");
            Figure::of(name, Unit::Milliseconds, &measured.added)
        });
        let figures = vec![
            compared(
                Figure::of(
                    format!("{name}: {shown} to first response"),
                    Unit::Milliseconds,
                    samples,
                ),
                self.added,
                Some(CHILD[0]),
            ),
            compared(
                Figure::new(
                    format!("{name}: Sesame's CPU time per change"),
                    Unit::Milliseconds,
                    sesame,
                ),
                self.used.sesame,
                Some(CHILD[1]),
            ),
            compared(
                Figure::new(
                    format!("{name}: CPU time of Envoy's main thread per change"),
                    Unit::Milliseconds,
                    envoy,
                ),
                self.used.envoy,
                None,
            ),
            compared(
                Figure::new(
                    format!("{name}: sent to Envoy per change"),
                    Unit::Kibibytes,
                    sent,
                ),
                self.used.sent,
                None,
            ),
            Figure::new(
                format!("{name}: wrong responses"),
                Unit::Count,
                measured.wrong as f64,
            )
            .exactly(0.0)
            .note(format!("of {} requests", measured.requests)),
        ];
        with_service.into_iter().chain(figures).collect()
    }
}
