//! Builds the programs of a cluster, once per version of its Go modules' files.
//!
//! In: the modules in `tools/go`, Go, Debian packages. Out: `<cache>/cluster/<hash>/` with the programs in `bin` and
//! the Gateway API's CRDs in `crds`. Each program is moved into place atomically, so an interrupted build can be
//! continued.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use sesame_fleet::local::binary;
use sha2::{Digest, Sha256};

use super::packages;
use super::programs::{self, Program, Stamp};
use crate::cargo;
use crate::go::{self, Go};
use crate::progress::Step;
use crate::wheel::{hex, last_lines};

/// Prefix of unfinished programs.
const SCRATCH: &str = ".part-";

/// The environment variable with the programs folder, for tests.
pub const PROGRAMS_VARIABLE: &str = "SESAME_CLUSTER_BIN";

/// The environment variable with the CRDs folder, for tests.
pub const DEFINITIONS_VARIABLE: &str = "SESAME_CRDS";

/// A folder of built programs and CRDs.
#[derive(Clone, Debug)]
pub struct Built {
    home: PathBuf,
}

impl Built {
    /// An existing folder, as returned by [`Built::home`].
    pub(super) fn at(home: PathBuf) -> Self {
        Self { home }
    }

    /// The folder.
    pub(super) fn home(&self) -> &Path {
        &self.home
    }

    /// The folder of programs.
    pub fn programs(&self) -> PathBuf {
        self.home.join("bin")
    }

    /// The path of a program.
    pub fn program(&self, name: &str) -> PathBuf {
        self.programs().join(name)
    }

    /// The folder of the Gateway API's CRDs.
    pub fn definitions(&self) -> PathBuf {
        self.home.join("crds")
    }
}

/// Builds all programs unless they exist.
pub(crate) fn everything() -> Result<Built> {
    build(programs::ALL)
}

/// Builds etcd and the API server unless they exist.
pub fn api_server() -> Result<Built> {
    build(programs::API_SERVER)
}

/// The folder of the Gateway API's CRDs, with a subfolder for each channel, and one for a kind from an earlier release.
pub fn definitions() -> Result<PathBuf> {
    Ok(build(&[])?.definitions())
}

fn build(programs: &[Program]) -> Result<Built> {
    let modules = cargo::root().join("tools/go");
    let shelf = binary::cache_dir()
        .context("no cache folder: set HOME or SESAME_CACHE")?
        .join("cluster");
    let built = Built {
        home: shelf.join(fingerprint(&modules)?),
    };
    let missing = |programs: &[Program]| -> Vec<Program> {
        let missing = |program: &&Program| !built.program(program.name).exists();
        programs.iter().filter(missing).copied().collect()
    };
    if missing(programs).is_empty() && built.definitions().exists() {
        return Ok(built);
    }

    fs::create_dir_all(built.programs().join("cni"))
        .with_context(|| format!("cannot create {}", built.home.display()))?;
    let lock =
        File::create(built.home.join(".lock")).context("cannot write to the cache folder")?;
    if lock.try_lock().is_err() {
        let step = Step::new("Waiting for another process to build the cluster's programs");
        lock.lock().context("cannot lock the cache folder")?;
        step.done();
    }
    let missing = missing(programs);
    if missing.iter().any(|program| program.c) {
        packages::ensure(packages::TO_BUILD)?;
    }
    let go = go::obtain()?;
    for (number, program) in missing.iter().enumerate() {
        let step = Step::new(format!(
            "Building {} ({} of {})",
            program.name,
            number + 1,
            missing.len()
        ));
        link(&go, &modules, program, &built)
            .with_context(|| format!("cannot build {}", program.name))?;
        step.done();
    }
    copy_definitions(&go, &modules, &built).context("cannot get the Gateway API's CRDs")?;
    Ok(built)
}

/// Builds a program.
fn link(go: &Go, modules: &Path, program: &Program, built: &Built) -> Result<()> {
    let module = modules.join(program.module);
    let path = built.program(program.name);
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        anyhow::bail!("{} has no folder", path.display());
    };
    let part = folder.join(format!("{SCRATCH}{}", name.to_string_lossy()));
    let flags = format!("-s -w {}", stamps(go, &module, program.stamp)?);
    let mut command = go.command(&module, ["build", "-trimpath", "-buildvcs=false"]);
    command
        .args(["-tags", program.tags])
        .args(["-ldflags", flags.trim_end()])
        .arg("-o")
        .arg(&part)
        .arg(program.package);
    if program.c {
        command.env("CGO_ENABLED", "1");
    }
    let output = command.output().context("cannot run Go")?;
    ensure!(
        output.status.success(),
        "`go {}` failed in {}: {}",
        go::words(&command),
        module.display(),
        last_lines(&output.stderr)
    );
    fs::rename(&part, &path).with_context(|| format!("cannot move {} into place", path.display()))
}

