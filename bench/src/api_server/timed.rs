//! Single changes: latency with Sesame and with the baseline server, and CPU time of Sesame and Envoy.
//!
//! Each round measures both servers; the order alternates from round to round. A pause between changes lets all
//! processes become idle. A new route's Service and EndpointSlice already exist.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::churn::Churn;
use super::cluster::{Cluster, Write};
use super::floor::WatchedFloor;
use super::prober::Tally;
use super::replica::Replica;
use super::side::{Feed, Side};
use super::site::{self, BLUE, Kind, Shown};
use super::targets::{self, Targets};
use crate::machine;
use crate::report::{Figure, Samples, Unit};

/// Pause before a timed change, while the statuses of the previous one are written.
const REST: Duration = Duration::from_millis(60);
/// Warm-up rounds.
const WARM_UP: usize = 4;
/// Pause before and after changes whose cost is measured, so that the status writes that follow the response are
/// included.
const SETTLE: Duration = Duration::from_millis(500);

/// Number of consecutive changes in a cost measurement. It must be even: changes come in pairs, and the second reverts
/// the first. A measurement adds at most this many routes.
const IN_A_ROW: usize = 10;

/// The site to change.
pub(crate) struct Place<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) envoy: Option<&'a Path>,
    /// Port of Sesame's Envoy.
    pub(crate) port: u16,
    pub(crate) backends: [SocketAddr; 2],
    /// Number of apps.
    pub(crate) apps: usize,
}

/// Mean cost of a change, by kind.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Costs {
    /// CPU time of Sesame, in milliseconds.
    pub(crate) sesame: [f64; 4],
    /// CPU time of Envoy's main thread, which processes configuration, in milliseconds. Worker threads also handle the
    /// prober's requests.
    pub(crate) envoy: [f64; 4],
    /// Kibibytes of resources sent.
    pub(crate) bytes: [f64; 4],
}

