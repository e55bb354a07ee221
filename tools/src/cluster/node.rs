//! The node: the init process of a PID namespace, which supervises the components.
//!
//! In: the cluster's layout and programs; a file in `held` for each stopped component. Out: running components. Reaps
//! orphaned processes, as an init process must. When it is killed, the kernel kills all processes on the node and
//! removes the namespaces.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::errno::Errno;
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getpid, setsid};

use super::components::{self, Component};
use super::layout::Layout;
use super::{mounts, network, process};

/// Interval of the supervisor's loop.
const TURN: Duration = Duration::from_millis(50);

/// Pause before a component is restarted.
const PAUSE: Duration = Duration::from_secs(1);

/// This program, even if its file has been replaced.
const OURSELVES: &str = "/proc/self/exe";

/// The hidden subcommand that runs the node.
pub(super) const SUBCOMMAND: &str = "node";

/// Starts the node's init process.
///
/// # Errors
/// Without root or a required kernel feature; the error includes the node's log.
pub(super) fn start(layout: &Layout, programs: &Path) -> Result<()> {
    fs::create_dir_all(layout.logs())?;
    let log_path = components::log(layout, SUBCOMMAND);
    let log =
        File::create(&log_path).with_context(|| format!("cannot write {}", log_path.display()))?;
    let status = Command::new(OURSELVES)
        .args(["cluster", "--name", layout.name(), SUBCOMMAND, "--programs"])
        .arg(programs)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("cannot start the node")?;
    ensure!(
        status.success(),
        "the node did not start: {}",
        fs::read_to_string(&log_path).unwrap_or_default().trim()
    );
    Ok(())
}

/// Creates the namespaces and starts the init process in them; as PID 1, runs as the init process.
pub(super) fn run(layout: &Layout, programs: &Path) -> Result<()> {
    if getpid().as_raw() == 1 {
        return init_process(layout, programs);
    }
    setsid().context("cannot leave the session")?;
    unshare(
        CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC,
    )
    .context("cannot create namespaces: this needs root")?;
    // The next child becomes PID 1 of the new namespace.
    let mut child = Command::new(OURSELVES)
        .args(std::env::args_os().skip(1))
        .spawn()
        .context("cannot start the init process")?;
    let pid = i32::try_from(child.id()).context("invalid PID")?;
    process::write(&layout.first_process(), pid).inspect_err(|_| {
        // Without this file, the process can't be found. If it has exited, its error is in the log.
        let _ = child.kill();
    })
}

fn init_process(layout: &Layout, programs: &Path) -> Result<()> {
    // Must not happen earlier: the parent looks up our PID in the host's /proc.
    unshare(CloneFlags::CLONE_NEWNS).context("cannot create a mount namespace")?;
    nix::unistd::sethostname(layout.name()).context("cannot set the hostname")?;
    mounts::make(layout).context("cannot set up the node's mounts")?;
    mounts::control_groups(layout).context("cannot create the node's cgroups")?;
    network::make(layout).context("cannot set up the node's network")?;
    let mut node = Node {
        layout,
        programs,
        components: components::all(layout)
            .into_iter()
            .map(|component| (component.name, Supervised::new(component)))
            .collect(),
    };
    loop {
        node.turn()?;
        sleep(TURN);
    }
}

struct Node<'a> {
    layout: &'a Layout,
    programs: &'a Path,
    components: BTreeMap<&'static str, Supervised>,
}

/// A component and its process.
struct Supervised {
    component: Component,
    process: Option<Child>,
    /// The earliest time at which it may be restarted.
    not_before: Instant,
}

impl Supervised {
    fn new(component: Component) -> Self {
        Self {
            component,
            process: None,
            not_before: Instant::now(),
        }
    }

    fn pid(&self) -> Option<Pid> {
        let id = self.process.as_ref()?.id();
        Some(Pid::from_raw(i32::try_from(id).ok()?))
    }
}

impl Node<'_> {
    fn turn(&mut self) -> Result<()> {
        self.reap()?;
        let now = Instant::now();
        for kept in self.components.values_mut() {
            let held = self.layout.held().join(kept.component.name).exists();
            match kept.pid() {
                // Reaped in a later iteration.
                Some(pid) if held => drop(kill(pid, Signal::SIGKILL)),
                None if !held && kept.not_before <= now => {
                    match spawn(self.layout, self.programs, &kept.component) {
                        Ok(child) => kept.process = Some(child),
                        Err(error) => {
                            eprintln!("{}: {error:#}", kept.component.name);
                            kept.not_before = now + PAUSE;
                        }
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Reaps all exited processes: components and orphans.
    fn reap(&mut self) -> Result<()> {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error).context("cannot wait for processes"),
            };
            let ended = status.pid();
            let ours = |kept: &&mut Supervised| kept.process.is_some() && kept.pid() == ended;
            if let Some(kept) = self.components.values_mut().find(ours) {
                eprintln!("{} exited: {status:?}", kept.component.name);
                kept.process = None;
                kept.not_before = Instant::now() + PAUSE;
            }
        }
    }
}

fn spawn(layout: &Layout, programs: &Path, component: &Component) -> Result<Child> {
    let log = File::options()
        .create(true)
        .append(true)
        .open(components::log(layout, component.name))?;
    // Components find each other by PATH, and nft is in a folder that PATH may lack.
    let path = std::env::join_paths(
        [programs.to_owned()].into_iter().chain(
            [
                "/usr/local/sbin",
                "/usr/local/bin",
                "/usr/sbin",
                "/usr/bin",
                "/sbin",
                "/bin",
            ]
            .map(Into::into),
        ),
    )?;
    Command::new(programs.join(component.name))
        .args(&component.args)
        // The environment of `cluster up`, such as proxies, doesn't apply here.
        .env_clear()
        .env("PATH", path)
        .env("HOME", "/")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("cannot run {}", component.name))
}
