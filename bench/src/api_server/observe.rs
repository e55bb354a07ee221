//! Counts status writes by watching HTTPRoutes and the Gateway.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sesame_testkit::many;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::cluster::{Cluster, Observed};
use crate::rig;

/// Time limit for waiting.
const PATIENCE: Duration = Duration::from_secs(240);
/// Window for the Gateway's write rate.
const SECOND: Duration = Duration::from_secs(1);

/// Watches statuses until dropped.
pub(crate) struct Observer {
    seen: Arc<(Mutex<Seen>, Condvar)>,
    /// Runs the watches.
    _runtime: Runtime,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// Writes to the Gateway's status: time and attached routes.
    gateway: Vec<(Instant, u64)>,
    /// Writes to each route's status: count and last time.
    routes: BTreeMap<String, (u64, Instant)>,
}

impl Observer {
    pub(crate) fn start(cluster: &Cluster) -> Result<Self> {
        let runtime = rig::runtime("observe")?;
        let seen: Arc<(Mutex<Seen>, Condvar)> = Arc::default();
        let gateway = cluster.watch(&many::gateway(1), runtime.handle())?;
        let like = many::route("any", "any.example.com", &[]);
        let routes = cluster.watch(&like, runtime.handle())?;
        runtime.spawn(note(gateway, Arc::clone(&seen), Seen::gateway));
        runtime.spawn(note(routes, Arc::clone(&seen), Seen::route));
        Ok(Self {
            seen,
            _runtime: runtime,
        })
    }

    /// Waits until `done` holds.
    pub(crate) fn until(&self, what: &str, done: impl Fn(&Seen) -> bool) -> Result<()> {
        let begin = Instant::now();
        let (seen, changed) = &*self.seen;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        while !done(&seen) {
            let left = PATIENCE.saturating_sub(begin.elapsed());
            if left.is_zero() {
                bail!(
                    "timeout after {PATIENCE:?}; expected: {what}; {} routes have statuses, attachedRoutes is {:?}",
                    seen.routes.len(),
                    seen.gateway.last().map(|(_, attached)| attached)
                );
            }
            let waited = changed.wait_timeout(seen, left);
            seen = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Ok(())
    }

    pub(crate) fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn note(
    mut events: mpsc::Receiver<Observed>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    add: fn(&mut Seen, Observed),
) {
    while let Some(event) = events.recv().await {
        // Every modification is a status write: no spec changes during the observation.
        if event.changed {
            add(
                &mut seen.0.lock().unwrap_or_else(PoisonError::into_inner),
                event,
            );
            seen.1.notify_all();
        }
    }
}

impl Seen {
    fn gateway(&mut self, event: Observed) {
        let listener = &event.object.data["status"]["listeners"][0];
        let attached = listener["attachedRoutes"].as_u64().unwrap_or_default();
        self.gateway.push((event.at, attached));
    }

    fn route(&mut self, event: Observed) {
        let name = event.object.metadata.name.unwrap_or_default();
        let (writes, last) = self.routes.entry(name).or_insert((0, event.at));
        *writes += 1;
        *last = event.at;
    }

    /// Number of routes with a status.
    pub(crate) fn routes(&self) -> usize {
        self.routes.len()
    }

    /// Time of the last route status write.
    pub(crate) fn last_route(&self) -> Option<Instant> {
        self.routes.values().map(|(_, last)| *last).max()
    }

    /// Total number of route status writes, and the maximum for one route.
    pub(crate) fn route_writes(&self) -> (u64, u64) {
        let writes = self.routes.values().map(|(writes, _)| *writes);
        (writes.clone().sum(), writes.max().unwrap_or_default())
    }

    /// The Gateway's `attachedRoutes`.
    pub(crate) fn attached(&self) -> Option<u64> {
        Some(self.gateway.last()?.1)
    }

    /// When `attachedRoutes` reached its current value.
    pub(crate) fn attached_since(&self) -> Option<Instant> {
        let last = self.attached()?;
        let same = self.gateway.iter().rev();
        let same = same.take_while(|(_, attached)| *attached == last);
        same.map(|(at, _)| *at).last()
    }

    /// The maximum number of Gateway status writes within one second.
    pub(crate) fn gateway_rate(&self) -> usize {
        let times: Vec<Instant> = self.gateway.iter().map(|(at, _)| *at).collect();
        let within = |first: usize| {
            let end = times[first] + SECOND;
            times[first..].partition_point(|at| *at < end)
        };
        (0..times.len()).map(within).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_the_maximum_within_a_second() {
        let begin = Instant::now();
        let at = |millis: &[u64]| {
            let times = millis.iter().map(|by| begin + Duration::from_millis(*by));
            let gateway = times.map(|at| (at, 1)).collect();
            let seen = Seen {
                gateway,
                ..Seen::default()
            };
            seen.gateway_rate()
        };
        assert_eq!(at(&[]), 0);
        assert_eq!(at(&[0, 1000, 2000]), 1);
        assert_eq!(at(&[0, 900, 1000, 1100, 1899, 5000]), 4);
    }

    #[test]
    fn attached_since_is_the_time_of_the_last_change() {
        let begin = Instant::now();
        let mut seen = Seen::default();
        assert_eq!(seen.attached_since(), None);
        for (second, attached) in [(0, 2), (1, 1), (2, 2), (3, 2)] {
            let at = begin + Duration::from_secs(second);
            seen.gateway.push((at, attached));
        }
        let since = begin + Duration::from_secs(2);
        assert_eq!(seen.attached_since(), Some(since));
    }
}
