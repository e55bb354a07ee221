//! Runs cargo on this workspace.
//!
//! In: arguments. Out: cargo's own progress on the terminal, and an error that names the command if it fails.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A cargo command in the workspace's folder.
pub(crate) fn cargo<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    command
}

/// Runs a command to its end.
///
/// # Errors
/// If it can't be started or fails: `what` says what that means.
pub(crate) fn run(mut command: Command, what: &str) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("{what}: can't run {:?}", command.get_program()))?;
    if !status.success() {
        let args: Vec<_> = command
            .get_args()
            .map(|arg| arg.to_string_lossy())
            .collect();
        bail!("{what}: `cargo {}` failed", args.join(" "));
    }
    Ok(())
}
