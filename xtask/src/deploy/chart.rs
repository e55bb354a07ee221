//! Renders the chart into the repository's manifests, and with other values to check the results.
//!
//! In: `deploy/chart`, its `ci/` values, Helm. Out: the files in `deploy/manifests`, or problems in any rendered
//! manifests.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::lint;
use sesame_tools::cargo;
use sesame_tools::progress::Step;
use sesame_tools::wheel::last_lines;

/// The manifests: a file, what it installs, and the chart's values.
const MANIFESTS: [(&str, &str, &[&str]); 3] = [
    (
        "sesame.yaml",
        "Sesame with the chart's default values.",
        &[],
    ),
    (
        "operator.yaml",
        "The operator, which runs an instance of Sesame for each SesameConfiguration.",
        &["mode=operator"],
    ),
    (
        "unmanaged.yaml",
        "Sesame without managed Envoys.",
        &["mode=unmanaged"],
    ),
];

/// Release and namespace of the manifests.
pub(super) const RELEASE: &str = "sesame";
pub(super) const NAMESPACE: &str = "sesame-system";

/// Renders the chart with all values files in the repository, and writes or compares the manifests.
pub(super) fn run(helm: &Path, check: bool) -> Result<()> {
    let step = Step::new("Rendering the chart");
    let release = (RELEASE, NAMESPACE);
    let mut problems = Vec::new();
    let mut all = Vec::new();
    for (file, title, values) in MANIFESTS {
        let values = ["createNamespace=true"].iter().chain(values);
        let values: Vec<&str> = values.flat_map(|value| ["--set", *value]).collect();
        let manifests = rendered(helm, release, &values)?;
        problems.extend(self::problems(file, &manifests)?);
        all.push((file, header(title) + &manifests));
    }
    for values in other_values()? {
        let name = values.file_name().unwrap_or_default().to_string_lossy();
        let path = values.to_str().context("a path is not UTF-8")?;
        let manifests = rendered(helm, release, &["--values", path])?;
        problems.extend(self::problems(&name, &manifests)?);
    }
    step.done();
    for problem in &problems {
        println!("{problem}");
    }
    ensure!(
        problems.is_empty(),
        "the chart renders invalid manifests; see above"
    );
    for (file, manifests) in all {
        let path = super::manifests().with_file_name(file);
        if fs::read_to_string(&path).unwrap_or_default() == manifests {
            continue;
        }
        if check {
            bail!("{} is stale: run `cargo xtask deploy`", path.display());
        }
        fs::write(&path, manifests).with_context(|| format!("cannot write {}", path.display()))?;
        println!("{}", path.display());
    }
    Ok(())
}

/// The first lines of manifests.
fn header(title: &str) -> String {
    format!(
        "# {title} Generated from deploy/chart by `cargo xtask deploy`; do not edit.\n\
         # Install the Gateway API CRDs first (docs/install.md).\n"
    )
}

fn problems(values: &str, manifests: &str) -> Result<Vec<String>> {
    let objects = super::objects(manifests)
        .with_context(|| format!("the chart with {values} isn't valid YAML"))?;
    let problems = lint::problems(&objects);
    Ok(problems
        .into_iter()
        .map(|problem| format!("{values}: {problem}"))
        .collect())
}

/// Renders the chart for a release in a namespace, with arguments for values.
pub(super) fn rendered(
    helm: &Path,
    (release, namespace): (&str, &str),
    values: &[&str],
) -> Result<String> {
    // Isolated from the user's settings and plugins.
    let home = tempfile::tempdir().context("cannot create a folder for Helm")?;
    let mut command = Command::new(helm);
    for folder in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(folder, home.path());
    }
    command
        .env_remove("HELM_NAMESPACE")
        .env_remove("KUBECONFIG");
    command.current_dir(cargo::root()).stdin(Stdio::null());
    command.args([
        "template",
        release,
        "deploy/chart",
        "--namespace",
        namespace,
    ]);
    command.args(values);
    let output = command.output().context("cannot run Helm")?;
    ensure!(
        output.status.success(),
        "Helm cannot render the chart: {}",
        last_lines(&output.stderr)
    );
    let text = String::from_utf8(output.stdout).context("Helm's output isn't UTF-8")?;
    Ok(tidied(&text))
}

/// Helm's output without blank lines.
fn tidied(text: &str) -> String {
    let mut tidied = String::new();
    for line in text
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
    {
        tidied.push_str(line);
        tidied.push('\n');
    }
    tidied
}

/// The `ci/` values.
fn other_values() -> Result<Vec<PathBuf>> {
    let folder = cargo::root().join("deploy/chart/ci");
    let files =
        fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut files: Vec<PathBuf> = files
        .map(|file| file.map(|file| file.path()))
        .collect::<Result<_, _>>()?;
    files.sort();
    ensure!(!files.is_empty(), "no values in {}", folder.display());
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sesame_fleet::local::binary::VERSION as ENVOY_VERSION;

    #[test]
    fn chart_versions_match_the_repository() {
        let path = cargo::root().join("deploy/chart/Chart.yaml");
        let chart = &super::super::objects(&format!(
            "kind: Chart\n{}",
            fs::read_to_string(path).unwrap()
        ))
        .unwrap()[0];
        assert_eq!(chart["version"], env!("CARGO_PKG_VERSION"));
        assert_eq!(chart["appVersion"], env!("CARGO_PKG_VERSION"));
        assert_eq!(chart["annotations"]["sesame/envoy-version"], ENVOY_VERSION);
    }

    #[test]
    fn only_blank_lines_are_removed() {
        assert_eq!(tidied("---\n\n# a \n  b: 1\n\n"), "---\n# a\n  b: 1\n");
    }
}
