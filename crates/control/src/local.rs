//! A local run: objects come from files. Each Gateway has an Envoy process on this machine, and all objects without a
//! Gateway share another Envoy.
//!
//! In: settings. Out: running Envoys, a [`StatusStore`], [`RunEvent`]s. Dropping the run stops everything it started.

mod fleets;
pub(crate) mod ports;
pub(crate) mod runner;
mod stale_dirs;

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sesame_api::LoggingConfiguration;
use sesame_envoy::{HeapLimit, Options, Sharding};
use sesame_fleet::local::{Level, Supervisor, memory};
use sesame_sources::files::{self, ChangeSet, FilesConfig};
use sesame_translate::settings::{Mode, Settings};
use sesame_xds as xds;
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::{broadcast, mpsc, oneshot, watch};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;

use self::fleets::{Generations, LaunchConfig};
use self::ports::{Ports, SystemPortProber};
use self::runner::LocalRunner;
use crate::admin;
use crate::core::Core;
use crate::event::{EventSender, RunEvent};
use crate::liveness;
use crate::metrics::Metrics;
use crate::running::{Running, Tasks, spawn};
use crate::status_store::StatusStore;
use crate::streams;
use crate::translator::{Message, Translator, TranslatorOutputs};

pub use crate::running::RunError;

/// Capacity of the translator's message queue; senders wait when it is full.
const MESSAGES: usize = 4096;
/// Capacity of the event queue; a slow receiver gets the number of events it missed.
const EVENTS: usize = 4096;
/// Time limit for an Envoy to replace a listener.
const LISTENER_REPLACEMENT: Duration = Duration::from_secs(5);
/// Capacity of the queue of change sets; the source coalesces further changes.
const CHANGE_SETS: usize = 2;

/// Settings for a local run.
#[derive(Clone, Debug)]
pub struct LocalConfig {
    /// The files with objects.
    pub files: FilesConfig,
    /// The Envoy to run.
    pub envoy: PathBuf,
    /// Added to a Gateway's port to get the port to bind.
    pub port_offset: u16,
    /// The initial settings. If they are from a SesameConfiguration, its file must be among `files`.
    pub settings: Settings,
    /// Which route tables are sharded.
    pub sharding: Sharding,
    /// Whether Envoys load Sesame's module.
    pub module: bool,
    /// Worker threads of each Envoy; `None` means one per CPU.
    pub concurrency: Option<u32>,
    /// Envoy's log levels.
    pub envoy_log: Level,
    /// How long an Envoy drains before it exits.
    pub drain: Duration,
    /// Address of the admin pages, a loopback address; `None` disables them. Port 0 means any free port.
    pub admin: Option<SocketAddr>,
}

impl LocalConfig {
    /// These files, this Envoy, and defaults: no admin pages, two threads per Envoy, warnings only, 5 s to drain.
    pub fn new(files: FilesConfig, envoy: impl Into<PathBuf>) -> Self {
        Self {
            files,
            envoy: envoy.into(),
            port_offset: 0,
            settings: Settings::new(Mode::Local),
            sharding: Sharding::Auto,
            module: true,
            concurrency: Some(2),
            envoy_log: Level::Warning,
            drain: Duration::from_secs(5),
            admin: None,
        }
    }
}

/// Why a local run can't start. The message says how to fix it.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The private folder for sockets can't be created.
    #[error("cannot create the folder for sockets: {0}; set TMPDIR to a writable folder")]
    RunDir(io::Error),
    /// A file that Envoys need can't be created.
    #[error("cannot create a file that Envoys need: {0}")]
    Supervisor(io::Error),
    /// The admin address can't be bound.
    #[error("--admin {address}: {reason}; choose another address or port")]
    Admin {
        /// The configured address.
        address: SocketAddr,
        /// The cause.
        reason: io::Error,
    },
}

/// Events of a local run.
pub type Events = broadcast::Receiver<RunEvent>;

/// A local run. Dropping it kills its Envoys; [`Local::shutdown`] drains them.
#[derive(Debug)]
pub struct Local {
    status_store: Arc<StatusStore>,
    admin: Option<SocketAddr>,
    logging: watch::Receiver<LoggingConfiguration>,
    supervisor: Arc<Supervisor>,
    /// See [`TranslatorOutputs::shutdown`].
    shutdown: CancellationToken,
    /// Closed once all process events have been forwarded.
    forwarded: oneshot::Receiver<()>,
    stop: CancellationToken,
    running: Running,
    /// Last field: dropped after everything that uses it.
    run_dir: TempDir,
}

