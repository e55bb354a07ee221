//! Foreign parts of a status.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::value::RawValue;
use serde_json::{Value, json};
use sesame_api::{Kind, ObjectStatus};

use crate::cluster::{
    Cluster, cluster, condition, gateway_spec, gateway_status, our_parents, route_status, until,
};

/// Another controller's entry.
fn foreign_entry(parent: &str) -> Value {
    json!({"controllerName": "example.com/other", "parentRef": {"name": parent, "port": 7},
        "conditions": [foreign_condition()]})
}

fn foreign_condition() -> Value {
    json!({"type": "example.com/Seen", "status": "Unknown", "observedGeneration": 1,
        "lastTransitionTime": "2001-02-03T04:05:06Z", "reason": "Seeded", "message": "é <&>"})
}

/// The JSON of each foreign item of a list.
fn foreign_items(list: &RawValue, is_foreign: impl Fn(&Value) -> bool) -> Vec<String> {
    let items: Vec<&RawValue> = serde_json::from_str(list.get()).unwrap();
    let foreign = items.iter().map(|item| item.get().to_owned());
    foreign
        .filter(|text| is_foreign(&serde_json::from_str(text).unwrap()))
        .collect()
}

fn fields(raw: &RawValue) -> BTreeMap<String, &RawValue> {
    serde_json::from_str(raw.get()).unwrap()
}

#[tokio::test]
async fn entries_of_other_controllers_are_kept_byte_for_byte() {
    let cluster = cluster("foreign-entries").await;
    let key = cluster.route("r");
    cluster.create_route("r").await;
    let seed = json!([{"op": "add", "path": "/status",
        "value": {"parents": [foreign_entry("a"), foreign_entry("b")]}}]);
    cluster.patch_status(&key, &seed).await.unwrap();
    let foreign = async || {
        let status = cluster.get(&key).await.status.unwrap();
        let foreign = |entry: &Value| entry["controllerName"] == "example.com/other";
        foreign_items(fields(&status)["parents"], foreign)
    };
    let before = foreign().await;
    assert_eq!(before.len(), 2);

    let replica = cluster.leader(&[(key.clone(), route_status(&["g", "h"], 1))]);
    let has_entries = async |parents: &[(&str, i64)]| {
        let parents: Vec<_> = parents.iter().map(|(p, n)| ((*p).to_owned(), *n)).collect();
        until("the entries", async || {
            our_parents(&cluster.status(&key).await) == parents
        })
        .await;
        assert_eq!(foreign().await, before);
    };
    has_entries(&[("g", 1), ("h", 1)]).await;
    let spec = json!({"spec": {"hostnames": ["example.com"]}});
    cluster.patch(&key, &spec).await;
    replica.set_desired(&key, &route_status(&["h"], 2));
    has_entries(&[("h", 2)]).await;
    replica.writer.set_desired(key.clone(), None);
    has_entries(&[]).await;
}

#[tokio::test]
async fn foreign_conditions_of_a_gateway_and_its_listeners_are_kept_byte_for_byte() {
    let cluster = cluster("foreign-conditions").await;
    let key = cluster.key(Kind::Gateway, "g");
    cluster.create(Kind::Gateway, "g", gateway_spec()).await;
    let replica = cluster.leader(&[(key.clone(), gateway_status(0, 1))]);
    replica.settle(1).await;
    let seed = json!([
        {"op": "add", "path": "/status/conditions/-", "value": foreign_condition()},
        {"op": "add", "path": "/status/listeners/0/conditions/0", "value": foreign_condition()},
    ]);
    cluster.patch_status(&key, &seed).await.unwrap();
    let foreign = async || {
        let status = cluster.get(&key).await.status.unwrap();
        let is_foreign = |condition: &Value| condition["type"] == "example.com/Seen";
        let status = fields(&status);
        let mut foreign = foreign_items(status["conditions"], is_foreign);
        let listeners: Vec<&RawValue> = serde_json::from_str(status["listeners"].get()).unwrap();
        foreign.extend(foreign_items(
            fields(listeners[0])["conditions"],
            is_foreign,
        ));
        foreign
    };
    let before = foreign().await;
    assert_eq!(before.len(), 2);
    let spec = json!({"spec": {"listeners": [
        {"name": "http", "port": 80, "protocol": "HTTP", "hostname": "example.com"}
    ]}});
    cluster.patch(&key, &spec).await;
    replica.set_desired(&key, &gateway_status(3, 2));
    until("the Gateway is current", async || {
        let status = cluster.status(&key).await;
        let ours = |list: &Value| {
            let mut ours = list.as_array().unwrap().iter();
            ours.all(|c| c["type"] == "example.com/Seen" || c["observedGeneration"] == 2)
        };
        status["listeners"][0]["attachedRoutes"] == 3
            && ours(&status["conditions"])
            && ours(&status["listeners"][0]["conditions"])
    })
    .await;
    assert_eq!(foreign().await, before);
}

