//! `rss`: the memory of `sesame local` as a user runs it.
//!
//! The release binary reads a folder of YAML files with a hundred apps each (a route, a Service, a slice) and runs one real
//! Envoy. Memory is what the kernel counts as resident of the process of Sesame (not of Envoy), a second after Envoy has
//! everything, and at its highest until then.

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

/// Apps in one file.
const IN_A_FILE: usize = 100;
/// How long it may take until everything is served, and until everything has ended.
const PATIENCE: Duration = Duration::from_secs(120);
/// Between the last acknowledgement and the look.
const REST: Duration = Duration::from_secs(1);

pub(crate) fn run(settings: &Settings) -> Result<Vec<Figure>> {
    let count = settings.routes;
    let sesame = sesame(settings)?;
    eprintln!("rss: {} with {count} routes", sesame.display());
    let folder = tempfile::tempdir()?;
    let values = objects::values(rig::free_port()?, count, many::endpoint);
    let (gateway, apps) = values.split_at(1);
    fs::write(folder.path().join("gateway.yaml"), yaml(gateway)?)?;
    // An app is three objects.
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
        .with_context(|| format!("can't run {}", sesame.display()))?;
    let mut running = Running(child);
    running.wait_until_ready()?;
    let ready = start.elapsed();
    thread::sleep(REST);
    let memory = machine::memory(Some(running.0.id()))?;
    running.end()?;
    Ok(vec![
        Figure::new(
            format!("memory of `sesame local`, {count} routes"),
            Unit::Mebibytes,
            memory.now,
        )
        .at_most(120.0)
        .note("resident, when Envoy has everything"),
        Figure::new("the same, at its highest", Unit::Mebibytes, memory.peak),
        Figure::new(
            "started until everything is served",
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

/// `sesame`, built by the same profile.
fn beside_this() -> Result<PathBuf> {
    let path = std::env::current_exe()?.with_file_name("sesame");
    if !path.exists() {
        bail!(
            "{} is not there: build it (`cargo build --release --package sesame-cli`) or name one with --sesame",
            path.display()
        );
    }
    Ok(path)
}

fn yaml(values: &[Value]) -> Result<String> {
    let documents: Vec<String> = values
        .iter()
        .map(|value| serde_saphyr::to_string(value).context("an object can't be written as YAML"))
        .collect::<Result<_>>()?;
    Ok(documents.join("---\n"))
}

/// A process that is killed if nothing else ends it.
struct Running(Child);

impl Running {
    /// Waits for the event `ready`, and goes on reading.
    fn wait_until_ready(&mut self) -> Result<()> {
        let stdout = self.0.stdout.take().context("no standard output")?;
        let (tell, told) = mpsc::sync_channel(1);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                if event["type"] == "ready" {
                    // Only the first one is waited for.
                    let _ = tell.try_send(event["gateways"].as_u64());
                }
            }
        });
        match told.recv_timeout(PATIENCE) {
            Ok(Some(1)) => Ok(()),
            Ok(_) => bail!("Sesame started, but Envoy doesn't serve"),
            Err(_) => bail!("Sesame doesn't become ready"),
        }
    }

    /// As Ctrl-C does.
    fn end(&mut self) -> Result<()> {
        kill(Pid::from_raw(self.0.id().try_into()?), Signal::SIGTERM)?;
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            if let Some(status) = self.0.try_wait()? {
                if !status.success() {
                    bail!("Sesame ended with {status}");
                }
                return Ok(());
            }
            thread::sleep(Duration::from_millis(20));
        }
        bail!("Sesame doesn't end")
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails if it has ended already, which is what is wanted.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