impl Local {
    /// Starts a run. Must be called within a Tokio runtime with IO and time.
    ///
    /// # Errors
    /// If something that all Gateways require is missing on this machine. Failures of individual Gateways are reported
    /// in their statuses.
    pub async fn start(config: LocalConfig) -> Result<(Self, Events), StartError> {
        let files = config.files.clone();
        Self::start_with(config, |translator| watch_files(files, translator)).await
    }

    /// Like [`start`](Self::start), with `sets` as the source instead of files. The first set contains all objects.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_with_changes(
        config: LocalConfig,
        sets: mpsc::Receiver<ChangeSet>,
    ) -> Result<(Self, Events), StartError> {
        Self::start_with(config, |translator| async move {
            forward(sets, &translator).await;
            translator.closed().await;
            Ok(())
        })
        .await
    }

    async fn start_with<F>(
        config: LocalConfig,
        source: impl FnOnce(mpsc::Sender<Message>) -> F,
    ) -> Result<(Self, Events), StartError>
    where
        F: Future<Output = Result<(), RunError>> + Send + 'static,
    {
        let start = Instant::now();
        let run_dir = run_dir().map_err(StartError::RunDir)?;
        if let Err(error) = stale_dirs::sweep(run_dir.path(), SystemTime::now()).await {
            tracing::debug!(%error, "cannot search for stale run folders");
        }
        let xds_socket = run_dir.path().join(stale_dirs::SOCKET);
        let listener = UnixListener::bind(&xds_socket).map_err(StartError::RunDir)?;
        let admin = match config.admin {
            Some(address) => {
                let listening = sesame_http::listen(address);
                Some(listening.map_err(|reason| StartError::Admin { address, reason })?)
            }
            None => None,
        };
        let (supervisor, processes) =
            supervisor(&config, run_dir.path()).map_err(StartError::Supervisor)?;
        let supervisor = Arc::new(supervisor);

        let (events, receiver) = EventSender::new(EVENTS, |_| true);
        let (desired, running) = watch::channel(BTreeSet::new());
        #[expect(
            clippy::disallowed_methods,
            reason = "the receiver never waits, and the translator thread must not block"
        )]
        let (commands, command_receiver) = mpsc::unbounded_channel();
        let registry = xds::Registry::new(xds_config(&config));
        let (logging, logging_receiver) = watch::channel(config.settings.logging.clone());
        let outputs = TranslatorOutputs {
            registry: registry.clone(),
            status_store: Arc::default(),
            progress: Arc::default(),
            metrics: Arc::new(Metrics::new(registry.clone())),
            events,
            statuses: None,
            pod_services: None,
            class_finalizers: None,
            logging: Arc::new(logging),
            drain: config.drain + LISTENER_REPLACEMENT,
            shutdown: CancellationToken::new(),
        };
        let stop = CancellationToken::new();
        let (to_translator, messages) = mpsc::channel(MESSAGES);
        let port_offset = config.port_offset;
        let options = Options {
            port_offset,
            sharding: config.sharding,
        };
        let ports = Ports::new(port_offset, Box::new(SystemPortProber));
        let runner = LocalRunner::new(ports, desired, commands);
        let core = Core::local(config.settings.clone(), options);
        let translator = Translator::new(core, Box::new(runner), outputs.clone(), start);
        let translator = translator.spawn(messages).map_err(StartError::Supervisor)?;

        let mut tasks = Tasks::new();
        let xds_events = registry.events();
        let generations = Arc::<Generations>::default();
        let serving = stop.clone().cancelled_owned();
        tasks.spawn(async move {
            let incoming = UnixListenerStream::new(listener);
            Ok(registry.serve_incoming(incoming, serving).await?)
        });
        let weak = to_translator.downgrade();
        spawn(
            &mut tasks,
            streams::forward_events(
                xds_events,
                weak.clone(),
                outputs.clone(),
                generations.clone(),
            ),
        );
        let (forwarding, forwarded) = oneshot::channel::<()>();
        let forward = fleets::forward_process_events(
            processes,
            weak.clone(),
            outputs.clone(),
            running.clone(),
        );
        spawn(&mut tasks, async move {
            forward.await;
            drop(forwarding);
        });
        let launch = LaunchConfig {
            xds_socket,
            concurrency: config.concurrency,
            heap_limit: memory::heap_limit().map(HeapLimit::Bytes),
            generations,
        };
        let supervise = fleets::supervise(
            command_receiver,
            Arc::clone(&supervisor),
            weak.clone(),
            launch,
        );
        spawn(&mut tasks, supervise);
        let admin_address = admin.as_ref().and_then(|admin| admin.local_addr().ok());
        if let Some(listener) = admin {
            let (liveness, pings) = liveness::start(weak.clone());
            spawn(&mut tasks, pings);
            let pages = admin::Pages {
                outputs: outputs.clone(),
                translator: weak,
                liveness,
                readiness: admin::Readiness::Local(running),
            };
            spawn(&mut tasks, admin::serve(listener, admin::pages(pages)));
        }
        tasks.spawn(source(to_translator));

        let local = Self {
            status_store: outputs.status_store,
            admin: admin_address,
            logging: logging_receiver,
            supervisor,
            shutdown: outputs.shutdown,
            forwarded,
            stop,
            running: Running::new(tasks, translator),
            run_dir,
        };
        Ok((local, receiver))
    }

    /// The statuses.
    pub fn status_store(&self) -> &Arc<StatusStore> {
        &self.status_store
    }

    /// Address of the admin pages.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The `logging` section of the configuration, with its changes.
    pub fn logging(&self) -> watch::Receiver<LoggingConfiguration> {
        self.logging.clone()
    }

    /// The socket of the xDS server.
    pub fn xds_socket(&self) -> PathBuf {
        self.run_dir.path().join(stale_dirs::SOCKET)
    }

    /// Completes when the run can't continue, with the reason. Cancel safe.
    pub async fn failed(&mut self) -> RunError {
        self.running.failed().await
    }

    /// Drains all Envoys in parallel and removes all files of the run. When it completes, all process events have been
    /// sent.
    pub async fn shutdown(self) {
        self.shutdown.cancel();
        self.supervisor.shutdown().await;
        drop(self.supervisor);
        let _ = self.forwarded.await;
        self.stop.cancel();
        self.running.shutdown().await;
        if let Err(error) = self.run_dir.close() {
            tracing::warn!(%error, "cannot remove the folder for sockets");
        }
    }
}

