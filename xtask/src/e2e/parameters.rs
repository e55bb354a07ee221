//! Parameters for Envoys.
//!
//! In: a scene with Sesame. Out: each parameter takes effect, and invalid ones don't terminate Envoys.

use std::fs::File;
use std::io::{Read as _, Seek as _};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::load::Load;
use super::scene::{Scene, is_true, until};
use super::shop;

/// The Gateway's name.
const NAME: &str = "chosen";

/// Time limit for a parameter to take effect.
const DONE: Duration = Duration::from_secs(120);

/// Resource name of HorizontalPodAutoscalers.
const AUTOSCALERS: &str = "horizontalpodautoscalers";

/// Resource name of NetworkPolicies.
const POLICIES: &str = "networkpolicies";

/// Time between an invalid parameter and the check for terminated Envoys.
const SLIP: Duration = Duration::from_secs(5);

/// A ConfigMap with settings for Envoys.
fn parameters(name: &str, settings: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": { "name": name, "namespace": shop::NAMESPACE },
        "data": { "configuration.yaml": format!("envoy: {{{settings}}}") },
    })
}

/// The name of the class's settings.
const CLASS: &str = "class";

/// A GatewayClass whose Gateways may choose their workload.
fn class() -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": { "name": NAME },
        "spec": {
            "controllerName": "projectsesame.io/gateway-controller",
            "parametersRef": { "group": "", "kind": "ConfigMap", "name": CLASS, "namespace": shop::NAMESPACE },
        },
    })
}

/// Runs the test.
pub(super) fn chosen(scene: &Scene) -> Result<String> {
    shop::open(scene)?;
    let fields = "replicas, workload, autoscaling, networkPublishing";
    let choices = format!("gatewayChoices: {{fields: [{fields}], maxReplicas: 4}}");
    let with_policy = format!("networkPolicy: true, {choices}");
    scene.apply(&[parameters(CLASS, &with_policy), class()])?;
    let watches = ["deployments", "services", "pods", "serviceaccounts"]
        .map(|kind| Labels::watch(scene, kind));
    let watches = watches.into_iter().collect::<Result<Vec<_>>>()?;
    let choose = |text: &str| scene.apply(&[parameters(NAME, text)]);
    choose("replicas: 1")?;
    let mut gateway = shop::gateway(
        NAME,
        json!({
            "parametersRef": { "group": "", "kind": "ConfigMap", "name": NAME },
            "labels": { "example.com/team": "shop" },
        }),
    );
    gateway[0]["spec"]["gatewayClassName"] = json!(NAME);
    scene.apply(&gateway)?;
    let address = shop::programmed(scene, NAME)?;
    let request = shop::request(address, &shop::host(NAME));
    shop::served(scene, &request, "")?;
    let mut events = 0;
    for watch in watches {
        events += watch.all_labelled()?;
    }

    // The address stays the same for clients.
    let load = Load::start(&scene.network, vec![request.clone()]);
    choose("replicas: 1, workload: DaemonSet")?;
    let to = workload(scene, "daemonsets", "deployments")?;
    choose("replicas: 1, workload: Deployment")?;
    let back = workload(scene, "deployments", "daemonsets")?;
    // Invalid, and more than the class permits.
    for wrong in [
        "replicas: many",
        "replicas: 5",
        "replicas: 1, image: example.com/other:1",
    ] {
        choose(wrong)?;
        let field = if wrong.contains("image") {
            "envoy.image"
        } else {
            "replicas"
        };
        until(&format!("{wrong} is reported"), DONE, || {
            reported(scene, field)
        })?;
        sleep(SLIP);
        ensure!(
            shop::made_for(scene, NAME, "pods")?.len() == 1,
            "{wrong} started or stopped Envoys"
        );
    }
    choose("replicas: 1")?;
    shop::programmed(scene, NAME)?;
    let tally = load.stop()?;

    for most in [3, 4] {
        choose(&format!(
            "autoscaling: {{minReplicas: 1, maxReplicas: {most}, cpuPercent: 80}}"
        ))?;
        until("an autoscaler", DONE, || {
            let autoscaler = shop::one_made_for(scene, NAME, AUTOSCALERS)?;
            let found = &autoscaler["spec"]["maxReplicas"];
            ensure!(*found == most, "expected a maximum of {most}, got {found}");
            Ok(())
        })?;
    }
    choose("replicas: 1")?;
    until("no autoscaler", DONE, || {
        let left = shop::made_for(scene, NAME, AUTOSCALERS)?.len();
        ensure!(left == 0, "{left} remain");
        Ok(())
    })?;

    network_policy(scene, &choices)?;

    choose("replicas: 1, networkPublishing: {type: ClusterIPService}")?;
    let service = service(scene, "ClusterIP")?;
    let cluster: IpAddr = text(&service["spec"]["clusterIP"])?.parse()?;
    until("the Gateway has the Service's address", DONE, || {
        let address = shop::programmed(scene, NAME)?;
        ensure!(address.ip() == cluster, "the Gateway has {address}");
        Ok(())
    })?;
    let within = shop::request(SocketAddr::new(cluster, 80), &shop::host(NAME));
    shop::served(scene, &within, "")?;

    choose("replicas: 1, networkPublishing: {type: NodePortService}")?;
    let service = self::service(scene, "NodePort")?;
    let port = service["spec"]["ports"][0]["nodePort"].as_u64();
    let port = u16::try_from(port.context("no node port")?)?;
    let nodes = scene.list(&["nodes"])?;
    let node: IpAddr = text(&nodes[0]["status"]["addresses"][0]["address"])?.parse()?;
    let outside = shop::request(SocketAddr::new(node, port), &shop::host(NAME));
    shop::served(scene, &outside, "")?;

    let gone = shop::delete(scene, NAME)?;
    scene.kubectl(&["delete", "gatewayclass", NAME])?;
    Ok(format!(
        "{events} events, all with the label; switched to a DaemonSet in {:.0} s, back in {:.0} s: {tally}; ClusterIP \
         and NodePort responded; all objects removed in {:.0} s",
        to.as_secs_f32(),
        back.as_secs_f32(),
        gone.as_secs_f32()
    ))
}

