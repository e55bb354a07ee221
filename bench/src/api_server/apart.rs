//! A network namespace for the run: the API server rejects loopback endpoints, and the host's own addresses must not be
//! used.
//!
//! Out: this program, re-executed in a network namespace whose loopback device also has [`BACKENDS`].

use std::convert::Infallible;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

/// The backends' address, reserved for documentation (RFC 5737).
pub(crate) const BACKENDS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Set inside the namespace.
const MARK: &str = "SESAME_BENCH_APART";

/// Whether this process runs inside the namespace.
pub(crate) fn is() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Re-executes this program inside the namespace.
///
/// # Errors
/// If `unshare` can't be run.
pub(crate) fn become_it() -> Result<Infallible> {
    let mut command = Command::new("unshare");
    command.arg("--net");
    // Without root, this needs user namespaces.
    if fs::metadata("/proc/self")?.uid() != 0 {
        command.arg("--map-root-user");
    }
    let script =
        format!("ip link set lo up && ip address add {BACKENDS}/32 dev lo && exec \"$0\" \"$@\"");
    command
        .args(["--", "sh", "-c", &script])
        .arg(std::env::current_exe()?)
        .args(std::env::args_os().skip(1))
        .env(MARK, "1");
    Err(command.exec()).context("cannot run `unshare` (util-linux)")
}
