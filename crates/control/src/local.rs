//! A local run: files are the source, and every Gateway has an Envoy process on this machine.
//!
//! In: settings. Out: running Envoys, a [`Board`] to look at, [`Event`]s to listen to. Everything that it starts ends
//! with it.

mod fleets;
mod leftovers;
pub(crate) mod place;
pub(crate) mod ports;

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use sesame_envoy::{Options, Sharding};
use sesame_fleet::local::{Level, Supervisor};
use sesame_sources::files::{self, ChangeSet, FilesConfig};
use sesame_xds as xds;
use tempfile::TempDir;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{broadcast, mpsc, watch};
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;

use self::fleets::{Launch, Starts};
use self::place::LocalPlace;
use self::ports::{Ports, ThisMachine};
use crate::admin;
use crate::board::Board;
use crate::core::Core;
use crate::event::{Event, Teller};
use crate::metrics::Metrics;
use crate::owner::{Message, Outlets, Owner};
use crate::running::{Running, Tasks, spawn};
use crate::streams;

pub use crate::running::RunError;

/// Messages that may wait for the owner; whoever sends more waits.
const MESSAGES: usize = 4096;
/// Events that may wait for whoever looks on; one who is further behind is told how many were lost.
const EVENTS: usize = 4096;
/// How long an Envoy may take to put another listener in place of one.
const REPLACING: Duration = Duration::from_secs(5);
/// Sets of changes that may wait; further changes gather at the source.
const SETS: usize = 2;

/// What a local run depends on.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where objects are.
    pub files: FilesConfig,
    /// The Envoy to run.
    pub envoy: PathBuf,
    /// Added to a Gateway's port to get the one that is bound.
    pub port_offset: u16,
    /// Which route tables are in shards.
    pub sharding: Sharding,
    /// Whether Envoys load Sesame's module.
    pub module: bool,
    /// Worker threads of each Envoy; `None`: one for each processor.
    pub concurrency: Option<u32>,
    /// What Envoys log.
    pub envoy_log: Level,
    /// How long an Envoy that ends may wait for its clients.
    pub drain: Duration,
    /// Where Sesame's own pages are; `None`: nowhere. Port 0 is any free one.
    pub admin: Option<SocketAddr>,
}

impl Config {
    /// Files, an Envoy, and the usual: no admin pages, two threads for each Envoy, warnings only, 5 s to drain.
    pub fn new(files: FilesConfig, envoy: impl Into<PathBuf>) -> Self {
        Self {
            files,
            envoy: envoy.into(),
            port_offset: 0,
            sharding: Sharding::Auto,
            module: true,
            concurrency: Some(2),
            envoy_log: Level::Warning,
            drain: Duration::from_secs(5),
            admin: None,
        }
    }
}

/// Why a local run can't start. The message says what to do.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// No private folder for sockets.
    #[error("there is no place for sockets: {0}; set TMPDIR to a folder that can be written to")]
    RunDir(io::Error),
    /// Something that Envoys need can't be made.
    #[error("what Envoys need can't be made: {0}")]
    Supervisor(io::Error),
    /// The admin address can't be had.
    #[error("--admin {address}: {reason}; choose another address or port")]
    Admin {
        /// As it was given.
        address: SocketAddr,
        /// Why not.
        reason: io::Error,
    },
}

/// Events of a local run.
pub type Events = broadcast::Receiver<Event>;

/// A local run. Dropping it kills its Envoys; [`Local::shutdown`] lets them finish.
#[derive(Debug)]
pub struct Local {
    board: Arc<Board>,
    admin: Option<SocketAddr>,
    supervisor: Arc<Supervisor>,
    /// See [`Outlets::ending`].
    ending: CancellationToken,
    stop: CancellationToken,
    running: Running,
    /// Behind all that uses it.
    run_dir: TempDir,
}

