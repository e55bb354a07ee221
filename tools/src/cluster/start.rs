//! Starts a cluster and waits until it is ready for pods.
//!
//! In: a layout and programs. Out: a ready node with all archives from the images folder. Idempotent, even after an
//! interrupted start.

use std::fs;
use std::path::PathBuf;
use std::thread::{self, sleep};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::build::Built;
use super::layout::{self, Layout};
use super::{Cluster, components, down, images, node, packages, pki, process, settings};
use crate::image::{self, Image};
use crate::progress::Step;
use crate::wheel::last_lines;

/// Time limit for each step; long enough for busy machines.
const PATIENCE: Duration = Duration::from_secs(180);

/// Time between two attempts.
const PAUSE: Duration = Duration::from_millis(100);

/// Starts a cluster unless it is running.
pub(super) fn up(layout: &Layout, built: &Built) -> Result<Cluster> {
    ensure!(
        nix::unistd::geteuid().is_root(),
        "run this as root: a cluster needs namespaces, mounts and cgroups"
    );
    packages::ensure(packages::TO_RUN)?;
    let _alone = down::lock(layout)?;
    if process::read(&layout.first_process()).is_none() {
        down::clean(layout)?;
        let step = Step::new(format!("Starting the node of cluster {}", layout.name()));
        begin(layout, built)?;
        step.done();
    }
    let cluster = Cluster::own(layout)?;
    // Pods need the pause image.
    let pause = cluster.built.program("pause");
    image::store(
        "pause",
        &Image::of_program(layout::PAUSE_IMAGE, &pause, "/pause")?,
    )?;

    let step = Step::new("Waiting for the API server and importing images");
    thread::scope(|scope| {
        let importing = scope.spawn(|| import(layout, &cluster));
        ready(layout, &cluster)?;
        release(layout)?;
        let objects = layout.settings().join("objects.yaml");
        output(&cluster, &["apply", "-f", &objects.to_string_lossy()])?;
        importing
            .join()
            .unwrap_or_else(|_| bail!("the image import thread panicked"))
    })?;
    step.done();

    let step = Step::new("Waiting for the node to be ready for pods");
    wait(layout, "the node isn't ready", || {
        let state =
            "jsonpath={.status.conditions[?(@.type==\"Ready\")].status}/{.spec.taints[*].key}";
        let state = output(&cluster, &["get", "node", layout.name(), "-o", state])?;
        ensure!(state == "True/", "ready/taints: {state}");
        output(&cluster, &["get", "serviceaccount", "default"]).map(drop)
    })?;
    step.done();
    Ok(cluster)
}

/// Writes all files and starts the init process.
fn begin(layout: &Layout, built: &Built) -> Result<()> {
    let home = built
        .home()
        .to_str()
        .context("the cache folder's name is not UTF-8")?;
    pki::write(layout)?;
    fs::write(layout.built(), home)?;
    settings::write(layout, &built.programs())?;
    fs::create_dir_all(layout.held())?;
    for component in components::all(layout) {
        if component.later {
            fs::write(layout.held().join(component.name), "")?;
        }
    }
    node::start(layout, &built.programs())
}

/// Starts all components.
fn release(layout: &Layout) -> Result<()> {
    for component in components::all(layout) {
        start_component(layout, component.name)?;
    }
    Ok(())
}

/// Starts a component.
pub(super) fn start_component(layout: &Layout, name: &str) -> Result<()> {
    let file = layout.held().join(name);
    if file.exists() {
        fs::remove_file(&file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    Ok(())
}

/// Stops a component until [`start_component`].
pub(super) fn stop_component(layout: &Layout, name: &str) -> Result<()> {
    fs::write(layout.held().join(name), "")?;
    wait(layout, &format!("{name} is still running"), || {
        let runs = super::status::running(layout).contains_key(name);
        ensure!(!runs, "its PID still exists");
        Ok(())
    })
}

/// Waits until the API server is ready.
pub(super) fn ready(layout: &Layout, cluster: &Cluster) -> Result<()> {
    wait(layout, "the API server isn't ready", || {
        output(cluster, &["get", "--raw", "/readyz"]).map(drop)
    })
}

/// Imports all archives in the images folder.
fn import(layout: &Layout, cluster: &Cluster) -> Result<()> {
    let done = layout.images_imported();
    if done.exists() {
        return Ok(());
    }
    wait(layout, "containerd isn't ready", || {
        images::answers(layout, &cluster.built)
    })?;
    let mut archives: Vec<PathBuf> = fs::read_dir(image::archives()?)?
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "tar"))
        .collect();
    archives.sort();
    cluster.load(&archives)?;
    fs::write(&done, "").context("cannot write to the cluster's folder")
}

/// Retries `check` until it succeeds. On timeout, the error's context is `problem`.
fn wait(layout: &Layout, problem: &str, check: impl Fn() -> Result<()>) -> Result<()> {
    let until = Instant::now() + PATIENCE;
    loop {
        let Err(error) = check() else { return Ok(()) };
        let logs = layout.logs();
        ensure!(
            process::read(&layout.first_process()).is_some(),
            "the node exited; see {}",
            components::log(layout, node::SUBCOMMAND).display()
        );
        if Instant::now() > until {
            return Err(error).with_context(|| {
                format!(
                    "{problem} after {PATIENCE:?}; logs are in {}",
                    logs.display()
                )
            });
        }
        sleep(PAUSE);
    }
}

/// kubectl's output.
fn output(cluster: &Cluster, args: &[&str]) -> Result<String> {
    let output = cluster.kubectl().args(args).output()?;
    ensure!(output.status.success(), "{}", last_lines(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
