//! `rss`: memory of `sesame local`.
//!
//! The release binary reads a folder of YAML files with a hundred apps each (a route, a Service and an EndpointSlice
//! per app) and runs one real Envoy. Memory is the resident set size of the Sesame process without Envoy, one second
//! after Envoy has ACKed everything, and its peak.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use sesame_testkit::many;

use crate::Settings;
use crate::local::Local;
use crate::objects;
use crate::report::{Figure, Unit};
use crate::rig;

/// Apps per file.
const IN_A_FILE: usize = 100;
/// Time between the last ACK and the measurement.
const REST: Duration = Duration::from_secs(1);

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let count = settings.routes;
    eprintln!("rss: `sesame local` with {count} routes");
    let values = objects::values(rig::free_port()?, count, many::endpoint);
    let (gateway, apps) = values.split_at(1);
    // Each app consists of three objects.
    let apps = apps.chunks(3 * IN_A_FILE).enumerate();
    let files = apps.map(|(number, some)| (format!("apps-{number}.yaml"), some));
    let start = Instant::now();
    let local = Local::start(
        settings,
        files.chain([("gateway.yaml".to_owned(), gateway)]),
    )?;
    let ready = start.elapsed();
    thread::sleep(REST);
    let memory = local.memory()?;
    local.end()?;
    Ok(vec![
        Figure::new(
            format!("memory of `sesame local` with {count} routes"),
            Unit::Mebibytes,
            memory.now,
        )
        .at_most(if count <= 10_000 { 120.0 } else { 500.0 })
        .note("resident, after Envoy has ACKed everything"),
        Figure::new(
            "peak memory of `sesame local`",
            Unit::Mebibytes,
            memory.peak,
        ),
        Figure::new(
            "startup time of `sesame local`, until everything is served",
            Unit::Milliseconds,
            ready.as_secs_f64() * 1e3,
        )
        .at_most(15_000.0),
    ])
}
