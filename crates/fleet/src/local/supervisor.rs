//! The desired fleets, each with a worker that runs its process.

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

/// Settings for a supervisor.
#[derive(Clone, Debug)]
pub struct SupervisorConfig {
    /// The Envoy to run; see [`super::binary`].
    pub envoy: PathBuf,
    /// A private folder for bootstraps and sockets, created with mode 700 if it doesn't exist. Keep its path short: the
    /// paths of the Unix sockets in it can have at most 107 bytes (103 on macOS).
    pub run_dir: PathBuf,
    /// The drain timeout before an Envoy is stopped. Zero means no drain.
    pub drain: Duration,
    /// The time between SIGTERM and SIGKILL.
    pub kill_after: Duration,
    /// An Envoy that was ready is killed and restarted if its admin interface doesn't respond for this long, with up to
    /// five seconds of delay. At most 30 s, the timeout of three requests.
    pub hang_timeout: Duration,
    /// Envoy's log level.
    pub log_level: Level,
    /// The delays between restarts.
    pub backoff: RestartBackoff,
}

impl SupervisorConfig {
    /// The defaults: five seconds to drain, five to exit, a hang timeout of 30 s, and log level warning.
    pub fn new(envoy: impl Into<PathBuf>, run_dir: impl Into<PathBuf>) -> Self {
        Self {
            envoy: envoy.into(),
            run_dir: run_dir.into(),
            drain: Duration::from_secs(5),
            kill_after: Duration::from_secs(5),
            hang_timeout: Duration::from_secs(30),
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
    /// The file extension, without a dot.
    pub(super) fn extension(self) -> &'static str {
        match self {
            Self::Yaml => "yaml",
            Self::Json => "json",
            Self::Protobuf => "pb",
        }
    }
}

/// The desired Envoy of a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EnvoySpec {
    /// Its fleet.
    pub fleet: FleetId,
    /// Envoy's bootstrap, written to a file that only this user can read.
    pub bootstrap: Vec<u8>,
    /// The format of `bootstrap`.
    pub format: BootstrapFormat,
    /// Worker threads; `None` means one per CPU.
    pub concurrency: Option<u32>,
    /// The Unix socket of the admin interface in the bootstrap, usually [`FleetDir::admin_socket`]. If it doesn't
    /// respond, the fleet still runs but is never ready, and is stopped without a drain.
    pub admin_socket: PathBuf,
}

/// Keeps Envoys running.
///
/// Each fleet has one process. A process that crashes or hangs is restarted: immediately the first time, then with
/// backoff. When the supervisor is dropped or this process ends, all processes are killed; [`Supervisor::shutdown`]
/// stops them gracefully.
#[derive(Debug)]
pub struct Supervisor {
    /// Whether the run folder contains Sesame's module.
    module: bool,
    shared: Arc<Shared>,
    workers: Arc<Mutex<Workers>>,
    runtime: runtime::Handle,
}

/// The running workers.
#[derive(Debug, Default)]
pub(super) struct Workers {
    by_fleet: HashMap<FleetId, WorkerHandle>,
    /// Set after a shutdown: no new workers.
    closed: bool,
}

/// A handle to a worker.
#[derive(Debug)]
struct WorkerHandle {
    target: watch::Sender<Target>,
    /// The number of completed stops. Closed when the worker has ended.
    stops: watch::Receiver<u64>,
}

/// A requested stop, numbered from 1.
struct PendingStop {
    number: u64,
    stops: watch::Receiver<u64>,
}

impl WorkerHandle {
    fn stop(&self) -> PendingStop {
        self.target.send_modify(Target::stop);
        PendingStop {
            number: self.target.borrow().stops,
            stops: self.stops.clone(),
        }
    }
}

impl PendingStop {
    async fn completed(mut self) {
        // An error means that the worker has ended, and its process with it.
        let _ = self.stops.wait_for(|stops| *stops >= self.number).await;
    }
}

impl Supervisor {
    /// Creates a supervisor without fleets. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// The run folder isn't private to this user, or a thread can't be started.
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
            workers: Arc::default(),
            runtime: runtime::Handle::current(),
        };
        Ok((supervisor, events))
    }

    /// Whether Envoys can load Sesame's module.
    pub fn has_module(&self) -> bool {
        self.module
    }

    /// The folder for a fleet's files and sockets.
    pub fn dir(&self, id: &FleetId) -> FleetDir {
        FleetDir::new(&self.shared.config.run_dir, &id.to_string())
    }

    /// Sets the desired Envoy of a fleet. Returns at once. A process with another spec is drained and stopped first;
    /// one with the same spec keeps running. Ignored after [`Supervisor::shutdown`].
    pub fn ensure(&self, spec: EnvoySpec) {
        let id = spec.fleet.clone();
        let spec = Arc::new(spec);
        let mut workers = lock(&self.workers);
        if workers.closed {
            return;
        }
        // A worker removes itself before it ends, so a listed worker that has ended must have panicked.
        if let Some(worker) = workers.by_fleet.get(&id).filter(|w| !w.target.is_closed()) {
            worker.target.send_modify(|target| target.spec = Some(spec));
            return;
        }
        let (target, targets) = watch::channel(Target::run(spec));
        let (completed, stops) = watch::channel(0);
        workers
            .by_fleet
            .insert(id.clone(), WorkerHandle { target, stops });
        let workers = Arc::downgrade(&self.workers);
        let worker = Worker::new(id, Arc::clone(&self.shared), workers, targets, completed);
        self.runtime.spawn(worker.run());
    }

    /// Stops a fleet: drains it, then ends the process. The fleet may be unknown. The call itself requests the stop, so
    /// it takes effect before all later calls. The future completes when the process has ended and its ports are free;
    /// it may be dropped.
    pub fn stop(&self, id: &FleetId) -> impl Future<Output = ()> + Send + use<> {
        let pending_stop = lock(&self.workers).by_fleet.get(id).map(WorkerHandle::stop);
        async move {
            if let Some(pending_stop) = pending_stop {
                pending_stop.completed().await;
            }
        }
    }

    /// Stops all fleets concurrently, as [`Supervisor::stop`] does. Later calls to [`Supervisor::ensure`] have no
    /// effect.
    pub async fn shutdown(&self) {
        let pending: Vec<_> = {
            let mut workers = lock(&self.workers);
            workers.closed = true;
            workers.by_fleet.values().map(WorkerHandle::stop).collect()
        };
        for pending_stop in pending {
            pending_stop.completed().await;
        }
    }
}

/// Ignores poisoning: the lock guards single inserts and removals.
fn lock(workers: &Mutex<Workers>) -> MutexGuard<'_, Workers> {
    workers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes an idle worker, unless it has a new target. Targets are set under the same lock, so none is lost.
pub(super) fn retire(
    workers: &Weak<Mutex<Workers>>,
    id: &FleetId,
    target: &watch::Receiver<Target>,
) -> bool {
    let Some(workers) = workers.upgrade() else {
        return true;
    };
    let mut workers = lock(&workers);
    // An error means that the supervisor has been dropped.
    let idle = !target.has_changed().unwrap_or(false);
    if idle {
        workers.by_fleet.remove(id);
    }
    idle
}
