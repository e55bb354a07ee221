//! Watches a fake API server that refuses requests for a while.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::kube::testing;

/// The verbs that are currently refused: `list`, `watch`; `crd` if the kind doesn't exist.
type Refused = Arc<Mutex<BTreeSet<&'static str>>>;

/// Serves until the runtime is dropped.
async fn api_server(refused: Refused) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(respond(stream, Arc::clone(&refused)));
        }
    });
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    Client::try_from(config).unwrap()
}

async fn respond(mut stream: TcpStream, refused: Refused) {
    let mut request = Vec::new();
    while !request.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else {
            return;
        };
        request.push(byte);
    }
    let line = String::from_utf8_lossy(&request)
        .lines()
        .next()
        .map(str::to_owned);
    let verb = match line.unwrap().contains("watch=true") {
        true => "watch",
        false => "list",
    };
    let (code, body) = if refused.lock().unwrap().contains("crd") {
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no kind","reason":"NotFound","code":404}"#;
        ("404 Not Found", status)
    } else if refused.lock().unwrap().contains(verb) {
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no right","reason":"Forbidden","code":403}"#;
        ("403 Forbidden", status)
    } else if verb == "watch" {
        // The watch ends, so the next one can be refused.
        ("200 OK", "")
    } else {
        let list = r#"{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"5"},"items":[]}"#;
        ("200 OK", list)
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {code}\r\ncontent-type: application/json\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n"
    );
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
}

#[tokio::test]
async fn a_refused_watch_recovers() {
    let refused = Refused::default();
    let client = api_server(Arc::clone(&refused)).await;
    let (sender, mut events) = mpsc::channel(1);
    let task = watch(
        client,
        testing::config(),
        ObjectKind::ConfigMap,
        None,
        sender,
    );
    let task = tokio::spawn(task);
    let is_list = |event: &Option<ObjectEvent>| {
        matches!(
            event,
            Some(ObjectEvent::Listed(ObjectKind::ConfigMap, None, _))
        )
    };

    let first = events.recv().await;
    assert!(is_list(&first), "{first:?}");
    // A short refusal isn't reported and is followed by a new list.
    refused.lock().unwrap().insert("watch");
    let relist = events.recv().await;
    assert!(is_list(&relist), "{relist:?}");
    // A lasting refusal is reported, and so is the recovery.
    refused.lock().unwrap().insert("list");
    let refusal = events.recv().await;
    let reported = matches!(&refusal, Some(ObjectEvent::Unwatchable(_, None, reason)) if reason.contains("no right"));
    assert!(reported, "{refusal:?}");
    refused.lock().unwrap().clear();
    let recovered = loop {
        match events.recv().await {
            Some(ObjectEvent::Unwatchable(..)) => {}
            other => break other,
        }
    };
    assert!(is_list(&recovered), "{recovered:?}");
    task.abort();
}

/// The cost of a missing CRD is a request now and then.
#[tokio::test]
async fn a_missing_crd_is_reported_and_rarely_looked_for() {
    let refused = Refused::default();
    refused.lock().unwrap().insert("crd");
    let client = api_server(refused).await;
    let (sender, mut events) = mpsc::channel(1);
    let kind = ObjectKind::TcpRoute(None);
    let task = tokio::spawn(watch(client, testing::config(), kind, None, sender));
    let report = events.recv().await;
    let reported = matches!(&report, Some(ObjectEvent::Unwatchable(_, None, reason)) if reason.contains("no kind"));
    assert!(reported, "{report:?}");
    let more = tokio::time::timeout(RELIST_DELAY * 2, events.recv()).await;
    assert!(more.is_err(), "{more:?}");
    task.abort();
}