impl Local {
    /// Starts. Must be called within a Tokio runtime with IO and time.
    ///
    /// # Errors
    /// If the machine lacks something that every Gateway needs. What only some lack is told in their status.
    pub async fn start(config: Config) -> Result<(Self, Events), StartError> {
        let files = config.files.clone();
        Self::start_reading(config, |owner| read(files, owner)).await
    }

    /// As [`start`](Self::start), but not files are the source: `sets` are, of which the first is everything.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub async fn start_fed(
        config: Config,
        sets: mpsc::Receiver<ChangeSet>,
    ) -> Result<(Self, Events), StartError> {
        Self::start_reading(config, |owner| async move {
            pass_on(sets, &owner).await;
            owner.closed().await;
            Ok(())
        })
        .await
    }

    async fn start_reading<F>(
        config: Config,
        reading: impl FnOnce(mpsc::Sender<Message>) -> F,
    ) -> Result<(Self, Events), StartError>
    where
        F: Future<Output = Result<(), RunError>> + Send + 'static,
    {
        let start = Instant::now();
        let run_dir = run_dir().map_err(StartError::RunDir)?;
        if let Err(error) = leftovers::sweep(run_dir.path(), SystemTime::now()).await {
            tracing::debug!(%error, "can't look for what killed runs left");
        }
        let xds_socket = run_dir.path().join(leftovers::SOCKET);
        let listener = UnixListener::bind(&xds_socket).map_err(StartError::RunDir)?;
        let admin = match config.admin {
            Some(address) => {
                let listening = TcpListener::bind(address).await;
                Some(listening.map_err(|reason| StartError::Admin { address, reason })?)
            }
            None => None,
        };
        let (supervisor, processes) =
            supervisor(&config, run_dir.path()).map_err(StartError::Supervisor)?;
        let supervisor = Arc::new(supervisor);

        let (events, receiver) = Teller::new(EVENTS, |_| true);
        let (wanted, running) = watch::channel(BTreeSet::new());
        #[expect(
            clippy::disallowed_methods,
            reason = "who takes orders never waits for anything, and the thread that gives them must not wait"
        )]
        let (orders, to_do) = mpsc::unbounded_channel();
        let registry = xds::Registry::new(xds_config(&config));
        let outlets = Outlets {
            registry: registry.clone(),
            board: Arc::default(),
            progress: Arc::default(),
            metrics: Arc::new(Metrics::new()),
            events,
            statuses: None,
            drain: config.drain + REPLACING,
            ending: CancellationToken::new(),
        };
        let stop = CancellationToken::new();
        let (to_owner, messages) = mpsc::channel(MESSAGES);
        let port_offset = config.port_offset;
        let options = Options {
            port_offset,
            sharding: config.sharding,
        };
        let ports = Ports::new(port_offset, Box::new(ThisMachine));
        let place = LocalPlace::new(ports, wanted, orders);
        let owner = Owner::new(Core::new(options), Box::new(place), outlets.clone(), start);
        let owner = owner.spawn(messages).map_err(StartError::Supervisor)?;

        let mut tasks = Tasks::new();
        let reports = registry.events();
        let starts = Arc::<Starts>::default();
        let serving = stop.clone().cancelled_owned();
        tasks.spawn(async move {
            let incoming = UnixListenerStream::new(listener);
            Ok(registry.serve_incoming(incoming, serving).await?)
        });
        let weak = to_owner.downgrade();
        spawn(
            &mut tasks,
            streams::hear(reports, weak.clone(), outlets.clone(), starts.clone()),
        );
        spawn(
            &mut tasks,
            fleets::hear_processes(processes, weak.clone(), outlets.clone(), running.clone()),
        );
        let launch = Launch {
            xds_socket,
            concurrency: config.concurrency,
            starts,
        };
        let keep = fleets::keep(to_do, Arc::clone(&supervisor), weak.clone(), launch);
        spawn(&mut tasks, keep);
        let bound = admin.as_ref().and_then(|admin| admin.local_addr().ok());
        if let Some(listener) = admin {
            let pages = admin::Pages {
                outlets: outlets.clone(),
                owner: weak,
                readiness: admin::Readiness::Local(running),
            };
            let serving = stop.clone().cancelled_owned();
            tasks.spawn(async move {
                let done = admin::serve(listener, admin::pages(pages), serving).await;
                done.map_err(RunError::Admin)
            });
        }
        tasks.spawn(reading(to_owner));

        let local = Self {
            board: outlets.board,
            admin: bound,
            supervisor,
            ending: outlets.ending,
            stop,
            running: Running::new(tasks, owner),
            run_dir,
        };
        Ok((local, receiver))
    }

    /// What there is to see.
    pub fn board(&self) -> &Arc<Board> {
        &self.board
    }

    /// Where Sesame's own pages are.
    pub fn admin(&self) -> Option<SocketAddr> {
        self.admin
    }

    /// The socket on which Envoys are served.
    pub fn xds_socket(&self) -> PathBuf {
        self.run_dir.path().join(leftovers::SOCKET)
    }

    /// Completes if something that everything depends on has failed. Cancel safe.
    pub async fn failed(&mut self) -> RunError {
        self.running.failed().await
    }

    /// Ends all Envoys, gently and at the same time, and removes every trace.
    pub async fn shutdown(self) {
        self.ending.cancel();
        self.supervisor.shutdown().await;
        self.stop.cancel();
        self.running.shutdown().await;
        if let Err(error) = self.run_dir.close() {
            tracing::warn!(%error, "the folder for sockets can't be removed");
        }
    }
}

