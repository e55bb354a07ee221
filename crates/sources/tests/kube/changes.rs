//! Which changes are sent.

use serde_json::json;
use sesame_api::{Kind, Object, ObjectKey};
use sesame_testkit::api_server::{ApiServer, Channel};

use crate::subscriber::{Cluster, Subscriber, config, route};

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::HTTPRoute, "changes", name)
}

#[tokio::test]
async fn objects_are_created_changed_and_deleted() {
    let server = ApiServer::shared().await.unwrap();
    server.install_definitions(Channel::Standard).await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    cluster.namespace("changes").await;
    cluster.apply(&route("changes", "before", "a")).await;

    let config = config(&Kind::ALL, Some("changes"));
    let mut subscriber = Subscriber::new(cluster.0.clone(), config);
    subscriber.synced().await;
    assert!(subscriber.has(&key("before")));
    let namespace = ObjectKey::new(Kind::Namespace, "", "changes");
    assert!(subscriber.has(&namespace));
    assert!(!subscriber.has(&ObjectKey::new(Kind::Namespace, "", "default")));
    // Every namespace has an unreferenced ConfigMap with a CA bundle.
    let data = |key: &ObjectKey| matches!(key.kind, Kind::Secret | Kind::ConfigMap);
    assert!(!subscriber.objects.keys().any(data));
    subscriber
        .until("the release of the CRDs", |received| {
            let release = received.release.as_ref();
            release.is_some_and(|release| release.version == "v1.7.0" && !release.experimental)
        })
        .await;

    cluster.apply(&route("changes", "after", "a")).await;
    subscriber
        .until("a new route", |received| received.has(&key("after")))
        .await;
    cluster.apply(&route("changes", "after", "b")).await;
    subscriber
        .until("a changed route", |received| {
            received.changes_of(&key("after")) == 2
        })
        .await;
    let Object::HTTPRoute(after) = &subscriber.objects[&key("after")] else {
        panic!("no route")
    };
    assert_eq!(after.meta.generation, 2);
    assert!(!after.meta.uid.is_empty() && after.meta.resource_version.is_empty());

    cluster.delete(&route("changes", "after", "b")).await;
    subscriber
        .until("a deleted route", |received| !received.has(&key("after")))
        .await;
    assert!(!subscriber.statuses.contains_key(&key("after")));
    assert_eq!(subscriber.changes_of(&key("before")), 1);
    assert_eq!(subscriber.counters.gets(), 0);
}

#[tokio::test]
async fn a_written_status_is_not_a_change() {
    let server = ApiServer::shared().await.unwrap();
    server.install_definitions(Channel::Standard).await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    cluster.namespace("changes").await;
    let object = route("changes", "status", "a");
    cluster.apply(&object).await;
    let config = config(&[Kind::HTTPRoute], None);
    let mut subscriber = Subscriber::new(cluster.0.clone(), config);
    subscriber.synced().await;
    assert!(subscriber.statuses[&key("status")].status.is_none());

    let condition = json!({
        "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let parent = json!({"parentRef": {"name": "g"}, "controllerName": "x.example/c", "conditions": [condition]});
    let status = json!({"parents": [parent]});
    cluster.write_status(&object, status).await;
    let written = |received: &Subscriber| received.statuses[&key("status")].status.is_some();
    subscriber.until("the status", written).await;
    let live = &subscriber.statuses[&key("status")];
    assert!(live.status.as_ref().unwrap().get().contains("x.example/c"));
    assert_eq!(live.generation, 1);
    // Changes are sent in order, so there is no further change to the first route.
    cluster.apply(&route("changes", "later", "a")).await;
    subscriber
        .until("another route", |received| received.has(&key("later")))
        .await;
    assert_eq!(subscriber.changes_of(&key("status")), 1);
}
