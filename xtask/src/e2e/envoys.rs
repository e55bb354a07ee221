//! Envoys are replaced, and become more and fewer.
//!
//! In: a scene with Sesame. Out: that no request failed meanwhile.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::load::Load;
use super::parameters::parameters;
use super::scene::{Scene, until};
use super::shop;

/// The Gateway's name.
const NAME: &str = "envoys";

/// How long a rollout may take: a drain for each Envoy at the worst.
const ROLLED: Duration = Duration::from_secs(240);

/// Runs it.
pub(super) fn envoys(scene: &Scene) -> Result<String> {
    shop::open(scene)?;
    let named = |annotation: &str| {
        let reference = json!({ "group": "", "kind": "ConfigMap", "name": NAME });
        json!({ "parametersRef": reference, "annotations": { "example.com/step": annotation } })
    };
    scene.apply(&[parameters(NAME, "replicas: 2")])?;
    scene.apply(&shop::gateway(NAME, named("first")))?;
    let address = shop::programmed(scene, NAME)?;
    let ask = shop::ask(address, &shop::host(NAME));
    shop::served(scene, &ask, "")?;
    rolled_out(scene, 2, &[])?;

    let load = Load::start(&scene.network, vec![ask]);
    let mut times = Vec::new();
    let first = envoys_of(scene)?;
    scene.apply(&shop::gateway(NAME, named("second")))?;
    times.push(("annotation", rolled_out(scene, 2, &first)?));
    let second = envoys_of(scene)?;
    scene.apply(&[parameters(NAME, "{replicas: 2, logLevel: info}")])?;
    times.push(("parameter", rolled_out(scene, 2, &second)?));
    for replicas in [4, 1] {
        let level = format!("{{replicas: {replicas}, logLevel: info}}");
        scene.apply(&[parameters(NAME, &level)])?;
        let what = if replicas == 4 { "2 to 4" } else { "4 to 1" };
        times.push((what, rolled_out(scene, replicas, &[])?));
    }
    // The only one, too.
    let last = envoys_of(scene)?;
    scene.apply(&[parameters(NAME, "{replicas: 1, logLevel: warning}")])?;
    times.push(("the only one", rolled_out(scene, 1, &last)?));
    let tally = load.stop()?;

    shop::delete(scene, NAME)?;
    let times: Vec<String> = times
        .iter()
        .map(|(what, took)| format!("{what} {:.0} s", took.as_secs_f32()))
        .collect();
    Ok(format!("{tally}; {}", times.join(", ")))
}

/// Waits until there are so many Envoys, all ready, and nobody else any more: none of the old ones, none that ends.
fn rolled_out(scene: &Scene, replicas: usize, old: &[String]) -> Result<Duration> {
    let look = || {
        let workload = shop::one_made_for(scene, NAME, "deployments")?;
        ensure!(
            workload["status"]["observedGeneration"] == workload["metadata"]["generation"],
            "the Deployment isn't looked at yet"
        );
        let pods = shop::made_for(scene, NAME, "pods")?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        let gone = old
            .iter()
            .all(|old| pods.iter().all(|pod| name(pod) != *old));
        ensure!(
            pods.len() == replicas && ready == replicas && gone,
            "{} pods, {ready} ready, for {replicas}",
            pods.len()
        );
        Ok(())
    };
    until(&format!("{replicas} new Envoys"), ROLLED, look).map(|((), took)| took)
}

fn envoys_of(scene: &Scene) -> Result<Vec<String>> {
    let pods = shop::made_for(scene, NAME, "pods")?;
    let first = pods.first().context("there are no Envoys")?;
    ensure!(!name(first).is_empty(), "a pod has a name");
    Ok(pods.iter().map(|pod| name(pod).to_owned()).collect())
}

fn name(pod: &Value) -> &str {
    pod["metadata"]["name"].as_str().unwrap_or_default()
}

fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array();
    let mut conditions = conditions.into_iter().flatten();
    conditions.any(|one| one["type"] == "Ready" && one["status"] == "True")
}
