//! Replicas with a real API server, real streams and fake Envoys.
//!
//! No pods run: the tests write the statuses of Deployments and Services.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod configuration;
mod contour;
mod default_fleet;
mod resource;
mod rig;

use serde_json::json;
use sesame_testkit::api_server::ApiServer;
use sesame_xds::ResourceType::{Cluster, Endpoint, Listener, Route};

use crate::rig::{Rig, condition};

#[tokio::test(flavor = "multi_thread")]
async fn objects_become_configuration_and_statuses() {
    let rig = Rig::new().await;
    rig.shop().await;
    let replica = rig.replica("one").await;
    let envoy = rig.envoy(&replica, "web").await;
    envoy
        .until(|state| {
            state.names(Listener).len() == 1
                && state.names(Route).len() == 1
                && state.names(Cluster).len() == 1
                && state.names(Endpoint).len() == 1
        })
        .await
        .unwrap();
    rig.until("the route is accepted", async || {
        let route = rig.get("httproutes", "shop").await;
        let parent = &route["status"]["parents"][0];
        condition(parent, "Accepted") == "True" && condition(parent, "ResolvedRefs") == "True"
    })
    .await;
    // No pods run yet.
    rig.until("the Gateway is accepted", async || {
        let gateway = rig.get("gateways", "web").await;
        condition(&gateway["status"], "Accepted") == "True"
            && condition(&gateway["status"], "Programmed") == "False"
    })
    .await;
    rig.fake_cluster_status("web", "192.0.2.7").await;
    rig.until("the Gateway is programmed", async || {
        let gateway = rig.get("gateways", "web").await;
        condition(&gateway["status"], "Programmed") == "True"
            && gateway["status"]["addresses"]
                == json!([{"type": "IPAddress", "value": "192.0.2.7", "routability": ""}])
            && gateway["status"]["listeners"][0]["attachedRoutes"] == 1
    })
    .await;
    rig.delete("gateways", "web").await;
    rig.until("the fleet's objects are gone", async || {
        rig.owned("web").await.is_empty()
    })
    .await;
    replica.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_writes_nothing() {
    let rig = Rig::new().await;
    rig.shop().await;
    rig.early_set("new", "web", None).await;
    rig.early_set("kept", "web", Some(25_000)).await;
    rig.xbackend("pods", "web", "api").await;
    let first = rig.replica("one").await;
    rig.until("the Deployment exists", async || {
        !rig.owned("web").await.is_empty()
    })
    .await;
    rig.fake_cluster_status("web", "192.0.2.8").await;
    rig.until("the Gateway is programmed", async || {
        let gateway = rig.get("gateways", "web").await;
        condition(&gateway["status"], "Programmed") == "True"
    })
    .await;
    rig.until("ports are assigned", async || {
        let (new, kept) = (
            rig.assigned_port("new").await,
            rig.assigned_port("kept").await,
        );
        new.is_some_and(|port| port != 25_000) && kept == Some(25_000)
    })
    .await;
    rig.until("the XBackend's Service exists", async || {
        rig.pod_service("pods").await.is_some()
    })
    .await;
    rig.settled().await;
    first.shutdown().await;
    let before = rig.versions().await;
    let second = rig.replica("two").await;
    rig.until_leader(&second).await;
    // Writes are ordered: once a new route's status is written, all earlier writes are done.
    rig.route("other", "web", "shop").await;
    rig.until_accepted("other").await;
    let mut after = rig.versions().await;
    after.retain(|key, _| before.contains_key(key));
    // The Gateway counts one more route.
    let gateway = ("gateways".to_owned(), "web".to_owned());
    after.remove(&gateway);
    let expected = before
        .into_iter()
        .filter(|(key, _)| *key != gateway)
        .collect();
    assert_eq!(after, expected);
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_service_of_an_xbackend_follows_it() {
    let rig = Rig::new().await;
    rig.shop().await;
    let replica = rig.replica("one").await;
    rig.until("the fleet's objects exist", async || {
        let owned = rig.owned("web").await;
        owned.iter().any(|name| name.starts_with("services/"))
    })
    .await;
    rig.forbid_services().await;
    rig.xbackend("pods", "web", "api").await;
    rig.until("the refused write is reported", async || {
        rig.xbackend_accepted("pods").await == "False NoResources"
    })
    .await;
    rig.delete("resourcequotas", "none").await;
    let selects = async |app: &str| {
        let service = rig.pod_service("pods").await;
        service.is_some_and(|service| service["spec"]["selector"] == json!({"app": app}))
    };
    rig.until("the Service exists", async || selects("api").await)
        .await;
    rig.until("the XBackend is accepted", async || {
        rig.xbackend_accepted("pods").await == "True Accepted"
    })
    .await;
    rig.xbackend("pods", "web", "other").await;
    rig.until("the Service is changed", async || selects("other").await)
        .await;
    let service = rig.pod_service("pods").await.unwrap();
    let name = service["metadata"]["name"].as_str().unwrap();
    rig.edit_service(name, json!({"selector": {"app": "edited"}}))
        .await;
    rig.until("the Service is restored", async || selects("other").await)
        .await;
    replica.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dead_leader_is_replaced_by_another_replica() {
    let rig = Rig::new().await;
    rig.gateway("web").await;
    rig.service("shop").await;
    let first = rig.replica("one").await;
    rig.until_leader(&first).await;
    let second = rig.replica("two").await;
    let envoy = rig.envoy(&second, "web").await;
    envoy
        .until(|state| state.names(Listener).len() == 1)
        .await
        .unwrap();
    assert!(!rig.reports_leader(&second).await);
    // As after kill -9: the Lease isn't released.
    drop(first);
    rig.route("shop", "web", "shop").await;
    envoy
        .until(|state| state.names(Cluster).len() == 1)
        .await
        .unwrap();
    // The other replica now writes statuses.
    rig.until_accepted("shop").await;
    assert!(rig.reports_leader(&second).await && envoy.state().connected());
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn envoys_are_served_while_the_api_server_is_down() {
    let server = ApiServer::start().await.unwrap();
    let rig = Rig::on(server).await;
    rig.shop().await;
    let replica = rig.replica("one").await;
    let envoy = rig.envoy(&replica, "web").await;
    envoy
        .until(|state| state.names(Cluster).len() == 1)
        .await
        .unwrap();
    rig.server().stop().await.unwrap();
    // A new Envoy is also served.
    let late = rig.another_envoy(&replica, "web").await;
    late.until(|state| state.names(Cluster).len() == 1)
        .await
        .unwrap();
    rig.until("readyz reports the outage", async || {
        let (status, text) = rig.readyz(&replica).await;
        status == 200 && text.contains("API server")
    })
    .await;
    rig.server().resume().await.unwrap();
    rig.service("cart").await;
    rig.route("cart", "web", "cart").await;
    envoy
        .until(|state| state.names(Cluster).len() == 2)
        .await
        .unwrap();
    assert!(envoy.state().connected());
    replica.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envoy_with_the_certificate_of_another_fleet_is_rejected() {
    let rig = Rig::new().await;
    rig.gateway("web").await;
    rig.gateway("other").await;
    let replica = rig.replica("one").await;
    let own = rig.envoy(&replica, "web").await;
    own.until(|state| state.names(Listener).len() == 1)
        .await
        .unwrap();
    let wrong = rig.envoy_with(&replica, "other", "web").await;
    wrong
        .until(|state| {
            state
                .ended()
                .is_some_and(|why| why.contains("certificate names the fleet"))
        })
        .await
        .unwrap();
    replica.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn statuses_are_shown_where_the_crd_of_a_kind_is_missing() {
    let rig = Rig::on(ApiServer::start().await.unwrap()).await;
    rig.shop().await;
    let crd = "udproutes.gateway.networking.k8s.io";
    rig.delete("customresourcedefinitions", crd).await;
    rig.until("the kind is no longer served", async || {
        !rig.serves("udproutes").await
    })
    .await;
    let overview = rig.statuses().await.unwrap().overview(10, 0);
    assert_eq!(overview.routes.len(), 1);
}
