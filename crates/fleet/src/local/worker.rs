//! Runs one fleet's process: starts, restarts and stops it.
//!
//! In: targets, of which only the last counts. Out: a process, and events.

use std::process::ExitStatus;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_model::FleetId;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Child;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

use super::admin::Admin;
use super::backoff::Crashes;
use super::event::{ProcessEvent, Sender};
use super::launch::Launcher;
use super::log::{Line, Splitter};
use super::paths::FleetDir;
use super::supervisor::{EnvoySpec, SupervisorConfig, Workers, retire};

/// How long to read the output of a process that has exited. The process's children may hold the pipe open.
const OUTPUT_TIMEOUT: Duration = Duration::from_millis(200);

/// Shared by a supervisor's workers.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: Arc<SupervisorConfig>,
    pub(super) launcher: Launcher,
    pub(super) events: Sender,
}

/// The desired state of a fleet. A later target replaces an earlier one, but every stop is carried out.
#[derive(Clone, Debug)]
pub(super) struct Target {
    /// The number of stops requested so far.
    pub(super) stops: u64,
    /// The process to run after these stops, if any.
    pub(super) spec: Option<Arc<EnvoySpec>>,
}

impl Target {
    pub(super) fn run(spec: Arc<EnvoySpec>) -> Self {
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

/// Runs one fleet until it is stopped.
pub(super) struct Worker {
    fleet: FleetId,
    shared: Arc<Shared>,
    /// Weak, since [`Workers`] holds the sender of `target`, which must be dropped with the supervisor.
    workers: Weak<Mutex<Workers>>,
    target: watch::Receiver<Target>,
    /// The number of completed stops.
    stops: watch::Sender<u64>,
}

/// A running process.
struct Running {
    child: Child,
    admin: Admin,
    since: Instant,
    output: JoinSet<()>,
}

/// Why a running process has to be stopped.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Interrupt {
    /// The target has changed.
    Changed,
    /// The supervisor has been dropped.
    Dropped,
}

/// Why [`Worker::supervise`] returned.
enum End {
    Exited(ExitStatus),
    Interrupted(Interrupt),
}

impl Worker {
    pub(super) fn new(
        fleet: FleetId,
        shared: Arc<Shared>,
        workers: Weak<Mutex<Workers>>,
        target: watch::Receiver<Target>,
        stops: watch::Sender<u64>,
    ) -> Self {
        Self {
            fleet,
            shared,
            workers,
            target,
            stops,
        }
    }

    /// Follows targets until the fleet is stopped or the supervisor is dropped.
    pub(super) async fn run(mut self) {
        loop {
            // At this point, no process is running.
            let Target { stops, spec } = self.target.borrow_and_update().clone();
            if spec.is_none() {
                self.remove_files().await;
            }
            let retired = spec.is_none() && retire(&self.workers, &self.fleet, &self.target);
            // Only after `retire`, so that a stopped fleet is no longer listed.
            self.stops.send_replace(stops);
            if retired {
                return;
            }
            if let Some(spec) = spec
                && self.keep_running(spec, stops).await == Interrupt::Dropped
            {
                return self.remove_files().await;
            }
        }
    }

    /// Runs a process and restarts it until the target changes. When this returns, the process has ended.
    async fn keep_running(&mut self, spec: Arc<EnvoySpec>, stops: u64) -> Interrupt {
        let mut crashes = Crashes::new(self.shared.config.backoff);
        for attempt in 1_u32.. {
            let delay = match self.start(&spec, attempt).await {
                Err(message) => {
                    let retry_in = crashes.delay(Duration::ZERO);
                    self.shared.events.send(ProcessEvent::Failed {
                        fleet: self.fleet.clone(),
                        message,
                        retry_in,
                    });
                    retry_in
                }
                Ok(mut running) => match self.supervise(&mut running, &spec, stops).await {
                    End::Exited(status) => {
                        let uptime = running.since.elapsed();
                        let delay = crashes.delay(uptime);
                        self.reap(running, status, uptime, Some(delay)).await;
                        delay
                    }
                    End::Interrupted(interrupt) => {
                        let gracefully = interrupt == Interrupt::Changed;
                        self.stop(running, gracefully).await;
                        return interrupt;
                    }
                },
            };
            tokio::select! {
                biased;
                interrupt = target_changed(&mut self.target, &spec, stops) => return interrupt,
                () = sleep(delay) => {}
            }
        }
        Interrupt::Dropped
    }

