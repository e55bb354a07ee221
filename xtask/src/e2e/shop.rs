//! The shop of `deploy/example-shop.yaml`: backends, Gateways and routes.
//!
//! In: a scene. Out: Gateways that serve, or that are removed along with all their objects.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::network::Request;
use super::scene::{Scene, is_true, until};
use crate::install;
use sesame_tools::cargo;

/// The shop's namespace.
pub(super) const NAMESPACE: &str = "shop";

/// The example's Gateway and its route's host.
pub(super) const GATEWAY: &str = "web";
pub(super) const HOST: &str = "shop.example.com";

/// Time limit for a new Gateway to serve; long enough for busy machines.
pub(super) const START: Duration = Duration::from_secs(90);

/// Time limit for removing Envoys, including their drain.
const END: Duration = Duration::from_secs(120);

/// Time limit for an Envoy rollout, including each Envoy's drain.
const ROLLED: Duration = Duration::from_secs(240);

/// Time limit for a route to be served.
pub(super) const SERVED: Duration = Duration::from_secs(90);

/// A Service without endpoints, and its BackendTLSPolicy.
const SECURE: &str = "secure";

/// The response header with a route's version.
pub(super) const VERSION: &str = "x-version";

/// The port of the Gateways.
const PORT: u16 = 80;

/// Applies the example and returns its Gateway's address.
pub(super) fn open(scene: &Scene) -> Result<SocketAddr> {
    for file in ["deploy/example-shop.yaml", "deploy/example.yaml"] {
        install::apply(&scene.cluster, &cargo::root().join(file))?;
    }
    let address = programmed(scene, GATEWAY)?;
    served(scene, &request(address, HOST), "")?;
    Ok(address)
}

/// Deletes the example.
pub(super) fn close(scene: &Scene) -> Result<()> {
    scene
        .kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"])
        .map(drop)
}

/// A Gateway, an HTTPRoute from `NAME.example.com` to the shop, and a route of each other kind.
pub(super) fn gateway(name: &str, infrastructure: Value) -> Vec<Value> {
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "gatewayClassName": "sesame",
            "infrastructure": infrastructure,
            "allowedListeners": { "namespaces": { "from": "Same" } },
            "listeners": [
                { "name": "http", "port": PORT, "protocol": "HTTP" },
                { "name": "tls", "port": 443, "protocol": "TLS", "tls": { "mode": "Passthrough" } },
                { "name": "tcp", "port": 9000, "protocol": "TCP" },
                { "name": "udp", "port": 9000, "protocol": "UDP" },
            ],
        },
    });
    let hosts = json!([host(name)]);
    let set = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "ListenerSet",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "parentRef": { "name": name },
            "listeners": [{ "name": "more", "port": 8081, "protocol": "HTTP" }],
        },
    });
    let mut grpc_route = simple_route("GRPCRoute", name, "http", Some(&hosts));
    grpc_route["spec"]["rules"][0]["backendRefs"][0] = json!({ "name": SECURE, "port": 443 });
    vec![
        gateway,
        set,
        route(name, name, "0"),
        grpc_route,
        simple_route("TLSRoute", name, "tls", Some(&hosts)),
        simple_route("TCPRoute", name, "tcp", None),
        simple_route("UDPRoute", name, "udp", None),
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": { "name": SECURE, "namespace": NAMESPACE },
            "spec": { "ports": [{ "port": 443 }] },
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "BackendTLSPolicy",
            "metadata": { "name": SECURE, "namespace": NAMESPACE },
            "spec": {
                "targetRefs": [{ "group": "", "kind": "Service", "name": SECURE }],
                "validation": { "wellKnownCACertificates": "System", "hostname": "shop.example.com" },
            },
        }),
    ]
}

/// A route from a listener to the shop.
fn simple_route(kind: &str, gateway: &str, listener: &str, hostnames: Option<&Value>) -> Value {
    let mut spec = json!({
        "parentRefs": [{ "name": gateway, "sectionName": listener }],
        "rules": [{ "backendRefs": [{ "name": "shop", "port": 8080 }] }],
    });
    if let Some(hostnames) = hostnames {
        spec["hostnames"] = hostnames.clone();
    }
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": kind,
        "metadata": { "name": gateway, "namespace": NAMESPACE },
        "spec": spec,
    })
}

/// A route for `NAME.example.com` on a Gateway, whose responses include a version.
pub(super) fn route(gateway: &str, name: &str, version: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": { "name": name, "namespace": NAMESPACE, "labels": { "of": gateway } },
        "spec": {
            "parentRefs": [{ "name": gateway }],
            "hostnames": [host(name)],
            "rules": [{
                "filters": [{
                    "type": "ResponseHeaderModifier",
                    "responseHeaderModifier": { "set": [{ "name": VERSION, "value": version }] },
                }],
                "backendRefs": [{ "name": "shop", "port": 8080 }],
            }],
        },
    })
}

/// Changes the version in a route's responses.
pub(super) fn change(scene: &Scene, route: &str, version: &str) -> Result<()> {
    let path = "/spec/rules/0/filters/0/responseHeaderModifier/set/0/value";
    let patch = json!([{ "op": "replace", "path": path, "value": version }]).to_string();
    let args = [
        "-n",
        NAMESPACE,
        "patch",
        "httproute",
        route,
        "--type=json",
        "-p",
        &patch,
    ];
    scene.kubectl(&args).map(drop)
}

/// The host of a route.
pub(super) fn host(route: &str) -> String {
    format!("{route}.example.com")
}

