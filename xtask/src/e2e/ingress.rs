//! Ingresses and HTTPProxies, which the default fleet serves, and ExtensionServices.
//!
//! In: a scene with Sesame. Out: requests are answered, statuses have addresses, and nothing is left at the end.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::scene::{Scene, until};
use super::shop;
use crate::install;
use sesame_tools::cargo;

/// The Ingress, its Secret and its host.
const INGRESS: &str = "docs";
const SECRET: &str = "docs-example-com";
const INGRESS_HOST: &str = "docs.example.com";

/// The example's HTTPProxies, by namespace and name, and the hosts of the two roots.
const EXAMPLE: [(&str, &str); 4] = [
    ("www", "www"),
    (shop::NAMESPACE, "shop"),
    ("blog", "blog"),
    ("blog", "tcp"),
];
const ROOT_HOST: &str = "www.example.com";
const TCP_HOST: &str = "tcp.example.com";

/// The ExtensionService.
const EXTENSION: &str = "check";

/// The namespace of the certificate for the roots.
const CERTIFICATES: &str = "certificates";

/// The HTTPProxy that forwards TLS connections to the API server, and its host.
const PASSTHROUGH: (&str, &str) = ("default", "api");
const PASSTHROUGH_HOST: &str = "api.example.com";

/// The objects of the default fleet.
const FLEET: &str = "projectsesame.io/fleet=default-fleet";

/// Time limit for the fleet to serve; long enough for busy machines.
const DONE: Duration = Duration::from_secs(90);

/// Time limit for removing Envoys, including their drain.
const END: Duration = Duration::from_secs(120);

/// Runs the test.
pub(super) fn ingress(scene: &Scene) -> Result<String> {
    shop::open(scene)?;
    let before = scene.settled()?;
    scene.apply(&[secret(SECRET)?, docs(), passthrough(), extension()])?;
    let example = cargo::root().join("deploy/example-httpproxy.yaml");
    install::apply(&scene.cluster, &example)?;
    let fleet = Fleet {
        scene,
        address: address(scene)?,
    };

    // The host with TLS redirects requests without it.
    fleet.serves_without_tls(INGRESS_HOST, "/", 200, "shop")?;
    let location = fleet.serves_without_tls(ROOT_HOST, "/shop/a", 301, "")?;
    ensure!(
        location == format!("https://{ROOT_HOST}/shop/a"),
        "redirected to {location}"
    );
    fleet.serves(INGRESS_HOST, "/", 200, "shop")?;
    // Each team serves only its own paths.
    fleet.serves(ROOT_HOST, "/shop/a", 200, "shop")?;
    fleet.serves(ROOT_HOST, "/blog/a", 200, "blog")?;
    fleet.serves(ROOT_HOST, "/blog/drafts", 403, "not published yet")?;
    fleet.serves(ROOT_HOST, "/other", 404, "")?;
    forwarded(&fleet)?;

    let uids = uids(scene)?;
    teams(&fleet)?;
    certificate(&fleet)?;
    mistake(scene)?;

    // The fleet remains until the last object is gone.
    scene.kubectl(&["-n", shop::NAMESPACE, "delete", "ingress", INGRESS])?;
    fleet.serves_without_tls(INGRESS_HOST, "/", 404, "")?;
    fleet.serves(ROOT_HOST, "/shop/a", 200, "shop")?;
    ensure!(self::uids(scene)? == uids, "the fleet has changed");
    let path = example.to_str().context("a path is not UTF-8")?;
    scene.kubectl(&["delete", "--ignore-not-found", "-f", path])?;
    let (namespace, name) = PASSTHROUGH;
    scene.kubectl(&["-n", namespace, "delete", "httpproxy", name])?;
    let extension = ["delete", "extensionservice", EXTENSION];
    scene.kubectl(&[&["-n", shop::NAMESPACE], &extension[..]].concat())?;
    scene.kubectl(&["-n", shop::NAMESPACE, "delete", "secret", SECRET])?;
    let (_, gone) = until("the fleet is removed", END, || nothing_left(scene, &before))?;
    shop::delete(scene, shop::GATEWAY)?;
    shop::close(scene)?;
    Ok(format!(
        "an Ingress, HTTPProxies of three teams and forwarded connections on {}; all objects removed in {:.0} s",
        fleet.address,
        gone.as_secs_f32()
    ))
}

