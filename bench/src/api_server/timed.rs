//! Changes one after the other: how long each takes at Sesame and at the floor, and what Sesame's process costs by them.
//!
//! Rounds of both take turns, and which is first changes from round to round. Between changes there is a pause, in which
//! everything comes to rest. A new route's Service and slice are there before.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use super::cluster::{Cluster, Write};
use super::floor::WatchedFloor;
use super::prober::Tally;
use super::replica::Replica;
use super::side::{Feed, Side};
use super::site::{self, BLUE, Kind, Shown};
use crate::report::{Figure, Samples, Unit};

/// Before a change that is timed.
const REST: Duration = Duration::from_millis(40);
/// Rounds before those that count.
const WARM_UP: usize = 4;
/// Before and after changes whose cost is taken: what statuses cost comes behind the answer.
const SETTLE: Duration = Duration::from_millis(500);

/// What changes are made to.
pub(crate) struct Place<'a> {
    pub(crate) cluster: &'a Cluster,
    pub(crate) envoy: Option<&'a Path>,
    /// Where Sesame's Envoy serves.
    pub(crate) port: u16,
    pub(crate) backends: [SocketAddr; 2],
    /// How many apps there are.
    pub(crate) apps: usize,
}

impl Place<'_> {
    /// Changes in turn at Sesame and at a floor.
    pub(crate) fn latency(&self, rounds: usize, tally: &mut Tally) -> Result<Vec<Figure>> {
        let [blue, _] = self.backends;
        let total = (WARM_UP + rounds).next_multiple_of(2);
        self.prepare(total)?;
        let (floor, floor_port) =
            WatchedFloor::start(self.cluster, self.envoy, self.apps, total, self.backends)?;
        let mut sides = [
            Side::new(Feed::Sesame, self.port)?,
            Side::new(Feed::Floor(Box::new(floor)), floor_port)?,
        ];
        for side in &mut sides {
            let host = site::host(BLUE);
            side.until(&host, Shown::Nothing, Shown::By(BLUE))?;
        }
        let mut shown: [[Samples; 2]; 4] = Default::default();
        let mut written: [[Samples; 2]; 4] = Default::default();
        for round in 0..total {
            for (place, kind) in Kind::ALL.into_iter().enumerate() {
                for which in [round % 2, 1 - round % 2] {
                    thread::sleep(REST);
                    let step = site::step(kind, round, self.backends);
                    let taken = sides[which].change(self.cluster, step)?;
                    if round >= WARM_UP {
                        shown[place][which].push(taken.shown);
                        written[place][which].push(taken.written);
                    }
                }
            }
        }
        let [sesame, floor] = sides.map(Side::close);
        tally.add(sesame);
        if floor.wrong > 0 {
            eprintln!("the floor gave {} wrong answers", floor.wrong);
        }
        self.clear(total, blue)?;
        let mut figures = Vec::new();
        for ((kind, shown), written) in Kind::ALL.into_iter().zip(&shown).zip(&written) {
            figures.extend(self.figures(kind, shown, written));
        }
        Ok(figures)
    }

    fn figures(&self, kind: Kind, shown: &[Samples; 2], written: &[Samples; 2]) -> Vec<Figure> {
        let name = format!("{}, {} routes", kind.name(), self.apps);
        let [sesame, floor] = shown;
        let write = |samples: &Samples| {
            format!(
                "{} times, of it {:.1} ms until the API server's answer",
                samples.len(),
                samples.quantile(0.5)
            )
        };
        let of =
            |who: &str, samples| Figure::of(format!("{name}: {who}"), Unit::Milliseconds, samples);
        let mut figures = vec![
            of("Sesame", sesame).note(write(&written[0])),
            of("floor", floor).note(write(&written[1])),
        ];
        for (share, text) in [(0.5, "median"), (0.99, "p99")] {
            let ratio = sesame.quantile(share) / floor.quantile(share);
            let figure = Figure::new(
                format!("{name}: Sesame / floor, {text}"),
                Unit::Ratio,
                ratio,
            );
            figures.push(match kind {
                Kind::Deleted => figure,
                _ => figure.at_most(1.3),
            });
        }
        figures
    }

    /// Milliseconds of processor time that Sesame's process uses by a change, of each kind.
    pub(crate) fn cost(
        &self,
        replica: &Replica,
        rounds: usize,
        tally: &mut Tally,
    ) -> Result<[f64; 4]> {
        let [blue, _] = self.backends;
        let rounds = rounds.next_multiple_of(2);
        self.prepare(rounds)?;
        let mut side = Side::new(Feed::Sesame, self.port)?;
        let mut costs = [0.0; 4];
        for (cost, kind) in costs.iter_mut().zip(Kind::ALL) {
            thread::sleep(SETTLE);
            let before = replica.milliseconds()?;
            for round in 0..rounds {
                let step = site::step(kind, round, self.backends);
                side.change(self.cluster, step)?;
                thread::sleep(REST);
            }
            thread::sleep(SETTLE);
            *cost = (replica.milliseconds()? - before) / rounds as f64;
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