    async fn start(&self, spec: &Arc<EnvoySpec>, attempt: u32) -> Result<Running, String> {
        let launched = self.shared.launcher.launch(Arc::clone(spec)).await;
        let mut child = launched.map_err(|error| error.to_string())?;
        let mut output = JoinSet::new();
        if let Some(stderr) = child.stderr.take() {
            output.spawn(self.forward_output(stderr, Line::from_stderr));
        }
        if let Some(stdout) = child.stdout.take() {
            output.spawn(self.forward_output(stdout, Line::from_stdout));
        }
        self.shared.events.send(ProcessEvent::Started {
            fleet: self.fleet.clone(),
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

    /// Waits until the process exits or the target changes. Kills a process that hangs.
    async fn supervise(&mut self, running: &mut Running, spec: &EnvoySpec, stops: u64) -> End {
        let events = &self.shared.events;
        let (fleet, since) = (&self.fleet, running.since);
        let admin = &running.admin;
        let unresponsive = self.shared.config.hang_timeout;
        let ready_then_hung = async {
            admin.ready().await;
            events.send(ProcessEvent::Ready {
                fleet: fleet.clone(),
                after: since.elapsed(),
            });
            admin.hung(unresponsive).await;
        };
        tokio::select! {
            biased;
            status = wait(&mut running.child) => return End::Exited(status),
            interrupt = target_changed(&mut self.target, spec, stops) => return End::Interrupted(interrupt),
            () = ready_then_hung => {}
        }
        events.send(ProcessEvent::Hung {
            fleet: fleet.clone(),
            unresponsive,
        });
        // SIGKILL, since a process suspended by SIGSTOP ignores other signals. Fails only if the process has just
        // exited.
        let _ = running.child.start_kill();
        End::Exited(wait(&mut running.child).await)
    }

    /// Stops a process, after a drain if `gracefully`.
    async fn stop(&self, mut running: Running, gracefully: bool) {
        let SupervisorConfig {
            drain, kill_after, ..
        } = *self.shared.config;
        let Running { child, admin, .. } = &mut running;
        if gracefully {
            // Whether draining succeeds, fails or times out, the next step is the same.
            if !drain.is_zero() {
                tokio::select! {
                    _ = wait(child) => {}
                    _ = timeout(drain, admin.drain()) => {}
                }
            }
            terminate(child);
        } else {
            // Fails only if the process has just exited.
            let _ = child.start_kill();
        }
        let status = match timeout(kill_after, wait(child)).await {
            Ok(status) => status,
            Err(_) => {
                // Fails only if the process has just exited.
                let _ = child.start_kill();
                wait(child).await
            }
        };
        let uptime = running.since.elapsed();
        self.reap(running, status, uptime, None).await;
    }

    /// Reads the rest of an exited process's output, then sends the event.
    async fn reap(
        &self,
        mut running: Running,
        status: ExitStatus,
        uptime: Duration,
        restart_in: Option<Duration>,
    ) {
        let rest = async { while running.output.join_next().await.is_some() {} };
        // On timeout the readers are dropped with `running`.
        let _ = timeout(OUTPUT_TIMEOUT, rest).await;
        self.shared.events.send(ProcessEvent::Exited {
            fleet: self.fleet.clone(),
            status,
            uptime,
            restart_in,
        });
    }

    /// Forwards output as log events. Never waits for their receiver: Envoy writes its log synchronously, so a full
    /// pipe would block it.
    fn forward_output<P>(
        &self,
        mut pipe: P,
        parse: fn(&str) -> Line,
    ) -> impl Future<Output = ()> + use<P>
    where
        P: AsyncRead + Unpin + Send + 'static,
    {
        let (events, fleet) = (self.shared.events.clone(), self.fleet.clone());
        async move {
            let mut splitter = Splitter::default();
            let mut buffer = vec![0; 8 << 10];
            let emit = |text: &str| events.log(&fleet, parse(text));
            // A read error is treated as the end of the pipe.
            while let Ok(n @ 1..) = pipe.read(&mut buffer).await {
                splitter.push(&buffer[..n], emit);
            }
            splitter.finish(emit);
        }
    }

    /// Removes the fleet's files.
    async fn remove_files(&self) {
        let dir = FleetDir::new(&self.shared.config.run_dir, &self.fleet.to_string());
        // If this fails, the files stay until the run folder is removed.
        let _ = tokio::fs::remove_dir_all(dir.path()).await;
    }
}

/// Waits until the target differs from this spec or number of stops.
async fn target_changed(
    target: &mut watch::Receiver<Target>,
    spec: &EnvoySpec,
    stops: u64,
) -> Interrupt {
    let differs = |target: &Target| target.stops != stops || target.spec.as_deref() != Some(spec);
    match target.wait_for(differs).await {
        Ok(_) => Interrupt::Changed,
        Err(_) => Interrupt::Dropped,
    }
}

/// Waits for the process to exit. An error means that it was reaped elsewhere.
async fn wait(child: &mut Child) -> ExitStatus {
    child.wait().await.unwrap_or_default()
}

/// Sends SIGTERM. A reaped child has no PID, so another process is never signalled.
fn terminate(child: &Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
    if let Some(pid) = pid {
        // Fails only if the process has just exited.
        let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
    }
}
