//! Objects without a Gateway, which the default fleet serves.

use serde_json::json;
use sesame_control::status_store::Severity;
use sesame_xds::ResourceType::{Cluster, Listener};

use crate::rig::Rig;

#[tokio::test(flavor = "multi_thread")]
async fn an_ingress_is_served_by_the_default_fleet() {
    let rig = Rig::new().await;
    rig.service("shop").await;
    let replica = rig.replica("one").await;
    rig.until_leader(&replica).await;
    assert!(rig.of_default_fleet().await.is_empty());
    rig.ingress("docs", "shop").await;
    let envoy = rig.default_envoy(&replica).await;
    envoy
        .until(|state| state.names(Listener).len() == 1 && state.names(Cluster).len() == 1)
        .await
        .unwrap();
    let objects = rig.of_default_fleet().await;
    for name in ["deployments/default-fleet", "services/default-fleet"] {
        assert!(objects.iter().any(|object| object == name), "{objects:?}");
    }
    let service = rig.get("services", "default-fleet").await;
    let ports = service["spec"]["ports"].as_array().unwrap();
    let ports: Vec<_> = ports.iter().map(|port| &port["port"]).collect();
    assert_eq!(ports, [80, 443]);
    rig.fake_default_fleet_status("192.0.2.9").await;
    rig.until("the Ingress has an address", async || {
        let ingress = rig.get("ingresses", "docs").await;
        ingress["status"]["loadBalancer"] == json!({"ingress": [{"ip": "192.0.2.9"}]})
    })
    .await;
    let overview = rig.statuses().await.unwrap().overview(1_000, 0);
    let mut shown = overview.ingresses.iter();
    let shown = shown.find(|ingress| ingress.addresses == ["192.0.2.9"]);
    assert_eq!(shown.unwrap().severity, Severity::Ok);
    rig.delete("ingresses", "docs").await;
    rig.until("the fleet's objects are gone", async || {
        rig.of_default_fleet().await.is_empty()
    })
    .await;
    replica.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_with_an_ingress_is_an_event() {
    let rig = Rig::new().await;
    rig.ingress("docs", "missing").await;
    let first = rig.replica("one").await;
    let reported = async || {
        let events = rig.events("docs").await;
        let reported = |event: &&String| {
            event.starts_with("Invalid: spec.rules[0]") && event.contains("missing")
        };
        events.iter().filter(reported).count()
    };
    rig.until("the missing Service is reported", async || {
        reported().await == 1
    })
    .await;
    first.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_keeps_the_default_fleet() {
    let rig = Rig::new().await;
    rig.service("shop").await;
    rig.ingress("docs", "shop").await;
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
    assert!(!rig.of_default_fleet().await.is_empty());
    let third = rig.replica("three").await;
    rig.until("the fleet's objects are gone", async || {
        rig.of_default_fleet().await.is_empty()
    })
    .await;
    third.shutdown().await;
}
