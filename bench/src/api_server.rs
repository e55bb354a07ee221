//! `--api-server`: `sesame serve` in front of a real API server, from a written object to the answer by a real Envoy.
//!
//! In: numbers of routes. Out: figures. One run goes through all of it, in this order, with one Envoy that is never restarted
//! and a prober that judges every answer from the first to the last:
//!
//! 1. etcd and the API server; Sesame's release binary as a process of its own; an Envoy with the certificate that Sesame has
//!    made. The process's memory when it has nothing to do.
//! 2. The middle number of routes at once, each with a host, a Service and a slice of its own: statuses, and the Gateway's count.
//! 3. Changes there, timed beside a floor: a watch at the same API server and behind it a server that only pushes, to an Envoy of
//!    its own ([`floor`]). What the API server needs is in both, so the ratio is Sesame's part. The floor doesn't encrypt, it
//!    knows what to push before it is told, and its changes are also seen by Sesame, for which they are nobody's.
//! 4. The processor time of changes with the small number of routes.
//! 5. The large number of routes at once; changes beside the floor; their processor time; memory; restarts.
//! 6. All of it is deleted: memory again.
//!
//! All processes share the machine: compare ratios, and read the load average beside the figures.

mod apart;
mod cluster;
mod floor;
mod load;
mod observe;
mod prober;
mod replica;
mod restart;
mod side;
mod site;
mod timed;

use std::fs;
use std::net::SocketAddr;
use std::str::FromStr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use sesame_model::FleetId;
use sesame_testkit::many;

use self::cluster::{Cluster, Write};
use self::load::Loaded;
use self::prober::{Prober, Tally};
use self::replica::{EnvoyFiles, Replica};
use self::restart::Restarted;
use self::side::{Feed, Side};
use self::site::{BLUE, GREEN, Kind, Shown};
use self::timed::Place;
use crate::report::{Figure, Samples, Unit};
use crate::rig::{self, Rig};
use crate::{Settings, objects, rss};

/// Before a look at memory.
const SETTLE: Duration = Duration::from_secs(3);
/// Restarts in a row.
const RESTARTS: usize = 3;

/// Numbers of routes: `SMALL,MIDDLE,LARGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sizes {
    small: usize,
    middle: usize,
    large: usize,
}

impl FromStr for Sizes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let numbers: Result<Vec<usize>, _> = text.split(',').map(str::parse).collect();
        match numbers.as_deref() {
            Ok(&[small, middle, large]) if 0 < small && small < middle && middle < large => {
                Ok(Self {
                    small,
                    middle,
                    large,
                })
            }
            _ => Err("expected three growing numbers, for example 500,1000,5000".to_owned()),
        }
    }
}

