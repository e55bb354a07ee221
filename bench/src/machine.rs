//! Memory and CPU time of processes, from the Linux kernel.
//!
//! In: process IDs. Out: numbers.

use std::fs;
use std::process::Child;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::{Signal, kill};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

/// Memory of a process, in MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Resident set size now.
    pub(crate) now: f64,
    /// Peak resident set size.
    pub(crate) peak: f64,
}

/// Memory of a process; `None` means this one.
pub(crate) fn memory(pid: Option<u32>) -> Result<Memory> {
    let path = match pid {
        Some(pid) => format!("/proc/{pid}/status"),
        None => "/proc/self/status".to_owned(),
    };
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let field = |name: &str| -> Result<f64> {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let kibibytes: Option<f64> = line
            .and_then(|line| line.split_whitespace().next())
            .and_then(|number| number.parse().ok());
        Ok(kibibytes.with_context(|| format!("{path} has no {name}"))? / 1024.0)
    };
    Ok(Memory {
        now: field("VmRSS:")?,
        peak: field("VmHWM:")?,
    })
}

/// Raises the limit of open files to its maximum, and returns that.
pub(crate) fn raise_file_limit() -> Result<u64> {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    Ok(hard)
}

/// CPU time of a process in milliseconds, including threads that have exited.
pub(crate) fn process_milliseconds(pid: u32) -> Result<f64> {
    let process = Pid::from_raw(i32::try_from(pid).context("invalid process ID")?);
    let used = clock_getcpuclockid(process)?.now()?;
    Ok(Duration::from(used).as_secs_f64() * 1e3)
}

/// Waits for a process with this text in its command line.
pub(crate) fn pid_with_argument(text: &str, timeout: Duration) -> Result<u32> {
    let begin = Instant::now();
    loop {
        for process in fs::read_dir("/proc")? {
            let path = process?.path();
            let pid = path
                .file_name()
                .and_then(|name| name.to_str()?.parse().ok());
            let line = fs::read_to_string(path.join("cmdline")).unwrap_or_default();
            if let Some(pid) = pid
                && line.contains(text)
            {
                return Ok(pid);
            }
        }
        ensure!(
            begin.elapsed() < timeout,
            "no process with {text} in its command line"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Sends SIGTERM to a child and waits for its exit.
pub(crate) fn terminate(child: &mut Child, timeout: Duration) -> Result<()> {
    kill(Pid::from_raw(child.id().try_into()?), Signal::SIGTERM)?;
    let begin = Instant::now();
    while begin.elapsed() < timeout {
        if let Some(status) = child.try_wait()? {
            ensure!(status.success(), "the process exited with {status}");
            return Ok(());
        }
        thread::sleep(Duration::from_millis(5));
    }
    bail!("the process did not exit")
}

/// CPU time of a process's main thread in milliseconds.
pub(crate) fn main_thread_milliseconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/task/{pid}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    Ok(on_cpu(&text)? / 1e6)
}

/// Nanoseconds of CPU time, from the text of a schedstat file.
fn on_cpu(schedstat: &str) -> Result<f64> {
    let first = schedstat.split_whitespace().next();
    first
        .and_then(|number| number.parse().ok())
        .context("unexpected format of schedstat")
}
