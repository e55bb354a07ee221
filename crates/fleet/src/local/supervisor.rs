//! The wanted fleets, each with a worker that runs its process.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use sesame_model::FleetId;
use tokio::runtime;
use tokio::sync::watch;

use super::backoff::RestartBackoff;
use super::event::{self, ProcessEvents};
use super::launch::{self, Launcher};
use super::log::Level;
use super::paths::FleetDir;
use super::worker::{Shared, Target, Worker};
use crate::module;

/// Settings of all fleets.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// The Envoy to run; see [`super::binary`].
    pub envoy: PathBuf,
    /// A private folder for bootstraps and sockets, created with mode 700 if it isn't there. Keep its path short: Unix
    /// sockets below it can have 107 bytes at most (103 on macOS).
    pub run_dir: PathBuf,
    /// The drain time of an Envoy that ends. Zero: none.
    pub drain: Duration,
    /// The time between SIGTERM and SIGKILL.
    pub kill_after: Duration,
    /// What Envoy prints.
    pub log_level: Level,
    /// Delays between restarts.
    pub backoff: RestartBackoff,
}

impl SupervisorConfig {
    /// Five seconds to drain, five to end, warnings only.
    pub fn new(envoy: impl Into<PathBuf>, run_dir: impl Into<PathBuf>) -> Self {
        Self {
            envoy: envoy.into(),
            run_dir: run_dir.into(),
            drain: Duration::from_secs(5),
            kill_after: Duration::from_secs(5),
            log_level: Level::Warning,
            backoff: RestartBackoff::default(),
        }
    }
}

/// The format of a bootstrap. Envoy infers it from the file's extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BootstrapFormat {
    /// YAML.
    Yaml,
    /// JSON.
    Json,
    /// Binary protobuf.
    Protobuf,
}

impl BootstrapFormat {
    /// Of the file, without a dot.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Yaml => "yaml",
            Self::Json => "json",
            Self::Protobuf => "pb",
        }
    }
}

/// An Envoy that should run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoySpec {
    /// Its fleet.
    pub fleet: FleetId,
    /// Envoy's bootstrap, written to a file that only this user can read.
    pub bootstrap: Vec<u8>,
    /// The language of `bootstrap`.
    pub format: BootstrapFormat,
    /// Worker threads; `None`: one for each processor.
    pub concurrency: Option<u32>,
    /// The Unix socket that the bootstrap gives to the admin interface, usually [`FleetDir::admin_socket`]. If
    /// nothing answers there, the fleet still runs, but is never ready and ends without draining.
    pub admin_socket: PathBuf,
}

/// Keeps Envoys running.
///
/// Each fleet has one process. A process that crashes is restarted: at once the first time, then with backoff. When the
/// supervisor is dropped or this process ends, all processes are killed; [`Supervisor::shutdown`] stops them gracefully.
#[derive(Debug)]
pub struct Supervisor {
    /// Sesame's module lies in the run folder.
    module: bool,
    shared: Arc<Shared>,
    fleets: Arc<Mutex<Fleets>>,
    runtime: runtime::Handle,
}

/// The workers that run.
#[derive(Debug, Default)]
pub(super) struct Fleets {
    workers: HashMap<FleetId, Handle>,
    /// No new ones.
    closed: bool,
}

/// A handle of one worker.
#[derive(Debug)]
struct Handle {
    target: watch::Sender<Target>,
    /// How many of the requested stops are done; closed when the worker is gone.
    stops: watch::Receiver<u64>,
}

/// A requested stop.
struct Stopping {
    number: u64,
    stops: watch::Receiver<u64>,
}

impl Handle {
    fn stop(&self) -> Stopping {
        self.target.send_modify(Target::stop);
        Stopping {
            number: self.target.borrow().stops,
            stops: self.stops.clone(),
        }
    }
}