/// Linker flags that set a program's version.
fn stamps(go: &Go, module: &Path, stamp: Stamp) -> Result<String> {
    let version = |of: &str| go.output(module, ["list", "-m", "-f", "{{.Version}}", of]);
    Ok(match stamp {
        Stamp::None => String::new(),
        Stamp::Variable {
            module: of,
            variable,
            v,
        } => {
            let version = version(of)?;
            let without = version.strip_prefix('v').unwrap_or(&version);
            format!("-X {variable}={}", if v { &version } else { without })
        }
        Stamp::Kubernetes => kubernetes_stamps(&version("k8s.io/kubernetes")?)?,
    })
}

fn kubernetes_stamps(version: &str) -> Result<String> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        anyhow::bail!("unexpected version of Kubernetes: {version:?}");
    };
    Ok([
        ("gitVersion", version),
        ("gitMajor", major),
        ("gitMinor", minor),
    ]
    .map(|(name, value)| format!("-X k8s.io/component-base/version.{name}={value}"))
    .join(" "))
}

/// Copies the Gateway API's CRDs for both channels, and that of a kind from an earlier release, from its Go module.
fn copy_definitions(go: &Go, modules: &Path, built: &Built) -> Result<()> {
    if built.definitions().exists() {
        return Ok(());
    }
    let step = Step::new("Downloading the Gateway API's CRDs");
    let (latest, of) = programs::DEFINITIONS;
    let (early, early_file) = programs::EARLY_DEFINITION;
    let source = |folder: &str| -> Result<PathBuf> {
        let module = modules.join(folder);
        go.output(&module, ["mod", "download", of])?;
        let source = go.output(&module, ["list", "-m", "-f", "{{.Dir}}", of])?;
        Ok(Path::new(&source).join("config/crd"))
    };
    let scratch = built.home.join(format!("{SCRATCH}crds"));
    if scratch.exists() {
        fs::remove_dir_all(&scratch)?;
    }
    for (folder, channel, target) in [
        (latest, "standard", "standard"),
        (latest, "experimental", "experimental"),
        (early, "experimental", "early"),
    ] {
        let target = scratch.join(target);
        fs::create_dir_all(&target)?;
        for file in fs::read_dir(source(folder)?.join(channel))? {
            let file = file?;
            let name = file.file_name();
            let wanted = match folder == early {
                true => name == early_file,
                // An index for another tool.
                false => name != "kustomization.yaml",
            };
            if wanted {
                // Not `fs::copy`, which would keep the read-only mode of Go's cache.
                fs::write(target.join(name), fs::read(file.path())?)?;
            }
        }
    }
    fs::rename(&scratch, built.definitions())?;
    step.done();
    Ok(())
}

/// A hash of the modules' files, the list of programs and the Go version.
fn fingerprint(modules: &Path) -> Result<String> {
    let mut hasher = Sha256::new();
    hasher.update(format!("{} {:?}", go::VERSION, programs::ALL));
    let mut names: Vec<&str> = programs::ALL
        .iter()
        .map(|program| program.module)
        .chain([programs::DEFINITIONS.0, programs::EARLY_DEFINITION.0])
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        hash_folder(&modules.join(name), &mut hasher)?;
    }
    Ok(hex(&hasher.finalize()[..8]))
}

fn hash_folder(folder: &Path, hasher: &mut Sha256) -> Result<()> {
    let unreadable = || format!("cannot read {}", folder.display());
    let mut paths = fs::read_dir(folder)
        .with_context(unreadable)?
        .map(|entry| entry.map(|entry| entry.path()))
        .collect::<Result<Vec<_>, _>>()
        .with_context(unreadable)?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            hash_folder(&path, hasher)?;
            continue;
        }
        let content = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        hasher.update(format!("{name} {}\n", content.len()));
        hasher.update(content);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_exists_and_pins_its_dependencies() {
        let modules = cargo::root().join("tools/go");
        for program in programs::ALL {
            let manifest = modules.join(program.module).join("go.mod");
            let text = fs::read_to_string(&manifest).unwrap();
            assert!(text.starts_with("// "), "{}", manifest.display());
            assert!(text.contains("\nmodule projectsesame.io/"), "{text}");
        }
    }

    #[test]
    fn the_fingerprint_depends_on_every_file() {
        let dir = tempfile::tempdir().unwrap();
        let of = || {
            let mut hasher = Sha256::new();
            hash_folder(dir.path(), &mut hasher).unwrap();
            hex(&hasher.finalize())
        };
        fs::write(dir.path().join("go.mod"), "module a\n").unwrap();
        let first = of();
        assert_eq!(first, of());
        fs::create_dir(dir.path().join("b")).unwrap();
        fs::write(dir.path().join("b/main.go"), "package main\n").unwrap();
        let second = of();
        assert_ne!(first, second);
        fs::write(dir.path().join("b/main.go"), "package Main\n").unwrap();
        assert_ne!(second, of());
    }

    #[test]
    fn kubernetes_gets_its_version() {
        let flags = kubernetes_stamps("v1.37.1").unwrap();
        let expected = "-X k8s.io/component-base/version.gitVersion=v1.37.1 \
            -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=37";
        assert_eq!(flags, expected);
        assert!(kubernetes_stamps("devel").is_err());
    }
}
