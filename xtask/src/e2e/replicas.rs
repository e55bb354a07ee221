//! Sesame's replicas crash and are replaced while routes change.
//!
//! In: a scene with Sesame. Out: no requests failed, and all changes are eventually served.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::load::Load;
use super::scene::{Scene, until};
use super::shop;
use crate::deploy;
use crate::install;
use sesame_tools::cargo;
use sesame_tools::image;

/// Numbers of routes and changes.
const ROUTES: usize = 20;
const CHANGES: usize = 200;

/// Time limit for serving the last change.
const RIGHT: Duration = Duration::from_secs(90);

/// Time limit for electing a new leader.
const LED: Duration = Duration::from_secs(90);

/// Time limit for upgrading Sesame and all Envoys.
const UPGRADED: Duration = Duration::from_secs(600);

/// A second Gateway with Envoys to upgrade.
const SECOND: &str = "second";

/// The image tag for another version, which contains the same program.
pub(super) const NEXT: &str = "localhost/sesame/next:v1";

/// The leader crashes during changes.
pub(super) fn leader(scene: &Scene) -> Result<String> {
    let crash = |scene: &Scene| {
        let leader = leading(scene)?;
        let before = restarts(scene, &leader)?;
        scene.kill(install::NAMESPACE, &leader, "sesame")?;
        Ok((leader, before))
    };
    let ((leader, before), figures) = while_routes_change(scene, crash)?;
    let (now, _) = until("the leader is restarted", LED, || {
        let now = restarts(scene, &leader)?;
        ensure!(now > before, "not restarted: {now} restarts");
        Ok(now)
    })?;
    ensure!(
        now == before + 1,
        "{leader} was restarted {} times, expected once",
        now - before
    );
    install::ready(&scene.cluster)?;
    Ok(figures)
}

/// All replicas are replaced during changes.
pub(super) fn rollout(scene: &Scene) -> Result<String> {
    let before = pods(scene)?;
    let restart = |scene: &Scene| {
        let restart = [
            "-n",
            install::NAMESPACE,
            "rollout",
            "restart",
            install::DEPLOYMENT,
        ];
        scene.kubectl(&restart)
    };
    let (_, figures) = while_routes_change(scene, restart)?;
    install::ready(&scene.cluster)?;
    until("the old replicas are gone", LED, || {
        let now = pods(scene)?;
        let old: Vec<&String> = now.iter().filter(|pod| before.contains(pod)).collect();
        ensure!(old.is_empty(), "{old:?} still exist");
        Ok(())
    })?;
    Ok(figures)
}

/// An upgrade and a downgrade: all replicas are replaced, then all Envoys, since their sidecar is Sesame, one Gateway after
/// the other.
pub(super) fn upgrade(scene: &Scene) -> Result<String> {
    load_next(scene, NEXT)?;
    let address = shop::open(scene)?;
    scene.apply(&shop::gateway(SECOND, json!({})))?;
    shop::programmed(scene, SECOND)?;
    shop::rolled_out(scene, SECOND, 2, &[])?;
    let load = Load::start(&scene.network, vec![shop::request(address, shop::HOST)]);
    let before = shop::envoys(scene, shop::GATEWAY)?;
    let deployment = scene.get(&["-n", install::NAMESPACE, install::DEPLOYMENT])?;
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let patch = upgraded(container)?;
    let patch = [
        "-n",
        install::NAMESPACE,
        "patch",
        install::DEPLOYMENT,
        "-p",
        &patch,
    ];
    scene.kubectl(&patch)?;
    in_order(scene)?;
    install::ready(&scene.cluster)?;
    let there = shop::rolled_out(scene, shop::GATEWAY, before.len(), &before)?;

    let between = shop::envoys(scene, shop::GATEWAY)?;
    install::apply(&scene.cluster, &deploy::manifests())?;
    install::ready(&scene.cluster)?;
    let back = shop::rolled_out(scene, shop::GATEWAY, between.len(), &between)?;
    let tally = load.stop()?;
    shop::delete(scene, SECOND)?;
    Ok(format!(
        "{tally}; Envoys upgraded {:.0} s after Sesame, downgraded {:.0} s after it",
        there.as_secs_f32(),
        back.as_secs_f32()
    ))
}

/// Loads Sesame's image as another version, with this name.
pub(super) fn load_next(scene: &Scene, image: &str) -> Result<()> {
    let program = cargo::built("release", "sesame");
    let mut next = image::recipes::sesame(Path::new(program.get_program()))?;
    next.names = vec![image.to_owned()];
    let folder = tempfile::tempdir().context("cannot create a folder for an image")?;
    let archive = folder.path().join("next.tar");
    next.write(&archive)?;
    scene.cluster.load(&[archive])
}