/// Everything that runs.
struct Run<'a> {
    settings: &'a Settings,
    cluster: Cluster,
    rig: Rig,
    replicas: replica::Settings,
    files: EnvoyFiles,
    replica: Replica,
    backends: [SocketAddr; 2],
    /// Where Sesame's Envoy serves.
    port: u16,
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
    let cluster = Cluster::start()?;
    let rig = Rig::new(settings.envoy.as_deref())?;
    let blue = rig.backend(BLUE, apart::BACKENDS)?;
    let green = rig.backend(GREEN, apart::BACKENDS)?;
    let backends = [blue.address(), green.address()];
    let port = rig::free_port()?;
    let create = |value| Write::Create(value);
    cluster.write_all(site::ground().into_iter().map(create))?;
    cluster.write_all([create(many::gateway(port))])?;
    cluster.write_all(site::extras(backends).into_iter().map(create))?;
    let changed = site::floor_extras(backends).into_iter();
    cluster.write_all(changed.map(|value| create(site::within(site::FLOOR, value))))?;

    let replicas = replica::Settings::new(rss::sesame(settings)?, &cluster)?;
    let replica = replicas.start("replica-0")?;
    let files = replicas.envoy_files(&cluster)?;
    let xds = replicas.xds_address(&files);
    rig.envoy(&FleetId::unmanaged(), "sesame", xds)?;
    cluster.until(
        &many::gateway(port),
        "the Gateway serves",
        replica::programmed,
    )?;
    let mut tally = Tally::default();
    let mut first = Side::new(Feed::Sesame, port)?;
    for host in [BLUE, GREEN] {
        let by = if host == BLUE { BLUE } else { GREEN };
        first.until(&site::host(host), Shown::Nothing, Shown::By(by))?;
    }
    tally.add(first.close());

    let prober = Prober::start(SocketAddr::from((objects::ADDRESS, port)));
    let mut run = Run {
        settings,
        cluster,
        rig,
        replicas,
        files,
        replica,
        backends,
        port,
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
        let Sizes {
            small,
            middle,
            large,
        } = self.settings.api_server_routes;
        let rounds = self.settings.rounds;
        let [blue, _] = self.backends;

        thread::sleep(SETTLE);
        let empty = self.replica.memory()?.now;

        self.say(&format!("{middle} routes are attached"));
        load::services(&self.cluster, 0..middle, blue)?;
        self.prober.announce(middle);
        let loaded = load::routes(&self.cluster, middle, blue)?;
        self.attached(middle, loaded);
        self.prober.until_served()?;

        self.say(&format!("changes at {middle} routes, beside the floor"));
        self.latency(middle, rounds)?;

        self.say(&format!("what changes cost at {small} routes"));
        self.prober.going(small);
        load::remove(&self.cluster, small..middle, true, blue)?;
        self.prober.until_gone()?;
        let cheap = self.cost(small, rounds)?;

        self.say(&format!("{large} routes are attached"));
        self.prober.going(0);
        load::remove(&self.cluster, 0..small, false, blue)?;
        self.prober.until_gone()?;
        load::services(&self.cluster, small..large, blue)?;
        self.prober.announce(large);
        let loaded = load::routes(&self.cluster, large, blue)?;
        self.written(large, loaded);
        self.prober.until_served()?;

        self.say(&format!("changes at {large} routes, beside the floor"));
        self.latency(large, rounds)?;
        self.say(&format!("what changes cost at {large} routes"));
        let dear = self.cost(large, rounds)?;
        self.costs((small, cheap), (large, dear));
        thread::sleep(SETTLE);
        let full = self.replica.memory()?;

        self.say(&format!("restarts with {large} routes"));
        let restarts: Result<Vec<(Restarted, f64)>> = (0..RESTARTS)
            .map(|number| self.restart(number, large))
            .collect();
        self.restarts(large, &restarts?);
        thread::sleep(SETTLE);
        let fresh = self.replica.memory()?;

        self.say("all routes are deleted");
        self.prober.going(0);
        load::remove(&self.cluster, 0..large, true, blue)?;
        self.prober.until_gone()?;
        thread::sleep(SETTLE);
        let after = self.replica.memory()?.now;
        let memory = |name: String, measured| Figure::new(name, Unit::Mebibytes, measured);
        self.figures.extend([
            memory("memory of `sesame serve`, no routes".to_owned(), empty),
            memory(
                format!("memory with {large} routes, Services and slices"),
                full.now,
            )
            .at_most(100.0)
            .note(format!("after changes; {:.0} at its highest", full.peak)),
            memory("the same, as it is aimed at".to_owned(), full.now).at_most(64.0),
            memory("memory after a restart with them".to_owned(), fresh.now)
                .at_most(100.0)
                .note(format!("{:.0} at its highest", fresh.peak)),
            Figure::new(
                "memory after all was deleted / empty",
                Unit::Ratio,
                after / empty,
            )
            .at_most(1.5)
            .note(format!("{after:.1} MiB")),
        ]);
        Ok(())
    }

    /// Says where it is, and notes the load.
    fn say(&mut self, what: &str) {
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

    fn latency(&mut self, apps: usize, rounds: usize) -> Result<()> {
        let mut tally = Tally::default();
        let figures = self.place(apps).latency(rounds, &mut tally)?;
        self.tally.add(tally);
        self.figures.extend(figures);
        Ok(())
    }

    fn cost(&mut self, apps: usize, rounds: usize) -> Result<[f64; 4]> {
        let mut tally = Tally::default();
        let place = self.place(apps);
        let costs = place.cost(&self.replica, rounds, &mut tally)?;
        self.tally.add(tally);
        Ok(costs)
    }

    /// A restart, and how long until the running Envoy shows a change again.
    fn restart(&mut self, number: usize, apps: usize) -> Result<(Restarted, f64)> {
        let restarted = restart::restart(
            &self.cluster,
            &self.replicas,
            &self.files,
            &mut self.replica,
            &format!("replica-{}", number + 1),
            (self.port, apps),
        )?;
        let mut side = Side::new(Feed::Sesame, self.port)?;
        // There and back: the next one begins as this one did.
        for round in 0..2 {
            let step = site::step(Kind::Backend, round, self.backends);
            side.change(&self.cluster, step)?;
        }
        let followed = restart::age(&self.replica);
        self.tally.add(side.close());
        Ok((restarted, followed))
    }

    fn attached(&mut self, count: usize, loaded: Loaded) {
        self.figures.extend([
            Figure::new(
                format!("{count} routes attached: Gateway counts them after the last was written"),
                Unit::Milliseconds,
                loaded.attached,
            )
            .at_most(1000.0)
            .note(format!("written within {:.0} ms", loaded.written)),
            Figure::new(
                "status writes per route",
                Unit::Count,
                loaded.writes as f64 / count as f64,
            )
            .at_most(1.0)
            .note(format!("at most {} of one", loaded.most)),
            Figure::new(
                "writes of the Gateway's status in a second",
                Unit::Count,
                loaded.gateway as f64,
            )
            .at_most(10.0)
            .note("the most in any"),
        ]);
    }

    fn written(&mut self, count: usize, loaded: Loaded) {
        self.figures.extend([
            Figure::new(
                format!("{count} routes at once: all statuses written"),
                Unit::Milliseconds,
                loaded.statuses,
            )
            .note(format!(
                "since the first route was sent; the last one was written after {:.0} ms",
                loaded.written
            )),
            Figure::new(
                format!("{count} routes at once: status writes per route"),
                Unit::Count,
                loaded.writes as f64 / count as f64,
            )
            .at_most(1.0)
            .note(format!(
                "at most {} of one; the Gateway at most {} in a second",
                loaded.most, loaded.gateway
            )),
        ]);
    }

    fn costs(&mut self, small: (usize, [f64; 4]), large: (usize, [f64; 4])) {
        let mean = |costs: [f64; 4]| costs.iter().sum::<f64>() / costs.len() as f64;
        for (count, costs) in [small, large] {
            let each: Vec<String> = Kind::ALL
                .iter()
                .zip(costs)
                .map(|(kind, cost)| format!("{} {cost:.2}", kind.name()))
                .collect();
            let name = format!("processor time of a change, {count} routes");
            self.figures.push(
                Figure::new(name, Unit::Milliseconds, mean(costs))
                    .at_most(2.0)
                    .note(each.join(", ")),
            );
        }
        let ratio = mean(large.1) / mean(small.1);
        let name = format!("processor time, {} / {} routes", large.0, small.0);
        self.figures
            .push(Figure::new(name, Unit::Ratio, ratio).at_most(1.3));
    }

    fn restarts(&mut self, count: usize, restarts: &[(Restarted, f64)]) {
        let samples =
            |of: fn(&(Restarted, f64)) -> f64| -> Samples { restarts.iter().map(of).collect() };
        let complete = samples(|(restarted, _)| restarted.complete);
        let connected = samples(|(restarted, _)| restarted.connected).quantile(0.5);
        let used = samples(|(restarted, _)| restarted.used).quantile(0.5);
        self.figures.extend([
            Figure::of(
                format!("restart with {count} routes: a new Envoy has everything"),
                Unit::Milliseconds,
                &complete,
            )
            .at_most(2000.0)
            .note(format!(
                "{} times; connected after {connected:.0} ms; {used:.0} ms of processor time",
                restarts.len()
            )),
            Figure::of(
                "the running Envoy has followed two changes",
                Unit::Milliseconds,
                &samples(|(_, followed)| *followed),
            )
            .note("since the start of the process; it waits before it connects again"),
        ]);
    }

    fn end(mut self) -> Result<Vec<Figure>> {
        self.say("done");
        let mut tally = self.tally;
        tally.add(self.prober.end()?);
        self.replica
            .end()
            .with_context(|| self.replicas.last_words())?;
        self.rig.close();
        for line in &tally.shown {
            eprintln!("wrong: {line}");
        }
        self.figures.extend([
            Figure::new(
                "wrong answers, from first to last",
                Unit::Count,
                tally.wrong as f64,
            )
            .exactly(0.0)
            .note(format!("of {} requests", tally.requests)),
            Figure::new(
                "load average meanwhile",
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
    fn sizes_grow() {
        let sizes = Sizes {
            small: 1,
            middle: 2,
            large: 30,
        };
        assert_eq!("1,2,30".parse(), Ok(sizes));
        for bad in ["", "1,2", "1,1,2", "0,1,2", "3,2,1", "1,2,3,4", "a,b,c"] {
            assert!(Sizes::from_str(bad).is_err(), "{bad}");
        }
    }
}
