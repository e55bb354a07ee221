//! Helm, built once from its Go module into the cache folder.
//!
//! In: `tools/go/helm`, which pins the version. Out: Helm's path.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use sesame_fleet::local::binary;
use sha2::{Digest, Sha256};

use sesame_tools::cargo;
use sesame_tools::go;
use sesame_tools::progress::Step;
use sesame_tools::wheel::{self, hex, last_lines};

/// Import path of Helm's main package.
const PACKAGE: &str = "helm.sh/helm/v4/cmd/helm";

/// Returns Helm's path, building it unless it exists.
pub(crate) fn obtain() -> Result<PathBuf> {
    let path = path()?;
    let shelf = shelf()?;
    wheel::place("Helm", &shelf, &path, |scratch| {
        let go = go::obtain()?;
        let step = Step::new("Building Helm");
        let helm = scratch.join("helm");
        let build = [
            "build",
            "-trimpath",
            "-buildvcs=false",
            "-ldflags",
            "-s -w",
            "-o",
        ];
        let mut command = go.command(&module(), build);
        let output = command
            .arg(&helm)
            .arg(PACKAGE)
            .output()
            .context("cannot run Go")?;
        ensure!(
            output.status.success(),
            "cannot build Helm: {}",
            last_lines(&output.stderr)
        );
        step.done();
        Ok(helm)
    })?;
    Ok(path)
}

/// Helm's path, if already built.
pub(super) fn built() -> Result<Option<PathBuf>> {
    let path = path()?;
    Ok(path.exists().then_some(path))
}

/// Path of the binary in the cache folder. It contains a hash of the module.
fn path() -> Result<PathBuf> {
    let mut hasher = Sha256::new();
    hasher.update(go::VERSION);
    for file in ["go.mod", "go.sum"] {
        let path = module().join(file);
        hasher.update(fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?);
    }
    Ok(shelf()?.join(hex(&hasher.finalize()[..8])).join("helm"))
}

fn shelf() -> Result<PathBuf> {
    let cache = binary::cache_dir().context("no cache folder: set HOME or SESAME_CACHE")?;
    Ok(cache.join("helm"))
}

fn module() -> PathBuf {
    cargo::root().join("tools/go/helm")
}
