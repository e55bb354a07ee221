//! Processes, by their ids.

use std::fs;
use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use super::eventually;

/// Sends a signal.
pub(crate) fn send(pid: u32, signal: Signal) {
    kill(to_pid(pid), signal).unwrap_or_else(|error| panic!("sending {signal} to {pid}: {error}"));
}

/// The processes that `parent` has started, with their command lines.
pub(crate) fn children(parent: u32) -> Vec<(u32, String)> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("/proc is there").flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process may be gone by now.
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else {
            continue;
        };
        // `1 (name) S 0 …`: the name may hold anything, so count from its end.
        let mut fields = stat.rsplit(") ").next().unwrap_or_default().split(' ');
        let state = fields.next().unwrap_or_default();
        let its_parent = fields.next().and_then(|field| field.parse().ok());
        if its_parent == Some(parent) && state != "Z" {
            let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
            found.push((pid, String::from_utf8_lossy(&line).replace('\0', " ")));
        }
    }
    found
}

/// Waits until none of these processes is left.
pub(crate) async fn ended(pids: &[u32]) {
    eventually("processes end", async || {
        let left: Vec<_> = pids
            .iter()
            .filter(|pid| Path::new(&format!("/proc/{pid}")).exists())
            .collect();
        anyhow::ensure!(left.is_empty(), "still there: {left:?}");
        Ok(())
    })
    .await;
}

fn to_pid(pid: u32) -> Pid {
    Pid::from_raw(i32::try_from(pid).expect("ids of processes are small"))
}
