//! The experimental channel of the Gateway API.
//!
//! In: a scene with Sesame. Out: the experimental channel is installed while Sesame runs, and its fields take effect.

use std::net::{IpAddr, SocketAddr};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::scene::{Scene, is_true, until};
use super::shop;
use crate::install::{self, Channel};

/// The Gateway's name.
const NAME: &str = "inside";

/// The port of the Gateway.
const PORT: u16 = 80;

/// Time limit for a change to take effect.
const DONE: Duration = Duration::from_secs(90);

/// The policy that forbids replacing the standard channel with the experimental one.
const SAFE_UPGRADES: &str = "safe-upgrades.gateway.networking.k8s.io";

/// How long the API server keeps enforcing a deleted policy.
const POLICY_CACHED: Duration = Duration::from_secs(2);

/// Runs the test.
pub(super) fn experimental(scene: &Scene) -> Result<String> {
    shop::open(scene)?;
    until("the experimental channel is installed", DONE, || {
        for kind in [
            "validatingadmissionpolicybindings",
            "validatingadmissionpolicies",
        ] {
            scene.kubectl(&["delete", kind, SAFE_UPGRADES, "--ignore-not-found"])?;
        }
        // The API server still enforces the policy for a while. Installing the channel installs the policy again.
        sleep(POLICY_CACHED);
        install::early_kind(&scene.cluster)?;
        install::gateway_api(&scene.cluster, Channel::Experimental)
    })?;
    until("the features of the channel are supported", DONE, || {
        let class = scene.get(&["gatewayclass", "sesame"])?;
        let features = class["status"]["supportedFeatures"].as_array();
        let mut features = features.into_iter().flatten();
        let name = "GatewayAddressRoutabilityCluster";
        ensure!(features.any(|feature| feature["name"] == name), "no {name}");
        Ok(())
    })?;
    routability(scene)?;
    external(scene)?;
    pods(scene)?;
    assigned_port(scene)?;
    traffic(scene)?;
    telemetry(scene)?;
    shop::close(scene)?;
    Ok(
        "internal and external addresses, selected Pods and an assigned port serve; policies are accepted"
            .to_owned(),
    )
}

/// Addresses inside and outside the cluster: both serve until the Gateway requests only one.
fn routability(scene: &Scene) -> Result<()> {
    let (outside, inside) = (
        json!({ "type": "IPAddress" }),
        json!({ "routability": "Cluster" }),
    );
    scene.apply(&[
        gateway(&json!([inside, outside])),
        shop::route(NAME, NAME, "1"),
    ])?;
    let both = assigned(scene, &["", "Cluster"])?;
    for address in &both {
        shop::served(scene, &shop::request(*address, &shop::host(NAME)), "1")?;
    }
    scene.apply(&[gateway(&json!([inside]))])?;
    let one = assigned(scene, &["Cluster"])?;
    ensure!(
        one[0] == both[1],
        "the cluster IP changed: {both:?}, {one:?}"
    );
    shop::served(scene, &shop::request(one[0], &shop::host(NAME)), "1")?;
    until("one Service remains", DONE, || {
        let services = shop::made_for(scene, NAME, "services")?.len();
        ensure!(services == 1, "{services} Services remain");
        Ok(())
    })?;
    shop::delete(scene, NAME)?;
    Ok(())
}

/// An XBackend gets a status.
fn external(scene: &Scene) -> Result<()> {
    let mut route = shop::route(NAME, NAME, "1");
    let group = "gateway.networking.x-k8s.io";
    route["spec"]["rules"] = json!([{
        "backendRefs": [{ "group": group, "kind": "XBackend", "name": NAME }],
    }]);
    let xbackend = json!({
        "apiVersion": format!("{group}/v1alpha1"),
        "kind": "XBackend",
        "metadata": { "name": NAME, "namespace": shop::NAMESPACE },
        "spec": {
            "type": "ExternalHostname",
            "externalHostname": { "hostname": "example.com" },
            "port": { "number": 443 },
        },
    });
    scene.apply(&[gateway(&json!([{ "type": "IPAddress" }])), xbackend, route])?;
    until("the XBackend is accepted", DONE, || {
        let xbackend = scene.get(&["-n", shop::NAMESPACE, "xbackend", NAME])?;
        let conditions = &xbackend["status"]["ancestors"][0]["conditions"];
        is_true(&xbackend, conditions, "Accepted")
    })?;
    scene.kubectl(&["-n", shop::NAMESPACE, "delete", "xbackend", NAME])?;
    shop::delete(scene, NAME)?;
    Ok(())
}

/// Pods that an XBackend selects get requests. Its Service is restored after an edit, and removed with the XBackend.
fn pods(scene: &Scene) -> Result<()> {
    let group = "gateway.networking.x-k8s.io";
    let mut route = shop::route(NAME, NAME, "3");
    route["spec"]["rules"][0]["backendRefs"] =
        json!([{ "group": group, "kind": "XBackend", "name": NAME }]);
    let xbackend = json!({
        "apiVersion": format!("{group}/v1alpha1"),
        "kind": "XBackend",
        "metadata": { "name": NAME, "namespace": shop::NAMESPACE },
        "spec": {
            "type": "EndpointSelector",
            "endpointSelector": { "matchLabels": { "app": "shop" } },
            "port": { "number": 8080 },
        },
    });
    scene.apply(&[gateway(&json!([{ "type": "IPAddress" }])), xbackend, route])?;
    let address = shop::programmed(scene, NAME)?;
    let request = shop::request(address, &shop::host(NAME));
    shop::served(scene, &request, "3")?;
    let of = format!("projectsesame.io/xbackend={NAME}");
    let services = || scene.list(&["-n", shop::NAMESPACE, "services", "-l", &of]);
    let service = services()?.pop().context("the XBackend has no Service")?;
    let name = service["metadata"]["name"].as_str().context("no name")?;
    let edit = json!({ "spec": { "selector": { "app": "other" } } }).to_string();
    let namespace = ["-n", shop::NAMESPACE];
    scene.kubectl(&[&namespace[..], &["patch", "service", name, "-p", &edit]].concat())?;
    until("the Service is restored", DONE, || {
        let service = services()?.pop().context("no Service")?;
        let selector = &service["spec"]["selector"];
        ensure!(selector["app"] == "shop", "{selector}");
        Ok(())
    })?;
    shop::served(scene, &request, "3")?;
    scene.kubectl(&[&namespace[..], &["delete", "xbackend", NAME]].concat())?;
    until("the Service is removed", DONE, || {
        ensure!(services()?.is_empty(), "it remains");
        Ok(())
    })?;
    shop::delete(scene, NAME)?;
    Ok(())
}

