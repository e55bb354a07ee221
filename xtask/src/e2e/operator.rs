//! The operator runs instances of Sesame.
//!
//! In: a scene with Sesame. Out: two more instances run side by side, are repaired, upgraded and removed, and no request to
//! them fails.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::installs;
use super::load::Load;
use super::replicas;
use super::scene::{Scene, is_true, until};
use super::shop;
use crate::deploy;
use crate::install;

/// The operator's chart values. The CRDs are installed with Sesame.
const VALUES: [&str; 2] = ["mode=operator", "crds.create=false"];

const OPERATOR: &str = "deployment/sesame-operator";

/// The instances: their namespaces, and the names of their configurations, classes and Gateways.
const INSTANCES: [&str; 2] = ["team-a", "team-b"];

/// An instance that is in conflict with one of them.
const SECOND: &str = "team-c";

/// The number of HTTPRoutes of each instance.
const ROUTES: usize = 200;

/// Time limit for a step; long enough for busy machines.
const DONE: Duration = Duration::from_secs(180);

/// Runs the test.
pub(super) fn operator(scene: &Scene) -> Result<String> {
    shop::close(scene)?;
    let before = scene.settled()?;
    shop::open(scene)?;
    scene.apply(&deploy::rendered(&VALUES)?)?;
    scene.kubectl(&[
        "-n",
        install::NAMESPACE,
        "rollout",
        "status",
        OPERATOR,
        "--timeout=180s",
    ])?;
    escalation_is_refused(scene)?;
    let scaling = json!({ "minReplicas": 1, "maxReplicas": 2, "cpuPercent": 80 });
    let envoys = [
        json!({ "workload": "DaemonSet" }),
        json!({ "autoscaling": scaling }),
    ];
    for (name, envoy) in INSTANCES.into_iter().zip(envoys) {
        scene.apply(&instance(name, name, envoy))?;
    }
    let mut addresses = Vec::new();
    for name in INSTANCES {
        available(scene, name, "True", "Available")?;
        scene.apply(&gateway(name))?;
        addresses.push(shop::programmed(scene, name)?);
        shop::served(
            scene,
            &shop::request(addresses[addresses.len() - 1], &shop::host(name)),
            "",
        )?;
    }
    // A client keeps one connection, so each address has clients of its own.
    let load = |index: usize| {
        let request = shop::request(addresses[index], &shop::host(INSTANCES[index]));
        Load::start(&scene.network, vec![request])
    };
    let loads = [load(0), load(1)];
    many_routes(scene, &addresses)?;
    conflict(scene)?;
    repaired(scene)?;
    let upgraded = upgraded(scene)?;
    let mut tallies = Vec::new();
    for load in loads {
        tallies.push(load.stop()?.to_string());
    }

    // The other instance isn't affected by a removal.
    let [removed, remaining] = INSTANCES;
    let load = load(1);
    let configuration = ["-n", removed, "delete", "sesameconfiguration", removed];
    removed_with_envoys(scene, removed, &configuration)?;
    let during_removal = load.stop()?;
    removed_with_envoys(scene, remaining, &["delete", "namespace", remaining])?;
    for name in INSTANCES {
        shop::delete(scene, name)?;
    }
    for name in [removed, remaining, SECOND] {
        scene.kubectl(&["delete", "namespace", name, "--ignore-not-found"])?;
        scene.kubectl(&["delete", "gatewayclass", name, "--ignore-not-found"])?;
    }
    for object in deploy::rendered(&VALUES)? {
        let text = |field: &str| object[field].as_str().unwrap_or_default().to_owned();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        scene.kubectl(&["-n", install::NAMESPACE, "delete", &text("kind"), name])?;
    }
    shop::close(scene)?;
    installs::nothing_left(scene, &before)?;
    Ok(format!(
        "two instances with {ROUTES} routes each; upgraded in {:.0} s; {}; during a removal: {during_removal}",
        upgraded.as_secs_f32(),
        tallies.join("; ")
    ))
}

