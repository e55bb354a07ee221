//! NetworkPolicies, enforced as by a network plugin.
//!
//! In: a scene with Sesame. Out: with its NetworkPolicy and that of its Envoys, new Envoys work, and connections from other
//! pods to other ports are dropped.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::network::Network;
use super::scene::{Scene, until};
use super::shop;
use crate::install;

/// The name of the Gateway, its class and the class's settings.
const NAME: &str = "restricted";

/// The nftables table with the rules.
const TABLE: &str = "ip sesame_policies";

/// Selects Sesame's pods.
const SESAME: &str = "app.kubernetes.io/name=sesame,!projectsesame.io/fleet";

/// Time after which a connection counts as dropped.
const DROPPED: Duration = Duration::from_secs(1);

/// Time limit for a new Envoy to serve.
const REPLACED: Duration = Duration::from_secs(120);

/// Runs the test.
pub(super) fn policies(scene: &Scene) -> Result<String> {
    shop::open(scene)?;
    scene.apply(&class())?;
    let mut gateway = shop::gateway(NAME, json!({}));
    gateway[0]["spec"]["gatewayClassName"] = json!(NAME);
    scene.apply(&gateway)?;
    let address = shop::programmed(scene, NAME)?;
    let request = shop::request(address, &shop::host(NAME));
    shop::served(scene, &request, "")?;

    let plugin = Plugin(scene);
    let rules = plugin.enforce()?;
    let stranger = pods(scene, Some(shop::NAMESPACE), "app=shop")?;
    let stranger = stranger.first().context("the shop has no pod")?;
    let stranger = Scene::process(stranger, "envoy")?;
    let stranger = Network::new(format!("/proc/{stranger}/ns/net").into());
    let serves = |version: &str| {
        let response = stranger.send(&request)?;
        let found = response.header(shop::VERSION);
        ensure!(
            found == version,
            "{} with version {found:?}",
            response.status
        );
        Ok(())
    };
    serves("0").context("a request from a pod")?;
    let sesame = pods(scene, Some(install::NAMESPACE), SESAME)?;
    let envoys = shop::made_for(scene, NAME, "pods")?;
    for (pod, port) in [
        (&sesame, json!("xds")),
        // Nothing listens there, so without a policy the connection would be refused.
        (&envoys, json!(9)),
    ] {
        let pod = pod.first().context("no pod")?;
        let address = SocketAddr::new(ip(pod)?, number(pod, &port)?);
        ensure!(
            is_dropped(&stranger, address)?,
            "a connection to {address} wasn't dropped"
        );
    }

    for pod in &envoys {
        let name = pod["metadata"]["name"].as_str().unwrap_or_default();
        scene.kubectl(&["-n", shop::NAMESPACE, "delete", "pod", name])?;
    }
    shop::change(scene, NAME, "1")?;
    let (_, took) = until("a new Envoy serves a change", REPLACED, || {
        plugin.enforce()?;
        serves("1")
    })?;
    drop(plugin);
    shop::delete(scene, NAME)?;
    scene.kubectl(&["delete", "gatewayclass", NAME])?;
    Ok(format!(
        "{rules} rules; a new Envoy served a change after {:.0} s",
        took.as_secs_f32()
    ))
}

/// A GatewayClass whose Envoys have a NetworkPolicy.
fn class() -> [Value; 2] {
    [
        json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": { "name": NAME, "namespace": shop::NAMESPACE },
            "data": { "configuration.yaml": "envoy: {networkPolicy: true}" },
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": { "name": NAME },
            "spec": {
                "controllerName": "projectsesame.io/gateway-controller",
                "parametersRef": { "group": "", "kind": "ConfigMap", "name": NAME, "namespace": shop::NAMESPACE },
            },
        }),
    ]
}

/// Enforces the cluster's NetworkPolicies for connections between pods, until dropped.
struct Plugin<'a>(&'a Scene);