/// A policy for the shop's Service is accepted.
fn traffic(scene: &Scene) -> Result<()> {
    scene.apply(&[json!({
        "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
        "kind": "XBackendTrafficPolicy",
        "metadata": { "name": NAME, "namespace": shop::NAMESPACE },
        "spec": {
            "targetRefs": [{ "group": "", "kind": "Service", "name": "shop" }],
            "retryConstraint": {},
        },
    })])?;
    until("the traffic policy is accepted", DONE, || {
        let policy = scene.get(&["-n", shop::NAMESPACE, "xbackendtrafficpolicy", NAME])?;
        let ancestor = &policy["status"]["ancestors"][0];
        is_true(&policy, &ancestor["conditions"], "Accepted")
    })?;
    Ok(())
}

/// A port is assigned to a listener in an XListenerSet, and the listener serves on that port.
fn assigned_port(scene: &Scene) -> Result<()> {
    let group = "gateway.networking.x-k8s.io";
    let set = json!({
        "apiVersion": format!("{group}/v1alpha1"),
        "kind": "XListenerSet",
        "metadata": { "name": NAME, "namespace": shop::NAMESPACE },
        "spec": {
            "parentRef": { "name": NAME },
            "listeners": [{ "name": "more", "protocol": "HTTP" }],
        },
    });
    let mut gateway = gateway(&json!([{ "type": "IPAddress" }]));
    gateway["spec"]["allowedListeners"] = json!({ "namespaces": { "from": "Same" } });
    let mut route = shop::route(NAME, NAME, "2");
    route["spec"]["parentRefs"] = json!([{ "group": group, "kind": "XListenerSet", "name": NAME }]);
    scene.apply(&[gateway, set, route])?;
    let mut address = shop::programmed(scene, NAME)?;
    let (port, _) = until("a port is assigned", DONE, || {
        let set = scene.get(&["-n", shop::NAMESPACE, "xlistenerset", NAME])?;
        let status = &set["status"];
        is_true(&set, &status["conditions"], "Programmed")?;
        let port = status["listeners"][0]["port"].as_u64().context("no port")?;
        Ok(u16::try_from(port)?)
    })?;
    address.set_port(port);
    shop::served(scene, &shop::request(address, &shop::host(NAME)), "2")?;
    scene.kubectl(&["-n", shop::NAMESPACE, "delete", "xlistenerset", NAME])?;
    shop::delete(scene, NAME)?;
    Ok(())
}

/// A policy for the shop's Gateway is accepted.
fn telemetry(scene: &Scene) -> Result<()> {
    scene.apply(&[json!({
        "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
        "kind": "XTelemetryPolicy",
        "metadata": { "name": NAME, "namespace": shop::NAMESPACE },
        "spec": {
            "targetRefs": [{
                "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": shop::GATEWAY,
            }],
            "tracing": {
                "mode": "Enabled",
                "provider": { "backendRef": { "name": "shop", "port": 8080 } },
            },
        },
    })])?;
    until("the policy is accepted", DONE, || {
        let policy = scene.get(&["-n", shop::NAMESPACE, "xtelemetrypolicy", NAME])?;
        let ancestor = &policy["status"]["ancestors"][0];
        is_true(&policy, &ancestor["conditions"], "Accepted")
    })?;
    Ok(())
}

fn gateway(addresses: &Value) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": { "name": NAME, "namespace": shop::NAMESPACE },
        "spec": {
            "gatewayClassName": "sesame",
            "addresses": addresses,
            "listeners": [{ "name": "http", "port": PORT, "protocol": "HTTP" }],
        },
    })
}

/// Waits until the Gateway has an address of each routability, in this order, and returns the addresses.
fn assigned(scene: &Scene, routabilities: &[&str]) -> Result<Vec<SocketAddr>> {
    let look = || {
        let gateway = scene.get(&["-n", shop::NAMESPACE, "gateway", NAME])?;
        let status = &gateway["status"];
        for condition in ["AddressesAssigned", "Programmed"] {
            is_true(&gateway, &status["conditions"], condition)?;
        }
        let addresses = status["addresses"].as_array().context("no addresses")?;
        let found: Vec<&Value> = addresses.iter().map(|one| &one["routability"]).collect();
        ensure!(
            found == routabilities,
            "expected {routabilities:?}, got {found:?}"
        );
        let ip = |one: &Value| -> Result<SocketAddr> {
            let ip: IpAddr = one["value"].as_str().context("no value")?.parse()?;
            Ok(SocketAddr::new(ip, PORT))
        };
        addresses.iter().map(ip).collect()
    };
    until("the addresses are assigned", DONE, look).map(|(addresses, _)| addresses)
}
