//! Removes a cluster.
//!
//! In: a layout. Out: no processes, mounts, networks, cgroups or files of the cluster remain.

use std::fs::{self, File};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::layout::Layout;
use super::{mounts, process};
use crate::progress::Step;

/// Time limit for each step.
const PATIENCE: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(20);

/// Removes a cluster; returns whether it existed.
pub(super) fn down(layout: &Layout) -> Result<bool> {
    if !layout.home().exists() {
        return Ok(false);
    }
    let alone = lock(layout)?;
    let step = Step::new(format!("Removing cluster {}", layout.name()));
    clean(layout)?;
    step.done();
    drop(alone);
    if let Some(shelf) = layout.home().parent() {
        // Fails if the folder contains other clusters.
        let _ = fs::remove_dir(shelf);
    }
    Ok(true)
}

/// Takes the lock that serializes starts and removals.
pub(super) fn lock(layout: &Layout) -> Result<File> {
    let shelf = layout.home().parent().unwrap_or(layout.home());
    fs::create_dir_all(shelf).with_context(|| format!("cannot create {}", shelf.display()))?;
    let lock = File::open(shelf)?;
    if lock.try_lock().is_err() {
        let step = Step::new("Waiting for another process to start or remove a cluster");
        lock.lock().context("cannot lock the folder of clusters")?;
        step.done();
    }
    Ok(lock)
}

/// Removes a cluster without progress output, even if it is incomplete.
pub(super) fn clean(layout: &Layout) -> Result<()> {
    if let Some(pid) = process::read(&layout.first_process()) {
        // Killing the init process kills all processes in its PID namespace; mounts and network disappear with them.
        kill(Pid::from_raw(pid), Signal::SIGKILL).context("cannot kill the node")?;
        retry("the node is still running", || {
            Ok(process::read(&layout.first_process()).is_none())
        })?;
    }
    retry("cannot remove cgroups", || {
        mounts::remove_control_groups(layout)
    })?;
    retry("cannot remove files", || {
        // Mounts inside it may still be busy.
        let removed = fs::remove_dir_all(layout.home());
        Ok(removed.is_ok() || !layout.home().exists())
    })
}

fn retry(problem: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !done()? {
        if Instant::now() > until {
            bail!("{problem} after {PATIENCE:?}");
        }
        sleep(PAUSE);
    }
    Ok(())
}
