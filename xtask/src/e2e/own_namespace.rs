//! All Envoys run in Sesame's own namespace, and Sesame may not run any elsewhere.
//!
//! In: a scene with Sesame. Out: a Gateway in another namespace is served, and its Envoys are removed with it.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::Value;

use super::scene::{Scene, until};
use super::shop;
use crate::deploy;
use crate::install;

/// Kinds of a fleet's objects.
const KINDS: &str =
    "deployments,services,configmaps,serviceaccounts,poddisruptionbudgets,secrets,pods";

/// Time limit for removing the Envoys, including their drain.
const GONE: Duration = Duration::from_secs(120);

/// Runs the test.
pub(super) fn own_namespace(scene: &Scene) -> Result<String> {
    shop::close(scene)?;
    scene.apply(&deploy::rendered(&["envoy.namespace=Sesame"])?)?;
    install::ready(&scene.cluster)?;
    for (namespace, expected) in [(install::NAMESPACE, true), (shop::NAMESPACE, false)] {
        for resource in ["deployments.apps", "services", "secrets"] {
            let may = may_create(scene, resource, namespace);
            ensure!(may == expected, "{resource} in {namespace}: {may}");
        }
    }
    shop::open(scene)?;
    let elsewhere = shop::made_for(scene, shop::GATEWAY, KINDS)?;
    ensure!(elsewhere.is_empty(), "{} objects", elsewhere.len());
    ensure!(!envoys(scene)?.is_empty(), "no Envoys");
    let delete = ["-n", shop::NAMESPACE, "delete", "gateway", shop::GATEWAY];
    scene.kubectl(&delete)?;
    let (_, took) = until("the Envoys are removed", GONE, || {
        let left = envoys(scene)?.len();
        ensure!(left == 0, "{left} objects remain");
        Ok(())
    })?;
    shop::close(scene)?;
    install::manifests(&scene.cluster)?;
    Ok(format!(
        "a Gateway was served from {}; all objects removed in {:.0} s",
        install::NAMESPACE,
        took.as_secs_f32()
    ))
}

/// Whether Sesame may create objects.
fn may_create(scene: &Scene, resource: &str, namespace: &str) -> bool {
    let user = format!("--as=system:serviceaccount:{}:sesame", install::NAMESPACE);
    let question = ["auth", "can-i", "create", resource, "-n", namespace, &user];
    // The exit code is the response.
    scene.kubectl(&question).is_ok()
}

/// The objects of the Envoys of Gateways in the shop's namespace.
fn envoys(scene: &Scene) -> Result<Vec<Value>> {
    let selector = format!("projectsesame.io/gateway-namespace={}", shop::NAMESPACE);
    scene.list(&["-n", install::NAMESPACE, KINDS, "-l", &selector])
}
