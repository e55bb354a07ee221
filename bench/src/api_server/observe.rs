//! What is written into statuses, as a watch tells it.
//!
//! In: events of HTTPRoutes and of the Gateway. Out: how often each status was written, and when.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use sesame_testkit::many;
use tokio::runtime::Runtime;
use tokio::sync::mpsc;

use super::cluster::{Cluster, Told};
use crate::rig;

/// What isn't written by then has failed.
const PATIENCE: Duration = Duration::from_secs(240);
/// The time over which writes of the Gateway are counted.
const SECOND: Duration = Duration::from_secs(1);

/// A look at statuses, from its beginning to its end.
pub(crate) struct Observer {
    seen: Arc<(Mutex<Seen>, Condvar)>,
    /// Watches.
    _runtime: Runtime,
}

#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When the Gateway's status was written, and how many routes it counted then.
    gateway: Vec<(Instant, u64)>,
    /// How often each route's status was written, and when last.
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

    /// Waits until something has been seen.
    pub(crate) fn until(&self, what: &str, so: impl Fn(&Seen) -> bool) -> Result<()> {
        let begin = Instant::now();
        let (seen, changed) = &*self.seen;
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        while !so(&seen) {
            let left = PATIENCE.saturating_sub(begin.elapsed());
            if left.is_zero() {
                bail!(
                    "{what}: not after {PATIENCE:?}; {} statuses of routes were written, the Gateway counts {:?}",
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
    mut told: mpsc::Receiver<Told>,
    seen: Arc<(Mutex<Seen>, Condvar)>,
    add: fn(&mut Seen, Told),
) {
    while let Some(told) = told.recv().await {
        // What wrote it is the change of a status: nobody changes specs meanwhile.
        if told.changed {
            add(
                &mut seen.0.lock().unwrap_or_else(PoisonError::into_inner),
                told,
            );
            seen.1.notify_all();
        }
    }
}

impl Seen {
    fn gateway(&mut self, told: Told) {
        let listener = &told.object.data["status"]["listeners"][0];
        let attached = listener["attachedRoutes"].as_u64().unwrap_or_default();
        self.gateway.push((told.at, attached));
    }

    fn route(&mut self, told: Told) {
        let name = told.object.metadata.name.unwrap_or_default();
        let (writes, last) = self.routes.entry(name).or_insert((0, told.at));
        *writes += 1;
        *last = told.at;
    }

    /// How many routes have a status.
    pub(crate) fn routes(&self) -> usize {
        self.routes.len()
    }

    /// When the last of them was written.
    pub(crate) fn last_route(&self) -> Option<Instant> {
        self.routes.values().map(|(_, last)| *last).max()
    }

    /// All writes of routes, and the most of one.
    pub(crate) fn route_writes(&self) -> (u64, u64) {
        let writes = self.routes.values().map(|(writes, _)| *writes);
        (writes.clone().sum(), writes.max().unwrap_or_default())
    }

    /// How many routes the Gateway counts.
    pub(crate) fn attached(&self) -> Option<u64> {
        Some(self.gateway.last()?.1)
    }

    /// Since when it counts so many.
    pub(crate) fn attached_since(&self) -> Option<Instant> {
        let last = self.attached()?;
        let same = self.gateway.iter().rev();
        let same = same.take_while(|(_, attached)| *attached == last);
        same.map(|(at, _)| *at).last()
    }

    /// The most writes of the Gateway's status within any second.
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
    fn a_rate_is_the_most_within_a_second() {
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
    fn a_count_holds_since_it_was_last_another() {
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
