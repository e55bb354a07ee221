//! A SesameConfiguration configures the instance.
//!
//! In: a scene with Sesame. Out: Sesame waits for the object and applies changes of each field, without restarts or
//! failed requests; unmanaged Envoys are left unchanged.

mod fields;

use std::net::SocketAddr;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use self::fields::{CERTIFICATE, Change, EXTENSION, Outcome, PRIORITY_CLASS};
use super::load::Load;
use super::scene::{Scene, until};
use super::shop;
use crate::deploy;
use crate::install;

/// The configuration.
const NAME: &str = "sesame";

/// The HTTPProxy, whose requests without TLS are redirected except below `/plain`.
const PROXY: &str = "configured";
const HOST: &str = "configured.example.com";

/// Time limit for a change to take effect; long enough for busy machines.
const DONE: Duration = Duration::from_secs(120);

/// How long objects must stay unchanged.
const QUIET: Duration = Duration::from_secs(5);

/// The number of Envoys of the Gateway, the default.
const ENVOYS: usize = 2;

/// A `revisionHistoryLimit` for a Deployment that Sesame wouldn't set.
const EDITED: u32 = 7;

/// Runs the test.
pub(super) fn configuration(scene: &Scene) -> Result<String> {
    let shop = shop::open(scene)?;
    scene.apply(&deploy::rendered(&["configuration=sesame"])?)?;
    let waits = || {
        let logs = ["-n", install::NAMESPACE, "logs", "--selector"];
        let logs = scene.kubectl(&[&logs[..], &["app.kubernetes.io/name=sesame"]].concat())?;
        ensure!(logs.contains("waiting for SesameConfiguration"), "{logs}");
        Ok(())
    };
    until("a new replica waits", DONE, waits)?;
    let load = Load::start(&scene.network, vec![shop::request(shop, shop::HOST)]);
    apply(scene, json!({}))?;
    install::ready(&scene.cluster)?;
    programmed(scene)?;
    let pods = pods(scene)?;

    let ports = moved_ports(scene)?;
    let changes = changed(scene)?;
    let unmanaged = unmanaged(scene)?;
    // The last settings stay in effect.
    let delete = ["delete", "sesameconfiguration", NAME];
    scene.kubectl(&[&["-n", install::NAMESPACE], &delete[..]].concat())?;
    sleep(QUIET);
    let workload = shop::one_made_for(scene, shop::GATEWAY, "deployments")?;
    ensure!(
        workload["spec"]["replicas"] == 3,
        "the settings have changed"
    );
    ensure!(self::pods(scene)? == pods, "Sesame has restarted");

    // The manifests don't use a configuration.
    install::manifests(&scene.cluster)?;
    install::ready(&scene.cluster)?;
    let tally = load.stop()?;
    shop::delete(scene, shop::GATEWAY)?;
    shop::close(scene)?;
    Ok(format!("{ports}; {changes}; {unmanaged}; {tally}"))
}

/// Applies a configuration with these sections in addition to the usual ones.
fn apply(scene: &Scene, sections: Value) -> Result<()> {
    let mut spec = usual();
    for (section, fields) in sections.as_object().into_iter().flatten() {
        spec[section] = fields.clone();
    }
    scene.apply(&[object(&spec)])
}

/// The usual sections. None is empty, since an API server sets a section to null if a server-side apply removes all its
/// fields.
fn usual() -> Value {
    json!({
        "gateway": { "controllerName": "projectsesame.io/gateway-controller" },
        "envoy": { "managed": true },
    })
}

/// The configuration with a spec.
fn object(spec: &Value) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "SesameConfiguration",
        "metadata": { "name": NAME, "namespace": install::NAMESPACE },
        "spec": spec,
    })
}

/// The configuration in the cluster.
fn current(scene: &Scene) -> Result<Value> {
    scene.get(&["-n", install::NAMESPACE, "sesameconfiguration", NAME])
}

/// Waits until the last change is in effect.
fn programmed(scene: &Scene) -> Result<()> {
    observed(scene, "True", "True").map(drop)
}

