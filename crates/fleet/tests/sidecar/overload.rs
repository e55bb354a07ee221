//! Envoy's limits on connections and memory: beyond them, clients are rejected, while the probes succeed.

use std::time::Duration;

use sesame_envoy::HeapLimit;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::fixture::{
    Fixture, RAW, SETTLE_TIME, TIMEOUT, WEB, get, read_until, reply, send, send_request,
};

/// The connections that Envoy accepts in a test of that limit.
const CONNECTIONS: usize = 5;

/// Envoy's heap limit in the other test, in bytes. Without clients, the heap is a fifth of that.
const HEAP: usize = 32 << 20;

/// The bytes that a slow client sends; fewer than the limit on a request's headers.
const HEADERS: usize = 50_000;

/// Slow clients that connect at once; fewer than a socket's backlog.
const BATCH: usize = 50;

impl Fixture {
    async fn connect(&self, port: u16) -> TcpStream {
        TcpStream::connect((self.ip, port)).await.unwrap()
    }

    /// Sends a first request, which the backend serves. Returns both connections.
    async fn served_request(&self) -> (TcpStream, TcpStream) {
        let (mut client, mut backend) = self.active_request().await;
        reply(&mut backend).await;
        read_until(&mut client, "hello").await;
        (client, backend)
    }

    async fn assert_probes_succeed(&self) {
        for probe in ["/live", "/ready"] {
            assert_eq!(get(self.sidecar, probe).await, 200, "{probe}");
        }
    }

    /// Opens connections that send incomplete headers until Envoy stops accepting connections.
    async fn fill_heap(&self) -> Vec<TcpStream> {
        let headers = format!("GET / HTTP/1.1\r\nhost: a\r\nx: {}", "a".repeat(HEADERS));
        let mut slow = Vec::new();
        while !self.is_active("stop_accepting_connections").await {
            // Envoy measures its heap from time to time.
            if slow.len() * HEADERS > HEAP {
                sleep(SETTLE_TIME).await;
                continue;
            }
            for _ in 0..BATCH {
                let mut client = self.connect(WEB).await;
                client.write_all(headers.as_bytes()).await.unwrap();
                slow.push(client);
            }
        }
        slow
    }

    /// Whether an overload action is active.
    async fn is_active(&self, action: &str) -> bool {
        let (status, metrics) = send(self.sidecar, "GET", "/metrics").await;
        assert_eq!(status, 200);
        metrics.contains(&format!(
            "envoy_overload_envoy_overload_actions_{action}_active{{}} 1"
        ))
    }
}

/// Sends a request over connections that the backend has already used, and asserts that it is served.
async fn assert_served(client: &mut TcpStream, backend: &mut TcpStream) {
    send_request(client).await;
    read_until(backend, "\r\n\r\n").await;
    reply(backend).await;
    let response = read_until(client, "hello").await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
}

/// Whether the server closes the connection in time, without sending anything.
async fn is_closed(stream: &mut TcpStream, limit: Duration) -> bool {
    let read = timeout(limit, stream.read_u8()).await;
    // A reset also closes it.
    read.is_ok_and(|byte| byte.is_err())
}

#[tokio::test]
async fn connections_beyond_the_limit_are_closed_and_others_and_probes_are_served() {
    let fixture = Fixture::with_options(Duration::ZERO, TIMEOUT, |options| {
        options.max_connections = CONNECTIONS as u64;
    })
    .await;
    let (first, mut backend) = fixture.served_request().await;
    let mut clients = vec![first];
    while clients.len() < CONNECTIONS {
        let mut client = fixture.connect(WEB).await;
        assert_served(&mut client, &mut backend).await;
        clients.push(client);
    }
    // The limit is for all ports together.
    for port in [WEB, RAW, WEB] {
        let mut client = fixture.connect(port).await;
        assert!(is_closed(&mut client, TIMEOUT).await, "port {port}");
    }
    fixture.assert_probes_succeed().await;
    for client in &mut clients {
        assert_served(client, &mut backend).await;
    }
    // A connection that ends makes room for another.
    clients.pop();
    let accepted = async {
        loop {
            let mut client = fixture.connect(WEB).await;
            if !is_closed(&mut client, SETTLE_TIME).await {
                return client;
            }
        }
    };
    let mut client = timeout(TIMEOUT, accepted).await.expect("room");
    assert_served(&mut client, &mut backend).await;
    drop((clients, client));
    fixture.end().await;
}

/// An overloaded Envoy is ready: otherwise, the others would get its clients, and be overloaded too.
#[tokio::test]
async fn an_overloaded_envoy_rejects_requests_and_connections_and_passes_its_probes() {
    let fixture = Fixture::with_options(Duration::ZERO, TIMEOUT, |options| {
        options.heap_limit = Some(HeapLimit::Bytes(HEAP as u64));
    })
    .await;
    let (mut client, mut backend) = fixture.served_request().await;
    let slow = timeout(TIMEOUT, fixture.fill_heap()).await;
    let slow = slow.expect("overload");
    fixture.assert_probes_succeed().await;
    send_request(&mut client).await;
    let response = read_until(&mut client, "envoy overloaded").await;
    assert!(response.starts_with("HTTP/1.1 503"), "{response}");
    assert!(response.contains("connection: close"), "{response}");
    let waiting = fixture.connect(RAW).await;
    let forwarded = timeout(SETTLE_TIME, fixture.backend.accept()).await;
    assert!(forwarded.is_err(), "{forwarded:?}");
    fixture.assert_probes_succeed().await;

    drop(slow);
    let forwarded = timeout(TIMEOUT, fixture.backend.accept()).await;
    forwarded.expect("the connection is accepted").unwrap();
    let recovered = async {
        while fixture.is_active("stop_accepting_requests").await {
            sleep(SETTLE_TIME).await;
        }
    };
    timeout(TIMEOUT, recovered).await.expect("memory");
    assert_served(&mut fixture.connect(WEB).await, &mut backend).await;
    drop((client, waiting));
    fixture.end().await;
}