/// Waits until all Envoys run the other version. Fails if an upgrade starts before that of Sesame or another Gateway is
/// done.
fn in_order(scene: &Scene) -> Result<()> {
    let mut overlaps = BTreeSet::new();
    let look = || {
        let fleets = scene.list(&["-A", "deployments", "-l", "projectsesame.io/fleet"])?;
        let sesame = scene.get(&["-n", install::NAMESPACE, install::DEPLOYMENT])?;
        let (new, old): (Vec<&Value>, Vec<_>) = fleets
            .iter()
            .partition(|fleet| fleet.to_string().contains(NEXT));
        let unfinished: Vec<&Value> = new
            .iter()
            .filter(|fleet| !is_rolled_out(fleet))
            .map(|fleet| &fleet["metadata"]["name"])
            .collect();
        if unfinished.len() > 1 {
            overlaps.insert(format!("{unfinished:?} are upgraded at once"));
        }
        if !new.is_empty() && !is_rolled_out(&sesame) {
            overlaps.insert("Envoys are upgraded before Sesame".to_owned());
        }
        ensure!(
            old.is_empty() && unfinished.is_empty(),
            "{} fleets wait, {unfinished:?} are being upgraded",
            old.len()
        );
        Ok(())
    };
    until("all Envoys are upgraded", UPGRADED, look)?;
    ensure!(overlaps.is_empty(), "{overlaps:?}");
    Ok(())
}

fn is_rolled_out(deployment: &Value) -> bool {
    let (status, desired) = (&deployment["status"], &deployment["spec"]["replicas"]);
    status["observedGeneration"] == deployment["metadata"]["generation"]
        && ["replicas", "updatedReplicas", "availableReplicas"]
            .iter()
            .all(|count| status[count] == *desired)
}

/// A patch that makes a Deployment run the other version.
fn upgraded(container: &Value) -> Result<String> {
    const SIDECAR: &str = "--sidecar-image=";
    let args = container["args"].as_array();
    let args = args.context("Sesame's container has no arguments")?;
    let mut found = false;
    let args: Vec<Value> = args
        .iter()
        .map(|arg| match arg.as_str() {
            Some(text) if text.starts_with(SIDECAR) => {
                found = true;
                json!(format!("{SIDECAR}{NEXT}"))
            }
            _ => arg.clone(),
        })
        .collect();
    ensure!(found, "Sesame has no --sidecar-image");
    let container = json!({ "name": container["name"], "image": NEXT, "args": args });
    Ok(json!({ "spec": { "template": { "spec": { "containers": [container] } } } }).to_string())
}

/// Changes routes under constant requests, and runs `middle` halfway.
fn while_routes_change<T>(
    scene: &Scene,
    middle: impl FnOnce(&Scene) -> Result<T>,
) -> Result<(T, String)> {
    let address = shop::open(scene)?;
    let names: Vec<String> = (0..ROUTES).map(|number| format!("r{number}")).collect();
    let routes: Vec<Value> = names
        .iter()
        .map(|name| shop::route(shop::GATEWAY, name, "new"))
        .collect();
    scene.apply(&routes)?;
    let requests: Vec<_> = names
        .iter()
        .map(|name| shop::request(address, &shop::host(name)))
        .collect();
    for request in &requests {
        shop::served(scene, request, "new")?;
    }

    let load = Load::start(&scene.network, requests.clone());
    let mut middle = Some(middle);
    let mut done = None;
    for change in 0..CHANGES {
        if change == CHANGES / 2
            && let Some(middle) = middle.take()
        {
            done = Some(middle(scene)?);
        }
        shop::change(scene, &names[change % ROUTES], &change.to_string())?;
    }
    let ((), right) = until("all statuses are up to date", RIGHT, || {
        shop::statuses_are_right(scene, shop::GATEWAY)
    })?;
    let version = |index: usize| (CHANGES - ROUTES + index).to_string();
    for (index, request) in requests.iter().enumerate() {
        shop::served(scene, request, &version(index))?;
    }
    let tally = load.stop()?;
    let of = format!("of={}", shop::GATEWAY);
    scene.kubectl(&["-n", shop::NAMESPACE, "delete", "httproutes", "-l", &of])?;
    let done = done.context("`middle` didn't run")?;
    Ok((
        done,
        format!(
            "{tally}; {CHANGES} changes, all statuses up to date {:.1} s after the last",
            right.as_secs_f32()
        ),
    ))
}

/// The leader's pod: the holder of the Lease.
fn leading(scene: &Scene) -> Result<String> {
    let lease = ["-n", install::NAMESPACE, "lease", "sesame-leader"];
    let lease = scene.get(&lease)?;
    let holder = lease["spec"]["holderIdentity"].as_str();
    holder.map(str::to_owned).context("no leader")
}

fn restarts(scene: &Scene, pod: &str) -> Result<u64> {
    let pod = scene.get(&["-n", install::NAMESPACE, "pod", pod])?;
    let count = &pod["status"]["containerStatuses"][0]["restartCount"];
    count.as_u64().context("a pod without a restart count")
}

fn pods(scene: &Scene) -> Result<Vec<String>> {
    let label = ["-l", "app.kubernetes.io/name=sesame"];
    let pods = scene.list(&[&["-n", install::NAMESPACE, "pods"], &label[..]].concat())?;
    let name = |pod: &Value| pod["metadata"]["name"].as_str().map(str::to_owned);
    Ok(pods.iter().filter_map(name).collect())
}
