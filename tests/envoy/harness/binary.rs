//! Paths of the programs under test.
//!
//! Cargo builds another package's binary with `--workspace`, but not with `-p sesame-tests`, so an existing binary may
//! be outdated.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use sesame_fleet::local::binary;

/// The `sesame` binary, built if it is older than its sources.
pub(crate) fn sesame() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let test = env::current_exe().expect("the path of this executable");
        // target/debug/deps/envoy-…
        let folder = test
            .ancestors()
            .nth(2)
            .expect("tests are two folders below target");
        let path = folder.join("sesame");
        if !is_fresh(&path) {
            build(folder);
        }
        assert!(
            is_fresh(&path),
            "{} is missing or older than its sources: run `cargo build --package sesame-cli`",
            path.display()
        );
        path
    })
}

/// The Envoy binary.
pub(crate) fn envoy() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| match binary::find(None) {
        Ok(found) => found.path,
        Err(error) => panic!("these tests need a real Envoy: {error}"),
    })
}

/// Whether the executable is newer than all sources in the dependency file that Cargo writes next to it.
fn is_fresh(executable: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|meta| meta.modified());
    let Ok(built) = modified(executable) else {
        return false;
    };
    let Ok(listed) = fs::read_to_string(executable.with_extension("d")) else {
        return false;
    };
    let Some((_, sources)) = listed.split_once(": ") else {
        return false;
    };
    // Spaces in paths are escaped.
    let sources = sources.replace("\\ ", "\0");
    sources
        .split_whitespace()
        .map(|source| PathBuf::from(source.replace('\0', " ")))
        .all(|source| {
            modified(&source).unwrap_or(SystemTime::UNIX_EPOCH) <= built && source.exists()
        })
}

fn build(folder: &Path) {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["build", "--quiet", "--package", "sesame-cli"])
        .current_dir(env!("CARGO_MANIFEST_DIR"));
    if let Some(target) = folder.parent() {
        cargo.arg("--target-dir").arg(target);
    }
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    let status = cargo.status().expect("cargo can be run");
    assert!(
        status.success(),
        "`cargo build --package sesame-cli` failed: {status}"
    );
}
