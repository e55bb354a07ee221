//! Installs, uses and removes Sesame as described in `docs/install.md`, with the manifests and with the chart.
//!
//! In: a scene without Sesame. Out: the same scene, or an error if objects remain or the guide is wrong.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::scene::{Scene, until};
use super::shop;
use crate::deploy;
use crate::install;
use sesame_tools::cargo;
use sesame_tools::wheel::last_lines;

/// The chart's class.
const CLASS: &str = "sesame";
/// Time limit for removing Sesame's objects.
const GONE: Duration = Duration::from_secs(120);

/// Installs with the manifests.
pub(super) fn manifests(scene: &Scene) -> Result<String> {
    let before = clean(scene)?;
    let begun = Instant::now();
    install::manifests(&scene.cluster)?;
    let used = used(scene, begun)?;
    remove_manifests(scene)?;
    nothing_left(scene, &before)?;
    Ok(used)
}

/// Installs with the chart.
pub(super) fn helm(scene: &Scene) -> Result<String> {
    let helm = deploy::helm::obtain()?;
    let before = clean(scene)?;
    let begun = Instant::now();
    let chart = cargo::root().join("deploy/chart");
    let home = tempfile::tempdir().context("cannot create a folder for Helm")?;
    let mut command = command(scene, &helm, home.path());
    command.args(["install", "sesame"]).arg(chart).args([
        "--namespace",
        install::NAMESPACE,
        "--create-namespace",
    ]);
    run(&mut command)?;
    install::ready(&scene.cluster)?;
    let used = used(scene, begun)?;
    run(self::command(scene, &helm, home.path()).args([
        "uninstall",
        "sesame",
        "--namespace",
        install::NAMESPACE,
        "--wait",
    ]))?;
    // An uninstall keeps the class, since removing it would remove its Gateways' Envoys, and the CRDs, since removing
    // them would remove all objects of their kinds.
    scene.kubectl(&["delete", "gatewayclass", CLASS])?;
    let crds = cargo::root().join("deploy/crds");
    scene.kubectl(&["delete", "--filename", &crds.display().to_string()])?;
    scene.kubectl(&["delete", "namespace", install::NAMESPACE])?;
    nothing_left(scene, &before)?;
    Ok(used)
}

/// Installs Sesame with the manifests unless it is installed.
pub(super) fn ensure_installed(scene: &Scene) -> Result<()> {
    match is_installed(scene)? {
        true => install::ready(&scene.cluster),
        false => install::manifests(&scene.cluster),
    }
}

/// Updates a previous run's Sesame to the current image.
pub(super) fn renew(scene: &Scene) -> Result<()> {
    match is_installed(scene)? {
        true => install::manifests(&scene.cluster),
        false => Ok(()),
    }
}

fn is_installed(scene: &Scene) -> Result<bool> {
    let there = [
        "-n",
        install::NAMESPACE,
        "get",
        install::DEPLOYMENT,
        "--ignore-not-found",
        "-o",
        "name",
    ];
    Ok(!scene.kubectl(&there)?.is_empty())
}

/// Prepares a cluster without Sesame, and returns its objects.
pub(super) fn clean(scene: &Scene) -> Result<BTreeSet<String>> {
    scene.kubectl(&["delete", "gateways", "--all", "--all-namespaces"])?;
    shop::close(scene)?;
    remove_manifests(scene)?;
    scene.settled()
}

fn remove_manifests(scene: &Scene) -> Result<()> {
    let manifests = deploy::manifests();
    let manifests = manifests.to_str().context("a path is not UTF-8")?;
    scene
        .kubectl(&["delete", "--ignore-not-found", "-f", manifests])
        .map(drop)
}

/// Checks the guide's statements about a Gateway.
fn used(scene: &Scene, begun: Instant) -> Result<String> {
    let ready = begun.elapsed();
    let begun = Instant::now();
    let address = shop::open(scene)?;
    let answered = begun.elapsed();

    let mut request = shop::request(address, shop::HOST);
    let response = scene.send(&request)?;
    ensure!(
        response.body == "Welcome to the shop.\n",
        "the shop responded with {:?}",
        response.body
    );
    request.path = "/old/cup".to_owned();
    let response = scene.send(&request)?;
    let location = response.header("location");
    ensure!(
        response.status == 302 && location.ends_with("/new/cup"),
        "got {} to {location:?}, expected 302 to /new/cup",
        response.status
    );

    let shown = scene.kubectl(&["-n", shop::NAMESPACE, "get", "gateway,httproute"])?;
    let line = |of: &str| shown.lines().find(|line| line.contains(of));
    let gateway = line("/web ").context("`kubectl get gateway` does not show the Gateway")?;
    let columns: Vec<&str> = gateway.split_whitespace().collect();
    ensure!(
        columns[1..4] == ["sesame", &address.ip().to_string(), "True"],
        "`kubectl get gateway` shows {gateway:?}"
    );
    let route = line("httproute.gateway.networking.k8s.io/shop ");
    ensure!(
        route.is_some_and(|route| route.contains(shop::HOST)),
        "`kubectl get httproute` shows {route:?}"
    );

    let gone = shop::delete(scene, shop::GATEWAY)?;
    shop::close(scene)?;
    Ok(format!(
        "ready after {:.1} s, first response {:.1} s after creating the Gateway, all objects gone {:.1} s after deleting it",
        ready.as_secs_f32(),
        answered.as_secs_f32(),
        gone.as_secs_f32()
    ))
}

/// Waits until the cluster has the same objects as before.
pub(super) fn nothing_left(scene: &Scene, before: &BTreeSet<String>) -> Result<()> {
    let look = || {
        let now = scene.everything()?;
        let left: Vec<&String> = now.difference(before).collect();
        ensure!(left.is_empty(), "Sesame's objects remain: {left:?}");
        let lost: Vec<&String> = before.difference(&now).collect();
        ensure!(
            lost.is_empty(),
            "other objects were removed with Sesame: {lost:?}"
        );
        Ok(())
    };
    until("the cluster is in its original state", GONE, look).map(drop)
}

/// A Helm command in the cluster's network, with temporary settings.
fn command(scene: &Scene, helm: &Path, home: &Path) -> Command {
    let mut command = scene.cluster.command(helm);
    for variable in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
        command.env(variable, home);
    }
    command
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("cannot run Helm")?;
    ensure!(
        output.status.success(),
        "Helm failed: {}",
        last_lines(&output.stderr)
    );
    Ok(())
}
