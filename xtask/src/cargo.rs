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
    // What cargo says of this program's package is not for others: build scripts that look at it would run again, and half of
    // the workspace be built again, each time that somebody uses cargo with and without `xtask`.
    for (name, _) in env::vars_os() {
        let of_package =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
    command
}

/// A profile of Cargo's that optimises.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Profile {
    /// Quick to build.
    Release,
    /// What is shipped.
    Dist,
}

/// Builds `sesame` and says where it is.
pub(crate) fn sesame(profile: Profile) -> Result<PathBuf> {
    let name = match profile {
        Profile::Release => "release",
        Profile::Dist => "dist",
    };
    let build = [
        "build",
        "--locked",
        "--package",
        "sesame-cli",
        "--profile",
        name,
    ];
    run(cargo(build), "Sesame can't be built")?;
    Ok(built(name, "sesame").get_program().into())
}

/// A program that a build has made: by itself, since `cargo run` would choose other features of shared dependencies for one
/// package than a build of several has, and build them again.
pub(crate) fn built(profile: &str, program: &str) -> Command {
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let path = target.join(profile).join(program);
    let mut command = Command::new(path.with_extension(env::consts::EXE_EXTENSION));
    command.current_dir(root());
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
        let program = Path::new(command.get_program());
        let program = program.file_name().unwrap_or_default().to_string_lossy();
        bail!("{what}: `{program} {}` failed", args.join(" "));
    }
    Ok(())
}
