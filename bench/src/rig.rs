//! What stands around the thing under test: real Envoys, backends, a folder for sockets.
//!
//! In: names and paths. Out: running processes, which end with the [`Rig`] or with this process.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use sesame_envoy::{Admin, BootstrapOptions, MAX_CONNECTIONS, XdsAddress};
use sesame_fleet::local::{BootstrapFormat, Config, FleetSpec, Supervisor, binary};
use sesame_model::FleetId;
use sesame_testkit::backend::Backend;
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::machine;
use crate::sesame::Sesame;

/// Envoys and backends.
#[derive(Debug)]
pub(crate) struct Rig {
    envoy: PathBuf,
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
        let mut config = Config::new(&envoy, folder.path().join("envoys"));
        config.drain = Duration::ZERO;
        let (supervisor, _) = Supervisor::new(config)?;
        drop(_in_runtime);
        Ok(Self {
            envoy,
            supervisor,
            runtime,
            folder,
        })
    }

    /// Sesame with an Envoy of its own.
    pub(crate) fn sesame(&self) -> Result<Sesame> {
        Sesame::start(&self.envoy)
    }

    /// A place for a socket.
    pub(crate) fn socket(&self, name: &str) -> PathBuf {
        self.folder.path().join(format!("{name}.sock"))
    }

    /// Starts an Envoy of a fleet, as `sesame local` does, with one worker thread.
    pub(crate) fn envoy(&self, fleet: &FleetId, name: &str, xds: XdsAddress) -> Result<()> {
        let admin_socket = self.supervisor.dir(name).admin_socket();
        let bootstrap = sesame_envoy::bootstrap(&BootstrapOptions {
            fleet: fleet.clone(),
            node_id: name.to_owned(),
            xds,
            admin: Admin::Unix(admin_socket.clone()),
            max_connections: MAX_CONNECTIONS,
            memory_limit: None,
            module: self.supervisor.has_module(),
        });
        self.supervisor.ensure(FleetSpec {
            id: name.to_owned(),
            bootstrap: serde_json::to_vec(&sesame_envoy::to_json(&bootstrap)?)?,
            format: BootstrapFormat::Json,
            concurrency: Some(1),
            admin_socket,
        });
        Ok(())
    }

    /// The process of that Envoy, as soon as it runs.
    pub(crate) fn pid(&self, name: &str, patience: Duration) -> Result<u32> {
        let folder = self.supervisor.dir(name);
        machine::pid_with_argument(&folder.path().display().to_string(), patience)
    }

    /// Ends that Envoy and waits until it is gone.
    pub(crate) fn end_envoy(&self, name: &str) {
        self.runtime.block_on(self.supervisor.stop(name));
    }

    /// Starts a backend that names itself in its answers.
    pub(crate) fn backend(&self, name: &str, at: IpAddr) -> Result<Backend> {
        let any_port = SocketAddr::from((at, 0));
        self.runtime
            .block_on(Backend::start(name, any_port))
            .context("a backend can't be started")
    }

    /// Ends all Envoys and waits until they are gone.
    pub(crate) fn close(self) {
        self.runtime.block_on(self.supervisor.shutdown());
    }
}

/// A runtime of one thread with a name, by which its processor time is found.
pub(crate) fn runtime(name: &str) -> Result<Runtime> {
    Ok(Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name(name)
        .enable_all()
        .build()?)
}

/// A port of loopback that nobody has.
pub(crate) fn free_port() -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok(listener.local_addr()?.port())
}
