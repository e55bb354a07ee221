//! `rss`: memory of `sesame local`.
//!
//! The release binary reads a folder of YAML files with a hundred apps each (a route, a Service and an EndpointSlice
//! per app) and runs one real Envoy. Memory is the resident set size of the Sesame process without Envoy, one second
//! after Envoy has ACKed everything, and its peak.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use sesame_fleet::local::binary;
use sesame_testkit::many;

use crate::Settings;
use crate::machine;
use crate::objects;
use crate::report::{Figure, Unit};
use crate::rig;

/// Apps per file.
const IN_A_FILE: usize = 100;
/// Time limit for startup and for shutdown.
const PATIENCE: Duration = Duration::from_secs(120);
/// Time between the last ACK and the measurement.
const REST: Duration = Duration::from_secs(1);

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let count = settings.routes;
    let sesame = sesame(settings)?;
    eprintln!("rss: {} with {count} routes", sesame.display());
    let folder = tempfile::tempdir()?;
    let values = objects::values(rig::free_port()?, count, many::endpoint);
    let (gateway, apps) = values.split_at(1);
    fs::write(folder.path().join("gateway.yaml"), yaml(gateway)?)?;
    // Each app consists of three objects.
    for (number, some) in apps.chunks(3 * IN_A_FILE).enumerate() {
        fs::write(
            folder.path().join(format!("apps-{number}.yaml")),
            yaml(some)?,
        )?;
    }

    let start = Instant::now();
    let child = Command::new(&sesame)
        .args(["local", "--output", "json"])
        .arg(folder.path())
        .env(
            binary::ENVIRONMENT,
            binary::find(settings.envoy.as_deref())?.path,
        )
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot run {}", sesame.display()))?;
    let mut running = Running(child);
    running.wait_until_ready()?;
    let ready = start.elapsed();
    thread::sleep(REST);
    let memory = machine::memory(Some(running.0.id()))?;
    running.end()?;
    Ok(vec![
        Figure::new(
            format!("memory of `sesame local` with {count} routes"),
            Unit::Mebibytes,
            memory.now,
        )
        .at_most(120.0)
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
        ),
    ])
}

/// The binary to measure.
pub(crate) fn sesame(settings: &Settings) -> Result<PathBuf> {
    match &settings.sesame {
        Some(path) => Ok(path.clone()),
        None => beside_this(),
    }
}

/// The `sesame` next to this program.
fn beside_this() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("sesame");
    if !path.exists() {
        bail!(
            "{} doesn't exist: build it (`cargo build --release --package sesame-cli`) or set --sesame",
            path.display()
        );
    }
    Ok(path)
}

fn yaml(values: &[Value]) -> Result<String> {
    let documents: Vec<String> = values
        .iter()
        .map(|value| serde_saphyr::to_string(value).context("cannot write an object as YAML"))
        .collect::<Result<_>>()?;
    Ok(documents.join("---\n"))
}

/// A process that is killed on drop.
struct Running(Child);

impl Running {
    /// Waits for the `ready` event and keeps reading the output.
    fn wait_until_ready(&mut self) -> Result<()> {
        let stdout = self.0.stdout.take().context("no standard output")?;
        let (sender, ready) = mpsc::sync_channel(1);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                if event["type"] == "ready" {
                    // Only the first one counts.
                    let _ = sender.try_send(event["gateways"].as_u64());
                }
            }
        });
        match ready.recv_timeout(PATIENCE) {
            Ok(Some(1)) => Ok(()),
            Ok(_) => bail!("Sesame is ready but serves no Gateway"),
            Err(_) => bail!("Sesame was not ready within the time limit"),
        }
    }

    /// Sends SIGTERM and waits for the exit.
    fn end(&mut self) -> Result<()> {
        kill(Pid::from_raw(self.0.id().try_into()?), Signal::SIGTERM)?;
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait()? {
                if !status.success() {
                    bail!("Sesame exited with {status}");
                }
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("Sesame did not exit")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has already exited.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
