//! The locations of the programs and the Gateway API CRDs.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};

/// The environment variable that names the programs' directory.
const PROGRAMS: &str = "SESAME_CLUSTER_BIN";

/// The environment variable that names the CRDs' directory, which has a subdirectory per channel.
const DEFINITIONS: &str = "SESAME_CRDS";

/// The directory that contains etcd and kube-apiserver.
pub(super) fn programs() -> Result<PathBuf> {
    find(PROGRAMS, "bin", "kube-apiserver", "the API server")
}

/// The directory that contains `standard` and `experimental`.
pub(super) fn definitions() -> Result<PathBuf> {
    find(
        DEFINITIONS,
        "crds",
        "standard",
        "the definitions of the Gateway API",
    )
}

/// The directory `deploy`, which contains `crds`.
pub(super) fn deployed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy")
}

fn find(variable: &str, folder: &str, holds: &str, what: &str) -> Result<PathBuf> {
    let remedy = || format!("{what} not found: run `cargo xtask cluster build`, or set {variable}");
    if let Some(named) = non_empty(variable) {
        let named = PathBuf::from(named);
        ensure!(
            named.join(holds).exists(),
            "{variable} is set to {}, which does not contain {holds}",
            named.display()
        );
        return Ok(named);
    }
    newest(&builds().with_context(remedy)?, folder, holds).with_context(remedy)
}

/// The directory of builds in `cargo xtask`'s cache.
fn builds() -> Option<PathBuf> {
    let cache = non_empty("SESAME_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(non_empty("XDG_CACHE_HOME")?).join("sesame")))
        .or_else(|| Some(PathBuf::from(non_empty("HOME")?).join(".cache/sesame")))?;
    Some(cache.join("cluster"))
}

/// The newest build that contains the file.
fn newest(builds: &Path, folder: &str, holds: &str) -> Option<PathBuf> {
    let age = |path: &PathBuf| {
        let modified = path.join(holds).metadata().and_then(|meta| meta.modified());
        modified.unwrap_or(SystemTime::UNIX_EPOCH)
    };
    builds
        .read_dir()
        .ok()?
        .flatten()
        .map(|build| build.path().join(folder))
        .filter(|path| path.join(holds).exists())
        .max_by_key(age)
}

fn non_empty(variable: &str) -> Option<OsString> {
    env::var_os(variable).filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_newest_complete_build_is_used() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(newest(dir.path(), "bin", "etcd"), None);
        for (name, seconds) in [("old", 1), ("new", 3), ("middle", 2)] {
            let bin = dir.path().join(name).join("bin");
            fs::create_dir_all(&bin).unwrap();
            let file = fs::File::create(bin.join("etcd")).unwrap();
            file.set_modified(SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds))
                .unwrap();
        }
        fs::create_dir_all(dir.path().join("unfinished/bin")).unwrap();
        let expected = dir.path().join("new/bin");
        assert_eq!(newest(dir.path(), "bin", "etcd"), Some(expected));
    }
}
