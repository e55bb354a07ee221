//! Helm, built from its Go module once into the cache folder.
//!
//! In: `xtask/go/helm`, which pins it. Out: the path of a Helm, the same on every machine.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use sesame_fleet::local::binary;
use sha2::{Digest, Sha256};

use crate::cargo;
use crate::cluster::go;
use crate::progress::Step;
use crate::wheel::{self, hex, last_lines};

/// The package of Helm's command.
const PACKAGE: &str = "helm.sh/helm/v4/cmd/helm";

/// The Helm that was built, or a freshly built one.
pub(crate) fn obtain() -> Result<PathBuf> {
    let path = place()?;
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
            .context("Go can't be run")?;
        ensure!(
            output.status.success(),
            "Helm can't be built: {}",
            last_lines(&output.stderr)
        );
        step.done();
        Ok(helm)
    })?;
    Ok(path)
}

/// The Helm that was built; `None`: none was.
pub(super) fn built() -> Result<Option<PathBuf>> {
    let path = place()?;
    Ok(path.exists().then_some(path))
}

/// Where it stands when it is built: what it is built of names the folder.
fn place() -> Result<PathBuf> {
    let mut hasher = Sha256::new();
    hasher.update(go::VERSION);
    for file in ["go.mod", "go.sum"] {
        let path = module().join(file);
        hasher.update(fs::read(&path).with_context(|| format!("can't read {}", path.display()))?);
    }
    Ok(shelf()?.join(hex(&hasher.finalize()[..8])).join("helm"))
}

fn shelf() -> Result<PathBuf> {
    let cache =
        binary::cache_dir().context("there is no cache folder: set HOME or SESAME_CACHE")?;
    Ok(cache.join("helm"))
}

fn module() -> PathBuf {
    cargo::root().join("xtask/go/helm")
}
