//! Many routes at once: how long until each has its status and the Gateway counts them, and how many writes that takes.
//!
//! Their Services and slices are there before. The bench writes as fast as the API server takes it, with a bounded number of
//! requests on their way; statuses are written at the same time, through the same API server.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::cluster::{Cluster, Write};
use super::observe::Observer;
use super::site::{self, EXTRAS};

/// How long to go on looking, for writes that come late.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// What was seen.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    /// Milliseconds in which the routes were written.
    pub(crate) written: f64,
    /// From the last answer to the bench's writes until the Gateway counted all.
    pub(crate) attached: f64,
    /// From the last answer to the bench's writes until the last route had its status.
    pub(crate) statuses: f64,
    /// Writes of routes' statuses.
    pub(crate) writes: u64,
    /// The most of one route.
    pub(crate) most: u64,
    /// The most writes of the Gateway within a second.
    pub(crate) gateway: usize,
}

/// Adds the Services and slices of so many apps, beside those of `from` that are there.
pub(crate) fn services(cluster: &Cluster, apps: Range<usize>, blue: SocketAddr) -> Result<()> {
    cluster.write_all(site::services(apps, blue).into_iter().map(Write::Create))
}

/// Adds the routes of apps to a Gateway that has those before them, and those that are always there.
pub(crate) fn routes(cluster: &Cluster, apps: Range<usize>, blue: SocketAddr) -> Result<Loaded> {
    let observer = Observer::start(cluster)?;
    let begin = Instant::now();
    let all = site::routes(apps.clone(), blue).into_iter();
    cluster.write_all(all.map(Write::Create))?;
    let end = Instant::now();
    let count = apps.end + EXTRAS;
    observer.until("all statuses are written", |seen| {
        seen.routes() >= apps.len() && seen.attached() == Some(count as u64)
    })?;
    std::thread::sleep(AFTERWARDS);
    let seen = observer.seen();
    let since = |start: Instant, moment: Option<Instant>| -> Result<f64> {
        let moment = moment.context("nothing was written")?;
        Ok(moment.saturating_duration_since(start).as_secs_f64() * 1e3)
    };
    let (writes, most) = seen.route_writes();
    Ok(Loaded {
        written: (end - begin).as_secs_f64() * 1e3,
        attached: since(end, seen.attached_since())?,
        statuses: since(end, seen.last_route())?,
        writes,
        most,
        gateway: seen.gateway_rate(),
    })
}

/// Takes away apps.
pub(crate) fn remove(cluster: &Cluster, apps: Range<usize>, blue: SocketAddr) -> Result<()> {
    let routes = site::routes(apps.clone(), blue).into_iter();
    cluster.write_all(routes.map(Write::Delete))?;
    let services = site::services(apps, blue).into_iter();
    cluster.write_all(services.map(Write::Delete))
}
