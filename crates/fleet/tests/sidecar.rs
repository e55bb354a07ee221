//! The sidecar with a real Envoy: a drain loses no request, and can't be started from outside the pod.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use sesame_fleet::kube::sidecar::{self, Settings};
use sesame_fleet::local::{
    BootstrapFormat, EnvoySpec, ProcessEvent, ProcessEvents, Supervisor, SupervisorConfig, binary,
};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Long enough for an event that comes too early to show.
const MOMENT: Duration = Duration::from_millis(700);

const FLEET: &str = "default/web";

/// An Envoy with a sidecar, and a backend in the test.
struct Rig {
    supervisor: Supervisor,
    /// HTTP, and plain TCP.
    ports: [u16; 2],
    backend: TcpListener,
    settings: Settings,
    sidecar: SocketAddr,
    serving: JoinHandle<()>,
    _dir: TempDir,
}

impl Rig {
    async fn new(delay: Duration, patience: Duration) -> Self {
        let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
        let dir = tempfile::tempdir().unwrap();
        let config = SupervisorConfig::new(envoy.path, dir.path().join("run"));
        let (supervisor, mut events) = Supervisor::new(config).unwrap();
        let backend = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let ports = [free_port().await, free_port().await];
        let admin_socket = supervisor.dir(&FLEET.parse().unwrap()).admin_socket();
        let settings = Settings {
            admin_socket: admin_socket.clone(),
            control_socket: dir.path().join("sidecar.sock"),
            delay,
            timeout: patience,
        };
        let (sidecar, serving) = start(&settings).await;
        // Nothing listens there yet.
        assert_eq!(get(sidecar, "/ready").await, 503);
        let bootstrap = bootstrap(&admin_socket, ports, backend.local_addr().unwrap().port());
        supervisor.ensure(EnvoySpec {
            fleet: FLEET.parse().unwrap(),
            bootstrap: bootstrap.into_bytes(),
            format: BootstrapFormat::Yaml,
            concurrency: Some(1),
            admin_socket,
        });
        ready(&mut events).await;
        assert_eq!(get(sidecar, "/ready").await, 200);
        Self {
            supervisor,
            ports,
            backend,
            settings,
            sidecar,
            serving,
            _dir: dir,
        }
    }

    /// Makes both calls at the same time, as the kubelet does. Returns the response to `/drained`.
    async fn stop(&self) -> JoinHandle<u16> {
        let sidecar = self.sidecar;
        let drained = tokio::spawn(async move { get(sidecar, "/drained").await });
        sidecar::begin(&self.settings.control_socket).await.unwrap();
        assert_eq!(get(self.sidecar, "/ready").await, 503, "no new clients");
        drained
    }

    /// Sends a request and waits until the backend has it. Returns both connections.
    async fn request_under_way(&self) -> (TcpStream, TcpStream) {
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, self.ports[0]))
            .await
            .unwrap();
        ask(&mut client).await;
        let (mut backend, _) = timeout(PATIENCE, self.backend.accept())
            .await
            .unwrap()
            .unwrap();
        read_until(&mut backend, "\r\n\r\n").await;
        (client, backend)
    }

    async fn end(self) {
        self.serving.abort();
        timeout(PATIENCE, self.supervisor.shutdown()).await.unwrap();
    }
}

async fn start(settings: &Settings) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let settings = settings.clone();
    let serving = tokio::spawn(async move { sidecar::serve(listener, settings).await.unwrap() });
    (address, serving)
}

async fn free_port() -> u16 {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    free.local_addr().unwrap().port()
}

async fn ready(events: &mut ProcessEvents) {
    let search = async {
        loop {
            if let ProcessEvent::Ready { .. } = events.recv().await.expect("an event") {
                return;
            }
        }
    };
    timeout(PATIENCE, search).await.expect("ready in time");
}

async fn ask(client: &mut TcpStream) {
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
}

async fn reply(backend: &mut TcpStream) {
    backend
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
        .await
        .unwrap();
}

/// Reads until the text ends with `end`. Returns all of it.
async fn read_until(stream: &mut TcpStream, end: &str) -> String {
    let mut text = String::new();
    let mut buffer = [0; 4096];
    while !text.ends_with(end) {
        let n = timeout(PATIENCE, stream.read(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        assert!(n > 0, "cut off behind {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    text
}

/// The status of an answer.
async fn send(to: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let status = answer.split(' ').nth(1).expect("a status").parse().unwrap();
    (status, answer)
}

async fn get(from: SocketAddr, path: &str) -> u16 {
    send(from, "GET", path).await.0
}

async fn over(drained: JoinHandle<u16>) -> u16 {
    timeout(PATIENCE, drained).await.expect("an end").unwrap()
}

fn bootstrap(admin: &std::path::Path, [web, raw]: [u16; 2], backend: u16) -> String {
    format!(
        r#"
admin: {{ address: {{ pipe: {{ path: "{admin}" }} }} }}
static_resources:
  listeners:
  - name: web
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {web} }} }}
    filter_chains:
    - filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: web
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - match: {{ prefix: / }}
                route: {{ cluster: backend, timeout: 0s }}
          http_filters:
          - name: router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
  - name: raw
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {raw} }} }}
    filter_chains:
    - filters:
      - name: tcp
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.tcp_proxy.v3.TcpProxy
          stat_prefix: raw
          cluster: backend
  clusters:
  - name: backend
    type: STATIC
    load_assignment:
      cluster_name: backend
      endpoints:
      - lb_endpoints:
        - endpoint: {{ address: {{ socket_address: {{ address: 127.0.0.1, port_value: {backend} }} }} }}
