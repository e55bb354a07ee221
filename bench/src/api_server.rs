//! `--api-server`: `sesame serve` with a real API server, from writing an object to a real Envoy's response.
//!
//! In: route counts. Out: figures. A prober checks every response throughout the run, which has these steps:
//!
//! 1. Start etcd, the API server, Sesame's binary and an Envoy with the certificate that Sesame issued. Measure idle
//!    memory.
//! 2. For each route count, with a separate host, Service and EndpointSlice per route:
//!    - create the missing routes at once: time until all have statuses, and until `attachedRoutes` is up to date;
//!    - time single changes, alternating between Sesame and the baseline server ([`floor`]), which watches the same API
//!      server and only pushes pre-encoded resources to its own Envoy. Both include the API server's time, so the ratio
//!      shows Sesame's share. The baseline server doesn't use TLS. Sesame also sees the changes made for the baseline
//!      server, which belong to none of Sesame's Gateways;
//!    - measure CPU time and bytes per change;
//!    - time changes while other routes are rewritten;
//!    - measure memory, restarts of Sesame, and a restart together with a fresh Envoy.
//! 3. Delete everything and measure memory again.
//!
//! With `--proxies`, HTTPProxies take the place of HTTPRoutes.
//!
//! All processes share the machine: compare ratios, and check the load average.

mod apart;
mod churn;
mod cluster;
mod floor;
mod fresh;
mod load;
mod observe;
mod prober;
mod replica;
mod restart;
mod side;
mod site;
mod targets;
mod timed;

use std::fs;
use std::net::SocketAddr;
use std::ops::Range;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sesame_model::FleetId;
use sesame_testkit::many;

use self::cluster::{Cluster, Write};
use self::fresh::Fresh;
use self::load::Loaded;
use self::prober::{Prober, Tally};
use self::replica::{EnvoyFiles, Replica};
use self::restart::Restarted;
use self::side::{Feed, Side};
use self::site::{BLUE, GREEN, Kind, Shown};
use self::targets::Targets;
use self::timed::{Costs, Place};
use crate::report::{Figure, Samples, Unit};
use crate::rig::{self, Rig};
use crate::{Settings, local, machine, objects};

/// Pause before measuring memory.
const SETTLE: Duration = Duration::from_secs(3);
/// Number of restarts.
const RESTARTS: usize = 3;
/// Time limit for an Envoy to start.
const PATIENCE: Duration = Duration::from_secs(30);
/// Target in milliseconds from the last new route until the Gateway's `attachedRoutes` includes all of them.
const ATTACHED: f64 = 1_000.0;
/// Target in milliseconds from the last of up to 5,000 new routes until all have statuses.
const STATUSES: f64 = 5_000.0;
/// Target in milliseconds from a restart until everything is sent.
const COMPLETE: f64 = 2_000.0;

/// Increasing route counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sizes(Vec<usize>);

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
        match numbers {
            Ok(numbers) if numbers[0] > 0 && numbers.is_sorted_by(|one, other| one < other) => {
                Ok(Self(numbers))
            }
            _ => Err("expected increasing numbers, for example 10,1000,5000".to_owned()),
        }
    }
}

