//! Watches at an API server that refuses for a while: a socket that answers as one.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::kube::testing;

/// What is refused now: `list`, `watch`.
type Refused = Arc<Mutex<BTreeSet<&'static str>>>;

/// Answers until dropped with the runtime.
async fn api_server(refused: Refused) -> Client {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer(stream, Arc::clone(&refused)));
        }
    });
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    Client::try_from(config).unwrap()
}

async fn answer(mut stream: TcpStream, refused: Refused) {
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
    let (code, body) = if refused.lock().unwrap().contains(verb) {
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no right","reason":"Forbidden","code":403}"#;
        ("403 Forbidden", status)
    } else if verb == "watch" {
        // It is granted, and then taken away: the watch ends, and the next one is refused.
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
async fn a_watch_that_is_refused_for_a_while_is_not_hidden_for_ever() {
    let refused = Refused::default();
    let client = api_server(Arc::clone(&refused)).await;
    let (out, mut news) = mpsc::channel(1);
    let watching = watch(client, testing::config(), Kind::ConfigMap, None, out);
    let watching = tokio::spawn(watching);
    let all = |news: &Option<News>| matches!(news, Some(News::All(Kind::ConfigMap, None, _)));

    let first = news.recv().await;
    assert!(all(&first), "{first:?}");
    // A short refusal, as of an API server that has just started, is not reported; the list after it is.
    refused.lock().unwrap().insert("watch");
    let again = news.recv().await;
    assert!(all(&again), "{again:?}");
    // A lasting refusal is reported, and so is its end.
    refused.lock().unwrap().insert("list");
    let hidden = news.recv().await;
    let told = matches!(&hidden, Some(News::Hidden(_, None, why)) if why.contains("no right"));
    assert!(told, "{hidden:?}");
    refused.lock().unwrap().clear();
    let over = loop {
        match news.recv().await {
            Some(News::Hidden(..)) => {}
            other => break other,
        }
    };
    assert!(all(&over), "{over:?}");
    watching.abort();
}
