//! Processes by PID.

use std::fs;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::eventually;

/// Sends a signal.
pub(crate) fn send_signal(pid: u32, signal: Signal) {
    kill(to_pid(pid), signal).unwrap_or_else(|error| panic!("sending {signal} to {pid}: {error}"));
}

/// The child processes of `parent`, with their command lines.
pub(crate) fn children(parent: u32) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc exists").flatten() {
        let pid = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok());
        if let Some(pid) = pid
            && parent_of(pid) == Some(parent)
        {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// Whether a process is running. Zombies don't count.
pub(crate) fn is_running(pid: u32) -> bool {
    parent_of(pid).is_some()
}

/// The parent of a running process.
fn parent_of(pid: u32) -> Option<u32> {
    // `1 (name) S 0 …`: the name may contain anything, so parse from its end.
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit(") ").next()?.split(' ');
    let ended = ["Z", "X"].contains(&fields.next()?);
    fields.next()?.parse().ok().filter(|_| !ended)
}

/// Waits until all of these processes have exited.
pub(crate) async fn ended(pids: &[u32]) {
    eventually("the processes exit", async || {
        let left: Vec<_> = pids.iter().filter(|pid| is_running(**pid)).collect();
        anyhow::ensure!(left.is_empty(), "still running: {left:?}");
        Ok(())
    })
    .await;
}

fn to_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("a PID fits"))
}
