//! Starts Envoy processes that can't outlive this one.
//!
//! In: the spec of an Envoy. Out: a child process. Must not depend on restarts or drains.
//!
//! One thread starts all processes: Linux kills a child when the *thread* that started it ends (`PR_SET_PDEATHSIG` in
//! prctl(2)), and an async runtime may end its threads at any time.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::process::Child;
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use super::log;
use super::paths::{self, FleetDir};
use super::supervisor::{EnvoySpec, SupervisorConfig};
use crate::IGNORE_UNKNOWN;
use crate::module::SEARCH_PATH;

/// A thread that starts processes. It ends when the launcher is dropped, which also kills its processes.
#[derive(Debug)]
pub(super) struct Launcher {
    requests: mpsc::Sender<Request>,
}

#[derive(Debug)]
struct Request {
    spec: Arc<EnvoySpec>,
    reply: oneshot::Sender<Result<Child, LaunchError>>,
}

/// Why a process can't be started.
#[derive(Debug, thiserror::Error)]
pub(super) enum LaunchError {
    #[error("cannot write the fleet's files: {0}")]
    Files(io::Error),
    #[error(
        "the admin socket's path is too long for a Unix socket: {0}; choose a shorter run folder"
    )]
    SocketPath(String),
    #[error("cannot start {program}: {error}")]
    Start { program: String, error: io::Error },
    #[error("the thread that starts processes has ended")]
    Ended,
}

impl Launcher {
    /// Starts the thread. Must be called within a Tokio runtime, which then owns the children.
    pub(super) fn new(config: Arc<SupervisorConfig>) -> io::Result<Self> {
        let (requests, mut incoming) = mpsc::channel::<Request>(1);
        let runtime = Handle::current();
        thread::Builder::new()
            .name("envoy-launcher".to_owned())
            .spawn(move || {
                let _in_runtime = runtime.enter();
                while let Some(Request { spec, reply }) = incoming.blocking_recv() {
                    // If the receiver is dropped, so is the child, which kills it.
                    let _ = reply.send(launch(&config, &spec));
                }
            })?;
        Ok(Self { requests })
    }

    /// Writes the fleet's bootstrap and starts its process.
    pub(super) async fn launch(&self, spec: Arc<EnvoySpec>) -> Result<Child, LaunchError> {
        let (reply, response) = oneshot::channel();
        let request = Request { spec, reply };
        self.requests
            .send(request)
            .await
            .map_err(|_| LaunchError::Ended)?;
        response.await.unwrap_or(Err(LaunchError::Ended))
    }
}

/// Creates the run folder if it doesn't exist.
///
/// # Errors
/// It can't be created, or other users can access it: bootstraps and the admin interface are private.
pub(super) fn prepare_run_dir(run_dir: &Path) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(run_dir)?;
    let mode = fs::metadata(run_dir)?.permissions().mode();
    if mode & 0o077 != 0 {
        return Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!(
                "{} is accessible to other users (mode {:o}, must be 700)",
                run_dir.display(),
                mode & 0o777
            ),
        ));
    }
    Ok(())
}

fn launch(config: &SupervisorConfig, spec: &EnvoySpec) -> Result<Child, LaunchError> {
    if !paths::fits_socket(&spec.admin_socket) {
        let path = spec.admin_socket.display().to_string();
        return Err(LaunchError::SocketPath(path));
    }
    let dir = FleetDir::new(&config.run_dir, &spec.fleet.to_string());
    let bootstrap = dir.bootstrap(spec.format.extension());
    write_files(&dir, &bootstrap, spec).map_err(LaunchError::Files)?;

    let mut command = Command::new(&config.envoy);
    command
        .arg("-c")
        .arg(&bootstrap)
        // Hot restart uses shared memory with a base ID, which must be unique per machine.
        .arg("--disable-hot-restart")
        .arg(IGNORE_UNKNOWN)
        .args(["--log-level", config.log_level.as_str()])
        .args(["--log-format", log::FORMAT])
        .args(["--drain-strategy", "immediate"])
        .args(["--drain-time-s", &drain_seconds(config.drain).to_string()]);
    if let Some(threads) = spec.concurrency {
        command.args(["--concurrency", &threads.to_string()]);
    }
    command
        .env(SEARCH_PATH, &config.run_dir)
        .current_dir(dir.path())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        // A separate process group, so that Ctrl-C in the terminal doesn't reach Envoy before Sesame has drained it.
        .process_group(0);
    die_with_parent(&mut command);

    let mut command = tokio::process::Command::from(command);
    command.kill_on_drop(true);
    command.spawn().map_err(|error| LaunchError::Start {
        program: config.envoy.display().to_string(),
        error,
    })
}

fn write_files(dir: &FleetDir, bootstrap: &Path, spec: &EnvoySpec) -> io::Result<()> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir.path())?;
    // A killed process leaves its socket behind.
    match fs::remove_file(&spec.admin_socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(bootstrap)?;
    file.write_all(&spec.bootstrap)
}

/// The drain time for Envoy's flag: whole seconds, at least one, since 0 would close listeners immediately.
fn drain_seconds(drain: Duration) -> u64 {
    drain
        .as_secs()
        .saturating_add(u64::from(drain.subsec_nanos() > 0))
        .clamp(1, 3600)
}

/// Makes the kernel kill the child when this process ends for any reason.
///
/// On systems other than Linux, a child survives if its parent is killed by SIGKILL. The same happens on Linux if
/// Envoy's executable has file capabilities (`setcap`).
#[cfg(target_os = "linux")]
fn die_with_parent(command: &mut Command) {
    use nix::errno::Errno;
    use nix::sys::{prctl, signal::Signal};
    use nix::unistd::getppid;

    let parent = std::process::id();
    let in_child = move || {
        // SIGKILL, since no process would be left to escalate if Envoy ignored another signal.
        prctl::set_pdeathsig(Signal::SIGKILL)?;
        // If the parent died before this call, the child has a different parent now.
        if u32::try_from(getppid().as_raw()) != Ok(parent) {
            return Err(Errno::ESRCH.into());
        }
        Ok(())
    };
    // SAFETY: between fork and exec only async-signal-safe functions may be called. The closure calls prctl(2) and
    // getppid(2), which are plain system calls, and doesn't allocate, not even for its errors.
    #[allow(unsafe_code)]
    unsafe {
        command.pre_exec(in_child);
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent(_command: &mut Command) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drain_time_is_rounded_up_to_at_least_a_second() {
        assert_eq!(drain_seconds(Duration::ZERO), 1);
        assert_eq!(drain_seconds(Duration::from_millis(1500)), 2);
        assert_eq!(drain_seconds(Duration::from_secs(5)), 5);
        assert_eq!(drain_seconds(Duration::MAX), 3600);
    }

    #[test]
    fn the_run_folder_is_private() {
        let dir = tempfile::tempdir().unwrap();
        let run_dir = dir.path().join("a/b");
        prepare_run_dir(&run_dir).unwrap();
        let mode = fs::metadata(&run_dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
        fs::set_permissions(&run_dir, fs::Permissions::from_mode(0o755)).unwrap();
        let error = prepare_run_dir(&run_dir).unwrap_err().to_string();
        assert!(error.contains("mode 755"), "{error}");
    }
}
