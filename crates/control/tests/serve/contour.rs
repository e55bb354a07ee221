//! Objects of Contour's group.

use serde_json::{Value, json};
use sesame_control::serve::ContourCompat;
use sesame_testkit::api_server::Channel;
use sesame_xds::ResourceType::{Cluster, Listener};

use crate::rig::Rig;

const THEIRS: &str = "httpproxies.projectcontour.io";

fn proxy(host: &str, service: &str) -> Value {
    json!({
        "metadata": {"name": host, "annotations": {"projectcontour.io/ingress.class": "sesame"}},
        "spec": {
            "virtualhost": {"fqdn": format!("{host}.example.com")},
            "routes": [{"services": [{"name": service, "port": 80}]}],
        },
    })
}

fn ingress() -> Value {
    let backend = json!({"service": {"name": "shop", "port": {"number": 80}}});
    json!({
        "metadata": {"name": "docs"},
        "spec": {"ingressClassName": "sesame", "defaultBackend": backend},
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn contours_objects_are_served_and_their_statuses_are_written_in_mode_write() {
    let rig = Rig::new().await;
    for service in ["shop", "blog"] {
        rig.service(service).await;
    }
    rig.apply("httpproxies", proxy("ours", "shop")).await;
    rig.apply("ingresses", ingress()).await;
    // Contour's definitions aren't installed yet.
    let replica = rig.replica_beside_contour("one", ContourCompat::Read).await;
    let valid = async |plural: &str, name: &str| {
        let proxy = rig.get(plural, name).await;
        proxy["status"]["currentStatus"] == "valid"
    };
    rig.until("our own HTTPProxy is valid", async || {
        valid("httpproxies", "ours").await
    })
    .await;
    let envoy = rig.default_envoy(&replica).await;
    envoy
        .until(|state| state.names(Listener).len() == 1 && state.names(Cluster).len() == 1)
        .await
        .unwrap();
    rig.server()
        .install_definitions(Channel::Contour)
        .await
        .unwrap();
    rig.apply(THEIRS, proxy("theirs", "blog")).await;
    let status = json!({"status": {"currentStatus": "valid", "description": "by Contour"}});
    rig.status(THEIRS, "theirs", status).await;
    let before = rig.get(THEIRS, "theirs").await;
    envoy
        .until(|state| state.names(Cluster).len() == 2)
        .await
        .unwrap();
    rig.fake_default_fleet_status("192.0.2.11").await;
    let addressed = async |plural: &str, name: &str| {
        let object = rig.get(plural, name).await;
        object["status"]["loadBalancer"] == json!({"ingress": [{"ip": "192.0.2.11"}]})
    };
    rig.until("our own HTTPProxy has an address", async || {
        addressed("httpproxies", "ours").await
    })
    .await;
    // Writes are ordered: once a new HTTPProxy's status is written, all earlier writes are done.
    rig.apply("httpproxies", proxy("last", "shop")).await;
    rig.until("the last HTTPProxy has an address", async || {
        addressed("httpproxies", "last").await
    })
    .await;
    assert_eq!(rig.get(THEIRS, "theirs").await, before);
    assert!(!addressed("ingresses", "docs").await);
    replica.shutdown().await;

    let replica = rig
        .replica_beside_contour("two", ContourCompat::Write)
        .await;
    rig.until("Contour's objects have an address", async || {
        addressed(THEIRS, "theirs").await && addressed("ingresses", "docs").await
    })
    .await;
    assert!(valid(THEIRS, "theirs").await);
    // Sesame's own object replaces it.
    rig.apply("httpproxies", proxy("theirs", "blog")).await;
    rig.until("Contour's HTTPProxy is superseded", async || {
        let proxy = rig.get(THEIRS, "theirs").await;
        let error = &proxy["status"]["conditions"][0]["errors"][0];
        error["reason"] == "Superseded"
    })
    .await;
    rig.until("our own HTTPProxy takes its place", async || {
        valid("httpproxies", "theirs").await
    })
    .await;
    replica.shutdown().await;
}