/// State of a run.
struct Run<'a> {
    settings: &'a Settings,
    cluster: Cluster,
    rig: Rig,
    replicas: replica::Settings,
    files: EnvoyFiles,
    replica: Replica,
    backends: [SocketAddr; 2],
    /// Port and name of Sesame's Envoy.
    port: u16,
    envoy: String,
    /// Number of replicas started after the first.
    started: usize,
    prober: Prober,
    tally: Tally,
    loads: Samples,
    figures: Vec<Figure>,
    begin: Instant,
}

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    if !apart::is() {
        match apart::become_it()? {}
    }
    let begin = Instant::now();
    eprintln!("api-server: starting etcd, the API server, Sesame and Envoy");
    let cluster = Cluster::start(settings.proxies)?;
    let rig = Rig::new(settings.envoy.as_deref())?;
    let blue = rig.backend(BLUE, apart::BACKENDS)?;
    let green = rig.backend(GREEN, apart::BACKENDS)?;
    let backends = [blue.address(), green.address()];
    let port = match settings.proxies {
        // The port of HTTPProxies, shared by the Gateway.
        true => 80,
        false => rig::free_port()?,
    };
    let create = |value| Write::Create(value);
    cluster.write_all(site::ground().into_iter().map(create))?;
    cluster.write_all([create(many::gateway(port))])?;
    cluster.write_all(site::extras(backends).into_iter().map(create))?;
    let changed = site::floor_extras(backends).into_iter();
    cluster.write_all(changed.map(|value| create(site::within(site::FLOOR, value))))?;

    let replicas = replica::Settings::new(local::binary(settings)?, &cluster)?;
    let replica = replicas.start("replica-0")?;
    let files = replicas.envoy_files(&cluster)?;
    let xds = replicas.xds_address(&files);
    let envoy = "envoy-0".to_owned();
    rig.envoy(&FleetId::Unmanaged, &envoy, xds)?;
    cluster.until(
        &many::gateway(port),
        "the Gateway is programmed",
        replica::programmed,
    )?;
    let mut tally = Tally::default();
    let mut first = Side::new(&cluster, Feed::Sesame, port)?;
    for host in [BLUE, GREEN] {
        let by = if host == BLUE { BLUE } else { GREEN };
        first.until(&site::host(host), Shown::Nothing, Shown::By(by))?;
    }
    tally.add(first.close());

    let prober = Prober::start(SocketAddr::from((objects::ADDRESS, port)), 0);
    let mut run = Run {
        settings,
        cluster,
        rig,
        replicas,
        files,
        replica,
        backends,
        port,
        envoy,
        started: 0,
        prober,
        tally,
        loads: Samples::default(),
        figures: Vec::new(),
        begin,
    };
    run.measure()?;
    run.end()
}

