use std::net::Ipv4Addr;

use futures::{SinkExt, StreamExt};
use http_body_util::{BodyExt, Empty};
use hyper::Request;
use hyper::body::Bytes;
use rustls::pki_types::ServerName;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite::Message;

use super::*;
use crate::certs::{Authority, Clients, Identity, client_config, client_config_as};

const ANY_PORT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

const PATIENCE: Duration = Duration::from_secs(20);

async fn backend() -> Backend {
    Backend::start("red", ANY_PORT).await.unwrap()
}

/// Sends a request with these headers and returns the status line, the headers and the body.
async fn send<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    line: &str,
    headers: &str,
) -> (String, Value) {
    let request =
        format!("{line} HTTP/1.1\r\nhost: a.example\r\nconnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    // Fails on a reset, or if a TLS server doesn't send `close_notify`.
    stream.read_to_string(&mut response).await.unwrap();
    let (head, body) = response.split_once("\r\n\r\n").unwrap_or_default();
    (
        head.to_owned(),
        serde_json::from_str(body).unwrap_or_default(),
    )
}

async fn get(backend: &Backend, path: &str) -> (String, Value) {
    let stream = TcpStream::connect(backend.address()).await.unwrap();
    send(stream, &format!("GET {path}"), "").await
}

#[tokio::test]
async fn answers_contain_the_request() {
    let backend = backend().await;
    let stream = TcpStream::connect(backend.address()).await.unwrap();
    let headers = "X-Two: 1\r\nx-two: 2\r\ncontent-length: 2\r\n\r\nhi";
    let (head, body) = send(stream, "POST /a/b?c=d&e", headers).await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    assert!(head.contains("content-type: application/json"), "{head}");
    let expected = serde_json::json!({
        "backend": "red",
        "method": "POST",
        "path": "/a/b?c=d&e",
        "host": "a.example",
        "headers": {
            "connection": ["close"],
            "content-length": ["2"],
            "host": ["a.example"],
            "x-two": ["1", "2"],
        },
        "protocol": "HTTP/1.1",
        "body": "hi",
        "body_length": 2,
    });
    assert_eq!(body, expected);
    let requests = backend.requests();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].header("x-two"), Some("1"));
    assert_eq!(requests[0].to_json("red"), expected);
}

#[tokio::test]
async fn http2_works_with_prior_knowledge() {
    let backend = backend().await;
    let stream = TcpStream::connect(backend.address()).await.unwrap();
    let (mut sender, connection) =
        hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
    let connection = tokio::spawn(connection);
    let request = Request::get("http://b.example/x").body(Empty::<Bytes>::new());
    let response = sender.send_request(request.unwrap()).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(body["protocol"], "HTTP/2");
    assert_eq!(
        (&body["host"], &body["path"]),
        (&"b.example".into(), &"/x".into())
    );
    connection.abort();
}

#[tokio::test]
async fn status_delay_and_headers_are_as_requested() {
    let backend = backend().await;
    let (head, body) = get(&backend, "/status/404?delay=1ms&set-header=x-a:%20b").await;
    assert!(head.starts_with("HTTP/1.1 404 Not Found\r\n"), "{head}");
    assert!(head.contains("\r\nx-a: b\r\n"), "{head}");
    assert_eq!(body["path"], "/status/404?delay=1ms&set-header=x-a:%20b");
    let (head, _) = get(&backend, "/status/204").await;
    assert!(head.starts_with("HTTP/1.1 204"), "{head}");
    let (head, body) = get(&backend, "/status/1000").await;
    assert!(head.starts_with("HTTP/1.1 400"), "{head}");
    assert_eq!(body["error"], "\"1000\" is not a status from 200 to 599");
}

#[tokio::test(start_paused = true)]
async fn a_delay_delays_the_answer() {
    let backend = backend().await;
    let before = tokio::time::Instant::now();
    get(&backend, "/?delay=30s").await;
    assert!(before.elapsed() >= Duration::from_secs(30));
}

#[tokio::test]
async fn flaky_fails_as_often_as_requested() {
    let backend = backend().await;
    let mut statuses = Vec::new();
    for _ in 0..4 {
        let (head, _) = get(&backend, "/flaky?key=a&failures=2&code=502").await;
        statuses.push(head.split(' ').nth(1).unwrap().to_owned());
    }
    assert_eq!(statuses, ["502", "502", "200", "200"]);
    let (head, _) = get(&backend, "/flaky?key=b&code=reset").await;
    assert_eq!(head, "");
    let (head, _) = get(&backend, "/flaky?key=b&code=reset").await;
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    assert_eq!(backend.count(), 6);
}

