//! Objects without a Gateway, which the default fleet serves.

use serde_json::json;
use sesame_api::Kind;
use sesame_control::status_store::Severity;
use sesame_xds::ResourceType::{Cluster, Listener};

use crate::rig::Rig;

impl Rig {
    /// Creates an Ingress of our class that routes to a Service.
    async fn ingress(&self, name: &str, service: &str) {
        let backend = json!({"service": {"name": service, "port": {"number": 80}}});
        let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
        let host = format!("{name}.example.com");
        let spec = json!({
            "ingressClassName": "sesame",
            "rules": [{"host": host, "http": {"paths": [path]}}],
        });
        self.apply(
            "ingresses",
            json!({"metadata": {"name": name}, "spec": spec}),
        )
        .await;
    }

    /// Creates an HTTPProxy that routes to a Service.
    async fn http_proxy(&self, name: &str, service: &str) {
        let spec = json!({
            "ingressClassName": "sesame",
            "virtualhost": {"fqdn": format!("{name}.example.com")},
            "routes": [{"services": [{"name": service, "port": 80}]}],
        });
        self.apply(
            "httpproxies",
            json!({"metadata": {"name": name}, "spec": spec}),
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_default_fleet_exists_while_it_serves_objects() {
    let rig = Rig::new().await;
    rig.service("shop").await;
    let replica = rig.replica("one").await;
    rig.until_leader(&replica).await;
    assert!(rig.of_default_fleet().await.is_empty());
    rig.ingress("docs", "shop").await;
    let before = json!({"status": {"loadBalancer": {"ingress": [{"ip": "198.51.100.1"}]}}});
    rig.status("ingresses", "docs", before).await;
    rig.service("blog").await;
    rig.http_proxy("blog", "blog").await;
    let envoy = rig.default_envoy(&replica).await;
    envoy
        .until(|state| state.names(Listener).len() == 1 && state.names(Cluster).len() == 2)
        .await
        .unwrap();
    rig.until("the fleet's objects exist", async || {
        let objects = rig.of_default_fleet().await;
        let expected = ["deployments/default-fleet", "services/default-fleet"];
        let mut expected = expected.iter();
        expected.all(|name| objects.iter().any(|object| object == name))
    })
    .await;
    let service = rig.get("services", "default-fleet").await;
    let ports = service["spec"]["ports"].as_array().unwrap();
    let ports: Vec<_> = ports.iter().map(|port| &port["port"]).collect();
    assert_eq!(ports, [80, 443]);
    rig.until("the HTTPProxy is valid", async || {
        let proxy = rig.get("httpproxies", "blog").await;
        proxy["status"]["currentStatus"] == "valid"
    })
    .await;
    let ingress = rig.get("ingresses", "docs").await;
    let address = &ingress["status"]["loadBalancer"]["ingress"][0]["ip"];
    assert_eq!(address, "198.51.100.1", "kept until there is another one");
    rig.fake_default_fleet_status("192.0.2.9").await;
    rig.until("the Ingress has an address", async || {
        let ingress = rig.get("ingresses", "docs").await;
        ingress["status"]["loadBalancer"] == json!({"ingress": [{"ip": "192.0.2.9"}]})
    })
    .await;
    rig.until("the HTTPProxy has an address", async || {
        let proxy = rig.get("httpproxies", "blog").await;
        proxy["status"]["currentStatus"] == "valid"
            && proxy["status"]["loadBalancer"] == json!({"ingress": [{"ip": "192.0.2.9"}]})
    })
    .await;
    let overview = rig.statuses().await.unwrap().overview(1_000, 0);
    let shown = overview.ingresses.iter();
    let shown = shown.filter(|ingress| ingress.addresses == ["192.0.2.9"]);
    let shown: Vec<_> = shown
        .map(|shown| (shown.key.kind, shown.severity))
        .collect();
    let expected = [Kind::HTTPProxy, Kind::Ingress].map(|kind| (kind, Severity::Ok));
    assert_eq!(shown, expected);
    rig.delete("ingresses", "docs").await;
    envoy
        .until(|state| state.names(Cluster).len() == 1)
        .await
        .unwrap();
    assert!(!rig.of_default_fleet().await.is_empty());
    // A mistake doesn't delete the fleet.
    rig.http_proxy("blog", "missing").await;
    rig.until("the HTTPProxy is invalid", async || {
        let proxy = rig.get("httpproxies", "blog").await;
        proxy["status"]["currentStatus"] == "invalid"
    })
    .await;
    assert!(!rig.of_default_fleet().await.is_empty());
    rig.delete("httpproxies", "blog").await;
    rig.until("the fleet's objects are gone", async || {
        rig.of_default_fleet().await.is_empty()
    })
    .await;
    replica.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_ingresses_is_an_event_of_each() {
    let rig = Rig::new().await;
    // More names than a list in an event can hold.
    let names: Vec<String> = (0..25).map(|number| format!("docs{number}")).collect();
    for name in &names {
        rig.ingress(name, "missing").await;
    }
    let first = rig.replica("one").await;
    for name in &names {
        rig.until("the missing Service is reported", async || {
            let events = rig.events(name).await;
            let reported = |event: &&String| {
                event.starts_with("Invalid: spec.rules[0]") && event.contains("missing")
            };
            events.iter().filter(reported).count() == 1
        })
        .await;
    }
    first.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_the_default_fleet() {
    let rig = Rig::new().await;
    rig.service("shop").await;
    rig.ingress("docs", "shop").await;
    rig.http_proxy("blog", "shop").await;
    let first = rig.replica("one").await;
    rig.fake_default_fleet_status("192.0.2.10").await;
    rig.until("the Ingress has an address", async || {
        let ingress = rig.get("ingresses", "docs").await;
        ingress["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.10"
    })
    .await;
    rig.settled().await;
    first.shutdown().await;
    let before = rig.versions().await;
    let second = rig.replica("two").await;
    rig.until_leader(&second).await;
    // Writes are ordered: once a new Ingress's status is written, all earlier writes are done.
    rig.ingress("other", "shop").await;
    rig.until("the new Ingress has an address", async || {
        let ingress = rig.get("ingresses", "other").await;
        ingress["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.10"
    })
    .await;
    let mut after = rig.versions().await;
    after.retain(|key, _| before.contains_key(key));
    assert_eq!(after, before);
    second.shutdown().await;
    // Deleted while no replica runs: the next leader deletes the orphan.
    for name in ["docs", "other"] {
        rig.delete("ingresses", name).await;
    }
    rig.delete("httpproxies", "blog").await;
    assert!(!rig.of_default_fleet().await.is_empty());
    let third = rig.replica("three").await;
    rig.until("the fleet's objects are gone", async || {
        rig.of_default_fleet().await.is_empty()
    })
    .await;
    third.shutdown().await;
}
