//! Ingresses and HTTPProxies, which the default fleet serves, and ExtensionServices.
//!
//! In: a scene with Sesame. Out: requests are answered, statuses have addresses, and nothing is left at the end.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::scene::{Scene, until};
use super::shop;
use crate::install;
use sesame_tools::cargo;

/// The Ingress, and its host.
const INGRESS: &str = "docs";
const INGRESS_HOST: &str = "docs.example.com";

/// The root, the HTTPProxy that it includes, and its host. The host has TLS.
const ROOT: &str = "root";
const LEAF: &str = "leaf";
const ROOT_HOST: &str = "www.example.com";

/// The ExtensionService.
const EXTENSION: &str = "check";

/// The Secret with the certificate of both hosts.
const SECRET: &str = "example-com";

/// The objects of the default fleet.
const FLEET: &str = "projectsesame.io/fleet=default-fleet";

/// Time limit for the fleet to serve; long enough for busy machines.
const DONE: Duration = Duration::from_secs(90);

/// Time limit for removing Envoys, including their drain.
const END: Duration = Duration::from_secs(120);

/// Runs the test.
pub(super) fn ingress(scene: &Scene) -> Result<String> {
    shop::open(scene)?;
    let before = scene.everything()?;
    let secret = secret()?;
    scene.apply(&[secret, docs(), root(), leaf(), extension()])?;
    let address = address(scene)?;
    let request = |host: &str, path: &str| {
        let mut request = shop::request(address, host);
        request.path = path.to_owned();
        request
    };
    shop::served(scene, &request(INGRESS_HOST, "/"), "")?;

    // The host with TLS redirects other requests.
    let (location, _) = until("the host with TLS redirects", DONE, || {
        let response = scene.send(&request(ROOT_HOST, "/shop/a"))?;
        ensure!(response.status == 301, "{}", response.status);
        Ok(response.header("location").to_owned())
    })?;
    ensure!(
        location == format!("https://{ROOT_HOST}/shop/a"),
        "redirected to {location}"
    );
    for (host, path) in [(ROOT_HOST, "/shop/a"), (INGRESS_HOST, "/")] {
        until("the host is served with TLS", DONE, || {
            secure(scene, address.ip(), host, path, "200")
        })?;
    }
    secure(scene, address.ip(), ROOT_HOST, "/other", "404")?;

    // A mistake is reported as an Event, and costs the fleet nothing.
    let fleet = fleet(scene)?;
    let path = "/spec/rules/0/http/paths/0/backend/service/name";
    let broken = json!([{ "op": "replace", "path": path, "value": "missing" }]).to_string();
    let namespace = ["-n", shop::NAMESPACE];
    let patch = ["patch", "ingress", INGRESS, "--type=json", "-p", &broken];
    scene.kubectl(&[&namespace[..], &patch].concat())?;
    until("the mistake is an Event", DONE, || {
        let events = scene.list(&[
            "-n",
            shop::NAMESPACE,
            "events.events.k8s.io",
            "--field-selector",
            "type=Warning,reason=Invalid",
        ])?;
        let mut notes = events.iter().filter_map(|event| event["note"].as_str());
        ensure!(
            notes.any(|note| note.contains("missing")),
            "no Event names the Service"
        );
        Ok(())
    })?;

    // The fleet remains until the last object is gone.
    scene.kubectl(&[&namespace[..], &["delete", "ingress", INGRESS]].concat())?;
    until("the Ingress's host is no longer served", DONE, || {
        let response = scene.send(&request(INGRESS_HOST, "/"))?;
        ensure!(response.status == 404, "{}", response.status);
        Ok(())
    })?;
    secure(scene, address.ip(), ROOT_HOST, "/shop/a", "200")?;
    ensure!(self::fleet(scene)? == fleet, "the fleet has changed");
    let (_, gone) = {
        let objects = ["delete", "httpproxy", ROOT, LEAF];
        scene.kubectl(&[&namespace[..], &objects].concat())?;
        let objects = ["delete", "extensionservice", EXTENSION];
        scene.kubectl(&[&namespace[..], &objects].concat())?;
        scene.kubectl(&[&namespace[..], &["delete", "secret", SECRET]].concat())?;
        until("the fleet is removed", END, || nothing_left(scene, &before))?
    };
    shop::delete(scene, shop::GATEWAY)?;
    shop::close(scene)?;
    Ok(format!(
        "an Ingress and a tree of HTTPProxies on {}, with and without TLS; all objects removed in {:.0} s",
        address.ip(),
        gone.as_secs_f32()
    ))
}

