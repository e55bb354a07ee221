//! Builds the upstream suite and the backend used in its manifests, once per version of the Go module's files.
//!
//! In: the module `tools/go/conformance`, Go. Out: a folder with both programs and the names of the backend's image in
//! the manifests.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sesame_fleet::local::binary;
use sha2::{Digest, Sha256};

use sesame_tools::cargo;
use sesame_tools::go::{self, Go};
use sesame_tools::image::Image;
use sesame_tools::image::recipes::NONROOT;
use sesame_tools::progress::Step;
use sesame_tools::wheel::{self, hex, last_lines};

/// The suite's module.
const SUITE: &str = "sigs.k8s.io/gateway-api/conformance";

/// The backend's package.
const BACKEND: &str = "sigs.k8s.io/gateway-api-conformance-images/echo-basic";

/// The module's folders with manifests for gateway tests. The mesh tests use other images.
const MANIFESTS: [&str; 2] = ["base", "tests"];

/// The built programs.
#[derive(Clone, Debug)]
pub(crate) struct Suite {
    home: PathBuf,
}

impl Suite {
    /// The suite's program.
    pub(crate) fn program(&self) -> PathBuf {
        self.home.join("conformance.test")
    }

    /// The backend's image, with all its names in the manifests.
    pub(crate) fn backend(&self) -> Result<Image> {
        let names = fs::read_to_string(self.home.join("names")).context("corrupt cache folder")?;
        let names: Vec<String> = names.lines().map(str::to_owned).collect();
        let first = names
            .first()
            .context("no manifest uses the image echo-basic")?;
        let mut image = Image::of_program(first, &self.home.join("echo-basic"), "/echo-basic")?;
        image.names = names;
        image.run.user = NONROOT.to_owned();
        Ok(image)
    }
}

/// Builds the programs unless they exist. Building takes minutes.
pub(crate) fn obtain() -> Result<Suite> {
    let module = cargo::root().join("tools/go/conformance");
    let shelf = binary::cache_dir()
        .context("no cache folder: set HOME or SESAME_CACHE")?
        .join("conformance");
    let home = shelf.join(fingerprint(&module)?);
    wheel::place("the conformance suite", &shelf, &home, |scratch| {
        let go = go::obtain()?;
        let step = Step::new("Building the conformance suite (takes minutes)");
        let folder = scratch.join("built");
        fs::create_dir_all(&folder)?;
        build(
            &go,
            &module,
            &["build"],
            BACKEND,
            &folder.join("echo-basic"),
        )?;
        build(
            &go,
            &module,
            &["test", "-c"],
            ".",
            &folder.join("conformance.test"),
        )?;
        go.output(&module, ["mod", "download", SUITE])?;
        let source = go.output(&module, ["list", "-m", "-f", "{{.Dir}}", SUITE])?;
        fs::write(folder.join("names"), names(Path::new(&source))?)?;
        step.done();
        Ok(folder)
    })
    .context("cannot build the conformance suite")?;
    Ok(Suite { home })
}

/// Builds a package in a module.
pub(crate) fn build(
    go: &Go,
    module: &Path,
    how: &[&str],
    package: &str,
    path: &Path,
) -> Result<()> {
    let mut command = go.command(module, how);
    command
        .args(["-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o"])
        .arg(path)
        .arg(package);
    let output = command.output().context("cannot run Go")?;
    ensure!(
        output.status.success(),
        "`go {}` failed: {}",
        go::words(&command),
        last_lines(&output.stderr)
    );
    Ok(())
}

/// The images in the manifests, one per line.
fn names(source: &Path) -> Result<String> {
    let mut names = BTreeSet::new();
    for folder in MANIFESTS {
        for file in fs::read_dir(source.join(folder))? {
            let path = file?.path();
            if path
                .extension()
                .is_some_and(|extension| extension == "yaml")
            {
                let text = fs::read_to_string(&path)?;
                names.extend(images(&text).map(str::to_owned));
            }
        }
    }
    let names: Vec<String> = names.into_iter().collect();
    for name in &names {
        ensure!(
            name.contains("/echo-basic:"),
            "a suite manifest uses the image {name}, which isn't built here"
        );
    }
    Ok(names.join("\n"))
}

/// The images in a manifest.
fn images(manifest: &str) -> impl Iterator<Item = &str> {
    let lines = manifest
        .lines()
        .map(|line| line.trim().trim_start_matches("- "));
    lines.filter_map(|line| Some(line.strip_prefix("image:")?.trim()))
}

/// A hash of the module's files and the Go version.
pub(crate) fn fingerprint(module: &Path) -> Result<String> {
    let unreadable = || format!("cannot read {}", module.display());
    let files = fs::read_dir(module).with_context(unreadable)?;
    let mut paths = files
        .map(|file| file.map(|file| file.path()))
        .collect::<Result<Vec<_>, _>>()
        .with_context(unreadable)?;
    paths.sort();
    let mut hasher = Sha256::new();
    hasher.update(go::VERSION);
    for path in paths {
        let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        hasher.update(format!("\n{name} {}\n", content.len()));
        hasher.update(content);
    }
    Ok(hex(&hasher.finalize()[..8]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_of_a_manifest_are_found() {
        let manifest = "
containers:
- image: example.com/echo-basic:v1
  name: a
- name: b
  image:   example.com/echo-basic:v2
  imagePullPolicy: Never
";
        let found: Vec<_> = images(manifest).collect();
        assert_eq!(
            found,
            ["example.com/echo-basic:v1", "example.com/echo-basic:v2"]
        );
    }

    #[test]
    fn only_the_backend_is_built() {
        let dir = tempfile::tempdir().unwrap();
        for folder in MANIFESTS {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        let write = |file: &str, image: &str| {
            fs::write(
                dir.path().join(file),
                format!("image: example.com/{image}\n"),
            )
            .unwrap();
        };
        write("base/a.yaml", "echo-basic:v2");
        write("tests/b.yaml", "echo-basic:v1");
        write("tests/c.yaml", "echo-basic:v2");
        write("tests/c.go", "other:v1");
        let expected = "example.com/echo-basic:v1\nexample.com/echo-basic:v2";
        assert_eq!(names(dir.path()).unwrap(), expected);
        write("tests/d.yaml", "other:v1");
        let error = names(dir.path()).unwrap_err().to_string();
        assert!(error.contains("example.com/other:v1"), "{error}");
    }

    #[test]
    fn the_fingerprint_depends_on_the_modules_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("go.mod"), "module a\n").unwrap();
        let first = fingerprint(dir.path()).unwrap();
        assert_eq!(first, fingerprint(dir.path()).unwrap());
        fs::write(dir.path().join("go.mod"), "module b\n").unwrap();
        assert_ne!(first, fingerprint(dir.path()).unwrap());
    }
}
