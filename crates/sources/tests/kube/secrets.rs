//! Only referenced Secrets are read.

use sesame_api::{Kind, Object, ObjectKey};
use sesame_testkit::api_server::{ApiServer, Channel};

use crate::subscriber::{Cluster, Subscriber, config, gateway, secret};

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Secret, namespace, name)
}

fn content(subscriber: &Subscriber, key: &ObjectKey) -> Option<String> {
    match subscriber.objects.get(key)? {
        Object::Secret(secret) => {
            let bytes = &secret.data.as_ref()?["content"].0;
            Some(String::from_utf8(bytes.clone()).unwrap())
        }
        _ => None,
    }
}

#[tokio::test]
async fn a_secret_is_read_while_it_is_referenced() {
    let server = ApiServer::shared().await.unwrap();
    server.install_definitions(Channel::Standard).await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    cluster.namespace("secrets").await;
    for name in ["one", "two", "unreferenced"] {
        cluster.apply(&secret("secrets", name, "first")).await;
    }
    cluster.apply(&gateway("secrets", "g", "one")).await;
    let kinds = [Kind::Gateway, Kind::Secret, Kind::ConfigMap];
    let config = config(&kinds, Some("secrets"));
    let mut subscriber = Subscriber::new(cluster.0.clone(), config);
    subscriber.synced().await;
    let (one, two) = (key("secrets", "one"), key("secrets", "two"));
    // It arrives in the first change set, with the Gateway.
    assert_eq!(content(&subscriber, &one).as_deref(), Some("first"));
    assert!(!subscriber.has(&two) && !subscriber.has(&key("secrets", "unreferenced")));

    cluster.apply(&secret("secrets", "one", "second")).await;
    cluster
        .apply(&secret("secrets", "unreferenced", "second"))
        .await;
    subscriber
        .until("a changed Secret", |received| {
            content(received, &one).as_deref() == Some("second")
        })
        .await;

    cluster.apply(&gateway("secrets", "g", "two")).await;
    subscriber
        .until("another Secret", |received| received.has(&two))
        .await;
    assert!(!subscriber.has(&one));
    cluster.delete(&secret("secrets", "two", "")).await;
    subscriber
        .until("no Secret", |received| !received.has(&two))
        .await;
    cluster.apply(&secret("secrets", "two", "again")).await;
    subscriber
        .until("the Secret again", |received| received.has(&two))
        .await;
    cluster.delete(&gateway("secrets", "g", "two")).await;
    subscriber
        .until("no objects", |received| received.objects.is_empty())
        .await;
    // One request for each of two references, and at most two per change for three changes.
    assert!(
        subscriber.counters.gets() <= 8,
        "{}",
        subscriber.counters.gets()
    );
}

#[tokio::test]
async fn a_secret_may_be_created_after_it_is_referenced() {
    let server = ApiServer::shared().await.unwrap();
    server.install_definitions(Channel::Standard).await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    cluster.namespace("later").await;
    let config = config(&[Kind::Gateway, Kind::Secret], Some("later"));
    let mut subscriber = Subscriber::new(cluster.0.clone(), config);
    subscriber.synced().await;
    cluster.apply(&gateway("later", "g", "s")).await;
    let gateway = ObjectKey::new(Kind::Gateway, "later", "g");
    subscriber
        .until("the Gateway", |received| received.has(&gateway))
        .await;
    assert!(!subscriber.has(&key("later", "s")));
    cluster.apply(&secret("later", "s", "late")).await;
    subscriber
        .until("the Secret", |received| received.has(&key("later", "s")))
        .await;
    assert_eq!(subscriber.changes_of(&gateway), 1);
}