/// A request for `/` on a host.
pub(super) fn request(address: SocketAddr, host: &str) -> Request {
    Request {
        address,
        host: host.to_owned(),
        path: "/".to_owned(),
    }
}

/// Waits until a Gateway's current generation is programmed, and returns its address.
pub(super) fn programmed(scene: &Scene, gateway: &str) -> Result<SocketAddr> {
    let look = || {
        let gateway = scene.get(&["-n", NAMESPACE, "gateway", gateway])?;
        let status = &gateway["status"];
        is_true(&gateway, &status["conditions"], "Programmed")?;
        let address = status["addresses"][0]["value"]
            .as_str()
            .context("the programmed Gateway has no address")?;
        let address: IpAddr = address
            .parse()
            .with_context(|| format!("invalid address {address:?}"))?;
        Ok(SocketAddr::new(address, PORT))
    };
    until(&format!("{gateway} is programmed"), START, look).map(|(address, _)| address)
}

/// Waits until a response has this version (any if empty). Returns the time it took.
pub(super) fn served(scene: &Scene, request: &Request, version: &str) -> Result<Duration> {
    let look = || {
        let response = scene.send(request)?;
        ensure!(
            response.status == 200,
            "{} {:?}",
            response.status,
            response.body
        );
        let found = response.header(VERSION);
        ensure!(
            version.is_empty() || found == version,
            "expected version {version}, got {found}"
        );
        Ok(())
    };
    until(&format!("{} is served", request.host), SERVED, look).map(|((), took)| took)
}

/// Checks that the statuses of all routes on a Gateway are up to date.
pub(super) fn statuses_are_right(scene: &Scene, gateway: &str) -> Result<()> {
    let of = format!("of={gateway}");
    let routes = scene.list(&["-n", NAMESPACE, "httproutes", "-l", &of])?;
    ensure!(!routes.is_empty(), "{gateway} has no routes");
    for route in &routes {
        let parents = &route["status"]["parents"];
        ensure!(
            parents.as_array().is_some_and(|parents| parents.len() == 1),
            "{} should have 1 parent: {parents}",
            route["metadata"]["name"]
        );
        for condition in ["Accepted", "ResolvedRefs"] {
            is_true(route, &parents[0]["conditions"], condition)?;
        }
    }
    Ok(())
}

/// A Gateway's fleet objects of the given kinds, and their pods.
pub(super) fn made_for(scene: &Scene, gateway: &str, kinds: &str) -> Result<Vec<Value>> {
    let mut found = scene.list(&["-n", NAMESPACE, kinds, "-l", "projectsesame.io/fleet"])?;
    // ServiceAccounts have no label with the Gateway's name, and pods no owner reference to it.
    found.retain(|object| {
        let metadata = &object["metadata"];
        metadata["labels"]["gateway.networking.k8s.io/gateway-name"] == gateway
            || metadata["ownerReferences"][0]["name"] == gateway
    });
    Ok(found)
}

/// A Gateway's only fleet object of a kind.
pub(super) fn one_made_for(scene: &Scene, gateway: &str, kind: &str) -> Result<Value> {
    let mut found = made_for(scene, gateway, kind)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        number => bail!("expected 1 {kind} for {gateway}, got {number}"),
    }
}

/// Deletes a Gateway and its routes, and waits until all their objects are removed. Returns the time it took.
pub(super) fn delete(scene: &Scene, gateway: &str) -> Result<Duration> {
    let of = format!("of={gateway}");
    scene.kubectl(&["-n", NAMESPACE, "delete", "httproutes", "-l", &of])?;
    scene.kubectl(&["-n", NAMESPACE, "delete", "gateway", gateway])?;
    let ours = format!(" {NAMESPACE}/{gateway}-");
    let look = || {
        let everything = scene.everything()?;
        let left: Vec<&String> = everything
            .iter()
            .filter(|one| one.contains(&ours))
            .collect();
        ensure!(left.is_empty(), "objects of {gateway} remain: {left:?}");
        let labelled = made_for(scene, gateway, "all,secrets,configmaps,serviceaccounts")?;
        ensure!(
            labelled.is_empty(),
            "{} labelled objects of {gateway} remain",
            labelled.len()
        );
        Ok(())
    };
    until(&format!("{gateway} is removed"), END, look).map(|((), took)| took)
}

/// Waits until exactly this number of Envoys exists, all ready and none outdated or terminating.
pub(super) fn rolled_out(
    scene: &Scene,
    gateway: &str,
    replicas: usize,
    old: &[String],
) -> Result<Duration> {
    let look = || {
        let workload = one_made_for(scene, gateway, "deployments,daemonsets")?;
        ensure!(
            workload["status"]["observedGeneration"] == workload["metadata"]["generation"],
            "the workload hasn't been observed yet"
        );
        let pods = made_for(scene, gateway, "pods")?;
        let ready = pods.iter().filter(|pod| is_ready(pod)).count();
        let gone = old
            .iter()
            .all(|old| pods.iter().all(|pod| name(pod) != *old));
        ensure!(
            pods.len() == replicas && ready == replicas && gone,
            "{} pods, {ready} ready, expected {replicas}",
            pods.len()
        );
        Ok(())
    };
    until(
        &format!("{gateway} has {replicas} Envoys and no others"),
        ROLLED,
        look,
    )
    .map(|((), took)| took)
}

/// The names of a Gateway's Envoys.
pub(super) fn envoys(scene: &Scene, gateway: &str) -> Result<Vec<String>> {
    let pods = made_for(scene, gateway, "pods")?;
    let first = pods.first().context("no Envoys")?;
    ensure!(!name(first).is_empty(), "a pod without a name");
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
