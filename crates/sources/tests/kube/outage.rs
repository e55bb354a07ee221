//! The server is away, and forgets.

use sesame_api::{Kind, ObjectKey};
use sesame_testkit::api_server::{ApiServer, Channel};

use crate::listener::{Cluster, Listener, config, gateway, route, secret};

const KINDS: [Kind; 4] = [
    Kind::Gateway,
    Kind::HTTPRoute,
    Kind::Namespace,
    Kind::Secret,
];

async fn filled(server: &ApiServer) -> Cluster {
    server.install_definitions(Channel::Standard).await.unwrap();
    let cluster = Cluster(server.admin().await.unwrap());
    cluster.apply(&gateway("default", "g", "s")).await;
    cluster.apply(&secret("default", "s", "first")).await;
    for name in ["r", "s", "t"] {
        cluster.apply(&route("default", name, "b")).await;
    }
    cluster
}

fn key(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::HTTPRoute, "default", name)
}

#[tokio::test]
async fn what_is_there_stays_while_the_server_is_away() {
    let server = ApiServer::start().await.unwrap();
    let cluster = filled(&server).await;
    let mut listener = Listener::new(cluster.0.clone(), config(&KINDS, None));
    listener.synced().await;
    listener
        .until("nothing is wrong", |known| known.troubles.is_empty())
        .await;
    let before = listener.told.len();

    server.stop().await.unwrap();
    listener
        .until("trouble", |known| {
            known.wrong() == ["API server: Unreachable"]
        })
        .await;
    server.resume().await.unwrap();
    listener
        .until("no trouble", |known| known.troubles.is_empty())
        .await;
    // It does not remember what it told, so everything is listed again; nothing of it is news.
    cluster.apply(&route("default", "r", "other")).await;
    cluster.delete(&route("default", "s", "b")).await;
    cluster.apply(&secret("default", "s", "second")).await;
    listener
        .until("what changed since", |known| {
            known.told.len() == before + 3 && !known.has(&key("s"))
        })
        .await;
    assert!(listener.has(&key("t")) && listener.times_told(&key("t")) == 1);
    assert_eq!(listener.times_told(&key("r")), 2);
}

#[tokio::test]
async fn a_server_that_is_away_at_the_start_is_waited_for() {
    let server = ApiServer::start().await.unwrap();
    let cluster = filled(&server).await;
    server.stop().await.unwrap();
    let mut listener = Listener::new(cluster.0.clone(), config(&KINDS, None));
    listener
        .until("trouble", |known| {
            known.wrong() == ["API server: Unreachable"]
        })
        .await;
    assert_eq!(listener.sets, 0);
    server.resume().await.unwrap();
    listener.synced().await;
    for name in ["r", "s", "t"] {
        assert!(listener.has(&key(name)), "{name}");
    }
    assert!(listener.has(&ObjectKey::new(Kind::Secret, "default", "s")));
    listener
        .until("no trouble", |known| known.troubles.is_empty())
        .await;
}

#[tokio::test]
async fn what_was_compacted_is_listed_anew() {
    // Without its cache the server has no streaming lists, and its memory is etcd's.
    let server = ApiServer::start_with(&["--watch-cache=false"])
        .await
        .unwrap();
    let cluster = filled(&server).await;
    let mut listener = Listener::new(cluster.0.clone(), config(&KINDS, None));
    listener.synced().await;
    let (before, lists) = (listener.told.len(), listener.work.lists());
    // Versions go by that no watch of ours sees.
    for content in ["a", "b", "c"] {
        cluster.apply(&secret("kube-public", "x", content)).await;
    }
    server.stop().await.unwrap();
    server.compact().await.unwrap();
    server.resume().await.unwrap();
    cluster.apply(&route("default", "r", "other")).await;
    cluster.delete(&route("default", "s", "b")).await;
    listener
        .until("what changed since", |known| {
            known.told.len() == before + 2 && !known.has(&key("s"))
        })
        .await;
    assert!(listener.work.lists() > lists);
    assert_eq!(listener.times_told(&key("t")), 1);
}
