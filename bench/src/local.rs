//! `sesame local` as a child process, on a folder of objects.
//!
//! In: objects by file. Out: a process that serves them with one real Envoy until it is dropped, and its costs.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sesame_fleet::local::binary;
use sesame_testkit::many;
use tempfile::TempDir;

use crate::probe::Probe;
use crate::{Settings, machine};

/// The address of Sesame's admin server and of Gateways. Few other programs listen on it.
pub(crate) const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 77, 0, 1));

/// The port of Sesame's admin server.
const ADMIN: u16 = 9900;
/// Time limit for startup and for shutdown.
const PATIENCE: Duration = Duration::from_secs(120);

/// A running `sesame local`.
pub(crate) struct Local {
    child: Child,
    folder: TempDir,
    envoy: u32,
}

/// Resources used by Sesame and its Envoy since their start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Used {
    /// CPU time of Sesame, in milliseconds.
    pub(crate) sesame: f64,
    /// CPU time of Envoy's main thread, in milliseconds.
    pub(crate) envoy: f64,
    /// Kibibytes of resources sent to Envoy.
    pub(crate) sent: f64,
}

impl Used {
    /// The difference from an earlier measurement, per change.
    pub(crate) fn since(self, before: Self, changes: usize) -> Self {
        let per_change = |after: f64, before: f64| (after - before) / changes as f64;
        Self {
            sesame: per_change(self.sesame, before.sesame),
            envoy: per_change(self.envoy, before.envoy),
            sent: per_change(self.sent, before.sent),
        }
    }
}

impl Local {
    /// Starts `sesame local` with these files, and waits until Envoy has ACKed everything. The objects must be served
    /// by one Gateway or by the default fleet.
    pub(crate) fn start<'a>(
        settings: &Settings,
        files: impl IntoIterator<Item = (String, &'a [Value])>,
    ) -> Result<Self> {
        Self::start_at(settings, 0, files)
    }

    /// [`start`](Self::start), with a number that Sesame adds to all ports.
    pub(crate) fn start_at<'a>(
        settings: &Settings,
        port_offset: u16,
        files: impl IntoIterator<Item = (String, &'a [Value])>,
    ) -> Result<Self> {
        let sesame = binary(settings)?;
        let folder = tempfile::Builder::new().prefix("sesame-bench-").tempdir()?;
        let scratch = folder.path().join("scratch");
        fs::create_dir(folder.path().join("objects"))?;
        fs::create_dir(&scratch)?;
        for (name, objects) in files {
            fs::write(folder.path().join("objects").join(name), yaml(objects)?)?;
        }
        let child = Command::new(&sesame)
            .args(["local", "--output", "json", "--concurrency", "1"])
            .args(["--admin", &SocketAddr::new(ADDRESS, ADMIN).to_string()])
            .args(["--port-offset", &port_offset.to_string()])
            .arg(folder.path().join("objects"))
            .env(
                binary::ENVIRONMENT,
                binary::find(settings.envoy.as_deref())?.path,
            )
            .env("TMPDIR", &scratch)
            .env_remove("XDG_RUNTIME_DIR")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot run {}", sesame.display()))?;
        let mut local = Self {
            child,
            folder,
            envoy: 0,
        };
        local.wait_until_ready()?;
        local.envoy = machine::pid_with_argument(&scratch.display().to_string(), PATIENCE)?;
        Ok(local)
    }

    /// Writes or atomically replaces a file of objects.
    pub(crate) fn write(&self, name: &str, objects: &[Value]) -> Result<()> {
        let beside = self.folder.path().join("scratch").join(name);
        fs::write(&beside, yaml(objects)?)?;
        Ok(fs::rename(beside, self.file(name))?)
    }

    /// Removes a file of objects.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        Ok(fs::remove_file(self.file(name))?)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join("objects").join(name)
    }

    /// Memory of Sesame.
    pub(crate) fn memory(&self) -> Result<machine::Memory> {
        machine::memory(Some(self.child.id()))
    }

    /// Memory of Envoy.
    pub(crate) fn memory_of_envoy(&self) -> Result<machine::Memory> {
        machine::memory(Some(self.envoy))
    }

    /// The resources used so far.
    pub(crate) fn used(&self) -> Result<Used> {
        let admin = SocketAddr::new(ADDRESS, ADMIN);
        let page = Probe::connect(admin)?.get_path("localhost", "/metrics")?;
        Ok(Used {
            sesame: machine::process_milliseconds(self.child.id())?,
            envoy: machine::main_thread_milliseconds(self.envoy)?,
            sent: sent_bytes(page.body())? / 1024.0,
        })
    }

    /// Waits for the `ready` event and keeps reading the output.
    fn wait_until_ready(&mut self) -> Result<()> {
        let stdout = self.child.stdout.take().context("no standard output")?;
        let (sender, ready) = mpsc::sync_channel(1);
        thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                let event: Value = serde_json::from_str(&line).unwrap_or_default();
                if event["type"] == "ready" {
                    let serves = event["gateways"] == 1 || event["defaultFleet"] == true;
                    // Only the first one counts.
                    let _ = sender.try_send(serves);
                }
            }
        });
        match ready.recv_timeout(PATIENCE) {
            Ok(true) => Ok(()),
            Ok(false) => bail!("Sesame is ready but serves nothing"),
            Err(_) => bail!("Sesame was not ready within the time limit"),
        }
    }

    /// Sends SIGTERM and waits for the exit.
    pub(crate) fn end(mut self) -> Result<()> {
        machine::terminate(&mut self.child, PATIENCE)
    }
}

impl Drop for Local {
    fn drop(&mut self) {
        // Fails if it has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The Gateway at [`ADDRESS`], with these listeners and those of ListenerSets.
pub(crate) fn gateway(listeners: &[Value]) -> Value {
    let mut gateway = many::gateway(0);
    gateway["spec"]["addresses"] = json!([{"type": "IPAddress", "value": ADDRESS.to_string()}]);
    gateway["spec"]["allowedListeners"] = json!({"namespaces": {"from": "Same"}});
    gateway["spec"]["listeners"] = listeners.into();
    gateway
}

/// The `sesame` to measure.
pub(crate) fn binary(settings: &Settings) -> Result<PathBuf> {
    if let Some(path) = &settings.sesame {
        return Ok(path.clone());
    }
    let path = std::env::current_exe()?.with_file_name("sesame");
    if !path.exists() {
        bail!(
            "{} doesn't exist: build it (`cargo build --release --package sesame-cli`) or set --sesame",
            path.display()
        );
    }
    Ok(path)
}

/// Bytes of resources sent to Envoys, from the text of the metrics page.
pub(crate) fn sent_bytes(metrics: &str) -> Result<f64> {
    let sent = metrics
        .lines()
        .filter(|line| line.starts_with("sesame_xds_sent_bytes_total{"));
    let counts = sent.map(|line| line.rsplit(' ').next().unwrap_or_default().parse::<f64>());
    Ok(counts.sum::<Result<f64, _>>()?)
}

fn yaml(values: &[Value]) -> Result<String> {
    let documents: Vec<String> = values
        .iter()
        .map(|value| serde_saphyr::to_string(value).context("cannot write an object as YAML"))
        .collect::<Result<_>>()?;
    Ok(documents.join("---\n"))
}
