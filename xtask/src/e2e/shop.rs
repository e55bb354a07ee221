//! The shop of `deploy/example.yaml`: backends that answer, and Gateways and routes to them.
//!
//! In: a scene. Out: Gateways that answer, or are gone with all that was theirs.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};

use super::network::Ask;
use super::scene::{Scene, is_true, until};
use crate::cargo;
use crate::install;

/// Where all of it is.
pub(super) const NAMESPACE: &str = "shop";

/// The example's Gateway, and the host of its route.
pub(super) const GATEWAY: &str = "web";
pub(super) const HOST: &str = "shop.example.com";

/// How long Envoys may take from nothing to an answer. A busy machine needs long.
const START: Duration = Duration::from_secs(90);

/// How long they may take to go: the time that they give their clients.
const END: Duration = Duration::from_secs(120);

/// How long a rollout of Envoys may take: a drain for each at the worst.
const ROLLED: Duration = Duration::from_secs(240);

/// How long a route may take until it is answered.
const SERVED: Duration = Duration::from_secs(30);

/// The header by which a route's versions are told apart.
const VERSION: &str = "x-version";

/// The port of the Gateways.
const PORT: u16 = 80;

/// Applies the example; gives its Gateway's address.
pub(super) fn open(scene: &Scene) -> Result<SocketAddr> {
    install::apply(&scene.cluster, &cargo::root().join("deploy/example.yaml"))?;
    let address = programmed(scene, GATEWAY)?;
    served(scene, &ask(address, HOST), "")?;
    Ok(address)
}

/// Deletes all of it.
pub(super) fn close(scene: &Scene) -> Result<()> {
    scene
        .kubectl(&["delete", "namespace", NAMESPACE, "--ignore-not-found"])
        .map(drop)
}

/// A Gateway with one route, of the host `NAME.example.com`, in front of the shop.
pub(super) fn gateway(name: &str, infrastructure: Value) -> Vec<Value> {
    let gateway = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "gatewayClassName": "sesame",
            "infrastructure": infrastructure,
            "listeners": [{ "name": "http", "port": PORT, "protocol": "HTTP" }],
        },
    });
    vec![gateway, route(name, name, "0")]
}

/// A route of a Gateway's, of the host `NAME.example.com`, whose answers have a version.
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

/// Makes the answers of a route have another version.
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

/// A request for a host's first page.
pub(super) fn ask(address: SocketAddr, host: &str) -> Ask {
    Ask {
        address,
        host: host.to_owned(),
        path: "/".to_owned(),
    }
}

/// Waits until a Gateway is programmed as it stands; gives its address.
pub(super) fn programmed(scene: &Scene, gateway: &str) -> Result<SocketAddr> {
    let look = || {
        let gateway = scene.get(&["-n", NAMESPACE, "gateway", gateway])?;
        let status = &gateway["status"];
        is_true(&gateway, &status["conditions"], "Programmed")?;
        let address = status["addresses"][0]["value"]
            .as_str()
            .context("a Gateway that is programmed has no address")?;
        let address: IpAddr = address
            .parse()
            .with_context(|| format!("{address:?} is no address"))?;
        Ok(SocketAddr::new(address, PORT))
    };
    until(&format!("{gateway} is programmed"), START, look).map(|(address, _)| address)
}

/// Waits until a request is answered in a version (empty: any); says how long that took.
pub(super) fn served(scene: &Scene, ask: &Ask, version: &str) -> Result<Duration> {
    let look = || {
        let answer = scene.ask(ask)?;
        ensure!(answer.status == 200, "{} {:?}", answer.status, answer.body);
        let found = answer.header(VERSION);
        ensure!(
            version.is_empty() || found == version,
            "version {found}, not {version}"
        );
        Ok(())
    };
    until(&format!("{} is served", ask.host), SERVED, look).map(|((), took)| took)
}

/// Whether the statuses of all routes of a Gateway are what they should be now.
pub(super) fn statuses_are_right(scene: &Scene, gateway: &str) -> Result<()> {
    let of = format!("of={gateway}");
    let routes = scene.list(&["-n", NAMESPACE, "httproutes", "-l", &of])?;
    ensure!(!routes.is_empty(), "{gateway} has no routes");
    for route in &routes {
        let parents = &route["status"]["parents"];
        ensure!(
            parents.as_array().is_some_and(|parents| parents.len() == 1),
            "{} has another number of parents than 1: {parents}",
            route["metadata"]["name"]
        );
        for condition in ["Accepted", "ResolvedRefs"] {
            is_true(route, &parents[0]["conditions"], condition)?;
        }
    }
    Ok(())
}

/// The objects of some kinds that were made for a Gateway.
pub(super) fn made_for(scene: &Scene, gateway: &str, kinds: &str) -> Result<Vec<Value>> {
    let of = format!("gateway.networking.k8s.io/gateway-name={gateway}");
    scene.list(&["-n", NAMESPACE, kinds, "-l", &of])
}

/// The one object of a kind that was made for a Gateway.
pub(super) fn one_made_for(scene: &Scene, gateway: &str, kind: &str) -> Result<Value> {
    let mut found = made_for(scene, gateway, kind)?;
    match found.len() {
        1 => Ok(found.remove(0)),
        number => bail!("{number} {kind} for {gateway}, not 1"),
    }
}

/// Deletes a Gateway with its routes, and waits until nothing of it is left; says how long that took.
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
        ensure!(left.is_empty(), "{left:?} is left of {gateway}");
        let labelled = made_for(scene, gateway, "all,secrets,configmaps,serviceaccounts")?;
        ensure!(
            labelled.is_empty(),
            "{} labelled objects are left of {gateway}",
            labelled.len()
        );
        Ok(())
    };
    until(&format!("{gateway} is gone"), END, look).map(|((), took)| took)
}

/// Waits until there are so many Envoys, all ready, and nobody else any more: none of the old ones, none that ends.
pub(super) fn rolled_out(
    scene: &Scene,
    gateway: &str,
    replicas: usize,
    old: &[String],
) -> Result<Duration> {
    let look = || {
        let workload = one_made_for(scene, gateway, "deployments")?;
        ensure!(
            workload["status"]["observedGeneration"] == workload["metadata"]["generation"],
            "the Deployment isn't looked at yet"
        );
        let pods = made_for(scene, gateway, "pods")?;
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
