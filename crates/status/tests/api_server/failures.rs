//! API server failures.

use serde_json::json;
use sesame_api::Kind;
use sesame_status::{FailureReason, WriteResult};
use sesame_testkit::api_server::ApiServer;

use crate::cluster::{cluster, cluster_on, our_parents, route_status, until};

#[tokio::test]
async fn a_missing_permission_is_reported_until_it_is_granted() {
    let cluster = cluster("forbidden").await;
    let key = cluster.route("r");
    cluster.create_route("r").await;
    let server = ApiServer::shared().await.unwrap();
    let client = server.service_account("forbidden", "sesame").await.unwrap();
    let replica = cluster.replica(&client);
    replica.set_desired(&key, &route_status(&["g"], 1));
    replica.writer.set_leading(true);
    until("a failure", async || !replica.writer.failures().is_empty()).await;
    let failure = replica.writer.failures().remove(0);
    assert_eq!(
        (failure.reason, failure.objects),
        (FailureReason::Forbidden, 1)
    );
    assert!(failure.message.contains("httproutes/status"), "{failure}");
    let rbac = "/apis/rbac.authorization.k8s.io/v1/namespaces/forbidden";
    let role = json!({"metadata": {"name": "sesame"}, "rules": [
        {"apiGroups": ["gateway.networking.k8s.io"], "resources": ["httproutes/status"],
            "verbs": ["patch"]}
    ]});
    cluster.post(&format!("{rbac}/roles"), &role).await;
    let binding = json!({"metadata": {"name": "sesame"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "sesame"},
        "subjects": [{"kind": "ServiceAccount", "name": "sesame", "namespace": "forbidden"}]});
    cluster
        .post(&format!("{rbac}/rolebindings"), &binding)
        .await;
    replica.settle(2).await;
    assert_eq!(
        our_parents(&cluster.status(&key).await),
        [("g".to_owned(), 1)]
    );
    assert_eq!(
        replica
            .counters
            .writes(Kind::HTTPRoute, WriteResult::Written),
        1
    );
}

#[tokio::test]
async fn a_rejected_status_does_not_delay_other_objects() {
    let cluster = cluster("rejected").await;
    let (bad, good) = (cluster.route("bad"), cluster.route("good"));
    cluster.create_route("bad").await;
    cluster.create_route("good").await;
    // An invalid parent name.
    let replica = cluster.leader(&[(bad.clone(), route_status(&[""], 1))]);
    until("it is rejected", async || {
        !replica.writer.failures().is_empty()
    })
    .await;
    let failure = replica.writer.failures().remove(0);
    assert_eq!(
        (failure.reason, &failure.example),
        (FailureReason::Invalid, &bad)
    );
    assert!(failure.message.contains("parentRef.name"), "{failure}");
    replica.set_desired(&good, &route_status(&["g"], 1));
    until("the other is written", async || {
        our_parents(&cluster.status(&good).await) == [("g".to_owned(), 1)]
    })
    .await;
    replica.set_desired(&bad, &route_status(&["g"], 1));
    replica.settle(3).await;
    assert_eq!(
        our_parents(&cluster.status(&bad).await),
        [("g".to_owned(), 1)]
    );
}

#[tokio::test]
async fn statuses_are_written_once_the_server_recovers() {
    let server = ApiServer::start().await.unwrap();
    let cluster = cluster_on(&server, "outage").await;
    let names: Vec<_> = (0..30).map(|n| format!("r{n}")).collect();
    let mut desired = Vec::new();
    for name in &names {
        cluster.create_route(name).await;
        desired.push((cluster.route(name), route_status(&["g"], 1)));
    }
    let replica = cluster.leader(&desired);
    replica.settle(30).await;
    server.stop().await.unwrap();
    for (key, _) in &desired {
        replica.set_desired(key, &route_status(&["h"], 1));
    }
    until("the outage is reported", async || {
        let failures = replica.writer.failures();
        failures
            .iter()
            .any(|failure| failure.reason == FailureReason::Unavailable)
    })
    .await;
    server.resume().await.unwrap();
    replica.settle(60).await;
    for (key, _) in &desired {
        assert_eq!(
            our_parents(&cluster.status(key).await),
            [("h".to_owned(), 1)]
        );
    }
    let failed = replica
        .counters
        .writes(Kind::HTTPRoute, WriteResult::Failed);
    assert!(failed < 60, "{failed} requests to an unavailable server");
}