impl Stopping {
    async fn done(mut self) {
        // An error means that the worker is gone, and its process with it.
        let _ = self.stops.wait_for(|stops| *stops >= self.number).await;
    }
}

impl Supervisor {
    /// A supervisor without fleets. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the run folder can't be made private to this user, or no thread can be started.
    pub fn new(config: SupervisorConfig) -> io::Result<(Self, ProcessEvents)> {
        launch::prepare_run_dir(&config.run_dir)?;
        let module = module::install(&config.run_dir)?;
        let config = Arc::new(config);
        let (sender, events) = event::channel();
        let shared = Shared {
            launcher: Launcher::new(Arc::clone(&config))?,
            config,
            events: sender,
        };
        let supervisor = Self {
            module,
            shared: Arc::new(shared),
            fleets: Arc::default(),
            runtime: runtime::Handle::current(),
        };
        Ok((supervisor, events))
    }

    /// Whether Envoys find Sesame's module, so that their bootstrap can load it.
    pub fn has_module(&self) -> bool {
        self.module
    }

    /// The folder of a fleet's files and sockets.
    pub fn dir(&self, id: &FleetId) -> FleetDir {
        FleetDir::new(&self.shared.config.run_dir, &id.to_string())
    }

    /// Runs a fleet as `spec` says. Returns at once. A process with another spec is drained and stopped first; one with the
    /// same spec keeps running. Ignored after [`Supervisor::shutdown`].
    pub fn ensure(&self, spec: EnvoySpec) {
        let id = spec.fleet.clone();
        let spec = Arc::new(spec);
        let mut fleets = lock(&self.fleets);
        if fleets.closed {
            return;
        }
        // A worker removes itself before it ends; one that has ended and is still listed has panicked.
        if let Some(worker) = fleets.workers.get(&id).filter(|w| !w.target.is_closed()) {
            worker.target.send_modify(|target| target.spec = Some(spec));
            return;
        }
        let (target, targets) = watch::channel(Target::run(spec));
        let (done, stops) = watch::channel(0);
        fleets.workers.insert(id.clone(), Handle { target, stops });
        let fleets = Arc::downgrade(&self.fleets);
        let worker = Worker::new(id, Arc::clone(&self.shared), fleets, targets, done);
        self.runtime.spawn(worker.run());
    }

    /// Stops a fleet: waits until its clients are gone or the drain time is over, then ends the process. The fleet may
    /// be unknown. The call itself requests the stop, so it precedes all later calls; the future completes when the process
    /// is gone and its ports are free, and may be dropped.
    pub fn stop(&self, id: &FleetId) -> impl Future<Output = ()> + Send + use<> {
        let stopping = lock(&self.fleets).workers.get(id).map(Handle::stop);
        async move {
            if let Some(stopping) = stopping {
                stopping.done().await;
            }
        }
    }

    /// Stops all fleets concurrently, as [`Supervisor::stop`] does. Later calls of [`Supervisor::ensure`] have no effect.
    pub async fn shutdown(&self) {
        let waiting: Vec<_> = {
            let mut fleets = lock(&self.fleets);
            fleets.closed = true;
            fleets.workers.values().map(Handle::stop).collect()
        };
        for stopping in waiting {
            stopping.done().await;
        }
    }
}

/// Ignores poisoning: the lock guards single inserts and removals.
fn lock(fleets: &Mutex<Fleets>) -> MutexGuard<'_, Fleets> {
    fleets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes an idle worker, unless it has a new target. Targets are set under the same lock, so none is lost.
pub(super) fn retire(
    fleets: &Weak<Mutex<Fleets>>,
    id: &FleetId,
    target: &watch::Receiver<Target>,
) -> bool {
    let Some(fleets) = fleets.upgrade() else {
        return true;
    };
    let mut fleets = lock(&fleets);
    // An error means that the supervisor is gone.
    let idle = !target.has_changed().unwrap_or(false);
    if idle {
        fleets.workers.remove(id);
    }
    idle
}
