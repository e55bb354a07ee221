//! Rollouts and scaling of Envoys.
//!
//! In: a scene with Sesame. Out: no requests failed.

use anyhow::Result;
use serde_json::{Value, json};

use super::load::Load;
use super::scene::Scene;
use super::shop;

/// The Gateway's name.
const NAME: &str = "envoys";

/// Runs the test.
pub(super) fn envoys(scene: &Scene) -> Result<String> {
    shop::open(scene)?;
    let named = |annotation: &str| {
        let reference =
            json!({ "group": "projectsesame.io", "kind": "SesameConfiguration", "name": NAME });
        json!({ "parametersRef": reference, "annotations": { "example.com/step": annotation } })
    };
    scene.apply(&[configuration(json!({ "replicas": 2 }))])?;
    scene.apply(&shop::gateway(NAME, named("first")))?;
    let address = shop::programmed(scene, NAME)?;
    let request = shop::request(address, &shop::host(NAME));
    shop::served(scene, &request, "")?;
    shop::rolled_out(scene, NAME, 2, &[])?;

    let load = Load::start(&scene.network, vec![request]);
    let mut times = Vec::new();
    let first = shop::envoys(scene, NAME)?;
    scene.apply(&shop::gateway(NAME, named("second")))?;
    times.push((
        "annotation changed",
        shop::rolled_out(scene, NAME, 2, &first)?,
    ));
    let second = shop::envoys(scene, NAME)?;
    let limits = json!({ "limits": { "memory": "512Mi" } });
    scene.apply(&[configuration(json!({ "replicas": 2, "resources": limits }))])?;
    times.push(("memory limited", shop::rolled_out(scene, NAME, 2, &second)?));
    for replicas in [4, 1] {
        let more = json!({ "replicas": replicas, "resources": limits });
        scene.apply(&[configuration(more)])?;
        let what = if replicas == 4 {
            "scaled from 2 to 4"
        } else {
            "scaled from 4 to 1"
        };
        times.push((what, shop::rolled_out(scene, NAME, replicas, &[])?));
    }
    // A single Envoy is also replaced without failed requests.
    let last = shop::envoys(scene, NAME)?;
    scene.apply(&[configuration(json!({ "replicas": 1 }))])?;
    times.push((
        "single Envoy replaced",
        shop::rolled_out(scene, NAME, 1, &last)?,
    ));
    let tally = load.stop()?;

    shop::delete(scene, NAME)?;
    let times: Vec<String> = times
        .iter()
        .map(|(what, took)| format!("{what}: {:.0} s", took.as_secs_f32()))
        .collect();
    Ok(format!("{tally}; {}", times.join(", ")))
}

/// Settings for Envoys.
fn configuration(envoy: Value) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "SesameConfiguration",
        "metadata": { "name": NAME, "namespace": shop::NAMESPACE },
        "spec": { "envoy": envoy },
    })
}
