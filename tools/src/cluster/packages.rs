//! Debian packages required by a cluster.
//!
//! In: requirements. Out: installed packages, or an error that names the missing ones.

use std::env;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, bail, ensure};

use crate::progress::Step;
use crate::wheel::last_lines;

/// A file in a Debian package.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Need {
    /// A program in `PATH`, or an absolute path.
    what: &'static str,
    package: &'static str,
}

const fn need(what: &'static str, package: &'static str) -> Need {
    Need { what, package }
}

/// For building: runc uses cgo.
pub(super) const TO_BUILD: &[Need] = &[
    need("gcc", "gcc"),
    need("/usr/include/stdlib.h", "libc6-dev"),
    need("pkg-config", "pkg-config"),
    need("/usr/include/seccomp.h", "libseccomp-dev"),
];

/// For running: kube-proxy and the node's network.
pub(super) const TO_RUN: &[Need] = &[
    need("nft", "nftables"),
    need("ip", "iproute2"),
    need("nsenter", "util-linux"),
];

/// Installs missing packages.
pub(super) fn ensure(needs: &[Need]) -> Result<()> {
    let missing = missing(needs, is_there);
    if missing.is_empty() {
        return Ok(());
    }
    let list = missing.join(" ");
    if !nix::unistd::geteuid().is_root() || !on_path("apt-get") {
        bail!("missing packages: install {list} (Debian names), then try again");
    }
    let step = Step::new(format!("Installing {list} with apt-get"));
    let install =
        || apt_get(&[&["install", "--yes", "--no-install-recommends"], &*missing].concat());
    // The package lists may be missing or outdated.
    if install().is_err() {
        apt_get(&["update"]).and_then(|()| install())?;
    }
    step.done();
    Ok(())
}

/// The packages that provide the missing files.
fn missing(needs: &[Need], is_there: impl Fn(&str) -> bool) -> Vec<&'static str> {
    needs
        .iter()
        .filter(|need| !is_there(need.what))
        .map(|need| need.package)
        .collect()
}

fn is_there(what: &str) -> bool {
    if what.starts_with('/') {
        Path::new(what).exists()
    } else {
        on_path(what)
    }
}

fn on_path(program: &str) -> bool {
    // PATH may not include the sbin directories.
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/sbin".into()])
        .any(|folder| folder.join(program).is_file())
}

fn apt_get(args: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()?;
    ensure!(
        output.status.success(),
        "`apt-get {}` failed: {}",
        args.join(" "),
        last_lines(&output.stderr)
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_files_are_reported_by_package() {
        let needs = [
            need("nft", "nftables"),
            need("/usr/include/x.h", "libx-dev"),
        ];
        assert_eq!(missing(&needs, |_| true), Vec::<&str>::new());
        assert_eq!(missing(&needs, |what| what == "nft"), ["libx-dev"]);
        assert_eq!(missing(&needs, |_| false), ["nftables", "libx-dev"]);
    }

    #[test]
    fn programs_are_looked_up_on_the_path() {
        assert!(is_there("sh"));
        assert!(!is_there("no-such-program-as-this"));
        assert!(is_there("/dev/null"));
        assert!(!is_there("/dev/null/none"));
    }
}
