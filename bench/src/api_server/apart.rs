//! A network of its own, which ends with the process: an API server takes no endpoint on loopback, and the machine's own
//! addresses are nobody's to serve at.
//!
//! In: nothing. Out: this program again, within a network namespace in which the loopback device has [`BACKENDS`], too.

use std::convert::Infallible;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, Result};

/// Where backends are: an address for documentation (RFC 5737), which is nobody's.
pub(crate) const BACKENDS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

/// Set within.
const MARK: &str = "SESAME_BENCH_APART";

/// Whether this is the program within.
pub(crate) fn is() -> bool {
    std::env::var_os(MARK).is_some()
}

/// Becomes the program within; it has the same arguments and the same number.
///
/// # Errors
/// If it doesn't.
pub(crate) fn become_it() -> Result<Infallible> {
    let mut command = Command::new("unshare");
    command.arg("--net");
    // Others than root may do it where the kernel lets them be root of nothing.
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
    Err(command.exec()).context("unshare (of util-linux) can't be run")
}
