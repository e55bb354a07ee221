//! A running Contour moves to Sesame and back, as described in `docs/migrate-from-contour.md`.
//!
//! In: a scene with Sesame. Out: no request fails at any step, and statuses have the address of the controller that the
//! guide names.

mod program;

use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use self::program::Contour;
use super::load::{Load, Tally};
use super::network::Request;
use super::scene::{Scene, until};
use super::shop;
use crate::deploy;
use crate::install;
use sesame_tools::image;

/// Contour's namespace.
const THEIRS: &str = "projectcontour";

/// Contour's group and Sesame's, as in `apiVersion` and annotations.
const GROUPS: (&str, &str) = ("projectcontour.io", "projectsesame.io");

/// The plurals of the kinds in both groups.
const KINDS: [&str; 3] = [
    "httpproxies",
    "tlscertificatedelegations",
    "extensionservices",
];

/// The HTTPProxies, the root first.
const PROXIES: [&str; 2] = ["contour", "contour-leaf"];

/// The host of the HTTPProxy, and that of the Ingress.
const HOSTS: [&str; 2] = ["contour.example.com", "docs.example.com"];

/// The Ingress.
const INGRESS: &str = "contour";

/// Time limit for a change to take effect; long enough for busy machines.
const DONE: Duration = Duration::from_secs(120);

/// How long both controllers serve requests while clients move.
const BOTH: Duration = Duration::from_secs(5);

/// Runs the test.
pub(super) fn contour(scene: &Scene) -> Result<String> {
    let contour = program::obtain()?;
    let archive = image::store("contour", &contour.image()?)?;
    scene.cluster.load(&[archive])?;
    shop::open(scene)?;
    let theirs = start(scene, &contour)?;

    let on_contour = Load::start(&scene.network, requests(theirs));
    sesame(scene, "read")?;
    let ours = address(scene, install::NAMESPACE, "default-fleet")?;
    served(scene, ours)?;
    addressed(scene, GROUPS.0, theirs)?;
    let on_sesame = Load::start(&scene.network, requests(ours));
    sleep(BOTH);
    let mut tallies = vec![on_contour.stop().context("before the move")?];

    scale(scene, 0)?;
    sesame(scene, "write")?;
    addressed(scene, GROUPS.0, ours)?;
    convert(scene, GROUPS.0, GROUPS.1)?;
    addressed(scene, GROUPS.1, ours)?;
    delete(scene, GROUPS.0)?;
    served(scene, ours)?;

    // Move back: Contour's objects first, then Contour, then the requests.
    sesame(scene, "read")?;
    convert(scene, GROUPS.1, GROUPS.0)?;
    scale(scene, 1)?;
    addressed(scene, GROUPS.0, theirs)?;
    served(scene, theirs)?;
    let on_contour = Load::start(&scene.network, requests(theirs));
    sleep(BOTH);
    delete(scene, GROUPS.1)?;
    sleep(BOTH);
    tallies.push(on_sesame.stop().context("on Sesame")?);
    // With the plain manifests, Sesame doesn't read Contour's objects.
    install::manifests(&scene.cluster)?;
    tallies.push(on_contour.stop().context("after the return")?);

    end(scene, &contour)?;
    let tallies: Vec<String> = tallies.iter().map(Tally::to_string).collect();
    Ok(format!(
        "from {theirs} to {ours} and back: {}",
        tallies.join("; ")
    ))
}

/// Installs Contour with an HTTPProxy and an Ingress, and waits until they are served. Returns its address.
fn start(scene: &Scene, contour: &Contour) -> Result<IpAddr> {
    scene.apply(&contour.objects()?)?;
    let rollout = ["-n", THEIRS, "rollout", "status", "--timeout=180s"];
    for workload in ["deployment/contour", "daemonset/envoy"] {
        scene.kubectl(&[&rollout[..], &[workload]].concat())?;
    }
    until("Contour's kinds are served", DONE, || {
        scene.apply(&objects())
    })?;
    let address = address(scene, THEIRS, "envoy")?;
    served(scene, address)?;
    addressed(scene, GROUPS.0, address)?;
    Ok(address)
}

/// Removes everything that the test created.
fn end(scene: &Scene, contour: &Contour) -> Result<()> {
    scene.kubectl(&["-n", shop::NAMESPACE, "delete", "ingress", INGRESS])?;
    shop::delete(scene, shop::GATEWAY)?;
    shop::close(scene)?;
    let objects = contour.objects()?;
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    let args = ["delete", "--ignore-not-found", "-f", "-"];
    install::kubectl_fed(&scene.cluster, &args, &texts.join("\n---\n")).map(drop)
}

