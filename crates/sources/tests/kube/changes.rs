//! Changes, and nothing else, are sent.

use serde_json::json;
use sesame_api::{Kind, Object, ObjectKey};
use sesame_testkit::api_server::{ApiServer, Channel};

use crate::listener::{Cluster, Listener, config, route};

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
    let mut listener = Listener::new(cluster.0.clone(), config);
    listener.synced().await;
    assert!(listener.has(&key("before")));
    let namespace = ObjectKey::new(Kind::Namespace, "", "changes");
    assert!(listener.has(&namespace));
    assert!(!listener.has(&ObjectKey::new(Kind::Namespace, "", "default")));
    // Every namespace has a ConfigMap with certificates, which is not referenced.
    let data = |key: &ObjectKey| matches!(key.kind, Kind::Secret | Kind::ConfigMap);
    assert!(!listener.objects.keys().any(data));
    listener
        .until("the release of the CRDs", |known| {
            known.release.as_deref() == Some("v1.7.0")
        })
        .await;

    cluster.apply(&route("changes", "after", "a")).await;
    listener
        .until("a new route", |known| known.has(&key("after")))
        .await;
    cluster.apply(&route("changes", "after", "b")).await;
    listener
        .until("a changed route", |known| {
            known.changes_of(&key("after")) == 2
        })
        .await;
    let Object::HTTPRoute(after) = &listener.objects[&key("after")] else {
        panic!("no route")
    };
    assert_eq!(after.meta.generation, 2);
    assert!(!after.meta.uid.is_empty() && after.meta.resource_version.is_empty());

    cluster.delete(&route("changes", "after", "b")).await;
    listener
        .until("a deleted route", |known| !known.has(&key("after")))
        .await;
    assert!(!listener.statuses.contains_key(&key("after")));
    assert_eq!(listener.changes_of(&key("before")), 1);
    assert_eq!(listener.counters.gets(), 0);
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
    let mut listener = Listener::new(cluster.0.clone(), config);
    listener.synced().await;
    assert!(listener.statuses[&key("status")].status.is_none());

    let condition = json!({
        "type": "Accepted", "status": "True", "reason": "Accepted", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let parent = json!({"parentRef": {"name": "g"}, "controllerName": "x.example/c", "conditions": [condition]});
    let status = json!({"parents": [parent]});
    cluster.write_status(&object, status).await;
    let written = |known: &Listener| known.statuses[&key("status")].status.is_some();
    listener.until("the status", written).await;
    let live = &listener.statuses[&key("status")];
    assert!(live.status.as_ref().unwrap().get().contains("x.example/c"));
    assert_eq!(live.generation, 1);
    // Earlier changes precede this one.
    cluster.apply(&route("changes", "later", "a")).await;
    listener
        .until("another route", |known| known.has(&key("later")))
        .await;
    assert_eq!(listener.changes_of(&key("status")), 1);
}