/// TLS connections are forwarded regardless of their Host header.
fn forwarded(fleet: &Fleet<'_>) -> Result<()> {
    let other = ["--header", &format!("Host: {INGRESS_HOST}")];
    fleet.serves_with(&other, TCP_HOST, "/", 200, "blog")?;
    // The same header on a connection that isn't forwarded.
    fleet.serves_with(&other, ROOT_HOST, "/blog/a", 421, "")?;
    // No object has a certificate for this host: the API server presents its own, and requires credentials.
    fleet.serves_with(&other, PASSTHROUGH_HOST, "/version", 401, "Unauthorized")?;
    fleet.serves_without_tls(TCP_HOST, "/", 404, "")?;
    Ok(())
}

/// A team's changes affect only its own paths.
fn teams(fleet: &Fleet<'_>) -> Result<()> {
    let scene = fleet.scene;
    let remove = json!([{ "op": "remove", "path": "/spec/routes/1" }]).to_string();
    let patch = ["patch", "httpproxy", "blog", "--type=json", "-p", &remove];
    scene.kubectl(&[&["-n", "blog"], &patch[..]].concat())?;
    fleet.serves(ROOT_HOST, "/blog/drafts", 200, "blog")?;
    scene.kubectl(&["-n", "blog", "delete", "httpproxy", "blog"])?;
    fleet.serves(ROOT_HOST, "/blog/a", 502, "")?;
    fleet.serves(ROOT_HOST, "/shop/a", 200, "shop")?;
    until("the root reports the missing HTTPProxy", DONE, || {
        status(scene, "www", "www", "invalid")
    })
    .map(drop)
}

/// The roots lose and regain the right to use the certificate.
fn certificate(fleet: &Fleet<'_>) -> Result<()> {
    let scene = fleet.scene;
    let delegate = |namespaces: Value| {
        let path = "/spec/delegations/0/targetNamespaces";
        let change = json!([{ "op": "replace", "path": path, "value": namespaces }]).to_string();
        let kind = "tlscertificatedelegation";
        let patch = ["patch", kind, "example-com", "--type=json", "-p", &change];
        scene.kubectl(&[&["-n", CERTIFICATES], &patch[..]].concat())
    };
    delegate(json!(["www"]))?;
    until("the delegation is missing", DONE, || {
        status(scene, "blog", "tcp", "invalid")?;
        let found = fleet.request(&[], TCP_HOST, "/")?;
        ensure!(found.0 == 0, "https://{TCP_HOST} responds: {found:?}");
        Ok(())
    })?;
    fleet.serves(ROOT_HOST, "/shop/a", 200, "shop")?;
    delegate(json!(["www", "blog"]))?;
    fleet.serves(TCP_HOST, "/", 200, "blog")
}

/// A mistake in an Ingress is reported in an Event.
fn mistake(scene: &Scene) -> Result<()> {
    let path = "/spec/rules/0/http/paths/0/backend/service/name";
    let broken = json!([{ "op": "replace", "path": path, "value": "missing" }]).to_string();
    let patch = ["patch", "ingress", INGRESS, "--type=json", "-p", &broken];
    scene.kubectl(&[&["-n", shop::NAMESPACE], &patch[..]].concat())?;
    until("an Event reports the mistake", DONE, || {
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
    })
    .map(drop)
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

/// The shop as an authorization service that allows all requests.
fn extension() -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "ExtensionService",
        "metadata": { "name": EXTENSION, "namespace": shop::NAMESPACE },
        "spec": { "services": [{ "name": "shop", "port": 8080 }], "protocol": "http/1.1" },
    })
}

/// An HTTPProxy that forwards TLS connections to the API server.
fn passthrough() -> Value {
    let (namespace, name) = PASSTHROUGH;
    json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "ingressClassName": "sesame",
            "virtualhost": { "fqdn": PASSTHROUGH_HOST, "tls": { "passthrough": true } },
            "tcpproxy": { "services": [{ "name": "kubernetes", "port": 443 }] },
        },
    })
}

/// A Secret with the quickstart's certificate.
pub(super) fn secret(name: &str) -> Result<Value> {
    let path = cargo::root().join("examples/quickstart/certificate.yaml");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let mut secret: Value = serde_saphyr::from_str(&text)?;
    secret["metadata"] = json!({ "name": name, "namespace": shop::NAMESPACE });
    Ok(secret)
}

