//! API server restarts, with and without its history.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use kube::Client;
use kube::client::Body;
use sesame_api::{Kind, ObjectKey};
use sesame_testkit::api_server::{ApiServer, Channel};

use crate::subscriber::{Cluster, Subscriber, config, gateway, route, secret};

const KINDS: [Kind; 4] = [
    Kind::Gateway,
    Kind::HTTPRoute,
    Kind::Namespace,
    Kind::Secret,
];

async fn populated_cluster(server: &ApiServer) -> Cluster {
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
async fn objects_stay_while_the_server_is_unreachable() {
    let server = ApiServer::start().await.unwrap();
    let cluster = populated_cluster(&server).await;
    let mut subscriber = Subscriber::new(cluster.0.clone(), config(&KINDS, None));
    subscriber.synced().await;
    subscriber
        .until("no failures", |received| received.failures.is_empty())
        .await;
    let before = subscriber.changes.len();

    server.stop().await.unwrap();
    subscriber
        .until("a failure", |received| {
            received.failing() == ["API server: Unreachable"]
        })
        .await;
    server.resume().await.unwrap();
    subscriber
        .until("no failures", |received| received.failures.is_empty())
        .await;
    // The server has lost its history, so everything is relisted. Unchanged objects don't yield changes.
    cluster.apply(&route("default", "r", "other")).await;
    cluster.delete(&route("default", "s", "b")).await;
    cluster.apply(&secret("default", "s", "second")).await;
    subscriber
        .until("the changes since", |received| {
            received.changes.len() == before + 3 && !received.has(&key("s"))
        })
        .await;
    assert!(subscriber.has(&key("t")) && subscriber.changes_of(&key("t")) == 1);
    assert_eq!(subscriber.changes_of(&key("r")), 2);
}

#[tokio::test]
async fn the_first_change_set_waits_for_an_unreachable_server() {
    let server = ApiServer::start().await.unwrap();
    let cluster = populated_cluster(&server).await;
    server.stop().await.unwrap();
    let mut subscriber = Subscriber::new(cluster.0.clone(), config(&KINDS, None));
    subscriber
        .until("a failure", |received| {
            received.failing() == ["API server: Unreachable"]
        })
        .await;
    assert_eq!(subscriber.sets, 0);
    server.resume().await.unwrap();
    subscriber.synced().await;
    for name in ["r", "s", "t"] {
        assert!(subscriber.has(&key(name)), "{name}");
    }
    assert!(subscriber.has(&ObjectKey::new(Kind::Secret, "default", "s")));
    subscriber
        .until("no failures", |received| received.failures.is_empty())
        .await;
}

#[tokio::test]
async fn a_compacted_version_causes_a_relist() {
    // Without its watch cache, the server doesn't support streaming lists but keeps etcd's history.
    let server = ApiServer::start_with(&["--watch-cache=false"])
        .await
        .unwrap();
    let cluster = populated_cluster(&server).await;
    let mut subscriber = Subscriber::new(cluster.0.clone(), config(&KINDS, None));
    subscriber.synced().await;
    let (before, lists) = (subscriber.changes.len(), subscriber.counters.lists());
    // Increases the resource version without a watch event.
    for content in ["a", "b", "c"] {
        cluster.apply(&secret("kube-public", "x", content)).await;
    }
    server.stop().await.unwrap();
    server.compact().await.unwrap();
    server.resume().await.unwrap();
    cluster.apply(&route("default", "r", "other")).await;
    cluster.delete(&route("default", "s", "b")).await;
    subscriber
        .until("the changes since", |received| {
            received.changes.len() == before + 2 && !received.has(&key("s"))
        })
        .await;
    assert!(subscriber.counters.lists() > lists);
    assert_eq!(subscriber.changes_of(&key("t")), 1);
}

/// A request and its outcome.
#[derive(Clone, Debug)]
struct Exchange {
    path: String,
    sent: Instant,
    ended: Instant,
    succeeded: bool,
    retry_after: Option<Duration>,
}

/// Number of Gateway lists answered as if the server were still initializing its storage.
const INITIALIZING: usize = 5;

/// A client that records its requests.
fn recording(client: Client) -> (Client, Arc<Mutex<Vec<Exchange>>>) {
    let recorded: Arc<Mutex<Vec<Exchange>>> = Arc::default();
    let log = recorded.clone();
    let lists = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, log, lists) = (client.clone(), log.clone(), lists.clone());
        async move {
            let (path, sent) = (request.uri().path().to_owned(), Instant::now());
            let lists_gateways = path.ends_with("/gateways");
            let response = match client.send(request).await {
                Ok(_) if lists_gateways && lists.fetch_add(1, Ordering::Relaxed) < INITIALIZING => {
                    Ok(initializing())
                }
                response => response,
            };
            let header = |response: &http::Response<Body>| {
                let value = response.headers().get("retry-after")?;
                value
                    .to_str()
                    .unwrap()
                    .parse()
                    .ok()
                    .map(Duration::from_secs)
            };
            log.lock().unwrap().push(Exchange {
                path,
                sent,
                ended: Instant::now(),
                succeeded: response.as_ref().is_ok_and(|r| r.status().is_success()),
                retry_after: response.as_ref().ok().and_then(header),
            });
            response
        }
    });
    (Client::new(service, "default"), recorded)
}

fn initializing() -> http::Response<Body> {
    let status = r#"{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 429,
        "message": "storage is (re)initializing", "details": {"retryAfterSeconds": 1}}"#;
    http::Response::builder()
        .status(429)
        .header("retry-after", "1")
        .body(Body::from(status.as_bytes().to_vec()))
        .unwrap()
}

#[tokio::test]
async fn retries_respect_retry_after_and_wait_at_most_a_second() {
    let server = ApiServer::start().await.unwrap();
    let cluster = populated_cluster(&server).await;
    server.stop().await.unwrap();
    let (client, recorded) = recording(cluster.0.clone());
    let mut subscriber = Subscriber::new(client, config(&KINDS, None));
    let (resumed, ()) = tokio::join!(server.resume(), subscriber.synced());
    resumed.unwrap();
    let mut last: HashMap<String, Exchange> = HashMap::new();
    let mut delays = Vec::new();
    let mut retries = 0;
    for exchange in recorded.lock().unwrap().clone() {
        if let Some(before) = last.get(&exchange.path) {
            let delay = exchange.sent - before.ended;
            let retry_after = before.retry_after.unwrap_or_default();
            assert!(delay >= retry_after, "{before:?} {exchange:?}");
            if !before.succeeded {
                delays.push(delay.saturating_sub(retry_after));
            }
            retries += usize::from(before.retry_after.is_some());
        }
        last.insert(exchange.path.clone(), exchange);
    }
    assert!(retries >= INITIALIZING, "{retries} retries");
    // A busy machine adds to the delays.
    delays.sort();
    let median = delays[delays.len() / 2];
    assert!(median <= Duration::from_secs(2), "{delays:?}");
}
