//! Somebody rewrites routes all the time, while others wait for their own changes.
//!
//! In: how many apps there are. Out: rewrites at a steady pace, each of another app's route, none of which changes who answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use serde_json::json;
use sesame_testkit::many;

use super::cluster::{Cluster, Write, Writer};

/// Between two rewrites: five in a second.
const PACE: Duration = Duration::from_millis(200);
/// Longer than a change takes.
const REST: Duration = Duration::from_millis(500);

/// A thread that rewrites.
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

    /// Ends, and says how many routes were rewritten.
    pub(crate) fn end(self) -> Result<usize> {
        self.stop.store(true, Ordering::SeqCst);
        let rewritten = self.thread.join();
        thread::sleep(REST);
        rewritten.map_err(|_| anyhow!("who rewrites routes panicked"))?
    }
}

fn rewrite(writer: &Writer, apps: usize, stop: &AtomicBool) -> Result<usize> {
    let mut next = Instant::now();
    for turn in 0.. {
        if stop.load(Ordering::SeqCst) {
            return Ok(turn);
        }
        // Spread over all of them, and not in order.
        let name = many::name(turn.wrapping_mul(7919) % apps);
        let mut route = many::route(&name, "", &[(&name, 1)]);
        let spec = &mut route["spec"];
        spec["rules"][0]["filters"] = json!([{
            "type": "ResponseHeaderModifier",
            "responseHeaderModifier": {"set": [{"name": "x-turn", "value": turn.to_string()}]},
        }]);
        // What isn't said stays as it is.
        if let Some(spec) = spec.as_object_mut() {
            spec.retain(|field, _| field == "rules");
        }
        writer.write(Write::Change(route))?;
        next += PACE;
        thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    Ok(0)
}