#[tokio::test]
async fn websocket_messages_are_echoed_and_stop_closes_the_socket() {
    let backend = backend().await;
    let stream = TcpStream::connect(backend.address()).await.unwrap();
    let (mut socket, _) = tokio_tungstenite::client_async("ws://a.example/ws", stream)
        .await
        .unwrap();
    for message in [Message::text("hello"), Message::binary(vec![0, 255])] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
    backend.stop().await;
    let after = timeout(PATIENCE, socket.next()).await.unwrap();
    assert!(!matches!(after, Some(Ok(_))), "{after:?}");
}

#[tokio::test]
async fn a_websocket_needs_an_upgrade_request() {
    let backend = backend().await;
    let (head, _) = get(&backend, "/ws").await;
    assert!(head.starts_with("HTTP/1.1 426"), "{head}");
    assert!(head.contains("\r\nupgrade: websocket"), "{head}");
}

#[tokio::test]
async fn answers_over_tls_contain_the_parameters() {
    let authority = Authority::new().unwrap();
    let issued = authority.issue(&["*.example.com", "127.0.0.1"]).unwrap();
    let alone = Identity::self_signed(&["www.example.com"]).unwrap();
    let roots = authority.pem();
    for (identity, roots, client) in [
        (&issued, &roots, Some(&issued)),
        (&issued, &roots, None),
        (&alone, &alone.chain, None),
    ] {
        let config = identity.server_config_for(Clients::Optional(&authority.pem()));
        let config = config.unwrap();
        let backend = Backend::start_tls("red", ANY_PORT, config).await.unwrap();
        let config = client_config_as(client, roots, &["http/1.1"]).unwrap();
        let connector = TlsConnector::from(config);
        let stream = TcpStream::connect(backend.address()).await.unwrap();
        let name = ServerName::try_from("www.example.com").unwrap();
        let stream = connector.connect(name, stream).await.unwrap();
        let (_, body) = send(stream, "GET /", "").await;
        let expected = serde_json::json!({
            "sni": "www.example.com",
            "alpn": "http/1.1",
            "client": client.map(Identity::leaf),
        });
        assert_eq!(body["tls"], expected);
    }
}

#[tokio::test]
async fn an_unknown_ca_is_not_trusted() {
    let [ours, theirs] = [(); 2].map(|()| Authority::new().unwrap());
    let config = theirs.issue(&["a.example"]).unwrap().server_config();
    let backend = Backend::start_tls("red", ANY_PORT, config.unwrap())
        .await
        .unwrap();
    let connector = TlsConnector::from(client_config(&ours.pem(), &[]).unwrap());
    let stream = TcpStream::connect(backend.address()).await.unwrap();
    let name = ServerName::try_from("a.example").unwrap();
    assert!(connector.connect(name, stream).await.is_err());
}

#[tokio::test]
async fn wait_for_returns_requests_and_records_are_bounded() {
    let backend = backend().await;
    let three = |requests: &[Received]| requests.len() >= 3;
    let asking = async {
        for path in ["/1", "/2", "/3"] {
            get(&backend, path).await;
        }
    };
    let (found, ()) = tokio::join!(backend.wait_for(PATIENCE, three), asking);
    let paths: Vec<_> = found.unwrap().into_iter().map(|r| r.path).collect();
    assert_eq!(paths, ["/1", "/2", "/3"]);
    let never = backend.wait_for(Duration::from_millis(10), |_| false).await;
    assert_eq!(never.unwrap_err().len(), 3);

    let records = Records::default();
    let one = backend.requests().remove(0);
    for _ in 0..1100 {
        records.push(one.clone());
    }
    assert_eq!((records.latest().len(), records.count()), (1000, 1100));
}

#[tokio::test]
async fn stop_leaves_no_listener_and_no_connection() {
    let backend = backend().await;
    let address = backend.address();
    let mut idle = TcpStream::connect(address).await.unwrap();
    get(&backend, "/").await;
    backend.stop().await;
    let left = timeout(PATIENCE, idle.read(&mut [0; 1])).await.unwrap();
    assert!(matches!(left, Ok(0) | Err(_)), "{left:?}");
    assert!(TcpStream::connect(address).await.is_err());
}
