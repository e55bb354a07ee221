//! Many new routes at once: time and writes until each has a status and `attachedRoutes` includes it.
//!
//! Their Services and EndpointSlices already exist. The bench limits its concurrent requests; meanwhile Sesame writes
//! statuses to the same API server.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::cluster::{Cluster, Write};
use super::observe::Observer;
use super::site::{self, EXTRAS};

/// Time to wait for late writes.
const AFTERWARDS: Duration = Duration::from_secs(2);

/// The result.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loaded {
    /// Time to write the routes, in milliseconds.
    pub(crate) written: f64,
    /// Time from the bench's last write until `attachedRoutes` included all routes, in milliseconds; `None` for
    /// HTTPProxies.
    pub(crate) attached: Option<f64>,
    /// Time from the bench's last write until the last route had a status, in milliseconds.
    pub(crate) statuses: f64,
    /// Number of route status writes.
    pub(crate) writes: u64,
    /// Maximum number of status writes for one route.
    pub(crate) most: u64,
    /// Maximum number of Gateway status writes within a second.
    pub(crate) gateway: usize,
}

/// Creates the Services and EndpointSlices for apps.
pub(crate) fn services(cluster: &Cluster, apps: Range<usize>, blue: SocketAddr) -> Result<()> {
    cluster.write_all(site::services(apps, blue).into_iter().map(Write::Create))
}

/// Creates the routes for apps. The Gateway already has the routes for all earlier apps and the permanent routes.
pub(crate) fn routes(cluster: &Cluster, apps: Range<usize>, blue: SocketAddr) -> Result<Loaded> {
    let observer = Observer::start(cluster)?;
    let begin = Instant::now();
    let all = site::routes(apps.clone(), blue).into_iter();
    cluster.write_all(all.map(Write::Create))?;
    let end = Instant::now();
    let count = apps.end + EXTRAS;
    observer.until("all statuses are written", |seen| {
        let attached = cluster.proxies || seen.attached() == Some(count as u64);
        seen.routes() >= apps.len() && attached
    })?;
    std::thread::sleep(AFTERWARDS);
    let seen = observer.seen();
    let since = |start: Instant, moment: Option<Instant>| -> Result<f64> {
        let moment = moment.context("no status was written")?;
        Ok(moment.saturating_duration_since(start).as_secs_f64() * 1e3)
    };
    let (writes, most) = seen.route_writes();
    Ok(Loaded {
        written: (end - begin).as_secs_f64() * 1e3,
        attached: match cluster.proxies {
            true => None,
            false => Some(since(end, seen.attached_since())?),
        },
        statuses: since(end, seen.last_route())?,
        writes,
        most,
        gateway: seen.gateway_rate(),
    })
}

/// Deletes apps.
pub(crate) fn remove(cluster: &Cluster, apps: Range<usize>, blue: SocketAddr) -> Result<()> {
    let routes = site::routes(apps.clone(), blue).into_iter();
    cluster.write_all(routes.map(Write::Delete))?;
    let services = site::services(apps, blue).into_iter();
    cluster.write_all(services.map(Write::Delete))
}