/// A namespace with a configuration, and a GatewayClass for it.
fn instance(namespace: &str, controller: &str, envoy: Value) -> [Value; 3] {
    let controller_name = format!("example.com/{controller}");
    [
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
        json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "SesameConfiguration",
            "metadata": { "name": namespace, "namespace": namespace },
            "spec": {
                "gateway": { "controllerName": controller_name },
                "envoy": envoy,
                "ingress": { "classNames": [controller] },
            },
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": { "name": controller },
            "spec": { "controllerName": controller_name },
        }),
    ]
}

/// A Gateway of an instance's class.
fn gateway(class: &str) -> Vec<Value> {
    let mut objects = shop::gateway(class, json!({}));
    objects[0]["spec"]["gatewayClassName"] = json!(class);
    objects
}

/// Waits for a status and reason of the condition `Available`.
fn available(scene: &Scene, namespace: &str, status: &str, reason: &str) -> Result<()> {
    let look = || {
        let object = scene.get(&["-n", namespace, "sesameconfiguration", namespace])?;
        let conditions = object["status"]["conditions"].as_array();
        let mut conditions = conditions.into_iter().flatten();
        let found = conditions.find(|one| one["type"] == "Available");
        let found = found.context("no condition Available")?;
        ensure!(
            found["status"] == status && found["reason"] == reason,
            "{found}"
        );
        ensure!(
            found["observedGeneration"] == object["metadata"]["generation"],
            "{found}"
        );
        Ok(())
    };
    until(&format!("{namespace} is {reason}"), DONE, look).map(drop)
}

/// The API server rejects a binding to a role that the operator may not bind.
fn escalation_is_refused(scene: &Scene) -> Result<()> {
    let user = format!(
        "--as=system:serviceaccount:{}:sesame-operator",
        install::NAMESPACE
    );
    let account = format!("--serviceaccount={}:sesame-operator", install::NAMESPACE);
    let bind = |role: &str| {
        let role = format!("--clusterrole={role}");
        scene.kubectl(&[
            &user,
            "create",
            "clusterrolebinding",
            "escalated",
            &role,
            &account,
        ])
    };
    match bind("cluster-admin") {
        Ok(_) => bail!("the operator may bind cluster-admin"),
        Err(error) => ensure!(
            format!("{error:#}").contains("grant RBAC permissions not currently held"),
            "{error:#}"
        ),
    }
    bind("sesame-instance-own")?;
    scene
        .kubectl(&[&user, "delete", "clusterrolebinding", "escalated"])
        .map(drop)
}

/// Each instance serves its own routes, and reports only these.
fn many_routes(scene: &Scene, addresses: &[SocketAddr]) -> Result<()> {
    let name = |gateway: &str, number: usize| format!("{gateway}-{number}");
    for gateway in INSTANCES {
        let routes = (0..ROUTES).map(|number| shop::route(gateway, &name(gateway, number), "1"));
        scene.apply(&Vec::from_iter(routes))?;
    }
    for (gateway, address) in INSTANCES.into_iter().zip(addresses) {
        let last = name(gateway, ROUTES - 1);
        shop::served(scene, &shop::request(*address, &shop::host(&last)), "1")?;
        let reported = || {
            shop::statuses_are_right(scene, gateway)?;
            let of = format!("of={gateway}");
            for route in scene.list(&["-n", shop::NAMESPACE, "httproutes", "-l", &of])? {
                let controller = &route["status"]["parents"][0]["controllerName"];
                ensure!(
                    *controller == format!("example.com/{gateway}"),
                    "{controller}"
                );
            }
            let object = scene.get(&["-n", shop::NAMESPACE, "gateway", gateway])?;
            let listeners = object["status"]["listeners"].as_array();
            let http = listeners
                .into_iter()
                .flatten()
                .find(|one| one["name"] == "http");
            let count = http.map_or(&Value::Null, |listener| &listener["attachedRoutes"]);
            // With those of `shop::gateway`: an HTTPRoute and a GRPCRoute.
            ensure!(*count == ROUTES + 2, "{gateway} has {count} routes");
            Ok(())
        };
        until(
            &format!("the routes of {gateway} are reported"),
            DONE,
            reported,
        )?;
    }
    Ok(())
}

