//! A Gateway of another implementation in front of Envoys: a second instance of Sesame, with another controllerName.
//!
//! In: a scene with Sesame. Out: requests reach the shop through both instances' Envoys, ports follow the served Gateway, and
//! no objects remain.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::installs;
use super::scene::{Scene, until};
use super::shop;
use crate::deploy;
use crate::install;

/// The served Gateway, its class and its configuration.
const NAME: &str = "published";

/// The second instance: its Helm release, its configuration, its namespace and its controllerName.
const OUTER: &str = "outer";
const NAMESPACE: &str = "outer-system";
const CONTROLLER: &str = "example.com/outer";

/// A port that is added to the served Gateway.
const ADDED: u16 = 8090;

/// Time limit for a change to take effect; long enough for busy machines.
const DONE: Duration = Duration::from_secs(120);

/// The kinds that Sesame creates only for this.
const KINDS: &str = "gateways,tcproutes,udproutes";

/// Runs the test.
pub(super) fn outer(scene: &Scene) -> Result<String> {
    shop::close(scene)?;
    let before = scene.settled()?;
    shop::open(scene)?;
    scene.apply(&deploy::rendered(&["envoy.publishThroughGateways=true"])?)?;
    let second = second()?;
    scene.apply(&second)?;
    let rollout = ["rollout", "status", install::DEPLOYMENT, "--timeout=180s"];
    scene.kubectl(&[&["-n", NAMESPACE], &rollout[..]].concat())?;

    publish(
        scene,
        json!({ "type": "Gateway", "gateway": { "controllerName": CONTROLLER } }),
    )?;
    let mut gateway = shop::gateway(NAME, json!({}));
    gateway[0]["spec"]["gatewayClassName"] = json!(NAME);
    scene.apply(&gateway)?;
    let address = shop::programmed(scene, NAME)?;
    let request = shop::request(address, &shop::host(NAME));
    let took = shop::served(scene, &request, "")?;
    through_the_outer_gateway(scene, address)?;
    ports(scene, address)?;

    // Sesame deletes the objects when the type changes, and the address is the Service's own.
    publish(scene, json!({ "type": "LoadBalancerService" }))?;
    until("the outer Gateway is deleted", DONE, || {
        let left = shop::made_for(scene, NAME, KINDS)?;
        ensure!(left.is_empty(), "{} objects remain", left.len());
        let classes = created_classes(scene)?;
        ensure!(classes.is_empty(), "{} classes remain", classes.len());
        let service = shop::one_made_for(scene, NAME, "services")?;
        let given = &service["status"]["loadBalancer"]["ingress"][0]["ip"];
        let address = shop::programmed(scene, NAME)?.ip();
        ensure!(
            *given == address.to_string(),
            "the Service has address {given}, the Gateway {address}"
        );
        Ok(())
    })?;
    let address = shop::programmed(scene, NAME)?;
    shop::served(scene, &shop::request(address, &shop::host(NAME)), "")?;

    shop::delete(scene, NAME)?;
    scene.kubectl(&["delete", "gatewayclass", NAME])?;
    shop::delete(scene, shop::GATEWAY)?;
    shop::close(scene)?;
    let texts: Vec<String> = second.iter().map(Value::to_string).collect();
    let delete = ["delete", "--ignore-not-found", "-f", "-"];
    install::kubectl_fed(&scene.cluster, &delete, &texts.join("\n---\n"))?;
    installs::nothing_left(scene, &before)?;
    scene.apply(&deploy::rendered(&[])?)?;
    Ok(format!(
        "served {:.1} s after the address, 1 port added, 2 removed",
        took.as_secs_f32()
    ))
}

