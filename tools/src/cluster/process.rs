//! Process references that survive PID reuse.
//!
//! In: PIDs, `/proc`. Out: whether a PID still refers to the same process.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a process's PID and its start time, in clock ticks since boot.
pub(super) fn write(path: &Path, pid: i32) -> Result<()> {
    let started = started(pid).with_context(|| format!("process {pid} has exited"))?;
    // Atomically.
    let part = path.with_extension("part");
    fs::write(&part, format!("{pid} {started}\n"))?;
    fs::rename(&part, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Reads a process's PID if it is still running.
pub(super) fn read(path: &Path) -> Option<i32> {
    let text = fs::read_to_string(path).ok()?;
    let (pid, since) = text.trim().split_once(' ')?;
    let pid = pid.parse().ok()?;
    (started(pid)? == since).then_some(pid)
}

/// The start time of a process; `None` if it doesn't exist or is a zombie.
fn started(pid: i32) -> Option<String> {
    start_in(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses the fields after the program's name, which may contain spaces and parentheses: the first is the state, the
/// twentieth the start time (fields 3 and 22 in proc_pid_stat(5)).
fn start_in(stat: &str) -> Option<String> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ');
    let state = fields.next()?;
    (state != "Z").then_some(())?;
    fields.nth(18).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_is_found_after_any_name() {
        let stat = |name: &str, state: &str| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 4242 1000 1")
        };
        assert_eq!(start_in(&stat("sh", "S")).as_deref(), Some("4242"));
        assert_eq!(start_in(&stat("a) b (c", "R")).as_deref(), Some("4242"));
        assert_eq!(start_in(&stat("sh", "Z")), None);
        assert_eq!(start_in("7 (sh) S 1"), None);
    }

    #[test]
    fn another_process_with_the_same_pid_is_not_returned() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("first-process");
        assert_eq!(read(&path), None);
        let pid = i32::try_from(std::process::id()).unwrap();
        write(&path, pid).unwrap();
        assert_eq!(read(&path), Some(pid));
        fs::write(&path, format!("{pid} 1\n")).unwrap();
        assert_eq!(read(&path), None);
    }
}