/// An instance with the controller name of another doesn't start.
fn conflict(scene: &Scene) -> Result<()> {
    let [namespace, configuration, _] = instance(SECOND, INSTANCES[0], json!({}));
    scene.apply(&[namespace, configuration])?;
    available(scene, SECOND, "False", "Conflict")?;
    let started = scene.kubectl(&["-n", SECOND, "get", "deployments", "-o", "name"])?;
    ensure!(started.is_empty(), "{started} exists");
    scene.kubectl(&["-n", SECOND, "delete", "sesameconfiguration", SECOND])?;
    available(scene, INSTANCES[0], "True", "Available")
}

/// Edited and deleted objects of an instance are restored.
fn repaired(scene: &Scene) -> Result<()> {
    let namespace = INSTANCES[0];
    let labels = r#"{"spec":{"selector":{"app.kubernetes.io/name":"other"}}}"#;
    scene.kubectl(&[
        "-n",
        namespace,
        "patch",
        "service",
        "sesame-xds",
        "-p",
        labels,
    ])?;
    for kind in ["poddisruptionbudget", "networkpolicy"] {
        scene.kubectl(&["-n", namespace, "delete", kind, "sesame"])?;
    }
    let role = format!("sesame-instance-own:{namespace}");
    scene.kubectl(&["-n", namespace, "delete", "rolebinding", &role])?;
    let restored = || {
        let service = scene.get(&["-n", namespace, "service", "sesame-xds"])?;
        let selected = &service["spec"]["selector"]["app.kubernetes.io/name"];
        ensure!(selected == "sesame", "the Service selects {selected}");
        scene.get(&["-n", namespace, "poddisruptionbudget", "sesame"])?;
        scene.get(&["-n", namespace, "networkpolicy", "sesame"])?;
        scene.get(&["-n", namespace, "rolebinding", &role])?;
        Ok(())
    };
    until("the instance's objects are restored", DONE, restored).map(drop)
}

/// A new release of the operator upgrades all instances, then their Envoys.
fn upgraded(scene: &Scene) -> Result<Duration> {
    replicas::load_next(scene, replicas::NEXT)?;
    let mut envoys = Vec::new();
    for name in INSTANCES {
        envoys.push(shop::envoys(scene, name)?);
    }
    let (repository, tag) = replicas::NEXT
        .rsplit_once(':')
        .context("an image without a tag")?;
    let image = [
        format!("image.repository={repository}"),
        format!("image.tag={tag}"),
    ];
    let values: Vec<&str> = VALUES
        .into_iter()
        .chain(image.iter().map(String::as_str))
        .collect();
    scene.apply(&deploy::rendered(&values)?)?;
    let mut slowest = Duration::ZERO;
    for (name, before) in INSTANCES.into_iter().zip(&envoys) {
        let new = || {
            let object = scene.get(&["-n", name, install::DEPLOYMENT])?;
            let image = &object["spec"]["template"]["spec"]["containers"][0]["image"];
            ensure!(image == replicas::NEXT, "{image}");
            Ok(())
        };
        until(&format!("{name} has the new image"), DONE, new)?;
        available(scene, name, "True", "Available")?;
        slowest = slowest.max(shop::rolled_out(scene, name, before.len(), before)?);
    }
    Ok(slowest)
}

/// Deleting a configuration, or its namespace, removes its instance and the Envoys of its Gateways.
fn removed_with_envoys(scene: &Scene, name: &str, delete: &[&str]) -> Result<()> {
    scene.kubectl(&[delete, &["--timeout=180s"]].concat())?;
    let kinds = "daemonsets,deployments,horizontalpodautoscalers,services,secrets,configmaps,serviceaccounts";
    let left = shop::made_for(scene, name, kinds)?;
    ensure!(left.is_empty(), "{} objects of {name} remain", left.len());
    let everything = scene.everything()?;
    let left: Vec<&String> = everything
        .iter()
        .filter(|one| one.contains(&format!(" {name}/sesame")) || one.contains(&format!(":{name}")))
        .collect();
    ensure!(left.is_empty(), "objects of {name} remain: {left:?}");
    let gateway = scene.list(&["-n", shop::NAMESPACE, "gateways"])?;
    ensure!(
        gateway.iter().all(|one| one["metadata"]["name"] != name
            || is_true(one, &one["status"]["conditions"], "Accepted").is_ok()),
        "the Gateway of {name} has changed"
    );
    Ok(())
}