"#,
        admin = admin.display(),
    )
}

#[tokio::test]
async fn a_request_under_way_is_answered_and_new_ones_too_until_the_end() {
    // The test would time out if the drain took the whole time.
    let rig = Rig::new(Duration::ZERO, PATIENCE * 10).await;
    let (mut client, mut backend) = rig.request_under_way().await;
    let mut drained = rig.stop().await;
    assert!(timeout(MOMENT, &mut drained).await.is_err(), "not waited");
    // New clients are still served.
    let (mut late, mut late_backend) = rig.request_under_way().await;
    reply(&mut late_backend).await;
    let answer = read_until(&mut late, "hello").await;
    assert!(answer.contains("connection: close"), "{answer}");
    assert!(timeout(MOMENT, &mut drained).await.is_err(), "not waited");

    reply(&mut backend).await;
    let answer = read_until(&mut client, "hello").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(answer.contains("connection: close"), "{answer}");
    assert_eq!(over(drained).await, 200);
    rig.end().await;
}

#[tokio::test]
async fn before_the_delay_is_over_nobody_is_asked_to_go() {
    let rig = Rig::new(PATIENCE * 10, PATIENCE * 10).await;
    let mut drained = rig.stop().await;
    let (mut client, mut backend) = rig.request_under_way().await;
    reply(&mut backend).await;
    let answer = read_until(&mut client, "hello").await;
    assert!(!answer.contains("connection: close"), "{answer}");
    assert!(timeout(MOMENT, &mut drained).await.is_err(), "not waited");
    rig.end().await;
}

#[tokio::test]
async fn an_idle_connection_is_not_waited_for_long() {
    let rig = Rig::new(Duration::ZERO, PATIENCE * 10).await;
    let (mut client, mut backend) = rig.request_under_way().await;
    reply(&mut backend).await;
    read_until(&mut client, "hello").await;
    let drained = rig.stop().await;
    assert_eq!(over(drained).await, 200);
    drop(client);
    rig.end().await;
}

#[tokio::test]
async fn a_connection_that_isnt_http_is_waited_for_until_it_ends() {
    let rig = Rig::new(Duration::ZERO, PATIENCE * 10).await;
    let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, rig.ports[1]))
        .await
        .unwrap();
    client.write_all(b"one").await.unwrap();
    let (mut backend, _) = rig.backend.accept().await.unwrap();
    let mut drained = rig.stop().await;
    // Longer than the wait for an idle HTTP connection.
    assert!(timeout(MOMENT * 4, &mut drained).await.is_err(), "cut off");
    client.write_all(b"two").await.unwrap();
    read_until(&mut backend, "onetwo").await;
    drop((client, backend));
    assert_eq!(over(drained).await, 200);
    rig.end().await;
}

#[tokio::test]
async fn nobody_is_waited_for_longer_than_the_limit() {
    let rig = Rig::new(Duration::ZERO, Duration::from_millis(200)).await;
    let (_client, _backend) = rig.request_under_way().await;
    let drained = rig.stop().await;
    assert_eq!(over(drained).await, 200);
    rig.end().await;
}

#[tokio::test]
async fn strangers_cant_begin_a_drain() {
    let rig = Rig::new(Duration::ZERO, PATIENCE * 10).await;
    assert_eq!(send(rig.sidecar, "POST", "/drain").await.0, 404);
    let sidecar = rig.sidecar;
    let mut drained = tokio::spawn(async move { get(sidecar, "/drained").await });
    assert!(timeout(MOMENT, &mut drained).await.is_err(), "not waited");
    assert_eq!(get(rig.sidecar, "/ready").await, 200);
    let (mut client, mut backend) = rig.request_under_way().await;
    reply(&mut backend).await;
    let answer = read_until(&mut client, "hello").await;
    assert!(!answer.contains("connection: close"), "{answer}");
    drained.abort();
    rig.end().await;
}

#[tokio::test]
async fn a_new_sidecar_doesnt_leave_envoy_unready() {
    let rig = Rig::new(Duration::ZERO, PATIENCE * 10).await;
    assert_eq!(over(rig.stop().await).await, 200);
    rig.serving.abort();
    let (sidecar, serving) = start(&rig.settings).await;
    assert_eq!(get(sidecar, "/ready").await, 200);
    serving.abort();
    rig.end().await;
}

#[tokio::test]
async fn an_envoy_that_has_gone_is_not_waited_for() {
    let rig = Rig::new(PATIENCE * 10, PATIENCE * 10).await;
    let (_client, _backend) = rig.request_under_way().await;
    let drained = rig.stop().await;
    timeout(PATIENCE, rig.supervisor.shutdown()).await.unwrap();
    assert_eq!(over(drained).await, 200);
    rig.end().await;
}

#[tokio::test]
async fn envoys_statistics_are_handed_on() {
    let rig = Rig::new(Duration::ZERO, PATIENCE).await;
    let (status, page) = send(rig.sidecar, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(page.contains("# TYPE envoy_server_live gauge"), "{page}");
    rig.end().await;
}

#[tokio::test]
async fn a_control_socket_that_was_left_is_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let control: PathBuf = dir.path().join("sidecar.sock");
    std::fs::write(&control, "").unwrap();
    let settings = Settings {
        admin_socket: dir.path().join("none"),
        control_socket: control.clone(),
        ..Settings::default()
    };
    let (sidecar, serving) = start(&settings).await;
    assert_eq!(get(sidecar, "/ready").await, 503);
    sidecar::begin(&control).await.unwrap();
    serving.abort();
}
