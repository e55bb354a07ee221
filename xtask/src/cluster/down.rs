//! Ends a cluster, and leaves nothing of it.
//!
//! In: a layout. Out: no process, mount, network, control group or file of that cluster.

use std::fs::{self, File};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::layout::Layout;
use super::{mounts, process};
use crate::progress::Step;

/// What can't be removed by then has failed.
const PATIENCE: Duration = Duration::from_secs(30);

const PAUSE: Duration = Duration::from_millis(20);

/// Ends it and removes what is left of it; says whether it was there.
pub(super) fn down(layout: &Layout) -> Result<bool> {
    if !layout.home().exists() {
        return Ok(false);
    }
    let alone = lock(layout)?;
    let step = Step::new(format!("Ending cluster {}", layout.name()));
    clean(layout)?;
    step.done();
    drop(alone);
    if let Some(shelf) = layout.home().parent() {
        // Others' clusters may be in it.
        let _ = fs::remove_dir(shelf);
    }
    Ok(true)
}

/// Keeps others from starting or ending clusters meanwhile.
pub(super) fn lock(layout: &Layout) -> Result<File> {
    let shelf = layout.home().parent().unwrap_or(layout.home());
    fs::create_dir_all(shelf).with_context(|| format!("can't create {}", shelf.display()))?;
    let lock = File::open(shelf)?;
    if lock.try_lock().is_err() {
        let step = Step::new("Waiting for another run that starts or ends a cluster");
        lock.lock().context("can't lock the folder of clusters")?;
        step.done();
    }
    Ok(lock)
}

/// The same without a word. Does what is left to do of a run that was broken off.
pub(super) fn clean(layout: &Layout) -> Result<()> {
    if let Some(pid) = process::read(&layout.first_process()) {
        // With the first process of their namespace all others end, and with the last of them the mounts and the network.
        kill(Pid::from_raw(pid), Signal::SIGKILL).context("can't end the node")?;
        patiently("the node doesn't end", || {
            Ok(process::read(&layout.first_process()).is_none())
        })?;
    }
    patiently("control groups can't be removed", || {
        mounts::remove_control_groups(layout)
    })?;
    patiently("files can't be removed", || {
        // Mounts below it may need a moment longer to go.
        let removed = fs::remove_dir_all(layout.home());
        Ok(removed.is_ok() || !layout.home().exists())
    })
}

fn patiently(problem: &str, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    while !done()? {
        if Instant::now() > until {
            bail!("{problem} after {PATIENCE:?}");
        }
        sleep(PAUSE);
    }
    Ok(())
}