/// Checks the NetworkPolicy, then removes it with these settings of the class.
fn network_policy(scene: &Scene, settings: &str) -> Result<()> {
    let policy = shop::one_made_for(scene, NAME, POLICIES)?;
    let ports = &policy["spec"]["ingress"][0]["ports"];
    let http = json!({ "port": 80, "protocol": "TCP" });
    let open = ports.as_array().is_some_and(|ports| ports.contains(&http));
    ensure!(open, "the NetworkPolicy has the ports {ports}");
    scene.apply(&[parameters(CLASS, settings)])?;
    until("no NetworkPolicy", DONE, || {
        let left = shop::made_for(scene, NAME, POLICIES)?.len();
        ensure!(left == 0, "{left} remain");
        Ok(())
    })
    .map(drop)
}

/// Waits until all Envoys belong to one kind of workload.
fn workload(scene: &Scene, kind: &str, other: &str) -> Result<Duration> {
    let look = || {
        shop::one_made_for(scene, NAME, kind)?;
        let others = shop::made_for(scene, NAME, other)?.len();
        ensure!(others == 0, "{others} {other} remain");
        let pods = shop::made_for(scene, NAME, "pods")?.len();
        ensure!(pods == 1, "expected 1 pod, got {pods}");
        Ok(())
    };
    until(&format!("{kind} instead of {other}"), DONE, look).map(|((), took)| took)
}

/// Waits until the Service has a type.
fn service(scene: &Scene, wanted: &str) -> Result<Value> {
    let look = || {
        let service = shop::one_made_for(scene, NAME, "services")?;
        let found = &service["spec"]["type"];
        ensure!(found == wanted, "the Service is of type {found}");
        Ok(service)
    };
    until(&format!("a Service of type {wanted}"), DONE, look).map(|(service, _)| service)
}

fn reported(scene: &Scene, field: &str) -> Result<()> {
    let gateway = scene.get(&["-n", shop::NAMESPACE, "gateway", NAME])?;
    let conditions = &gateway["status"]["conditions"];
    ensure!(
        is_true(&gateway, conditions, "Accepted").is_err(),
        "the invalid parameters are accepted"
    );
    let accepted = conditions
        .as_array()
        .into_iter()
        .flatten()
        .find(|one| one["type"] == "Accepted" && one["reason"] == "InvalidParameters");
    let accepted = accepted.context("no message")?;
    let message = accepted["message"].as_str().unwrap_or_default();
    ensure!(
        message.contains(field),
        "the message does not name the field: {message}"
    );
    Ok(())
}

fn text(value: &Value) -> Result<&str> {
    value.as_str().context("a field is missing")
}

/// A watch on a kind.
struct Labels {
    kind: &'static str,
    watching: Child,
    seen: File,
}

impl Labels {
    fn watch(scene: &Scene, kind: &'static str) -> Result<Self> {
        let seen = tempfile::tempfile()?;
        let line = "jsonpath={.metadata.name} {.metadata.labels.example\\.com/team}{\"\\n\"}";
        let watching = scene
            .cluster
            .kubectl()
            .args(["-n", shop::NAMESPACE, "get", kind, "--watch"])
            .args(["-o", line])
            .stdout(Stdio::from(seen.try_clone()?))
            .stderr(Stdio::null())
            .spawn()
            .context("cannot run kubectl")?;
        Ok(Self {
            kind,
            watching,
            seen,
        })
    }

    /// Stops the watch and returns the number of events for the Gateway's objects; an error if any lacked the label.
    fn all_labelled(mut self) -> Result<usize> {
        self.end();
        let mut text = String::new();
        self.seen.rewind()?;
        self.seen.read_to_string(&mut text)?;
        let ours = format!("{NAME}-");
        let seen: Vec<&str> = text
            .lines()
            .filter(|line| line.starts_with(&ours))
            .collect();
        ensure!(!seen.is_empty(), "no events about {}: {text:?}", self.kind);
        for line in &seen {
            ensure!(
                line.ends_with(" shop"),
                "{} without the label: {line}",
                self.kind
            );
        }
        Ok(seen.len())
    }

    fn end(&mut self) {
        // Fails if it has already exited.
        let _ = self.watching.kill();
        let _ = self.watching.wait();
    }
}

impl Drop for Labels {
    fn drop(&mut self) {
        self.end();
    }
}
