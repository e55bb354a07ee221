//! The fleets that there should be, each given to a worker.
//!
//! In: calls of [`Supervisor::ensure`] and [`Supervisor::stop`]. Out: wishes for workers. It must not touch a process.

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::runtime;
use tokio::sync::watch;

use super::backoff::Backoff;
use super::event::{self, Events};
use super::launch::{self, Launcher};
use super::log::Level;
use super::paths::FleetDir;
use super::worker::{Shared, Wishes, Worker};
use crate::module;

/// What all fleets have in common.
#[derive(Clone, Debug)]
pub struct Config {
    /// The Envoy to run; see [`super::binary`].
    pub envoy: PathBuf,
    /// A private folder for bootstraps and sockets, created with mode 700 if it isn't there. Keep its path short: Unix
    /// sockets below it can have 107 bytes at most (103 on macOS).
    pub run_dir: PathBuf,
    /// How long an Envoy that ends may wait for its clients to go. Zero: not at all.
    pub drain: Duration,
    /// How long an Envoy may take to end after SIGTERM before it gets SIGKILL.
    pub kill_after: Duration,
    /// What Envoy prints.
    pub log_level: Level,
    /// Pauses between restarts.
    pub backoff: Backoff,
}

impl Config {
    /// Five seconds to drain, five to end, warnings only.
    pub fn new(envoy: impl Into<PathBuf>, run_dir: impl Into<PathBuf>) -> Self {
        Self {
            envoy: envoy.into(),
            run_dir: run_dir.into(),
            drain: Duration::from_secs(5),
            kill_after: Duration::from_secs(5),
            log_level: Level::Warning,
            backoff: Backoff::default(),
        }
    }
}

/// The language of a bootstrap. Envoy tells it by the file's name.
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
pub struct FleetSpec {
    /// The fleet's name, `namespace/name` of its Gateway. Any text will do.
    pub id: String,
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
/// Each fleet has one process. A process that ends unasked is started again: at once the first time, then with growing
/// pauses. Dropping the supervisor kills all processes, as does the end of this process in any way; for a gentle end
/// use [`Supervisor::shutdown`].
#[derive(Debug)]
pub struct Supervisor {
    /// Sesame's module lies in the run folder.
    module: bool,
    shared: Arc<Shared>,
    fleets: Arc<Mutex<Fleets>>,
    runtime: runtime::Handle,
}

/// The workers at work.
#[derive(Debug, Default)]
pub(super) struct Fleets {
    workers: HashMap<Arc<str>, Handle>,
    /// No new ones.
    closed: bool,
}

/// One worker, from outside.
#[derive(Debug)]
struct Handle {
    wishes: watch::Sender<Wishes>,
    /// How many of the stops wished for are done; closed when the worker is gone.
    stops: watch::Receiver<u64>,
}

/// A stop that was wished for.
struct Stopping {
    number: u64,
    stops: watch::Receiver<u64>,
}

impl Handle {
    fn stop(&self) -> Stopping {
        self.wishes.send_modify(Wishes::stop);
        Stopping {
            number: self.wishes.borrow().stops,
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
    /// A supervisor of nothing. Must be called within a Tokio runtime.
    ///
    /// # Errors
    /// If the run folder can't be had for this user alone, or no thread can be started.
    pub fn new(config: Config) -> io::Result<(Self, Events)> {
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

    /// Whether Envoys find Sesame's module, so that their bootstrap should say so.
    pub fn has_module(&self) -> bool {
        self.module
    }

    /// The folder for a fleet's files: what the bootstrap should name its sockets by.
    pub fn dir(&self, id: &str) -> FleetDir {
        FleetDir::new(&self.shared.config.run_dir, id)
    }

    /// Has a fleet run as `spec` says. Returns at once. A process that runs otherwise is ended first, gently; one that
    /// runs just so is left alone. Ignored after [`Supervisor::shutdown`].
    pub fn ensure(&self, spec: FleetSpec) {
        let id: Arc<str> = spec.id.as_str().into();
        let spec = Arc::new(spec);
        let mut fleets = lock(&self.fleets);
        if fleets.closed {
            return;
        }
        // Workers take themselves off the list before they end; one that has ended and is still there panicked.
        if let Some(worker) = fleets.workers.get(&id).filter(|w| !w.wishes.is_closed()) {
            worker.wishes.send_modify(|wishes| wishes.spec = Some(spec));
            return;
        }
        let (wishes, wished) = watch::channel(Wishes::run(spec));
        let (done, stops) = watch::channel(0);
        fleets
            .workers
            .insert(Arc::clone(&id), Handle { wishes, stops });
        let fleets = Arc::downgrade(&self.fleets);
        let worker = Worker::new(id, Arc::clone(&self.shared), fleets, wished, done);
        self.runtime.spawn(worker.run());
    }

    /// Ends a fleet: waits until its clients are gone or the drain time is over, then ends the process. The fleet may
    /// be unknown. The order is given by the call itself, so that it stands before what is ordered later; the future
    /// completes when the process is gone and its ports are free, and may be dropped.
    pub fn stop(&self, id: &str) -> impl Future<Output = ()> + Send + use<> {
        let stopping = lock(&self.fleets).workers.get(id).map(Handle::stop);
        async move {
            if let Some(stopping) = stopping {
                stopping.done().await;
            }
        }
    }

    /// Ends all fleets at the same time, each as [`Supervisor::stop`] does, and takes no new ones.
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

/// The lock guards plain inserts and removals, which leave nothing half done: a panic elsewhere is no reason to stop.
fn lock(fleets: &Mutex<Fleets>) -> MutexGuard<'_, Fleets> {
    fleets.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes a worker that has nothing to do off the list, unless there is a new wish. Wishes are made under the same lock,
/// so none is lost.
pub(super) fn retire(
    fleets: &Weak<Mutex<Fleets>>,
    id: &str,
    wishes: &watch::Receiver<Wishes>,
) -> bool {
    let Some(fleets) = fleets.upgrade() else {
        return true;
    };
    let mut fleets = lock(&fleets);
    // An error means that nobody can wish any more.
    let idle = !wishes.has_changed().unwrap_or(false);
    if idle {
        fleets.workers.remove(id);
    }
    idle
}