/// An Ingress to the shop, with TLS.
fn docs() -> Value {
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": { "name": INGRESS, "namespace": shop::NAMESPACE },
        "spec": {
            "ingressClassName": "sesame",
            "tls": [{ "hosts": [INGRESS_HOST], "secretName": SECRET }],
            "rules": [{
                "host": INGRESS_HOST,
                "http": { "paths": [{
                    "path": "/",
                    "pathType": "Prefix",
                    "backend": { "service": { "name": "shop", "port": { "name": "http" } } },
                }] },
            }],
        },
    })
}

fn root() -> Value {
    http_proxy(
        ROOT,
        json!({
            "virtualhost": { "fqdn": ROOT_HOST, "tls": { "secretName": SECRET } },
            "includes": [{ "name": LEAF, "conditions": [{ "prefix": "/shop" }] }],
        }),
    )
}

fn leaf() -> Value {
    http_proxy(
        LEAF,
        json!({ "routes": [{ "services": [{ "name": "shop", "port": 8080 }] }] }),
    )
}

/// The shop, as a service for authorization: it permits all requests.
fn extension() -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "ExtensionService",
        "metadata": { "name": EXTENSION, "namespace": shop::NAMESPACE },
        "spec": { "services": [{ "name": "shop", "port": 8080 }], "protocol": "http/1.1" },
    })
}

fn http_proxy(name: &str, mut spec: Value) -> Value {
    spec["ingressClassName"] = json!("sesame");
    json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": { "name": name, "namespace": shop::NAMESPACE },
        "spec": spec,
    })
}

/// A certificate for both hosts.
fn secret() -> Result<Value> {
    let path = cargo::root().join("examples/quickstart/certificate.yaml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut secret: Value = serde_saphyr::from_str(&text)?;
    secret["metadata"] = json!({ "name": SECRET, "namespace": shop::NAMESPACE });
    Ok(secret)
}

/// Waits until the Ingress and the root have the same address, which is that of the fleet's Service.
fn address(scene: &Scene) -> Result<SocketAddr> {
    let look = || {
        let service = ["-n", install::NAMESPACE, "service", "default-fleet"];
        let service = load_balancer(&scene.get(&service)?)?;
        for object in [["ingress", INGRESS], ["httpproxy", ROOT]] {
            let object = scene.get(&[&["-n", shop::NAMESPACE], &object[..]].concat())?;
            let found = load_balancer(&object)?;
            ensure!(found == service, "the address is {found}, not {service}");
        }
        for name in [ROOT, LEAF] {
            let proxy = scene.get(&["-n", shop::NAMESPACE, "httpproxy", name])?;
            let status = &proxy["status"];
            ensure!(status["currentStatus"] == "valid", "{name}: {status}");
        }
        let extension = ["-n", shop::NAMESPACE, "extensionservice", EXTENSION];
        let condition = &scene.get(&extension)?["status"]["conditions"][0];
        ensure!(condition["status"] == "True", "{EXTENSION}: {condition}");
        Ok(SocketAddr::new(service, 80))
    };
    until("statuses have the address of the fleet", DONE, look).map(|(address, _)| address)
}

fn load_balancer(object: &Value) -> Result<IpAddr> {
    let address = &object["status"]["loadBalancer"]["ingress"][0]["ip"];
    let address = address.as_str().context("no address")?;
    Ok(address.parse()?)
}

/// Sends a request with TLS from the cluster's network, and checks the status of the response.
fn secure(scene: &Scene, address: IpAddr, host: &str, path: &str, status: &str) -> Result<()> {
    let mut curl = scene.cluster.command(Path::new("curl"));
    curl.args(["--silent", "--insecure", "--max-time", "10"])
        .args(["--output", "/dev/null", "--write-out", "%{http_code}"])
        .args(["--resolve", &format!("{host}:443:{address}")])
        .arg(format!("https://{host}{path}"));
    let output = curl.output().context("cannot run curl")?;
    let found = String::from_utf8_lossy(&output.stdout);
    if found != status {
        bail!("https://{host}{path} responded with {found}, expected {status}");
    }
    Ok(())
}

/// The UIDs of the fleet's Deployment and Service.
fn fleet(scene: &Scene) -> Result<Vec<String>> {
    let objects = scene.list(&[
        "-n",
        install::NAMESPACE,
        "deployments,services",
        "-l",
        FLEET,
    ])?;
    ensure!(objects.len() == 2, "{} objects, expected 2", objects.len());
    let uid = |object: &Value| object["metadata"]["uid"].as_str().map(str::to_owned);
    objects.iter().map(|o| uid(o).context("no UID")).collect()
}

fn nothing_left(scene: &Scene, before: &BTreeSet<String>) -> Result<()> {
    let now = scene.everything()?;
    let left: Vec<&String> = now.difference(before).collect();
    ensure!(left.is_empty(), "objects remain: {left:?}");
    Ok(())
}
