//! The node: the first process in namespaces of its own, which keeps the components running.
//!
//! In: the cluster's layout, its programs; files in the folder of what is held. Out: components that run, or are held. It
//! buries every process that loses its parent on the node, as a first process must. When it is killed, the kernel ends
//! all that runs beside it, and takes the namespaces away.

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

/// Between looks at what ended and what is held.
const TURN: Duration = Duration::from_millis(50);

/// A component that ended is started again after this.
const PAUSE: Duration = Duration::from_secs(1);

/// This program, even if its file has been built anew meanwhile.
const OURSELVES: &str = "/proc/self/exe";

/// The subcommand that becomes the node, out of sight.
pub(super) const SUBCOMMAND: &str = "node";

/// Starts the node's first process and says its id, as this process sees it.
///
/// # Errors
/// If we aren't root, or the kernel lacks something: the end of the node's log.
pub(super) fn start(layout: &Layout, programs: &Path) -> Result<()> {
    fs::create_dir_all(layout.logs())?;
    let log_path = components::log(layout, SUBCOMMAND);
    let log =
        File::create(&log_path).with_context(|| format!("can't write {}", log_path.display()))?;
    let status = Command::new(OURSELVES)
        .args(["cluster", "--name", layout.name(), SUBCOMMAND, "--programs"])
        .arg(programs)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .context("the node can't be started")?;
    ensure!(
        status.success(),
        "the node doesn't start: {}",
        fs::read_to_string(&log_path).unwrap_or_default().trim()
    );
    Ok(())
}

/// Runs in a process of its own: leaves the machine's namespaces and starts the first process in new ones, or is that.
pub(super) fn run(layout: &Layout, programs: &Path) -> Result<()> {
    if getpid().as_raw() == 1 {
        return first_process(layout, programs);
    }
    setsid().context("can't leave the session")?;
    unshare(
        CloneFlags::CLONE_NEWNET
            | CloneFlags::CLONE_NEWPID
            | CloneFlags::CLONE_NEWUTS
            | CloneFlags::CLONE_NEWIPC,
    )
    .context("can't have namespaces of our own: this needs root")?;
    // The next process is the first of the new namespaces.
    let mut child = Command::new(OURSELVES)
        .args(std::env::args_os().skip(1))
        .spawn()
        .context("can't start the first process")?;
    let pid = i32::try_from(child.id()).context("a strange process")?;
    process::write(&layout.first_process(), pid).inspect_err(|_| {
        // Nobody could find it to end it. If it has ended by itself, its error is in the log.
        let _ = child.kill();
    })
}

fn first_process(layout: &Layout, programs: &Path) -> Result<()> {
    // Not before: whoever started us looks for our id, as the machine knows it, which the node's /proc doesn't.
    unshare(CloneFlags::CLONE_NEWNS).context("can't have mounts of our own")?;
    nix::unistd::sethostname(layout.name()).context("can't set the host's name")?;
    mounts::make(layout).context("the node's files")?;
    mounts::control_groups(layout).context("the node's control groups")?;
    network::make(layout).context("the node's network")?;
    let mut node = Node {
        layout,
        programs,
        components: components::all(layout)
            .into_iter()
            .map(|component| (component.name, Kept::new(component)))
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
    components: BTreeMap<&'static str, Kept>,
}

/// A component and its process.
struct Kept {
    component: Component,
    process: Option<Child>,
    /// It isn't started before.
    not_before: Instant,
}

impl Kept {
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
        self.bury()?;
        let now = Instant::now();
        for kept in self.components.values_mut() {
            let held = self.layout.held().join(kept.component.name).exists();
            match kept.pid() {
                // As a crash does. It is buried in a later turn.
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

    /// Takes note of every process that has ended, ours and others' orphans.
    fn bury(&mut self) -> Result<()> {
        loop {
            let status = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
                Ok(status) => status,
                Err(Errno::EINTR) => continue,
                Err(error) => return Err(error).context("can't wait for processes"),
            };
            let ended = status.pid();
            let ours = |kept: &&mut Kept| kept.process.is_some() && kept.pid() == ended;
            if let Some(kept) = self.components.values_mut().find(ours) {
                eprintln!("{} ended: {status:?}", kept.component.name);
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
    // Programs find each other by the path, and nft in a folder that isn't on everybody's.
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
        // Settings of whoever started the cluster, such as proxies, mean nothing here.
        .env_clear()
        .env("PATH", path)
        .env("HOME", "/")
        .current_dir("/")
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
        .with_context(|| format!("can't run {}", component.name))
}