#[tokio::test]
async fn a_removed_listeners_entry_is_removed_with_its_foreign_conditions() {
    let cluster = cluster("removed-listener").await;
    let key = cluster.key(Kind::Gateway, "g");
    cluster.create(Kind::Gateway, "g", gateway_spec()).await;
    let replica = cluster.leader(&[(key.clone(), gateway_status(0, 1))]);
    replica.settle(1).await;
    let path = "/status/listeners/0/conditions/0";
    let seed = json!([{"op": "add", "path": path, "value": foreign_condition()}]);
    cluster.patch_status(&key, &seed).await.unwrap();
    let spec = json!({"spec": {"listeners": [{"name": "web", "port": 80, "protocol": "HTTP"}]}});
    cluster.patch(&key, &spec).await;
    let status = json!({
        "conditions": [condition("Accepted", "True", 2)],
        "listeners": [{"name": "web", "attachedRoutes": 0,
            "conditions": [condition("Accepted", "True", 2)]}],
    });
    let status = ObjectStatus::Gateway(serde_json::from_value(status).unwrap());
    replica.set_desired(&key, &status);
    until("the listeners match the spec", async || {
        let listeners = cluster.status(&key).await["listeners"].clone();
        listeners
            .as_array()
            .is_some_and(|l| l.len() == 1 && l[0]["name"] == "web")
    })
    .await;
    // Our conditions on the Gateway itself are removed too.
    let status = cluster.status(&key).await;
    assert_eq!(status["conditions"].as_array().unwrap().len(), 1);
    assert_eq!(status["addresses"], Value::Null);
}

/// Writes to the same object as fast as the server allows. Returns the number of writes.
async fn write_constantly(
    cluster: &Cluster,
    key: &sesame_api::ObjectKey,
    over: &AtomicBool,
) -> u64 {
    let mut count = 0;
    while !over.load(Ordering::Relaxed) {
        count += 1;
        let mut entry = foreign_entry("a");
        entry["conditions"][0]["message"] = count.to_string().into();
        let patch = json!([{"op": "replace", "path": "/status/parents/0", "value": entry}]);
        cluster.patch_status(key, &patch).await.unwrap();
    }
    count
}

#[tokio::test]
async fn our_status_is_written_despite_constant_foreign_writes() {
    let cluster = cluster("constant-writes").await;
    let key = cluster.route("r");
    cluster.create_route("r").await;
    let seed =
        json!([{"op": "add", "path": "/status", "value": {"parents": [foreign_entry("a")]}}]);
    cluster.patch_status(&key, &seed).await.unwrap();
    let over = AtomicBool::new(false);
    let ours = async {
        let replica = cluster.leader(&[(key.clone(), route_status(&["g"], 1))]);
        for round in 0..10 {
            let parent = if round % 2 == 0 { "g" } else { "h" };
            replica.set_desired(&key, &route_status(&[parent], 1));
            until("our status is written", async || {
                our_parents(&cluster.status(&key).await) == [(parent.to_owned(), 1)]
            })
            .await;
        }
        over.store(true, Ordering::Relaxed);
        replica
    };
    let (replica, writes) = tokio::join!(ours, write_constantly(&cluster, &key, &over));
    let status = cluster.status(&key).await;
    let message = &status["parents"][0]["conditions"][0]["message"];
    assert_eq!(
        message,
        &writes.to_string(),
        "the last foreign write is kept"
    );
    assert_eq!(our_parents(&status), [("h".to_owned(), 1)]);
    assert!(replica.writer.failures().is_empty());
}