/// Settings for the xDS server. Clusters are removed with a delay, since the draining connections of a replaced
/// listener still use its routes.
fn xds_config(config: &LocalConfig) -> xds::ServerConfig {
    let mut out = xds::ServerConfig {
        supports_variants: config.module.then_some(streams::SUPPORTS_VARIANTS),
        ..xds::ServerConfig::default()
    };
    // Envoy drains for whole seconds, between one second and an hour.
    let drain = config.drain;
    let seconds = drain
        .as_secs()
        .saturating_add(u64::from(drain.subsec_nanos() > 0));
    out.limits.removal_delay = Duration::from_secs(seconds.clamp(1, 3600) + 1);
    out.limits.clusters_removed_immediately = sesame_envoy::names::is_destination;
    out
}

fn supervisor(
    config: &LocalConfig,
    run_dir: &Path,
) -> io::Result<(Supervisor, sesame_fleet::local::ProcessEvents)> {
    Supervisor::new(sesame_fleet::local::SupervisorConfig {
        drain: config.drain,
        log_level: config.envoy_log,
        ..sesame_fleet::local::SupervisorConfig::new(&config.envoy, run_dir)
    })
}

/// A private folder with a path short enough for the sockets in it.
fn run_dir() -> io::Result<TempDir> {
    /// The longest path of a Unix socket, minus the longest socket name in the folder.
    const MAX_LEN: usize = 103 - "/0123456789abcdef-0123456789abcdef/admin.sock".len();
    let mut builder = tempfile::Builder::new();
    let builder = builder
        .prefix(stale_dirs::PREFIX)
        .permissions(Permissions::from_mode(0o700));
    let dir = builder.tempdir()?;
    if dir.path().as_os_str().len() <= MAX_LEN {
        return Ok(dir);
    }
    builder.tempdir_in("/tmp")
}

/// Reads files and sends their changes. Keeps a sender after the last change, so that the translator continues.
async fn watch_files(
    config: FilesConfig,
    translator: mpsc::Sender<Message>,
) -> Result<(), RunError> {
    let (sets, changes) = mpsc::channel::<ChangeSet>(CHANGE_SETS);
    let (watched, ()) = tokio::join!(files::watch(config, sets), forward(changes, &translator));
    watched?;
    translator.closed().await;
    Ok(())
}

async fn forward(mut sets: mpsc::Receiver<ChangeSet>, translator: &mpsc::Sender<Message>) {
    while let Some(set) = sets.recv().await {
        if translator.send(Message::Changes(set)).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
