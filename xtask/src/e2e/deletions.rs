//! Objects are deleted before the Gateways that need them.
//!
//! In: a scene with Sesame. Out: Gateways are served until they are gone, and nothing remains of them.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::scene::{Scene, until};
use super::shop;
use crate::install;
use sesame_tools::cargo;
use sesame_tools::wheel::last_lines;

/// The class of the example's Gateway.
const CLASS: &str = "sesame";

/// The finalizer of classes with Gateways.
const FINALIZER: &str = "gateway-exists-finalizer.gateway.networking.k8s.io";

/// A route that is created while the class is being deleted.
const LATE: &str = "late";

/// The namespace of an instance without an operator.
const ORPHANED: &str = "orphaned";

/// Kinds of a fleet's objects.
const KINDS: &str =
    "deployments,services,configmaps,serviceaccounts,poddisruptionbudgets,secrets,pods";

/// Time limit for a step; long enough for busy machines and for the drain of Envoys.
const DONE: Duration = Duration::from_secs(120);

/// Runs the test.
pub(super) fn deletions(scene: &Scene) -> Result<String> {
    class(scene)?;
    namespace(scene)?;
    operator(scene)?;
    sesame(scene)?;
    Ok("a class, a namespace and Sesame were deleted before their Gateways, and an operator before its instance".to_owned())
}

/// A class is kept until its last Gateway is gone.
fn class(scene: &Scene) -> Result<()> {
    let address = shop::open(scene)?;
    let get = || -> Result<Option<Value>> {
        let class = [
            "get",
            "gatewayclass",
            CLASS,
            "--ignore-not-found",
            "-o",
            "json",
        ];
        match scene.kubectl(&class)?.as_str() {
            "" => Ok(None),
            text => Ok(Some(serde_json::from_str(text)?)),
        }
    };
    let held = || {
        let class = get()?.context("the class is gone")?;
        let finalizers = class["metadata"]["finalizers"].as_array();
        let held = finalizers.is_some_and(|all| all.iter().any(|one| one == FINALIZER));
        ensure!(held, "the class has the finalizers {finalizers:?}");
        Ok(class)
    };
    until("the class has its finalizer", DONE, held)?;
    scene.kubectl(&["delete", "gatewayclass", CLASS, "--wait=false"])?;
    let class = held()?;
    ensure!(
        class["metadata"]["deletionTimestamp"].is_string(),
        "the class isn't being deleted"
    );
    scene.apply(&[shop::route(shop::GATEWAY, LATE, "1")])?;
    shop::served(scene, &shop::request(address, &shop::host(LATE)), "1")?;
    held()?;
    shop::delete(scene, shop::GATEWAY)?;
    until("the class is gone", DONE, || {
        ensure!(get()?.is_none(), "it still exists");
        Ok(())
    })?;
    install::manifests(&scene.cluster)
}

/// The namespace of a Gateway is deleted with it.
fn namespace(scene: &Scene) -> Result<()> {
    shop::open(scene)?;
    scene.kubectl(&["delete", "namespace", shop::NAMESPACE, "--timeout=180s"])?;
    let everything = scene.everything()?;
    let inside = format!(" {}/", shop::NAMESPACE);
    let left: Vec<&String> = everything
        .iter()
        .filter(|one| one.contains(&inside))
        .collect();
    ensure!(left.is_empty(), "objects remain: {left:?}");
    Ok(())
}

/// Without an operator, `sesame uninstall` removes the finalizer of an instance's configuration.
fn operator(scene: &Scene) -> Result<()> {
    scene.apply(&[
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": ORPHANED } }),
        json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "SesameConfiguration",
            "metadata": {
                "name": ORPHANED,
                "namespace": ORPHANED,
                "finalizers": ["projectsesame.io/instance"],
            },
            "spec": { "gateway": { "controllerName": "example.com/orphaned" }, "envoy": {} },
        }),
    ])?;
    uninstall(scene, ORPHANED)?;
    let delete = ["delete", "namespace", ORPHANED, "--timeout=60s"];
    scene.kubectl(&delete).map(drop)
}

/// Without Sesame, Envoys serve until `sesame uninstall` removes them.
fn sesame(scene: &Scene) -> Result<()> {
    let address = shop::open(scene)?;
    let request = shop::request(address, shop::HOST);
    match uninstall(scene, install::NAMESPACE) {
        Ok(()) => bail!("`sesame uninstall` succeeded while Sesame was running"),
        Err(error) => ensure!(format!("{error:#}").contains("still runs"), "{error:#}"),
    }
    let delete = ["delete", install::DEPLOYMENT, "--cascade=foreground"];
    scene.kubectl(&[&["-n", install::NAMESPACE], &delete[..]].concat())?;
    shop::served(scene, &request, "")?;
    uninstall(scene, install::NAMESPACE)?;
    until("the Envoys are removed", DONE, || {
        let left = shop::made_for(scene, shop::GATEWAY, KINDS)?;
        ensure!(left.is_empty(), "{} objects remain", left.len());
        Ok(())
    })?;
    let own = ["get", "secrets", "-o", "name"];
    let own = scene.kubectl(&[&["-n", install::NAMESPACE], &own[..]].concat())?;
    ensure!(
        !own.contains("sesame-"),
        "Sesame's own Secrets remain: {own}"
    );
    // Nothing would remove a finalizer.
    scene.kubectl(&["delete", "gatewayclass", CLASS, "--timeout=30s"])?;
    let gateway = ["delete", "gateway", shop::GATEWAY, "--timeout=30s"];
    scene.kubectl(&[&["-n", shop::NAMESPACE], &gateway[..]].concat())?;
    shop::close(scene)?;
    install::manifests(&scene.cluster)
}

/// Runs `sesame uninstall` for the instance in a namespace.
fn uninstall(scene: &Scene, namespace: &str) -> Result<()> {
    let program = cargo::built("release", "sesame");
    let mut command = scene.cluster.command(Path::new(program.get_program()));
    command.args(["uninstall", "--namespace", namespace]);
    let output = command.output().context("cannot run sesame")?;
    ensure!(
        output.status.success(),
        "`sesame uninstall` failed: {}",
        last_lines(&output.stderr)
    );
    Ok(())
}
