//! Restarts, leader changes, recreated objects.

use serde_json::{Value, json};
use sesame_api::Kind;

use crate::cluster::{
    OURS, cluster, gateway_spec, gateway_status, our_parents, route_status, until,
};

#[tokio::test]
async fn a_restart_writes_nothing() {
    let cluster = cluster("restart").await;
    let gateway = cluster.key(Kind::Gateway, "g");
    cluster.create(Kind::Gateway, "g", gateway_spec()).await;
    let mut desired = vec![(gateway.clone(), gateway_status(20, 1))];
    for n in 0..20 {
        let name = format!("r{n}");
        cluster.create_route(&name).await;
        desired.push((cluster.route(&name), route_status(&["g", "h"], 1)));
    }
    let before = cluster.leader(&desired);
    before.settle(21).await;
    assert_eq!(before.counters.sent(), 21, "one write each");
    drop(before);
    let mut versions = Vec::new();
    for (key, _) in &desired {
        versions.push(cluster.get(key).await.metadata.resource_version);
    }
    let after = cluster.leader(&desired);
    after.settle(21).await;
    assert_eq!(
        (after.counters.comparisons(), after.counters.sent()),
        (21, 0)
    );
    for ((key, _), version) in desired.iter().zip(&versions) {
        assert_eq!(
            &cluster.get(key).await.metadata.resource_version,
            version,
            "{key}"
        );
    }
}

#[tokio::test]
async fn only_the_leader_writes_and_its_successor_continues() {
    let cluster = cluster("leader").await;
    let key = cluster.route("r");
    cluster.create_route("r").await;
    let first = cluster.leader(&[(key.clone(), route_status(&["g"], 1))]);
    let second = cluster.replica(&cluster.client);
    second.set_desired(&key, &route_status(&["g"], 1));
    second.writer.mark_complete();
    first.settle(1).await;
    assert_eq!(
        our_parents(&cluster.status(&key).await),
        [("g".to_owned(), 1)]
    );
    for replica in [&first, &second] {
        replica.set_desired(&key, &route_status(&["h"], 1));
    }
    until("the leader writes", async || first.counters.sent() == 2).await;
    assert_eq!(
        (second.counters.comparisons(), second.counters.sent()),
        (0, 0)
    );
    first.writer.set_leading(false);
    second.writer.set_leading(true);
    second.settle(1).await;
    for replica in [&first, &second] {
        replica.set_desired(&key, &route_status(&["g"], 1));
    }
    until("the new leader writes", async || {
        second.counters.sent() == 1
    })
    .await;
    until("the status is current", async || {
        our_parents(&cluster.status(&key).await) == [("g".to_owned(), 1)]
    })
    .await;
    assert_eq!(first.counters.sent(), 2);
}

#[tokio::test]
async fn entries_without_a_desired_status_are_removed() {
    let cluster = cluster("orphaned-entries").await;
    let key = cluster.route("r");
    cluster.create_route("r").await;
    let before = cluster.leader(&[(key.clone(), route_status(&["g"], 1))]);
    before.settle(1).await;
    drop(before);
    let after = cluster.leader(&[]);
    until("our entry is gone", async || {
        cluster.status(&key).await == json!({"parents": []})
    })
    .await;
    // The response may arrive later.
    until("the write is counted", async || after.counters.sent() == 1).await;
}

#[tokio::test]
async fn a_recreated_object_gets_its_own_status() {
    let cluster = cluster("recreated").await;
    let key = cluster.route("r");
    cluster.create_route("r").await;
    let replica = cluster.leader(&[(key.clone(), route_status(&["g"], 1))]);
    replica.settle(1).await;
    cluster.delete(&key).await;
    cluster.create_route("r").await;
    until("the new object has its own entries", async || {
        our_parents(&cluster.status(&key).await) == [("g".to_owned(), 1)]
    })
    .await;
}

#[tokio::test]
async fn transition_times_change_only_with_the_status() {
    let cluster = cluster("times").await;
    let key = cluster.key(Kind::Gateway, "g");
    cluster.create(Kind::Gateway, "g", gateway_spec()).await;
    let pending = cluster.status(&key).await;
    assert_eq!(
        pending["conditions"][0]["lastTransitionTime"],
        "1970-01-01T00:00:00Z"
    );
    let replica = cluster.leader(&[(key.clone(), gateway_status(0, 1))]);
    replica.settle(1).await;
    let times = async || {
        let status = cluster.status(&key).await;
        let conditions = status["conditions"].as_array().unwrap().clone();
        let times = conditions.iter().map(|c| c["lastTransitionTime"].clone());
        times.collect::<Vec<Value>>()
    };
    let first = times().await;
    assert!(
        first.iter().all(|time| time != "1970-01-01T00:00:00Z"),
        "{first:?}"
    );
    cluster
        .patch(
            &key,
            &json!({"spec": {"addresses": [{"value": "10.0.0.1"}]}}),
        )
        .await;
    replica.set_desired(&key, &gateway_status(1, 2));
    until("the status is current", async || {
        cluster.status(&key).await["listeners"][0]["attachedRoutes"] == 1
    })
    .await;
    assert_eq!(times().await, first);
}

#[tokio::test]
async fn the_status_of_a_released_gateway_is_removed() {
    let cluster = cluster("released").await;
    let key = cluster.key(Kind::Gateway, "g");
    cluster.create(Kind::Gateway, "g", gateway_spec()).await;
    let pending = cluster.status(&key).await;
    let replica = cluster.leader(&[(key.clone(), gateway_status(0, 1))]);
    replica.settle(1).await;
    assert_ne!(cluster.status(&key).await, pending);
    replica.writer.set_desired(key.clone(), None);
    until("the status is the default again", async || {
        cluster.status(&key).await == pending
    })
    .await;
}

#[tokio::test]
async fn fields_are_written_with_our_field_manager() {
    let cluster = cluster("manager").await;
    let key = cluster.route("r");
    cluster.create_route("r").await;
    let replica = cluster.leader(&[(key.clone(), route_status(&["g"], 1))]);
    replica.settle(1).await;
    let path = format!(
        "/apis/gateway.networking.k8s.io/v1/namespaces/{}/httproutes/r",
        cluster.namespace
    );
    let text = cluster
        .request(http::Method::GET, &path, "application/json", &Value::Null)
        .await;
    let object: Value = serde_json::from_str(&text.unwrap()).unwrap();
    let managers = object["metadata"]["managedFields"]
        .as_array()
        .unwrap()
        .clone();
    let ours = managers
        .iter()
        .find(|entry| entry["manager"] == "sesame")
        .unwrap();
    assert_eq!(ours["subresource"], "status");
    assert_eq!(object["status"]["parents"][0]["controllerName"], OURS);
}