/// Waits until the status observes the last change, with these statuses of its conditions. Returns the conditions.
fn observed(scene: &Scene, accepted: &str, programmed: &str) -> Result<Value> {
    let look = || {
        let object = current(scene)?;
        let conditions = &object["status"]["conditions"];
        for (type_, expected) in [("Accepted", accepted), ("Programmed", programmed)] {
            let mut all = conditions.as_array().into_iter().flatten();
            let condition = all.find(|condition| condition["type"] == type_);
            let condition = condition.with_context(|| format!("no condition {type_}"))?;
            let observed = &condition["observedGeneration"];
            ensure!(*observed == object["metadata"]["generation"], "{condition}");
            ensure!(condition["status"] == expected, "{condition}");
        }
        Ok(conditions.clone())
    };
    until("the configuration's status", DONE, look).map(|(conditions, _)| conditions)
}

/// Sesame's pods, with their restarts.
fn pods(scene: &Scene) -> Result<Vec<(String, u64)>> {
    let selector = ["--selector", "app.kubernetes.io/name=sesame"];
    let pods = scene.list(&[&["-n", install::NAMESPACE, "pods"], &selector[..]].concat())?;
    let running = pods
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let pods = running.map(|pod| {
        let restarts = pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
        (
            pod["metadata"]["name"].to_string(),
            restarts.unwrap_or_default(),
        )
    });
    Ok(pods.collect())
}

/// Moves the ports of the default fleet; redirects, the Service and requests follow.
fn moved_ports(scene: &Scene) -> Result<String> {
    let service = json!({ "name": "shop", "port": 8080 });
    let secret = super::ingress::secret(PROXY)?;
    let proxy = json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": { "name": PROXY, "namespace": shop::NAMESPACE },
        "spec": {
            "virtualhost": { "fqdn": HOST, "tls": { "secretName": PROXY } },
            "routes": [
                { "services": [service] },
                { "conditions": [{ "prefix": "/plain" }], "permitInsecure": true, "services": [service] },
            ],
        },
    });
    scene.apply(&[secret, proxy])?;
    let address = super::contour::address(scene, install::NAMESPACE, "default-fleet")?;
    let at = |port: u16, path: &str| {
        let mut request = shop::request(SocketAddr::new(address, port), HOST);
        path.clone_into(&mut request.path);
        request
    };
    let redirects = |port: u16, location: &str| {
        until(
            &format!("port {port} redirects to {location}"),
            DONE,
            || {
                let response = scene.send(&at(port, "/a"))?;
                let found = response.header("location");
                ensure!(found == location, "{} {found}", response.status);
                Ok(())
            },
        )
        .map(drop)
    };
    redirects(80, &format!("https://{HOST}/a"))?;
    apply(
        scene,
        json!({ "defaultPorts": { "http": 8081, "https": 8444 } }),
    )?;
    programmed(scene)?;
    redirects(8081, &format!("https://{HOST}:8444/a"))?;
    shop::served(scene, &at(8081, "/plain"), "")?;
    let service = scene.get(&["-n", install::NAMESPACE, "service", "default-fleet"])?;
    let ports = service["spec"]["ports"].as_array();
    let mut ports: Vec<u64> = ports
        .into_iter()
        .flatten()
        .filter_map(|port| port["port"].as_u64())
        .collect();
    ports.sort_unstable();
    ensure!(ports == [8081, 8444], "the Service has the ports {ports:?}");
    apply(scene, json!({}))?;
    redirects(80, &format!("https://{HOST}/a"))?;
    for (kind, name) in [("httpproxy", PROXY), ("secret", PROXY)] {
        scene.kubectl(&["-n", shop::NAMESPACE, "delete", kind, name])?;
    }
    Ok("ports moved to 8081 and 8444 and back".to_owned())
}

/// Changes each field, valid and invalid values in turn, and checks the result of each change.
fn changed(scene: &Scene) -> Result<String> {
    let class = json!({
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": { "name": PRIORITY_CLASS },
        "value": 0,
    });
    let extension = json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "ExtensionService",
        "metadata": { "name": EXTENSION, "namespace": shop::NAMESPACE },
        "spec": { "services": [{ "name": "shop", "port": 8080 }], "protocol": "h2c" },
    });
    let certificate = super::ingress::secret(CERTIFICATE)?;
    scene.apply(&[class, extension, certificate])?;
    let changes = fields::changes();
    let count = scene.changes.unwrap_or(changes.len());
    for change in changes.iter().cycle().take(count) {
        let Change { field, spec, .. } = change;
        check(scene, change).with_context(|| format!("{field} in {spec}"))?;
    }
    apply(scene, json!({}))?;
    programmed(scene)?;
    let settled = shop::rolled_out(scene, shop::GATEWAY, ENVOYS, &[])?;
    scene.kubectl(&["delete", "priorityclass", PRIORITY_CLASS])?;
    Ok(format!(
        "{count} changes, then all Envoys up to date after {:.0} s",
        settled.as_secs_f32()
    ))
}