impl Plugin<'_> {
    /// Enforces the current policies on the current pods. Returns the number of rules.
    fn enforce(&self) -> Result<usize> {
        let mut accepted = String::new();
        let mut dropped = String::new();
        for policy in self.0.list(&["-A", "networkpolicies"])? {
            let namespace = policy["metadata"]["namespace"].as_str();
            let spec = &policy["spec"];
            ensure!(spec["policyTypes"] == json!(["Ingress"]), "{spec}");
            for pod in pods(self.0, namespace, &selector(&spec["podSelector"])?)? {
                let to = ip(&pod)?;
                writeln!(dropped, "ip daddr {to} drop")?;
                for rule in items(&spec["ingress"]) {
                    let from = self.sources(&rule["from"])?;
                    for port in items(&rule["ports"]) {
                        let protocol = port["protocol"].as_str().context("no protocol")?;
                        let protocol = protocol.to_lowercase();
                        let port = number(&pod, &port["port"])?;
                        writeln!(
                            accepted,
                            "ip daddr {to} {from} {protocol} dport {port} accept"
                        )?;
                    }
                }
            }
        }
        // Connections from the node, such as probes, don't pass this hook.
        self.nft(&format!(
            "table {TABLE}\ndelete table {TABLE}\ntable {TABLE} {{\nchain pods {{\n\
             type filter hook forward priority 10;\nct state established,related accept\n{accepted}{dropped}}}\n}}\n"
        ))?;
        Ok(accepted.lines().count())
    }

    /// The condition on the source of connections.
    fn sources(&self, from: &Value) -> Result<String> {
        let mut sources = Vec::new();
        for peer in items(from) {
            ensure!(peer["namespaceSelector"] == json!({}), "{peer}");
            for pod in pods(self.0, None, &selector(&peer["podSelector"])?)? {
                sources.push(ip(&pod)?.to_string());
            }
        }
        Ok(match sources.is_empty() {
            true if from.is_null() => String::new(),
            // No pod: an address that isn't used.
            true => "ip saddr 192.0.2.1".to_owned(),
            false => format!("ip saddr {{ {} }}", sources.join(", ")),
        })
    }

    fn nft(&self, rules: &str) -> Result<()> {
        let mut nft: Command = self.0.cluster.command(Path::new("nft"));
        let mut nft = nft.args(["-f", "-"]).stdin(Stdio::piped()).spawn()?;
        let mut stdin = nft.stdin.take().context("no standard input")?;
        stdin.write_all(rules.as_bytes())?;
        drop(stdin);
        ensure!(nft.wait()?.success(), "nft failed with:\n{rules}");
        Ok(())
    }
}

impl Drop for Plugin<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.nft(&format!("table {TABLE}\ndelete table {TABLE}\n")) {
            eprintln!("cannot remove the rules: {error:#}");
        }
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

/// A label selector in kubectl's format.
fn selector(selector: &Value) -> Result<String> {
    let labels = selector["matchLabels"].as_object().into_iter().flatten();
    let mut out: Vec<String> = labels
        .map(|(name, value)| format!("{name}={}", value.as_str().unwrap_or_default()))
        .collect();
    for expression in items(&selector["matchExpressions"]) {
        let key = expression["key"].as_str().unwrap_or_default();
        match expression["operator"].as_str() {
            Some("Exists") => out.push(key.to_owned()),
            Some("DoesNotExist") => out.push(format!("!{key}")),
            other => bail!("operator {other:?}"),
        }
    }
    Ok(out.join(","))
}

/// The pods with an address; of all namespaces if `None`.
fn pods(scene: &Scene, namespace: Option<&str>, labels: &str) -> Result<Vec<Value>> {
    let namespace = namespace.map_or_else(|| "-A".to_owned(), |name| format!("--namespace={name}"));
    let mut pods = scene.list(&["pods", &namespace, "-l", labels])?;
    pods.retain(|pod| pod["status"]["podIP"].is_string());
    Ok(pods)
}

fn ip(pod: &Value) -> Result<IpAddr> {
    let ip = pod["status"]["podIP"].as_str();
    ip.context("a pod without an address")?
        .parse()
        .context("an invalid address")
}

/// The number of a pod's port, which may be a name.
fn number(pod: &Value, port: &Value) -> Result<u16> {
    let mut ports = items(&pod["spec"]["containers"])
        .iter()
        .chain(items(&pod["spec"]["initContainers"]))
        .flat_map(|container| items(&container["ports"]));
    let mut named = || ports.find(|candidate| candidate["name"] == *port);
    let number = port.as_u64().or_else(|| named()?["containerPort"].as_u64());
    let number = number.with_context(|| format!("no port {port}"))?;
    Ok(u16::try_from(number)?)
}

/// Whether a connection gets no response.
fn is_dropped(from: &Network, to: SocketAddr) -> Result<bool> {
    let connecting = from.spawn(move |runtime| {
        runtime.block_on(async { timeout(DROPPED, TcpStream::connect(to)).await.is_err() })
    });
    connecting
        .join()
        .unwrap_or_else(|_| bail!("the thread panicked"))
}