impl Run<'_> {
    fn measure(&mut self) -> Result<()> {
        let Sizes(sizes) = self.settings.api_server_routes.clone();
        let [blue, _] = self.backends;

        thread::sleep(SETTLE);
        let empty = self.replica.memory()?.now;
        self.figures.push(Figure::new(
            "memory of `sesame serve`, no routes",
            Unit::Mebibytes,
            empty,
        ));

        let mut before = 0;
        let mut costs = Vec::new();
        for &size in &sizes {
            self.grow(before..size)?;
            costs.push((size, self.at(size)?));
            before = size;
        }
        self.compare(&costs);

        self.progress("deleting all routes");
        self.prober.allow_removal(0);
        load::remove(&self.cluster, 0..before, blue)?;
        self.prober.until_gone()?;
        thread::sleep(SETTLE);
        let after = self.replica.memory()?.now;
        self.figures.push(
            Figure::new(
                "memory after deleting everything / initial memory",
                Unit::Ratio,
                after / empty,
            )
            .at_most(1.5)
            .note(format!("{after:.1} MiB")),
        );
        Ok(())
    }

    /// Adds routes.
    fn grow(&mut self, apps: Range<usize>) -> Result<()> {
        let [blue, _] = self.backends;
        self.progress(&format!("attaching {} routes", apps.end));
        load::services(&self.cluster, apps.clone(), blue)?;
        self.prober.announce(apps.end);
        let loaded = load::routes(&self.cluster, apps.clone(), blue)?;
        self.prober.until_served()?;
        self.attached(apps.len(), loaded);
        Ok(())
    }

    /// Measures at a given route count; returns Sesame's CPU time per change in milliseconds.
    fn at(&mut self, size: usize) -> Result<f64> {
        let rounds = self.settings.rounds;
        let targets = Targets::of(size);
        let mut tally = Tally::default();

        self.progress(&format!(
            "changes with {size} routes, Sesame and baseline server"
        ));
        let figures = self.place(size).latency(rounds, &mut tally)?;
        self.figures.extend(figures);

        self.progress(&format!("CPU time per change with {size} routes"));
        let envoy = self.rig.pid(&self.envoy, PATIENCE)?;
        let place = self.place(size);
        let costs = place.cost(&self.replica, envoy, rounds, &mut tally)?;
        let processor = self.costs(size, &costs);

        self.progress(&format!("changes with {size} routes, under churn"));
        let figures = self.place(size).under_churn(rounds, &mut tally)?;
        self.figures.extend(figures);
        self.tally.add(tally);

        thread::sleep(SETTLE);
        let memory = self.replica.memory()?;
        let envoy = machine::memory(Some(envoy))?;
        let name = |whose: &str| {
            format!("memory of {whose} with {size} routes, Services and EndpointSlices")
        };
        self.figures.extend([
            Figure::new(name("Sesame"), Unit::Mebibytes, memory.now)
                .at_most(targets.sesame)
                .note(format!("after changes; peak {:.0}", memory.peak)),
            Figure::new(name("Envoy"), Unit::Mebibytes, envoy.now)
                .at_most(targets.envoy)
                .note(format!(
                    "after a request for each route; peak {:.0}",
                    envoy.peak
                )),
        ]);

        self.progress(&format!("restarts with {size} routes"));
        let restarts: Result<Vec<(Restarted, f64)>> =
            (0..RESTARTS).map(|_| self.restart(size)).collect();
        self.restarts(size, &restarts?);
        self.progress(&format!("a fresh Envoy with {size} routes"));
        let fresh = self.fresh(size)?;
        self.figures.extend([
            Figure::new(
                format!("Sesame restart with a fresh Envoy, {size} routes: time until it serves everything"),
                Unit::Milliseconds,
                fresh.served.as_secs_f64() * 1e3,
            )
            .at_most(targets.fresh)
            .note("Sesame and Envoy start at the same time"),
            Figure::new(
                format!("memory of a fresh Envoy with {size} routes"),
                Unit::Mebibytes,
                fresh.memory,
            )
            .at_most(targets.envoy)
            .note("before any requests"),
        ]);
        Ok(processor)
    }

    /// Prints progress and records the load.
    fn progress(&mut self, what: &str) {
        let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
        let load = load.split(' ').next().and_then(|load| load.parse().ok());
        if let Some(load) = load {
            self.loads.push(load);
        }
        eprintln!(
            "api-server: {what} ({:.0} s, load {:.1})",
            self.begin.elapsed().as_secs_f64(),
            load.unwrap_or_default()
        );
    }

    fn place(&self, apps: usize) -> Place<'_> {
        Place {
            cluster: &self.cluster,
            envoy: self.settings.envoy.as_deref(),
            port: self.port,
            backends: self.backends,
            apps,
        }
    }

    /// Restarts Sesame and times a change on the running Envoy.
    fn restart(&mut self, apps: usize) -> Result<(Restarted, f64)> {
        let name = self.next_replica();
        let restarted = restart::restart(
            &self.cluster,
            &self.replicas,
            &self.files,
            &mut self.replica,
            &name,
            (self.port, apps),
        )?;
        let mut side = Side::new(&self.cluster, Feed::Sesame, self.port)?;
        // Change and revert, so that the next restart starts from the same state.
        for round in 0..2 {
            let step = site::step(Kind::Backend, round, self.backends);
            side.change(&self.cluster, step)?;
        }
        let followed = restart::age(&self.replica);
        self.tally.add(side.close());
        Ok((restarted, followed))
    }

    /// Restarts Sesame with a fresh Envoy, and measures the time until the Envoy serves everything.
    fn fresh(&mut self, apps: usize) -> Result<Fresh> {
        let address = SocketAddr::from((objects::ADDRESS, self.port));
        // Meanwhile, no Envoy is serving.
        self.tally.add(self.prober.pause()?);
        self.rig.end_envoy(&self.envoy);
        self.replica.end()?;
        let name = self.next_replica();
        self.replica = self.replicas.start(&name)?;
        let begun = self.replica.begun;
        self.envoy = format!("envoy-{}", self.started);
        let xds = self.replicas.xds_address(&self.files);
        self.rig.envoy(&FleetId::Unmanaged, &self.envoy, xds)?;
        let envoy = self.rig.pid(&self.envoy, PATIENCE)?;
        let fresh = fresh::until_it_serves(self.port, apps, envoy, begun, &mut self.tally)?;
        self.prober = Prober::start(address, apps);
        Ok(fresh)
    }

    /// The next replica's name.
    fn next_replica(&mut self) -> String {
        self.started += 1;
        format!("replica-{}", self.started)
    }

    fn attached(&mut self, count: usize, loaded: Loaded) {
        let written = format!("written within {:.0} ms", loaded.written);
        let name = |what: &str| format!("attaching {count} routes: {what}");
        if let Some(attached) = loaded.attached {
            let what = format!("time from the last write until attachedRoutes is {count}");
            self.figures.extend([
                Figure::new(name(&what), Unit::Milliseconds, attached).at_most(ATTACHED),
                Figure::new(
                    name("Gateway status writes per second"),
                    Unit::Count,
                    loaded.gateway as f64,
                )
                .at_most(10.0)
                .note("maximum"),
            ]);
        }
        self.figures.extend([
            Figure::new(
                name("time from the last write until all have statuses"),
                Unit::Milliseconds,
                loaded.statuses,
            )
            .at_most(STATUSES)
            .note(written),
            Figure::new(
                name("status writes per route"),
                Unit::Count,
                loaded.writes as f64 / count as f64,
            )
            .at_most(1.0)
            .note(format!("at most {} for one route", loaded.most)),
        ]);
    }

    /// Adds the cost of changes; returns Sesame's CPU time per change.
    fn costs(&mut self, size: usize, costs: &Costs) -> f64 {
        let mean = |costs: [f64; 4]| costs.iter().sum::<f64>() / costs.len() as f64;
        let figure = |what: &str, unit, costs: [f64; 4]| {
            let each: Vec<String> = Kind::ALL
                .iter()
                .zip(costs)
                .map(|(kind, cost)| format!("{} {cost:.2}", kind.name()))
                .collect();
            Figure::new(format!("{what}, {size} routes"), unit, mean(costs)).note(each.join(", "))
        };
        self.figures.extend([
            figure(
                "Sesame's CPU time per change",
                Unit::Milliseconds,
                costs.sesame,
            )
            .at_most(targets::PROCESSOR),
            figure(
                "CPU time of Envoy's main thread per change",
                Unit::Milliseconds,
                costs.envoy,
            ),
            figure("sent to Envoy per change", Unit::Kibibytes, costs.bytes)
                .at_most(Targets::of(size).bytes),
        ]);
        mean(costs.sesame)
    }

    /// Compares the cost of a change at the largest and the smallest route count.
    fn compare(&mut self, costs: &[(usize, f64)]) {
        if let [(few, cheap), .., (many, dear)] = costs {
            let name = format!("Sesame's CPU time per change, {many} / {few} routes");
            self.figures
                .push(Figure::new(name, Unit::Ratio, dear / cheap).at_most(1.3));
        }
    }

    fn restarts(&mut self, count: usize, restarts: &[(Restarted, f64)]) {
        let samples =
            |of: fn(&(Restarted, f64)) -> f64| -> Samples { restarts.iter().map(of).collect() };
        let complete = samples(|(restarted, _)| restarted.complete);
        let connected = samples(|(restarted, _)| restarted.connected).quantile(0.5);
        let used = samples(|(restarted, _)| restarted.used).quantile(0.5);
        self.figures.extend([
            Figure::of(
                format!("Sesame restart with {count} routes: time until everything is sent"),
                Unit::Milliseconds,
                &complete,
            )
            .at_most(COMPLETE)
            .note(format!(
                "{} restarts; connected after {connected:.0} ms; {used:.0} ms of CPU time",
                restarts.len()
            )),
            Figure::of(
                format!(
                    "Sesame restart with {count} routes: time until Envoy has applied two changes"
                ),
                Unit::Milliseconds,
                &samples(|(_, followed)| *followed),
            )
            .note("from the start of the process, including Envoy's backoff"),
        ]);
    }

    fn end(mut self) -> Result<Vec<Figure>> {
        self.progress("done");
        let mut tally = self.tally;
        tally.add(self.prober.pause()?);
        self.replica
            .end()
            .with_context(|| self.replicas.last_words())?;
        self.rig.close();
        for line in &tally.shown {
            eprintln!("wrong response: {line}");
        }
        self.figures.extend([
            Figure::new("wrong responses", Unit::Count, tally.wrong as f64)
                .exactly(0.0)
                .note(format!("of {} requests", tally.requests)),
            Figure::new(
                "load average during the run",
                Unit::Count,
                self.loads.quantile(0.5),
            )
            .note(format!(
                "from {:.1} to {:.1}, on {} processors; the run took {:.0} s",
                self.loads.quantile(0.0),
                self.loads.quantile(1.0),
                thread::available_parallelism().map_or(0, usize::from),
                self.begin.elapsed().as_secs_f64()
            )),
        ]);
        Ok(self.figures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_must_increase() {
        assert_eq!("1,2,30".parse(), Ok(Sizes(vec![1, 2, 30])));
        assert_eq!("7".parse(), Ok(Sizes(vec![7])));
        for bad in ["", "1,1,2", "0,1,2", "3,2,1", "a,b,c"] {
            assert!(Sizes::from_str(bad).is_err(), "{bad}");
        }
    }
}