/// The objects that Contour serves.
fn objects() -> Vec<Value> {
    let object = |version: &str, kind: &str, name: &str, spec: Value| {
        json!({
            "apiVersion": version,
            "kind": kind,
            "metadata": { "name": name, "namespace": shop::NAMESPACE },
            "spec": spec,
        })
    };
    let (group, version) = ("projectcontour.io/v1", "networking.k8s.io/v1");
    let shop = json!({ "name": "shop", "port": 8080 });
    let root = json!({
        "virtualhost": { "fqdn": HOSTS[0] },
        "includes": [{ "name": PROXIES[1], "conditions": [{ "prefix": "/" }] }],
    });
    let leaf = json!({
        "routes": [{ "services": [shop], "timeoutPolicy": { "response": "10s" } }],
    });
    let delegation = json!({
        "delegations": [{ "secretName": "none", "targetNamespaces": ["default"] }],
    });
    let extension = json!({ "services": [shop], "protocol": "h2c" });
    let backend = json!({ "service": { "name": "shop", "port": { "number": 8080 } } });
    let ingress = json!({
        "ingressClassName": "contour",
        "rules": [{
            "host": HOSTS[1],
            "http": { "paths": [{ "path": "/", "pathType": "Prefix", "backend": backend }] },
        }],
    });
    let mut ingress = object(version, "Ingress", INGRESS, ingress);
    ingress["metadata"]["annotations"] = json!({ "projectcontour.io/response-timeout": "10s" });
    vec![
        object(group, "HTTPProxy", PROXIES[0], root),
        object(group, "HTTPProxy", PROXIES[1], leaf),
        object(group, "TLSCertificateDelegation", "contour", delegation),
        object(
            "projectcontour.io/v1alpha1",
            "ExtensionService",
            "contour",
            extension,
        ),
        ingress,
    ]
}

/// Installs Sesame beside Contour, with this `contourCompat`.
fn sesame(scene: &Scene, mode: &str) -> Result<()> {
    let mode = format!("contourCompat={mode}");
    let values = ["ingressClass.name=contour", "ingressClass.create=false"];
    scene.apply(&deploy::rendered(&[&values[..], &[&mode]].concat())?)?;
    install::ready(&scene.cluster)
}

/// Starts or stops Contour. Its Envoys keep running.
fn scale(scene: &Scene, replicas: usize) -> Result<()> {
    let replicas = format!("--replicas={replicas}");
    scene.kubectl(&["-n", THEIRS, "scale", "deployment", "contour", &replicas])?;
    let rollout = ["-n", THEIRS, "rollout", "status", "deployment/contour"];
    scene.kubectl(&[&rollout[..], &["--timeout=180s"]].concat())?;
    Ok(())
}

/// Copies all objects in a group to another group.
fn convert(scene: &Scene, from: &str, to: &str) -> Result<()> {
    let kinds = KINDS.map(|kind| format!("{kind}.{from}"));
    let objects = scene.list(&["-n", shop::NAMESPACE, &kinds.join(",")])?;
    ensure!(objects.len() == 4, "{} objects to convert", objects.len());
    let mut copies = Vec::new();
    for object in &objects {
        let copy = json!({
            "apiVersion": object["apiVersion"],
            "kind": object["kind"],
            "metadata": {
                "name": object["metadata"]["name"],
                "namespace": object["metadata"]["namespace"],
            },
            "spec": object["spec"],
        });
        copies.push(serde_json::from_str(&copy.to_string().replace(from, to))?);
    }
    scene.apply(&copies)
}

/// Deletes all objects in a group.
fn delete(scene: &Scene, group: &str) -> Result<()> {
    let kinds = KINDS.map(|kind| format!("{kind}.{group}")).join(",");
    scene.kubectl(&["-n", shop::NAMESPACE, "delete", "--all", &kinds])?;
    Ok(())
}

/// Waits until a Service has an address, and returns the address.
pub(super) fn address(scene: &Scene, namespace: &str, service: &str) -> Result<IpAddr> {
    let look = || load_balancer(&scene.get(&["-n", namespace, "service", service])?);
    until(&format!("{service} has an address"), DONE, look).map(|(address, _)| address)
}

fn load_balancer(object: &Value) -> Result<IpAddr> {
    let ingress = &object["status"]["loadBalancer"]["ingress"][0]["ip"];
    let address = ingress.as_str().context("no address")?;
    Ok(address.parse()?)
}

/// Waits until the HTTPProxies in a group are valid, and the root and the Ingress have this address.
fn addressed(scene: &Scene, group: &str, address: IpAddr) -> Result<()> {
    let what = format!("statuses of {group} have address {address}");
    until(&what, DONE, || {
        let kind = format!("httpproxy.{group}");
        for name in PROXIES {
            let proxy = scene.get(&["-n", shop::NAMESPACE, &kind, name])?;
            let status = &proxy["status"];
            ensure!(status["currentStatus"] == "valid", "{name}: {status}");
        }
        for (kind, name) in [(kind.as_str(), PROXIES[0]), ("ingress", INGRESS)] {
            let object = scene.get(&["-n", shop::NAMESPACE, kind, name])?;
            let found = load_balancer(&object)?;
            ensure!(found == address, "the address of {kind} {name} is {found}");
        }
        Ok(())
    })
    .map(drop)
}

/// Waits until both hosts are served.
fn served(scene: &Scene, address: IpAddr) -> Result<()> {
    for request in requests(address) {
        shop::served(scene, &request, "")?;
    }
    Ok(())
}

fn requests(address: IpAddr) -> Vec<Request> {
    let address = SocketAddr::new(address, 80);
    let requests = HOSTS.map(|host| shop::request(address, host));
    requests.into()
}
