//! What the kernel says about processes: memory and processor time.
//!
//! In: process ids. Out: numbers. Linux only, as the figures are.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::time::clock_getcpuclockid;
use nix::unistd::Pid;

/// Memory of a process, in MiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// Resident now.
    pub(crate) now: f64,
    /// Resident at its highest.
    pub(crate) peak: f64,
}

/// Memory of a process; `None` is this one.
pub(crate) fn memory(pid: Option<u32>) -> Result<Memory> {
    let path = match pid {
        Some(pid) => format!("/proc/{pid}/status"),
        None => "/proc/self/status".to_owned(),
    };
    let text = fs::read_to_string(&path).with_context(|| format!("can't read {path}"))?;
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

/// Processor time that a process has used, threads that have ended included, in milliseconds.
pub(crate) fn process_milliseconds(pid: u32) -> Result<f64> {
    let process = Pid::from_raw(i32::try_from(pid).context("a strange process")?);
    let used = clock_getcpuclockid(process)?.now()?;
    Ok(Duration::from(used).as_secs_f64() * 1e3)
}

/// The process with this text in its command line, as soon as there is one.
pub(crate) fn pid_with_argument(text: &str, patience: Duration) -> Result<u32> {
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
            begin.elapsed() < patience,
            "there is no process with {text} in its command line"
        );
        thread::sleep(Duration::from_millis(20));
    }
}

/// Processor time that the first thread of a process has used, in milliseconds.
pub(crate) fn main_thread_milliseconds(pid: u32) -> Result<f64> {
    let path = format!("/proc/{pid}/task/{pid}/schedstat");
    let text = fs::read_to_string(&path).with_context(|| format!("can't read {path}"))?;
    Ok(on_cpu(&text)? / 1e6)
}

/// Processor time that living threads of this process have used, in milliseconds: those whose names begin so.
pub(crate) fn thread_milliseconds(prefixes: &[&str]) -> Result<f64> {
    let mut nanoseconds = 0.0;
    for task in fs::read_dir("/proc/self/task")? {
        let path = task?.path();
        // A thread may end between the listing and the look.
        let (Ok(name), Ok(times)) = (
            fs::read_to_string(path.join("comm")),
            fs::read_to_string(path.join("schedstat")),
        ) else {
            continue;
        };
        if prefixes.iter().any(|prefix| name.starts_with(prefix)) {
            nanoseconds += on_cpu(&times)?;
        }
    }
    Ok(nanoseconds / 1e6)
}

/// Nanoseconds on a processor, by the text of a schedstat.
fn on_cpu(schedstat: &str) -> Result<f64> {
    let first = schedstat.split_whitespace().next();
    first
        .and_then(|number| number.parse().ok())
        .context("schedstat has another form than expected")
}
