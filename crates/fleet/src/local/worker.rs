//! One fleet's process through its lives.
//!
//! In: wishes, of which the latest counts. Out: a process as it is wished for, and events. It must not know
//! other fleets.

use std::convert::Infallible;
use std::future::pending;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::process::ExitStatus;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::admin::Admin;
use super::backoff::Crashes;
use super::event::{Event, Sender};
use super::launch::Launcher;
use super::log::{Line, Splitter};
use super::paths::FleetDir;
use super::supervisor::{Config, FleetSpec, Fleets, retire};

/// How long the rest of an ended process's output is waited for: a process of its own that it left behind may hold the
/// pipe open.
const LAST_WORDS: Duration = Duration::from_millis(200);

/// What a supervisor's workers share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Arc<Config>,
    pub(super) launcher: Launcher,
    pub(super) events: Sender,
}

/// What a fleet should be. Later wishes replace earlier ones, but each stop is carried out before what follows it.
#[derive(Clone, Debug)]
pub(super) struct Wishes {
    /// How many times there should have been no process.
    pub(super) stops: u64,
    /// What should run after that, if anything.
    pub(super) spec: Option<Arc<FleetSpec>>,
}

impl Wishes {
    pub(super) fn run(spec: Arc<FleetSpec>) -> Self {
        Self {
            stops: 0,
            spec: Some(spec),
        }
    }

    pub(super) fn stop(&mut self) {
        self.stops += 1;
        self.spec = None;
    }
}

/// Who cares for one fleet, until it is stopped.
pub(super) struct Worker {
    id: Arc<str>,
    shared: Arc<Shared>,
    /// Weak, since it holds the sender of `wishes`: whose end tells that the supervisor is gone.
    fleets: Weak<Mutex<Fleets>>,
    wishes: watch::Receiver<Wishes>,
    /// How many stops are done.
    stops: watch::Sender<u64>,
}

/// A process that runs.
struct Running {
    child: Child,
    admin: Admin,
    since: Instant,
    output: JoinSet<()>,
}

/// Why a process is not wanted any more.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupt {
    /// Something else is wished for.
    Wish,
    /// The supervisor is gone.
    Abandoned,
}

/// Why a process is looked after no more.
enum End {
    Exited(ExitStatus),
    Interrupted(Interrupt),
}

impl Worker {
    pub(super) fn new(
        id: Arc<str>,
        shared: Arc<Shared>,
        fleets: Weak<Mutex<Fleets>>,
        wishes: watch::Receiver<Wishes>,
        stops: watch::Sender<u64>,
    ) -> Self {
        Self {
            id,
            shared,
            fleets,
            wishes,
            stops,
        }
    }

    /// Follows wishes until the fleet is stopped or the supervisor is gone.
    pub(super) async fn run(mut self) {
        loop {
            // Nothing runs here.
            let Wishes { stops, spec } = self.wishes.borrow_and_update().clone();
            if spec.is_none() {
                self.clean().await;
            }
            let retired = spec.is_none() && retire(&self.fleets, &self.id, &self.wishes);
            // Behind the retirement, so that who waited for the stop finds no trace of the fleet.
            self.stops.send_replace(stops);
            if retired {
                return;
            }
            if let Some(spec) = spec
                && self.keep_running(spec, stops).await == Interrupt::Abandoned
            {
                return self.clean().await;
            }
        }
    }

    /// Starts processes one after the other until something else is wanted; then none runs.
    async fn keep_running(&mut self, spec: Arc<FleetSpec>, stops: u64) -> Interrupt {
        let mut crashes = Crashes::new(self.shared.config.backoff);
        for attempt in 1_u32.. {
            let pause = match self.start(&spec, attempt).await {
                Err(message) => {
                    let retry_in = crashes.pause(Duration::ZERO, chance());
                    self.shared.events.send(Event::Failed {
                        id: Arc::clone(&self.id),
                        message,
                        retry_in,
                    });
                    retry_in
                }
                Ok(mut running) => match self.attend(&mut running, &spec, stops).await {
                    End::Exited(status) => {
                        let uptime = running.since.elapsed();
                        let pause = crashes.pause(uptime, chance());
                        self.bury(running, status, uptime, Some(pause)).await;
                        pause
                    }
                    End::Interrupted(interrupt) => {
                        let gently = interrupt == Interrupt::Wish;
                        self.end(running, gently).await;
                        return interrupt;
                    }
                },
            };
            tokio::select! {
                biased;
                interrupt = next_other(&mut self.wishes, &spec, stops) => return interrupt,
                () = sleep(pause) => {}
            }
        }
        Interrupt::Abandoned
    }