/// Connections of a listener that was replaced keep its routes while they drain, so that clusters stay for longer.
fn xds_config(config: &Config) -> xds::Config {
    let mut out = xds::Config {
        takes_variants: config.module.then_some(streams::TAKES_VARIANTS),
        ..xds::Config::default()
    };
    // Envoy drains for whole seconds, and for one at least, an hour at most.
    let drain = config.drain;
    let seconds = drain
        .as_secs()
        .saturating_add(u64::from(drain.subsec_nanos() > 0));
    out.limits.removal_grace = Duration::from_secs(seconds.clamp(1, 3600) + 1);
    out
}

fn supervisor(
    config: &Config,
    run_dir: &Path,
) -> io::Result<(Supervisor, sesame_fleet::local::Events)> {
    Supervisor::new(sesame_fleet::local::Config {
        drain: config.drain,
        log_level: config.envoy_log,
        ..sesame_fleet::local::Config::new(&config.envoy, run_dir)
    })
}

/// A private folder with a path that is short enough for the sockets in it.
fn run_dir() -> io::Result<TempDir> {
    /// The longest path of a Unix socket, without the longest that is put behind the folder's.
    const LONGEST: usize = 103 - "/0123456789abcdef-0123456789abcdef/admin.sock".len();
    let mut builder = tempfile::Builder::new();
    let builder = builder
        .prefix(leftovers::PREFIX)
        .permissions(Permissions::from_mode(0o700));
    let dir = builder.tempdir()?;
    if dir.path().as_os_str().len() <= LONGEST {
        return Ok(dir);
    }
    builder.tempdir_in("/tmp")
}

/// Reads files and passes on what is in them. Keeps the owner alive when there is nothing more to read.
async fn read(config: FilesConfig, owner: mpsc::Sender<Message>) -> Result<(), RunError> {
    let (sets, changes) = mpsc::channel::<ChangeSet>(SETS);
    let (watched, ()) = tokio::join!(files::watch(config, sets), pass_on(changes, &owner));
    watched?;
    owner.closed().await;
    Ok(())
}

async fn pass_on(mut sets: mpsc::Receiver<ChangeSet>, owner: &mpsc::Sender<Message>) {
    while let Some(set) = sets.recv().await {
        if owner.send(Message::Source(set)).await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests;
