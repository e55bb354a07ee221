//! A program's loader and shared libraries.
//!
//! In: an executable on this machine. Out: the paths of its loader and shared libraries, which are the same in an
//! image.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

/// The type of the ELF program header that contains the loader's path (`PT_INTERP`).
const LOADER: u32 = 3;

/// The loader and libraries of a program; empty if it is statically linked.
///
/// # Errors
/// If it isn't an executable for this machine, or a library is missing.
pub(super) fn of(program: &Path) -> Result<BTreeSet<PathBuf>> {
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let loader =
        loader(&bytes).with_context(|| format!("{} isn't executable", program.display()))?;
    let Some(loader) = loader else {
        return Ok(BTreeSet::new());
    };
    // The loader itself lists the libraries, without Cargo's search path.
    let output = Command::new(&loader)
        .arg("--list")
        .arg(program)
        .env_remove("LD_LIBRARY_PATH")
        .env_remove("LD_PRELOAD")
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {loader}, which loads {}", program.display()))?;
    ensure!(
        output.status.success(),
        "{loader} cannot load {}: {}",
        program.display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let mut files = listed(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("cannot run {} on this machine", program.display()))?;
    files.insert(loader.into());
    Ok(files)
}

/// The loader of an executable; `None` if it is statically linked.
fn loader(elf: &[u8]) -> Result<Option<String>> {
    // The only formats that Sesame and Envoy are built for.
    ensure!(
        elf.starts_with(b"\x7fELF\x02\x01"),
        "not a 64-bit little-endian ELF executable"
    );
    let cut = "truncated ELF file";
    let number = |at: u64, bytes: u64| -> Result<u64> {
        let from = usize::try_from(at)?;
        let to = usize::try_from(at.checked_add(bytes).context(cut)?)?;
        let field = elf.get(from..to).context(cut)?;
        Ok(field
            .iter()
            .rev()
            .fold(0, |value, byte| value << 8 | u64::from(*byte)))
    };
    let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    for index in 0..count {
        let header = table.checked_add(index * size).context(cut)?;
        if number(header, 4)? != u64::from(LOADER) {
            continue;
        }
        let from = usize::try_from(number(header.saturating_add(8), 8)?)?;
        let length = usize::try_from(number(header.saturating_add(32), 8)?)?;
        let name = elf
            .get(from..)
            .and_then(|rest| rest.get(..length))
            .context(cut)?;
        let name = std::str::from_utf8(name).context("its loader's path isn't UTF-8")?;
        return Ok(Some(name.trim_end_matches('\0').to_owned()));
    }
    Ok(None)
}

/// Parses a loader's list of `name => /path (0x…)` or `/path (0x…)`; other entries are from the kernel.
fn listed(list: &str) -> Result<BTreeSet<PathBuf>> {
    let mut files = BTreeSet::new();
    for line in list.lines().map(str::trim) {
        let (name, path) = line.split_once(" => ").unwrap_or((line, line));
        if path.starts_with("not found") {
            bail!("the shared library {name} is missing");
        }
        let path = path.rsplit_once(" (0x").map_or(path, |(path, _)| path);
        if path.starts_with('/') {
            files.insert(path.into());
        }
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_loaders_list_parses() {
        let list = "\tlinux-vdso.so.1 (0x00007f1a78ac6000)\n\
                    \tlibm.so.6 => /lib/x86_64-linux-gnu/libm.so.6 (0x00007f1a789b5000)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f1a78ac8000)\n";
        let files: Vec<PathBuf> = listed(list).unwrap().into_iter().collect();
        let expected = [
            "/lib/x86_64-linux-gnu/libm.so.6",
            "/lib64/ld-linux-x86-64.so.2",
        ];
        assert_eq!(files, expected.map(PathBuf::from));
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = listed("\tlibseccomp.so.2 => not found\n").unwrap_err();
        assert_eq!(
            error.to_string(),
            "the shared library libseccomp.so.2 is missing"
        );
    }

    #[test]
    fn this_test_needs_a_loader_and_a_c_library() {
        let files = of(&std::env::current_exe().unwrap()).unwrap();
        let named = |text: &str| {
            files
                .iter()
                .any(|path| path.to_string_lossy().contains(text))
        };
        assert!(named("/ld-"), "{files:?}");
        assert!(named("libc."), "{files:?}");
        assert!(files.iter().all(|path| path.is_file()), "{files:?}");
    }

    #[test]
    fn a_static_program_has_no_dependencies() {
        let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
        elf.resize(64, 0);
        assert_eq!(loader(&elf).unwrap(), None);
    }

    #[test]
    fn truncated_files_and_scripts_are_rejected() {
        assert!(loader(b"#!/bin/sh\n").is_err());
        let own = fs::read(std::env::current_exe().unwrap()).unwrap();
        for end in [0, 5, 20, 60, 64, 200] {
            assert!(loader(&own[..end]).is_err(), "cut at {end}");
        }
    }
}