/// Waits until statuses are complete. All objects with a host have the address of the fleet's Service.
fn address(scene: &Scene) -> Result<IpAddr> {
    let look = || {
        let service = ["-n", install::NAMESPACE, "service", "default-fleet"];
        let service = load_balancer(&scene.get(&service)?)?;
        for (namespace, kind, name) in [
            (shop::NAMESPACE, "ingress", INGRESS),
            ("www", "httpproxy", "www"),
            ("blog", "httpproxy", "tcp"),
            (PASSTHROUGH.0, "httpproxy", PASSTHROUGH.1),
        ] {
            let found = load_balancer(&scene.get(&["-n", namespace, kind, name])?)?;
            ensure!(
                found == service,
                "the address of {name} is {found}, not {service}"
            );
        }
        for (namespace, name) in EXAMPLE.into_iter().chain([PASSTHROUGH]) {
            status(scene, namespace, name, "valid")?;
        }
        let extension = ["-n", shop::NAMESPACE, "extensionservice", EXTENSION];
        let condition = &scene.get(&extension)?["status"]["conditions"][0];
        ensure!(condition["status"] == "True", "{EXTENSION}: {condition}");
        Ok(service)
    };
    until("statuses have the address of the fleet", DONE, look).map(|(address, _)| address)
}

/// Checks the status of an HTTPProxy.
fn status(scene: &Scene, namespace: &str, name: &str, wanted: &str) -> Result<()> {
    let proxy = scene.get(&["-n", namespace, "httpproxy", name])?;
    let status = &proxy["status"];
    ensure!(status["currentStatus"] == wanted, "{name}: {status}");
    Ok(())
}

fn load_balancer(object: &Value) -> Result<IpAddr> {
    let address = &object["status"]["loadBalancer"]["ingress"][0]["ip"];
    let address = address.as_str().context("no address")?;
    Ok(address.parse()?)
}

/// The default fleet.
struct Fleet<'a> {
    scene: &'a Scene,
    address: IpAddr,
}

impl Fleet<'_> {
    /// Waits for this response without TLS, with a body that contains `text`. Returns its `location` header.
    fn serves_without_tls(
        &self,
        host: &str,
        path: &str,
        status: u16,
        text: &str,
    ) -> Result<String> {
        let mut request = shop::request(SocketAddr::new(self.address, 80), host);
        request.path = path.to_owned();
        let what = format!("http://{host}{path} responds with {status} {text:?}");
        let (location, _) = until(&what, DONE, || {
            let response = self.scene.send(&request)?;
            ensure!(
                response.status == status && response.body.contains(text),
                "{} {:?}",
                response.status,
                response.body
            );
            Ok(response.header("location").to_owned())
        })?;
        Ok(location)
    }

    /// Waits for this response with TLS, with a body that contains `text`.
    fn serves(&self, host: &str, path: &str, status: u16, text: &str) -> Result<()> {
        self.serves_with(&[], host, path, status, text)
    }

    /// [`serves`](Self::serves), with more arguments for curl.
    fn serves_with(
        &self,
        arguments: &[&str],
        host: &str,
        path: &str,
        status: u16,
        text: &str,
    ) -> Result<()> {
        let what = format!("https://{host}{path} responds with {status} {text:?}");
        until(&what, DONE, || {
            let (found, body) = self.request(arguments, host, path)?;
            ensure!(found == status && body.contains(text), "{found} {body:?}");
            Ok(())
        })
        .map(drop)
    }

    /// Sends a TLS request from the cluster's network. Returns the status and body; the status is 0 without a response.
    fn request(&self, arguments: &[&str], host: &str, path: &str) -> Result<(u16, String)> {
        let mut curl = self.scene.cluster.command(Path::new("curl"));
        curl.args(["--silent", "--insecure", "--max-time", "10"])
            .args(["--write-out", "\n%{http_code}"])
            .args(["--resolve", &format!("{host}:443:{}", self.address)])
            .args(arguments)
            .arg(format!("https://{host}{path}"));
        let output = curl.output().context("cannot run curl")?;
        let output = String::from_utf8_lossy(&output.stdout);
        let (body, status) = output.rsplit_once('\n').context("curl printed no status")?;
        Ok((status.parse()?, body.to_owned()))
    }
}

/// The UIDs of the fleet's Deployment and Service.
fn uids(scene: &Scene) -> Result<Vec<String>> {
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