/// Makes a change and checks its outcome.
fn check(scene: &Scene, change: &Change) -> Result<()> {
    let objects = [object(&change.spec)];
    match change.outcome {
        Outcome::Programmed => {
            scene.apply(&objects)?;
            programmed(scene)
        }
        Outcome::RestartRequired => {
            scene.apply(&objects)?;
            observed(scene, "True", "False").map(drop)
        }
        Outcome::Reported => {
            scene.apply(&objects)?;
            let conditions = observed(scene, "False", "False")?.to_string();
            let path = format!("spec.{}", change.field);
            ensure!(conditions.contains(&path), "no {path} in {conditions}");
            Ok(())
        }
        Outcome::Rejected => {
            let parts = || -> Result<Value> {
                let object = current(scene)?;
                let conditions = object["status"]["conditions"].as_array();
                let own = |condition: &&Value| {
                    let type_ = &condition["type"];
                    type_ == "Accepted" || type_ == "Programmed"
                };
                let conditions: Vec<&Value> =
                    conditions.into_iter().flatten().filter(own).collect();
                let generation = &object["metadata"]["generation"];
                Ok(json!([generation, object["spec"], conditions]))
            };
            let before = parts()?;
            let error = scene.apply(&objects).err();
            let error = error.context("the API server has accepted the invalid value")?;
            let error = format!("{error:#}");
            let name = change.field.rsplit('.').next().unwrap_or_default();
            ensure!(error.contains(name), "no {name} in {error}");
            ensure!(parts()? == before, "the object has changed");
            Ok(())
        }
    }
}

/// Sesame stops managing its Envoys' objects, then manages them again.
fn unmanaged(scene: &Scene) -> Result<String> {
    let unmanaged = json!({ "managed": false, "replicas": 3 });
    apply(scene, json!({ "envoy": unmanaged }))?;
    programmed(scene)?;
    let deployment = shop::one_made_for(scene, shop::GATEWAY, "deployments")?;
    let name = deployment["metadata"]["name"].as_str().unwrap_or_default();
    // Sesame would revert this change to a managed object.
    let edit = json!({ "spec": { "revisionHistoryLimit": EDITED } }).to_string();
    let patch = ["patch", "deployment", name, "--type=merge", "-p", &edit];
    scene.kubectl(&[&["-n", shop::NAMESPACE], &patch[..]].concat())?;
    let objects = || -> Result<Vec<String>> {
        let kinds = "deployments,services,configmaps,serviceaccounts,poddisruptionbudgets";
        let objects = shop::made_for(scene, shop::GATEWAY, kinds)?;
        let objects = objects.into_iter().map(|mut object| {
            object["status"] = Value::Null;
            object["metadata"]["managedFields"] = Value::Null;
            object["metadata"]["resourceVersion"] = Value::Null;
            object["metadata"]["annotations"]["deployment.kubernetes.io/revision"] = Value::Null;
            object.to_string()
        });
        Ok(objects.collect())
    };
    let before = objects()?;
    sleep(QUIET);
    ensure!(objects()? == before, "Sesame has changed objects");
    apply(scene, json!({ "envoy": { "replicas": 3 } }))?;
    let (_, took) = until("Sesame manages its Envoys again", DONE, || {
        let deployment = shop::one_made_for(scene, shop::GATEWAY, "deployments")?;
        let spec = &deployment["spec"];
        let edited = spec["revisionHistoryLimit"] == EDITED;
        ensure!(spec["replicas"] == 3 && !edited, "{spec}");
        Ok(())
    })?;
    shop::rolled_out(scene, shop::GATEWAY, 3, &[])?;
    Ok(format!(
        "no changes while unmanaged, managed again after {:.1} s",
        took.as_secs_f32()
    ))
}
