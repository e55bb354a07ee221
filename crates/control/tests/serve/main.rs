//! Replicas over a real API server and real streams, with fake Envoys.
//!
//! No pods run: the tests write the statuses of Deployments and Services that a cluster would write.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

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
    // Its pods don't run yet.
    rig.until("the Gateway waits", async || {
        let gateway = rig.get("gateways", "web").await;
        condition(&gateway["status"], "Accepted") == "True"
            && condition(&gateway["status"], "Programmed") == "False"
    })
    .await;
    rig.play_cluster("web", "192.0.2.7").await;
    rig.until("the Gateway is programmed", async || {
        let gateway = rig.get("gateways", "web").await;
        condition(&gateway["status"], "Programmed") == "True"
            && gateway["status"]["addresses"]
                == json!([{"type": "IPAddress", "value": "192.0.2.7"}])
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
    let first = rig.replica("one").await;
    rig.until("the Deployment is there", async || {
        !rig.owned("web").await.is_empty()
    })
    .await;
    rig.play_cluster("web", "192.0.2.8").await;
    rig.until("the Gateway is programmed", async || {
        let gateway = rig.get("gateways", "web").await;
        condition(&gateway["status"], "Programmed") == "True"
    })
    .await;
    rig.settled().await;
    first.shutdown().await;
    let before = rig.versions().await;
    let second = rig.replica("two").await;
    rig.leads(&second).await;
    // Writes are in order: once a new route's status is written, all earlier writes are done.
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
async fn a_leader_that_dies_is_followed_and_nobody_else_writes() {
    let rig = Rig::new().await;
    rig.gateway("web").await;
    rig.service("shop").await;
    let first = rig.replica("one").await;
    rig.leads(&first).await;
    let second = rig.replica("two").await;
    let envoy = rig.envoy(&second, "web").await;
    envoy
        .until(|state| state.names(Listener).len() == 1)
        .await
        .unwrap();
    assert!(!rig.says_it_leads(&second).await);
    // As after kill -9: the Lease isn't released.
    drop(first);
    rig.route("shop", "web", "shop").await;
    envoy
        .until(|state| state.names(Cluster).len() == 1)
        .await
        .unwrap();
    // The other replica writes.
    rig.until_accepted("shop").await;
    assert!(rig.says_it_leads(&second).await && envoy.state().connected());
    second.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_there_is_served_while_the_api_server_is_away() {
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
    // An Envoy that connects now is served, too.
    let late = rig.envoy_again(&replica, "web").await;
    late.until(|state| state.names(Cluster).len() == 1)
        .await
        .unwrap();
    rig.until("readyz reports it", async || {
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
async fn an_envoy_of_another_fleet_is_refused() {
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
