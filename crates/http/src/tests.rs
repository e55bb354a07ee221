//! Tests over real connections with a paused clock: it jumps to the next timer when all tasks are idle, so timeouts
//! elapse instantly.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::service::service_fn;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_stream::wrappers::TcpListenerStream;

use super::*;

const LIMITS: Limits = Limits {
    connections: 4,
    duration: Duration::from_secs(60),
};

const GET: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

/// Serves `hello` at `/`, and never responds at `/never`.
async fn start() -> SocketAddr {
    let listener = listen((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    let address = listener.local_addr().unwrap();
    let service = service_fn(|request: Request<Incoming>| async move {
        if request.uri().path() == "/never" {
            std::future::pending::<()>().await;
        }
        Ok::<_, Infallible>(Response::new(Full::new(Bytes::from("hello"))))
    });
    tokio::spawn(serve(TcpListenerStream::new(listener), LIMITS, service));
    address
}

/// Opens a connection and sends this text.
async fn open(to: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(to).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Everything that the server sends until it closes the connection; empty if it resets the connection.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = Vec::new();
    // A server that closes a connection with unread data resets it.
    let _ = stream.read_to_end(&mut text).await;
    String::from_utf8(text).unwrap()
}

async fn get(to: SocketAddr) -> String {
    rest(&mut open(to, GET).await).await
}

#[tokio::test]
async fn at_the_limit_the_oldest_connection_is_closed() {
    let address = start().await;
    let mut slow = Vec::new();
    for _ in 0..LIMITS.connections {
        slow.push(open(address, "GET / HT").await);
    }
    let response = get(address).await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert_eq!(rest(&mut slow[0]).await, "");
    // The other connections are still served.
    for stream in &mut slow[1..] {
        stream.write_all(&GET.as_bytes()[8..]).await.unwrap();
        let response = rest(stream).await;
        assert!(response.ends_with("hello"), "{response}");
    }
}

#[tokio::test]
async fn slow_clients_do_not_displace_a_connection_with_a_request() {
    let address = start().await;
    let mut waiting = open(address, "GET /never HTTP/1.1\r\nhost: a\r\n\r\n").await;
    let mut slow = Vec::new();
    for _ in 0..3 * LIMITS.connections {
        slow.push(open(address, "GET / HT").await);
        // Lets the server read what has been sent.
        assert!(get(address).await.ends_with("hello"));
    }
    let closed = timeout(Duration::from_millis(50), rest(&mut waiting)).await;
    assert!(closed.is_err(), "{closed:?}");
    // Complete requests displace the connection.
    for _ in 0..LIMITS.connections {
        slow.push(open(address, "GET /never HTTP/1.1\r\nhost: a\r\n\r\n").await);
        assert!(get(address).await.ends_with("hello"));
    }
    let closed = timeout(LIMITS.duration / 2, rest(&mut waiting)).await;
    assert_eq!(closed.unwrap(), "");
}

#[tokio::test]
async fn probes_are_served_despite_any_number_of_slow_clients() {
    let address = start().await;
    let mut slow = Vec::new();
    for number in 0..20 * LIMITS.connections {
        let text = match number % 3 {
            0 => "",
            1 => "GET / HTTP/1.1\r\nx: ",
            _ => "GET /never HTTP/1.1\r\nhost: a\r\n\r\n",
        };
        slow.push(open(address, text).await);
        if number % 5 == 0 {
            let response = get(address).await;
            assert!(response.ends_with("hello"), "{number}: {response}");
        }
    }
}

#[tokio::test]
async fn finished_connections_do_not_count() {
    let address = start().await;
    let mut first = open(address, "GET / HT").await;
    for _ in 0..5 * LIMITS.connections {
        assert!(get(address).await.ends_with("hello"));
    }
    first.write_all(&GET.as_bytes()[8..]).await.unwrap();
    assert!(rest(&mut first).await.ends_with("hello"));
}

#[tokio::test(start_paused = true)]
async fn slow_headers_and_idle_connections_time_out() {
    let address = start().await;
    for text in ["", "GET / HTTP/1.1\r\nx: "] {
        let begin = Instant::now();
        assert_eq!(rest(&mut open(address, text).await).await, "");
        let elapsed = begin.elapsed();
        let expected = HEADER_TIMEOUT..HEADER_TIMEOUT * 2;
        assert!(expected.contains(&elapsed), "{text:?}: {elapsed:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn slow_responses_time_out() {
    let address = start().await;
    let begin = Instant::now();
    let mut stream = open(address, "GET /never HTTP/1.1\r\nhost: a\r\n\r\n").await;
    assert_eq!(rest(&mut stream).await, "");
    assert!(begin.elapsed() >= LIMITS.duration);
}

#[tokio::test]
async fn a_connection_serves_one_request() {
    let address = start().await;
    let response = rest(&mut open(address, &GET.repeat(2)).await).await;
    assert_eq!(response.matches("HTTP/1.1").count(), 1, "{response}");
    assert!(response.contains("connection: close"), "{response}");
}

/// A request whose headers have this size.
fn with_headers(size: usize) -> String {
    let [start, end] = ["GET / HTTP/1.1\r\nx: ", "\r\n\r\n"];
    let value = "x".repeat(size - start.len() - end.len());
    format!("{start}{value}{end}")
}

#[tokio::test]
async fn large_headers_are_rejected() {
    let address = start().await;
    for (size, status) in [
        (MAX_HEADERS - 1, "200 OK"),
        (MAX_HEADERS + 1, "431"),
        (17 << 10, "431"),
    ] {
        let response = rest(&mut open(address, &with_headers(size)).await).await;
        let expected = format!("HTTP/1.1 {status}");
        assert!(response.starts_with(&expected), "{size}: {response}");
    }
}

#[tokio::test]
async fn a_body_is_not_read() {
    let address = start().await;
    let head = "POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 1000000000\r\n\r\nfirst bytes";
    let response = rest(&mut open(address, head).await).await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(response.ends_with("hello"), "{response}");
}

#[test]
fn the_limits_are_documented() {
    let page = include_str!("../../../docs/security.md");
    let (kib, seconds) = (MAX_HEADERS >> 10, HEADER_TIMEOUT.as_secs());
    let limits =
        format!("accept {MAX_CONNECTIONS} connections, {kib} KiB of headers within {seconds} s");
    assert!(page.contains(&limits), "{limits}");
}
