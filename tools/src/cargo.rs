//! Runs Cargo in this workspace.
//!
//! In: arguments. Out: Cargo's output, or an error with the command if it fails.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The root of the workspace.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_owned()
}

/// A Cargo command in the workspace root.
pub fn cargo<I, S>(args: I) -> Command
where
    I: IntoIterator<Item = S>,
    S: AsRef<OsStr>,
{
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(args).current_dir(root());
    // Removes the variables that Cargo sets for this program's package. Otherwise, build scripts that read them would
    // rerun, and half of the workspace would be rebuilt whenever `cargo` and `cargo xtask` alternate.
    for (name, _) in env::vars_os() {
        let of_package =
            |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
        if name.to_str().is_some_and(of_package) {
            command.env_remove(name);
        }
    }
    command
}

/// An optimized profile.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Profile {
    /// Builds fast.
    Release,
    /// The shipped binary, with link-time optimization.
    Dist,
}

/// Builds `sesame` and returns its path.
pub fn sesame(profile: Profile) -> Result<PathBuf> {
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
    run(cargo(build), "cannot build Sesame")?;
    Ok(built(name, "sesame").get_program().into())
}

/// A command for a program that is already built. `cargo run` would rebuild shared dependencies, because it resolves
/// their features differently than a build of several packages.
pub fn built(profile: &str, program: &str) -> Command {
    let target =
        env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let path = target.join(profile).join(program);
    let mut command = Command::new(path.with_extension(env::consts::EXE_EXTENSION));
    command.current_dir(root());
    command
}

/// Runs a command and waits for its exit.
///
/// # Errors
/// If it can't be started or fails, with `what` as the error's context.
pub fn run(mut command: Command, what: &str) -> Result<()> {
    let status = command
        .status()
        .with_context(|| format!("{what}: cannot run {:?}", command.get_program()))?;
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
