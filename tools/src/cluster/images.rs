//! Imports image archives. Nothing is pulled.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::build::Built;
use super::components::CONTAINERD;
use super::layout::Layout;
use super::process;
use crate::wheel::last_lines;

/// Checks that containerd responds.
pub(super) fn answers(layout: &Layout, built: &Built) -> Result<()> {
    run(ctr(layout, built)?.arg("version"))
}

/// Imports an archive.
pub(super) fn import(layout: &Layout, built: &Built, archive: &Path) -> Result<()> {
    let mut command = ctr(layout, built)?;
    command
        .args(["images", "import"])
        // When the disk is full, the kubelet removes unpinned images.
        .args(["--label", "io.cri-containerd.pinned=pinned"])
        .arg(archive);
    run(&mut command).with_context(|| format!("cannot import {}", archive.display()))
}

fn ctr(layout: &Layout, built: &Built) -> Result<Command> {
    let pid = process::read(&layout.first_process())
        .with_context(|| format!("cluster {} is not running", layout.name()))?;
    let mut command = Command::new(built.program("ctr"));
    command
        .arg("--address")
        .arg(from_outside(pid, CONTAINERD))
        .args(["--namespace", "k8s.io"]);
    Ok(command)
}

/// A path on the node, as seen from the host.
fn from_outside(pid: i32, path: &str) -> PathBuf {
    PathBuf::from(format!("/proc/{pid}/root{path}"))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("cannot run ctr")?;
    ensure!(output.status.success(), "{}", last_lines(&output.stderr));
    Ok(())
}
