//! Other clients' changes to a fleet's objects are reverted.
//!
//! In: a scene with Sesame. Out: the objects are restored, and all requests succeed.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::scene::{Scene, until};
use super::shop;

/// The Gateway's name.
const NAME: &str = "drift";

/// Time limit for restoring an object.
const BACK: Duration = Duration::from_secs(60);

/// Edits: resource, changed field, merge patch. `NAME` is replaced by the object's name.
const EDITS: &[(&str, &str, &str)] = &[
    // Must be first, when all Envoys have started: an Envoy that starts with this bootstrap runs until its liveness
    // probe fails.
    (
        "configmaps",
        "/data/bootstrap.json",
        r#"{"data":{"bootstrap.json":"{}"}}"#,
    ),
    (
        "deployments",
        "/spec/template/spec/containers/0/image",
        r#"{"spec":{"template":{"spec":{"containers":[{"name":"envoy","image":"example.com/other:1"}]}}}}"#,
    ),
    (
        "deployments",
        "/spec/replicas",
        r#"{"spec":{"replicas":0}}"#,
    ),
    (
        "services",
        "/spec/selector",
        r#"{"spec":{"selector":{"projectsesame.io/fleet":"other"}}}"#,
    ),
    ("services", "/spec/type", r#"{"spec":{"type":"NodePort"}}"#),
    (
        "poddisruptionbudgets",
        "/metadata/labels/gateway.networking.k8s.io~1gateway-class-name",
        r#"{"metadata":{"labels":{"gateway.networking.k8s.io/gateway-class-name":"other"}}}"#,
    ),
];

/// All kinds of fleet objects.
const KINDS: [&str; 6] = [
    "services",
    "deployments",
    "configmaps",
    "serviceaccounts",
    "poddisruptionbudgets",
    "secrets",
];

/// Runs the test.
pub(super) fn drift(scene: &Scene) -> Result<String> {
    shop::open(scene)?;
    scene.apply(&shop::gateway(NAME, serde_json::json!({})))?;
    shop::programmed(scene, NAME)?;
    let mut slowest = Duration::ZERO;
    for (kind, field, patch) in EDITS {
        slowest = slowest.max(edited(scene, kind, field, patch)?);
    }
    check_served(scene)?;
    for kind in KINDS {
        slowest = slowest.max(deleted(scene, kind)?);
    }
    check_served(scene)?;
    shop::delete(scene, NAME)?;
    Ok(format!(
        "{} edits and {} deletions reverted, the slowest in {:.1} s",
        EDITS.len(),
        KINDS.len(),
        slowest.as_secs_f32()
    ))
}

fn check_served(scene: &Scene) -> Result<()> {
    let address = shop::programmed(scene, NAME)?;
    shop::served(scene, &shop::request(address, &shop::host(NAME)), "").map(drop)
}

fn edited(scene: &Scene, kind: &str, field: &str, patch: &str) -> Result<Duration> {
    let before = shop::one_made_for(scene, NAME, kind)?;
    let wanted = before.pointer(field).context("the field is missing")?;
    let name = name(&before)?;
    scene.kubectl(&["-n", shop::NAMESPACE, "patch", kind, name, "-p", patch])?;
    let look = || {
        let now = shop::one_made_for(scene, NAME, kind)?;
        let changed = now["metadata"]["resourceVersion"] != before["metadata"]["resourceVersion"];
        let found = now.pointer(field);
        ensure!(changed && found == Some(wanted), "{field} is {found:?}");
        Ok(())
    };
    until(&format!("{kind} {field} is restored"), BACK, look).map(|((), took)| took)
}

fn deleted(scene: &Scene, kind: &str) -> Result<Duration> {
    let before = shop::one_made_for(scene, NAME, kind)?;
    let name = name(&before)?;
    scene.kubectl(&["-n", shop::NAMESPACE, "delete", kind, name, "--wait=false"])?;
    let look = || {
        let now = shop::one_made_for(scene, NAME, kind)?;
        ensure!(
            now["metadata"]["uid"] != before["metadata"]["uid"],
            "the old object still exists"
        );
        Ok(())
    };
    until(&format!("{kind} {name} is restored"), BACK, look).map(|((), took)| took)
}

fn name(object: &Value) -> Result<&str> {
    let name = object["metadata"]["name"].as_str();
    name.context("an object has no name")
}
