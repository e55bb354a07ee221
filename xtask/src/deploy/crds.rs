//! Writes the CRDs of Sesame's own kinds.
//!
//! In: the types in `sesame-api`. Out: a file for each CRD in `deploy/crds`, and the same files in the chart, since
//! charts can't read files outside their folder.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use sesame_tools::cargo;
use sesame_tools::progress::Step;
use sesame_tools::wheel::last_lines;

/// The folders with the files.
const FOLDERS: [&str; 2] = ["deploy/crds", "deploy/chart/files/crds"];

/// Header of the files.
const HEADER: &str = "# Generated from crates/api by `cargo xtask deploy`; do not edit.\n";

/// Writes or compares the files.
pub(super) fn run(check: bool) -> Result<()> {
    let files = files()?;
    for folder in FOLDERS {
        let folder = cargo::root().join(folder);
        let mut stale = present(&folder)?;
        for (name, text) in &files {
            let path = folder.join(name);
            stale.retain(|other| *other != path);
            if fs::read_to_string(&path).is_ok_and(|there| there == *text) {
                continue;
            }
            if check {
                bail!("{} is stale: run `cargo xtask deploy`", path.display());
            }
            fs::create_dir_all(&folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
            fs::write(&path, text).with_context(|| format!("cannot write {}", path.display()))?;
            println!("{}", path.display());
        }
        if let Some(path) = stale.first() {
            bail!("{} is not one of Sesame's CRDs: remove it", path.display());
        }
    }
    Ok(())
}

/// The paths of the files in a folder.
fn present(folder: &PathBuf) -> Result<Vec<PathBuf>> {
    if !folder.exists() {
        return Ok(Vec::new());
    }
    let files =
        fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    Ok(files
        .map(|file| file.map(|file| file.path()))
        .collect::<Result<_, _>>()?)
}

/// The names and contents of the files. A program in the crate prints the CRDs, so xtask doesn't depend on the crate.
fn files() -> Result<Vec<(String, String)>> {
    let step = Step::new("Generating the CRDs");
    let output = cargo::cargo([
        "run",
        "--quiet",
        "--package",
        "sesame-api",
        "--features",
        "schema",
        "--example",
        "crds",
    ])
    .output()
    .context("cannot run Cargo")?;
    ensure!(
        output.status.success(),
        "cannot generate the CRDs: {}",
        last_lines(&output.stderr)
    );
    step.done();
    let definitions: Vec<Value> =
        serde_json::from_slice(&output.stdout).context("the CRDs aren't JSON")?;
    definitions.iter().map(file).collect()
}

fn file(definition: &Value) -> Result<(String, String)> {
    let names = &definition["spec"]["names"];
    let name = names["plural"].as_str().context("a CRD has no plural")?;
    let text = format!("{HEADER}{}", serde_saphyr::to_string(definition)?);
    // Helm would expand templates and remove blank lines.
    ensure!(
        !text.contains("{{") && !text.contains("\n\n"),
        "the CRD of {name} contains a template or a blank line"
    );
    Ok((format!("{name}.yaml"), text))
}
