//! Background load: rewrites other routes at a steady pace, without changing which backend responds.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::json;
use sesame_testkit::many;

use super::cluster::{Cluster, Write, Writer};

/// Time between two rewrites: five per second.
const PACE: Duration = Duration::from_millis(200);
/// Pause after the last rewrite, longer than a change takes.
const REST: Duration = Duration::from_millis(500);

/// A thread that rewrites routes.
pub(crate) struct Churn {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Result<usize>>,
}

impl Churn {
    pub(crate) fn start(cluster: &Cluster, apps: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (writer, stopped) = (cluster.writer(), Arc::clone(&stop));
        let thread = thread::spawn(move || rewrite(&writer, apps, &stopped));
        Self { stop, thread }
    }

    /// Stops and returns the number of rewrites.
    pub(crate) fn end(self) -> Result<usize> {
        self.stop.store(true, Ordering::SeqCst);
        let rewritten = self.thread.join();
        thread::sleep(REST);
        rewritten.map_err(|_| anyhow!("the thread that rewrites routes panicked"))?
    }
}

fn rewrite(writer: &Writer, apps: usize, stop: &AtomicBool) -> Result<usize> {
    let mut next = Instant::now();
    for turn in 0.. {
        if stop.load(Ordering::SeqCst) {
            return Ok(turn);
        }
        // Scattered across all apps.
        let name = many::name(turn.wrapping_mul(7919) % apps);
        let mut route = many::route(&name, "", &[(&name, 1)]);
        let spec = &mut route["spec"];
        spec["rules"][0]["filters"] = json!([{
            "type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": [{"name": "x-turn", "value": turn.to_string()}]},
        }]);
        // A merge patch that contains only the rules.
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|field, _| field == "rules");
        }
        writer.write(Write::Change(route))?;
        next += PACE;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(0)
}
