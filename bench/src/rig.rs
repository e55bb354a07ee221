//! The test rig: real Envoys, backends, and a folder for sockets.
//!
//! In: names and paths. Out: running processes, which stop when the [`Rig`] is dropped or this process exits.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use sesame_envoy::{Admin, BootstrapOptions, MAX_CONNECTIONS, XdsAddress};
use sesame_fleet::local::{BootstrapFormat, EnvoySpec, Supervisor, SupervisorConfig, binary};
use sesame_model::FleetId;
use sesame_testkit::backend::Backend;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::machine;

/// Envoys and backends.
#[derive(Debug)]
pub(crate) struct Rig {
    supervisor: Supervisor,
    runtime: Runtime,
    folder: TempDir,
}

impl Rig {
    pub(crate) fn new(envoy: Option<&Path>) -> Result<Self> {
        let envoy = binary::find(envoy)?.path;
        let runtime = runtime("rig")?;
        let folder = tempfile::Builder::new().prefix("sesame-bench-").tempdir()?;
        let _in_runtime = runtime.enter();
        let mut config = SupervisorConfig::new(&envoy, folder.path().join("envoys"));
        config.drain = Duration::ZERO;
        let (supervisor, _) = Supervisor::new(config)?;
        drop(_in_runtime);
        Ok(Self {
            supervisor,
            runtime,
            folder,
        })
    }

    /// The path of a socket.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.sock"))
    }

    /// Starts an Envoy for a fleet, with one worker thread.
    pub(crate) fn envoy(&self, fleet: &FleetId, name: &str, xds: XdsAddress) -> Result<()> {
        let admin_socket = self.supervisor.dir(&process(name)).admin_socket();
        let bootstrap = sesame_envoy::bootstrap(&BootstrapOptions {
            fleet: fleet.clone(),
            node_id: name.to_owned(),
            xds,
            admin: Admin::Unix(admin_socket.clone()),
            readiness: None,
            max_connections: MAX_CONNECTIONS,
            heap_limit: None,
            module: self.supervisor.has_module(),
        });
        self.supervisor.ensure(EnvoySpec {
            fleet: process(name),
            bootstrap: serde_json::to_vec(&sesame_envoy::to_json(&bootstrap)?)?,
            format: BootstrapFormat::Json,
            concurrency: Some(1),
            admin_socket,
        });
        Ok(())
    }

    /// Waits for an Envoy's process and returns its PID.
    pub(crate) fn pid(&self, name: &str, timeout: Duration) -> Result<u32> {
        let folder = self.supervisor.dir(&process(name));
        machine::pid_with_argument(&folder.path().display().to_string(), timeout)
    }

    /// Stops an Envoy and waits for its exit.
    pub(crate) fn end_envoy(&self, name: &str) {
        self.runtime.block_on(self.supervisor.stop(&process(name)));
    }

    /// Starts a backend whose responses contain its name.
    pub(crate) fn backend(&self, name: &str, at: IpAddr) -> Result<Backend> {
        let any_port = SocketAddr::from((at, 0));
        self.runtime
            .block_on(Backend::start(name, any_port))
            .context("cannot start a backend")
    }

    /// Stops all Envoys and waits for their exit.
    pub(crate) fn close(self) {
        self.runtime.block_on(self.supervisor.shutdown());
    }
}

/// A runtime with one named thread.
pub(crate) fn runtime(name: &str) -> Result<Runtime> {
    Ok(Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(name)
        .enable_all()
        .build()?)
}

/// A free loopback port.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}

/// A fleet ID that identifies an Envoy to the supervisor, which runs one Envoy per ID. The Envoy's actual fleet may
/// have several Envoys.
fn process(name: &str) -> FleetId {
    FleetId::of_gateway("bench", name)
}