    async fn start(&self, spec: &Arc<FleetSpec>, attempt: u32) -> Result<Running, String> {
        let launched = self.shared.launcher.launch(Arc::clone(spec)).await;
        let mut child = launched.map_err(|error| error.to_string())?;
        let mut output = JoinSet::new();
        if let Some(stderr) = child.stderr.take() {
            output.spawn(self.pump(stderr, Line::of_stderr));
        }
        if let Some(stdout) = child.stdout.take() {
            output.spawn(self.pump(stdout, Line::of_stdout));
        }
        self.shared.events.send(Event::Started {
            id: Arc::clone(&self.id),
            pid: child.id().unwrap_or_default(),
            attempt,
        });
        Ok(Running {
            child,
            admin: Admin::new(&spec.admin_socket),
            since: Instant::now(),
            output,
        })
    }

    /// Watches a process until it ends or something else is wanted.
    async fn attend(&mut self, running: &mut Running, spec: &FleetSpec, stops: u64) -> End {
        let events = &self.shared.events;
        let (id, since) = (&self.id, running.since);
        let admin = &running.admin;
        let announce_ready = async {
            admin.ready().await;
            events.send(Event::Ready {
                id: Arc::clone(id),
                after: since.elapsed(),
            });
            pending::<Infallible>().await
        };
        tokio::select! {
            biased;
            status = wait(&mut running.child) => End::Exited(status),
            interrupt = next_other(&mut self.wishes, spec, stops) => End::Interrupted(interrupt),
            never = announce_ready => match never {},
        }
    }

    /// Ends a process, if `gently` after its clients have gone.
    async fn end(&self, mut running: Running, gently: bool) {
        let Config {
            drain, kill_after, ..
        } = *self.shared.config;
        let Running { child, admin, .. } = &mut running;
        if gently {
            // However draining goes (done, refused, nobody there, too late): the next step is the same.
            if !drain.is_zero() {
                tokio::select! {
                    _ = wait(child) => {}
                    _ = timeout(drain, admin.drain()) => {}
                }
            }
            terminate(child);
        } else {
            // Fails only if it has just ended.
            let _ = child.start_kill();
        }
        let status = match timeout(kill_after, wait(child)).await {
            Ok(status) => status,
            Err(_) => {
                // Fails only if it has just ended.
                let _ = child.start_kill();
                wait(child).await
            }
        };
        let uptime = running.since.elapsed();
        self.bury(running, status, uptime, None).await;
    }

    /// After a process has ended: its last words, then the news.
    async fn bury(
        &self,
        mut running: Running,
        status: ExitStatus,
        uptime: Duration,
        restart_in: Option<Duration>,
    ) {
        let rest = async { while running.output.join_next().await.is_some() {} };
        // On expiry the readers are dropped with `running`.
        let _ = timeout(LAST_WORDS, rest).await;
        self.shared.events.send(Event::Exited {
            id: Arc::clone(&self.id),
            status,
            uptime,
            restart_in,
        });
    }

    /// Reads all that comes, as fast as it comes: Envoy writes its log synchronously, and a full pipe would stop it.
    fn pump<P>(&self, mut pipe: P, parse: fn(&str) -> Line) -> impl Future<Output = ()> + use<P>
    where
        P: AsyncRead + Unpin + Send + 'static,
    {
        let (events, id) = (self.shared.events.clone(), Arc::clone(&self.id));
        async move {
            let mut splitter = Splitter::default();
            let mut buffer = vec![0; 8 << 10];
            let emit = |text: &str| events.log(&id, parse(text));
            // An error of a pipe means the same as its end.
            while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
                splitter.push(&buffer[..n], emit);
            }
            splitter.finish(emit);
        }
    }

    /// Removes the fleet's files.
    async fn clean(&self) {
        let dir = FleetDir::new(&self.shared.config.run_dir, &self.id);
        // What stays is swept with the run folder, by whoever owns that.
        let _ = tokio::fs::remove_dir_all(dir.path()).await;
    }
}

/// Returns when something else is wished for than `spec` after that many stops.
async fn next_other(
    wishes: &mut watch::Receiver<Wishes>,
    spec: &FleetSpec,
    stops: u64,
) -> Interrupt {
    let other = |wishes: &Wishes| wishes.stops != stops || wishes.spec.as_deref() != Some(spec);
    match wishes.wait_for(other).await {
        Ok(_) => Interrupt::Wish,
        Err(_) => Interrupt::Abandoned,
    }
}

/// The process's end. Waiting for a child of ours fails only if somebody else took its status, which means the same.
async fn wait(child: &mut Child) -> ExitStatus {
    child.wait().await.unwrap_or_default()
}

/// Asks a process to end. One whose status was taken has no number any more, so that no stranger is hit.
fn terminate(child: &Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid {
        // Fails only if it has just ended.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}

/// A number that differs from process to process and from call to call; not for secrets.
fn chance() -> u32 {
    (RandomState::new().build_hasher().finish() >> 32) as u32
}