/// The objects of the second instance.
fn second() -> Result<Vec<Value>> {
    let configuration = format!("configuration={OUTER}");
    let mut objects = deploy::rendered_as(
        OUTER,
        NAMESPACE,
        &[
            &configuration,
            "createNamespace=true",
            "crds.create=false",
            "gatewayClass.create=false",
            "ingressClass.create=false",
        ],
    )?;
    objects.push(json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "SesameConfiguration",
        "metadata": { "name": OUTER, "namespace": NAMESPACE },
        "spec": {
            "gateway": { "controllerName": CONTROLLER },
            "envoy": { "replicas": 1 },
            "ingress": { "classNames": [OUTER] },
        },
    }));
    Ok(objects)
}

/// Applies the class of the served Gateway, with these settings for its Envoys.
fn publish(scene: &Scene, publishing: Value) -> Result<()> {
    let configuration = json!({
        "apiVersion": "projectsesame.io/v1alpha1",
        "kind": "SesameConfiguration",
        "metadata": { "name": NAME, "namespace": shop::NAMESPACE },
        "spec": { "envoy": { "replicas": 1, "networkPublishing": publishing } },
    });
    let reference = json!({
        "group": "projectsesame.io",
        "kind": "SesameConfiguration",
        "name": NAME,
        "namespace": shop::NAMESPACE,
    });
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GatewayClass",
        "metadata": { "name": NAME },
        "spec": {
            "controllerName": "projectsesame.io/gateway-controller",
            "parametersRef": reference,
        },
    });
    scene.apply(&[configuration, class])
}

/// The GatewayClasses that Sesame has created.
fn created_classes(scene: &Scene) -> Result<Vec<Value>> {
    scene.list(&[
        "gatewayclasses",
        "-l",
        "app.kubernetes.io/managed-by=sesame",
    ])
}

/// Checks the objects: the address is that of the outer Gateway, whose Envoys the second instance runs.
fn through_the_outer_gateway(scene: &Scene, address: SocketAddr) -> Result<()> {
    let classes = created_classes(scene)?;
    ensure!(classes.len() == 1, "{} created classes", classes.len());
    ensure!(
        classes[0]["spec"]["controllerName"] == CONTROLLER,
        "{}",
        classes[0]
    );
    let outer = shop::one_made_for(scene, NAME, "gateways")?;
    ensure!(
        outer["spec"]["gatewayClassName"] == classes[0]["metadata"]["name"],
        "{}",
        outer["spec"]
    );
    let given = &outer["status"]["addresses"][0]["value"];
    ensure!(
        *given == address.ip().to_string(),
        "the outer Gateway has address {given}"
    );
    let service = shop::one_made_for(scene, NAME, "services")?;
    ensure!(
        service["spec"]["type"] == "ClusterIP",
        "{}",
        service["spec"]
    );
    let name = outer["metadata"]["name"].as_str().context("no name")?;
    shop::one_made_for(scene, name, "deployments").map(drop)
}

/// Adds a port to the served Gateway, then removes the last two.
fn ports(scene: &Scene, address: SocketAddr) -> Result<()> {
    let patch = |patch: Value| {
        let patch = patch.to_string();
        let args = ["patch", "gateway", NAME, "--type=json", "-p", &patch];
        scene.kubectl(&[&["-n", shop::NAMESPACE], &args[..]].concat())
    };
    let listener = json!({ "name": "added", "port": ADDED, "protocol": "HTTP" });
    // Before the listeners for TCP and UDP, so that those are the last ones.
    patch(json!([{ "op": "add", "path": "/spec/listeners/0", "value": listener }]))?;
    let added = SocketAddr::new(address.ip(), ADDED);
    shop::served(scene, &shop::request(added, &shop::host(NAME)), "")?;

    let remove = |index: u8| json!({ "op": "remove", "path": format!("/spec/listeners/{index}") });
    patch(json!([remove(4), remove(3)]))?;
    until("the routes of removed ports are deleted", DONE, || {
        let routes = shop::made_for(scene, NAME, "tcproutes,udproutes")?;
        let mut names = routes
            .iter()
            .filter_map(|route| route["metadata"]["name"].as_str());
        ensure!(
            routes.len() == 4 && names.all(|name| !name.ends_with("-9000")),
            "{} routes",
            routes.len()
        );
        Ok(())
    })
    .map(drop)
}
