//! Process references that survive reuse of PIDs.
//!
//! In: PIDs, `/proc`. Out: whether a PID still refers to the same process.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes a process's PID and its start time in clock ticks since boot.
pub(super) fn write(path: &Path, pid: i32) -> Result<()> {
    let started = started(pid).with_context(|| format!("process {pid} has ended"))?;
    // Atomically.
    let part = path.with_extension("part");
    fs::write(&part, format!("{pid} {started}\n"))?;
    fs::rename(&part, path).with_context(|| format!("can't write {}", path.display()))
}

/// Reads a process's PID if it still runs.
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

/// The fields behind the program's name, which may have spaces and brackets in it: the state is the first, the start the
/// twentieth (proc_pid_stat(5) counts two more before).
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
    fn the_start_is_found_behind_any_name() {
        let stat = |name: &str, state: &str| {
            format!("7 ({name}) {state} 1 7 7 0 -1 4194560 1 0 0 0 3 4 0 0 20 0 1 0 4242 1000 1")
        };
        assert_eq!(start_in(&stat("sh", "S")).as_deref(), Some("4242"));
        assert_eq!(start_in(&stat("a) b (c", "R")).as_deref(), Some("4242"));
        assert_eq!(start_in(&stat("sh", "Z")), None);
        assert_eq!(start_in("7 (sh) S 1"), None);
    }

    #[test]
    fn another_process_of_the_same_id_is_not_meant() {
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
