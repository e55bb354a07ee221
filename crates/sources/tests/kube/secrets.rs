//! Referenced Secrets are fetched, and no others.

use sesame_api::{Kind, Object, ObjectKey};
use sesame_testkit::api_server::{ApiServer, Channel};

use crate::listener::{Cluster, Listener, config, gateway, secret};

fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Secret, namespace, name)
}

fn content(listener: &Listener, key: &ObjectKey) -> Option<String> {
    match listener.objects.get(key)? {
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
    for name in ["one", "two", "unnamed"] {
        cluster.apply(&secret("secrets", name, "first")).await;
    }
    cluster.apply(&gateway("secrets", "g", "one")).await;
    let kinds = [Kind::Gateway, Kind::Secret, Kind::ConfigMap];
    let config = config(&kinds, Some("secrets"));
    let mut listener = Listener::new(cluster.0.clone(), config);
    listener.synced().await;
    let (one, two) = (key("secrets", "one"), key("secrets", "two"));
    // Together with the Gateway, in the first set.
    assert_eq!(content(&listener, &one).as_deref(), Some("first"));
    assert!(!listener.has(&two) && !listener.has(&key("secrets", "unnamed")));

    cluster.apply(&secret("secrets", "one", "second")).await;
    cluster.apply(&secret("secrets", "unnamed", "second")).await;
    listener
        .until("a changed Secret", |known| {
            content(known, &one).as_deref() == Some("second")
        })
        .await;

    cluster.apply(&gateway("secrets", "g", "two")).await;
    listener
        .until("another Secret", |known| known.has(&two))
        .await;
    assert!(!listener.has(&one));
    cluster.delete(&secret("secrets", "two", "")).await;
    listener.until("no Secret", |known| !known.has(&two)).await;
    cluster.apply(&secret("secrets", "two", "again")).await;
    listener
        .until("the Secret again", |known| known.has(&two))
        .await;
    cluster.delete(&gateway("secrets", "g", "two")).await;
    listener
        .until("no objects", |known| known.objects.is_empty())
        .await;
    // One for each of two references, and at most two for each of three changes.
    assert!(
        listener.counters.gets() <= 8,
        "{}",
        listener.counters.gets()
    );
}

#[tokio::test]
async fn a_secret_may_be_created_after_it_is_referenced() {
    let server = ApiServer::shared().await.unwrap();
    server.install_definitions(Channel::Standard).await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    cluster.namespace("later").await;
    let config = config(&[Kind::Gateway, Kind::Secret], Some("later"));
    let mut listener = Listener::new(cluster.0.clone(), config);
    listener.synced().await;
    cluster.apply(&gateway("later", "g", "s")).await;
    let gateway = ObjectKey::new(Kind::Gateway, "later", "g");
    listener
        .until("the Gateway", |known| known.has(&gateway))
        .await;
    assert!(!listener.has(&key("later", "s")));
    cluster.apply(&secret("later", "s", "late")).await;
    listener
        .until("the Secret", |known| known.has(&key("later", "s")))
        .await;
    assert_eq!(listener.changes_of(&gateway), 1);
}