impl Place<'_> {
    /// Latency of changes, alternating between Sesame and a baseline server.
    pub(crate) fn latency(&self, rounds: usize, tally: &mut Tally) -> Result<Vec<Figure>> {
        let [blue, _] = self.backends;
        let total = (WARM_UP + rounds).next_multiple_of(2);
        self.prepare(total)?;
        let (floor, floor_port) =
            WatchedFloor::start(self.cluster, self.envoy, self.apps, total, self.backends)?;
        let mut sides = [
            Side::new(self.cluster, Feed::Sesame, self.port)?,
            Side::new(self.cluster, Feed::Floor(Box::new(floor)), floor_port)?,
        ];
        for side in &mut sides {
            let host = site::host(BLUE);
            side.until(&host, Shown::Nothing, Shown::By(BLUE))?;
        }
        let mut shown: [[Samples; 2]; 4] = Default::default();
        let mut followed: [[Samples; 2]; 4] = Default::default();
        for round in 0..total {
            for (place, kind) in Kind::ALL.into_iter().enumerate() {
                for which in [round % 2, 1 - round % 2] {
                    thread::sleep(REST);
                    let step = site::step(kind, round, self.backends);
                    let taken = sides[which].change(self.cluster, step)?;
                    if round >= WARM_UP {
                        shown[place][which].push(taken.shown);
                        followed[place][which].push(taken.followed);
                    }
                }
            }
        }
        let [sesame, floor] = sides.map(Side::close);
        tally.add(sesame);
        if floor.wrong > 0 {
            eprintln!(
                "the baseline server's Envoy sent {} wrong responses",
                floor.wrong
            );
        }
        self.clear(total, blue)?;
        let mut figures = Vec::new();
        for ((kind, shown), followed) in Kind::ALL.into_iter().zip(&shown).zip(&followed) {
            figures.extend(self.figures(kind, shown, followed));
        }
        Ok(figures)
    }

    fn figures(&self, kind: Kind, shown: &[Samples; 2], followed: &[Samples; 2]) -> Vec<Figure> {
        let name = format!("{}, {} routes", kind.name(), self.apps);
        let note = |from_request: &Samples| {
            format!(
                "{} changes; {:.1} ms including the API server, p99 {:.1}",
                from_request.len(),
                from_request.quantile(0.5),
                from_request.quantile(0.99)
            )
        };
        let of = |side: &str, samples| {
            Figure::of(format!("{name}: {side}"), Unit::Milliseconds, samples)
        };
        let [sesame, floor] = followed;
        let spread = |samples: &Samples| samples.quantile(0.95) / samples.quantile(0.5);
        vec![
            of("Sesame", sesame)
                .at_most(Targets::of(self.apps).shown(kind))
                .note(note(&shown[0])),
            of("baseline server", floor).note(note(&shown[1])),
            Figure::new(format!("{name}: p95 / median"), Unit::Ratio, spread(sesame))
                .at_most(targets::SPREAD)
                .note(format!("baseline server {:.2}", spread(floor))),
            Figure::new(
                format!("{name}: Sesame / baseline server, from the request"),
                Unit::Ratio,
                shown[0].quantile(0.5) / shown[1].quantile(0.5),
            )
            .at_most(targets::FLOOR)
            .note(format!(
                "p99 {:.2}",
                shown[0].quantile(0.99) / shown[1].quantile(0.99)
            )),
        ]
    }

    /// Latency of changes while other routes are rewritten.
    pub(crate) fn under_churn(&self, rounds: usize, tally: &mut Tally) -> Result<Vec<Figure>> {
        let rounds = rounds.next_multiple_of(2);
        self.prepare(rounds)?;
        let mut side = Side::new(self.cluster, Feed::Sesame, self.port)?;
        let mut shown: [Samples; 4] = Default::default();
        let churn = Churn::start(self.cluster, self.apps);
        for round in 0..rounds {
            for (samples, kind) in shown.iter_mut().zip(Kind::ALL) {
                thread::sleep(REST);
                let step = site::step(kind, round, self.backends);
                samples.push(side.change(self.cluster, step)?.followed);
            }
        }
        let rewritten = churn.end()?;
        tally.add(side.close());
        self.clear(rounds, self.backends[0])?;
        let figure = |(kind, samples): (Kind, &Samples)| {
            let name = format!("{}, {} routes, under churn", kind.name(), self.apps);
            Figure::of(name, Unit::Milliseconds, samples)
                .at_most(Targets::of(self.apps).shown(kind))
                .note(format!("{rewritten} other routes rewritten meanwhile"))
        };
        Ok(Kind::ALL.into_iter().zip(&shown).map(figure).collect())
    }

    /// Cost of each kind of change.
    pub(crate) fn cost(
        &self,
        replica: &Replica,
        envoy: u32,
        rounds: usize,
        tally: &mut Tally,
    ) -> Result<Costs> {
        let [blue, _] = self.backends;
        let rounds = rounds.next_multiple_of(2);
        self.prepare(rounds)?;
        let mut side = Side::new(self.cluster, Feed::Sesame, self.port)?;
        let mut costs = Costs::default();
        let used = || -> Result<[f64; 2]> {
            thread::sleep(SETTLE);
            Ok([
                replica.milliseconds()?,
                machine::main_thread_milliseconds(envoy)?,
            ])
        };
        let all: Vec<usize> = (0..rounds).collect();
        for some in all.chunks(IN_A_ROW) {
            for (place, kind) in Kind::ALL.into_iter().enumerate() {
                // Reading the metrics also costs CPU time.
                let sent_before = replica.sent_bytes()?;
                let before = used()?;
                for round in some {
                    let step = site::step(kind, *round, self.backends);
                    side.change(self.cluster, step)?;
                    thread::sleep(REST);
                }
                let after = used()?;
                let sent = replica.sent_bytes()? - sent_before;
                costs.sesame[place] += (after[0] - before[0]) / rounds as f64;
                costs.envoy[place] += (after[1] - before[1]) / rounds as f64;
                costs.bytes[place] += sent / 1024.0 / rounds as f64;
            }
        }
        tally.add(side.close());
        self.clear(rounds, blue)?;
        Ok(costs)
    }

    fn prepare(&self, rounds: usize) -> Result<()> {
        let all = site::prepared(rounds, self.backends[0]).into_iter();
        self.cluster.write_all(all.map(Write::Create))
    }

    fn clear(&self, rounds: usize, blue: SocketAddr) -> Result<()> {
        let all = site::prepared(rounds, blue).into_iter();
        self.cluster.write_all(all.map(Write::Delete))
    }
}
