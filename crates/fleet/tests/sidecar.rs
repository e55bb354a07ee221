//! The sidecar with a real Envoy: a drain doesn't lose requests and can't be started over the network.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use nix::sys::ptrace;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;
use sesame_envoy::{Admin, BootstrapOptions, MAX_CONNECTIONS, XdsAddress};
use sesame_fleet::kube::sidecar::{self, SidecarConfig};
use sesame_fleet::local::{
    BootstrapFormat, EnvoySpec, ProcessEvent, ProcessEvents, Supervisor, SupervisorConfig, binary,
};
use sesame_testkit::loopback::new_ip;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

/// Long enough to detect that a drain ends too early.
const SETTLE_TIME: Duration = Duration::from_millis(700);

/// Longer than the timeout of a request to Envoy's admin interface.
const ADMIN_TIMEOUT: Duration = Duration::from_secs(11);

/// The metric of an Envoy that doesn't accept connections because of overload.
const OVERLOADED: &str =
    "envoy_overload_envoy_overload_actions_stop_accepting_connections_active{} 1";

const FLEET: &str = "default/web";

/// Envoy's port for HTTP.
const WEB: u16 = 8080;

/// Envoy's port for plain TCP.
const RAW: u16 = 9000;

/// An Envoy with a sidecar, and a backend in the test.
struct Fixture {
    supervisor: Supervisor,
    /// Envoy's address.
    ip: IpAddr,
    backend: TcpListener,
    config: SidecarConfig,
    sidecar: SocketAddr,
    serving: JoinHandle<()>,
    /// Envoy's process ID.
    pid: i32,
    _dir: TempDir,
}

impl Fixture {
    async fn new(delay: Duration, drain_timeout: Duration) -> Self {
        Self::with_memory(delay, drain_timeout, None).await
    }

    /// With a heap limit for Envoy, in bytes.
    async fn with_memory(
        delay: Duration,
        drain_timeout: Duration,
        memory_limit: Option<u64>,
    ) -> Self {
        let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
        let dir = tempfile::tempdir().unwrap();
        let config = SupervisorConfig::new(envoy.path, dir.path().join("run"));
        let (supervisor, mut events) = Supervisor::new(config).unwrap();
        let backend = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let ip = new_ip();
        let admin_socket = supervisor.dir(&FLEET.parse().unwrap()).admin_socket();
        let config = SidecarConfig {
            admin_socket: admin_socket.clone(),
            readiness_socket: dir.path().join("readiness.sock"),
            control_socket: dir.path().join("sidecar.sock"),
            delay,
            timeout: drain_timeout,
        };
        let (sidecar, serving) = start(&config).await;
        // Envoy isn't running yet.
        assert_eq!(get(sidecar, "/ready").await, 503);
        let backend_port = backend.local_addr().unwrap().port();
        let bootstrap = bootstrap(&config, memory_limit, ip, backend_port);
        supervisor.ensure(EnvoySpec {
            fleet: FLEET.parse().unwrap(),
            bootstrap: bootstrap.into_bytes(),
            format: BootstrapFormat::Yaml,
            concurrency: Some(1),
            admin_socket,
        });
        let pid = ready(&mut events).await;
        assert_eq!(get(sidecar, "/ready").await, 200);
        Self {
            supervisor,
            ip,
            backend,
            config,
            sidecar,
            serving,
            pid,
            _dir: dir,
        }
    }

    /// Runs both hooks concurrently, as the kubelet does. Returns the status of `/drained`.
    async fn stop(&self) -> JoinHandle<u16> {
        let sidecar = self.sidecar;
        let drained = tokio::spawn(async move { get(sidecar, "/drained").await });
        sidecar::start_drain(&self.config.control_socket)
            .await
            .unwrap();
        assert_eq!(
            get(self.sidecar, "/ready").await,
            503,
            "not ready during a drain"
        );
        drained
    }

    /// Sends a request and waits until the backend has received it. Returns both connections.
    async fn active_request(&self) -> (TcpStream, TcpStream) {
        let mut client = TcpStream::connect((self.ip, WEB)).await.unwrap();
        send_request(&mut client).await;
        let (mut backend, _) = timeout(TIMEOUT, self.backend.accept())
            .await
            .unwrap()
            .unwrap();
        read_until(&mut backend, "\r\n\r\n").await;
        (client, backend)
    }

    async fn end(self) {
        self.serving.abort();
        timeout(TIMEOUT, self.supervisor.shutdown()).await.unwrap();
    }
}

async fn start(config: &SidecarConfig) -> (SocketAddr, JoinHandle<()>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let config = config.clone();
    let serving = tokio::spawn(async move { sidecar::serve(listener, config).await.unwrap() });
    (address, serving)
}

/// Waits until Envoy is ready. Returns its process ID.
async fn ready(events: &mut ProcessEvents) -> i32 {
    let search = async {
        let mut started = 0;
        loop {
            match events.recv().await.expect("an event") {
                ProcessEvent::Started { pid, .. } => started = pid,
                ProcessEvent::Ready { .. } => return started,
                _ => {}
            }
        }
    };
    let pid = timeout(TIMEOUT, search).await.expect("ready in time");
    pid.try_into().expect("a process ID")
}

async fn send_request(client: &mut TcpStream) {
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
        let n = timeout(TIMEOUT, stream.read(&mut buffer))
            .await
            .unwrap()
            .unwrap();
        assert!(n > 0, "connection closed after {text:?}");
        text.push_str(std::str::from_utf8(&buffer[..n]).unwrap());
    }
    text
}

/// Sends a request. Returns the response's status and text.
async fn send(to: SocketAddr, method: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(to).await.unwrap();
    let request = format!("{method} {path} HTTP/1.1\r\nhost: a\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = String::new();
    stream.read_to_string(&mut response).await.unwrap();
    let status = response
        .split(' ')
        .nth(1)
        .expect("a status")
        .parse()
        .unwrap();
    (status, response)
}

/// Stops Envoy's main thread until `ptrace::detach`, as if it were busy with a large configuration.
fn stop_main_thread(envoy: Pid) {
    ptrace::seize(envoy, ptrace::Options::empty()).unwrap();
    ptrace::interrupt(envoy).unwrap();
    waitpid(envoy, Some(WaitPidFlag::__WALL)).unwrap();
}

/// Stops Envoy until SIGCONT, as if it hung. Returns once no thread of it runs.
fn stop_all_threads(envoy: Pid) {
    kill(envoy, Signal::SIGSTOP).unwrap();
    waitpid(envoy, Some(WaitPidFlag::WUNTRACED)).unwrap();
}

async fn get(from: SocketAddr, path: &str) -> u16 {
    send(from, "GET", path).await.0
}

async fn drain_status(drained: JoinHandle<u16>) -> u16 {
    timeout(TIMEOUT, drained)
        .await
        .expect("the drain ends")
        .unwrap()
}

/// Listeners for clients, with the admin interface, readiness listener and overload manager of a fleet's bootstrap.
fn bootstrap(
    config: &SidecarConfig,
    memory_limit: Option<u64>,
    ip: IpAddr,
    backend: u16,
) -> String {
    let own = sesame_envoy::bootstrap(&BootstrapOptions {
        fleet: FLEET.parse().unwrap(),
        node_id: String::new(),
        xds: XdsAddress::Unix("unused".into()),
        admin: Admin::Unix(config.admin_socket.clone()),
        readiness: Some(config.readiness_socket.clone()),
        max_connections: MAX_CONNECTIONS,
        memory_limit,
        module: false,
    });
    let own = sesame_envoy::to_json(&own).unwrap();
    format!(
        r#"
admin: {admin}
overload_manager: {overload}
static_resources:
  listeners:
  - {readiness}
  - name: web
    address: {{ socket_address: {{ address: {ip}, port_value: {WEB} }} }}
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
    address: {{ socket_address: {{ address: {ip}, port_value: {RAW} }} }}
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
        admin = own["admin"],
        overload = own["overload_manager"],
        readiness = own["static_resources"]["listeners"][0],
    )
}

#[tokio::test]
async fn requests_are_served_until_the_drain_ends() {
    // The test would time out if the drain lasted for its whole timeout.
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    let (mut client, mut backend) = fixture.active_request().await;
    let mut drained = fixture.stop().await;
    assert!(
        timeout(SETTLE_TIME, &mut drained).await.is_err(),
        "ended early"
    );
    // New clients are still served, until Envoy closes their connections.
    let (mut late, mut late_backend) = fixture.active_request().await;
    let closing = async {
        loop {
            reply(&mut late_backend).await;
            let response = read_until(&mut late, "hello").await;
            if response.contains("connection: close") {
                return;
            }
            send_request(&mut late).await;
            read_until(&mut late_backend, "\r\n\r\n").await;
        }
    };
    timeout(TIMEOUT, closing).await.expect("a drain in time");
    assert!(
        timeout(SETTLE_TIME, &mut drained).await.is_err(),
        "ended early"
    );

    reply(&mut backend).await;
    let response = read_until(&mut client, "hello").await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");
    assert!(response.contains("connection: close"), "{response}");
    assert_eq!(drain_status(drained).await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn no_connection_is_closed_during_the_delay() {
    let fixture = Fixture::new(TIMEOUT * 10, TIMEOUT * 10).await;
    let mut drained = fixture.stop().await;
    let (mut client, mut backend) = fixture.active_request().await;
    reply(&mut backend).await;
    let response = read_until(&mut client, "hello").await;
    assert!(!response.contains("connection: close"), "{response}");
    assert!(
        timeout(SETTLE_TIME, &mut drained).await.is_err(),
        "ended early"
    );
    fixture.end().await;
}

#[tokio::test]
async fn idle_connections_do_not_hold_up_a_drain() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    let (mut client, mut backend) = fixture.active_request().await;
    reply(&mut backend).await;
    read_until(&mut client, "hello").await;
    let drained = fixture.stop().await;
    assert_eq!(drain_status(drained).await, 200);
    drop(client);
    fixture.end().await;
}

#[tokio::test]
async fn a_drain_waits_for_raw_tcp_connections() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    let mut client = TcpStream::connect((fixture.ip, RAW)).await.unwrap();
    client.write_all(b"one").await.unwrap();
    let (mut backend, _) = fixture.backend.accept().await.unwrap();
    let mut drained = fixture.stop().await;
    // Longer than the wait for an idle HTTP connection.
    assert!(
        timeout(SETTLE_TIME * 4, &mut drained).await.is_err(),
        "ended early"
    );
    client.write_all(b"two").await.unwrap();
    read_until(&mut backend, "onetwo").await;
    drop((client, backend));
    assert_eq!(drain_status(drained).await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn a_drain_ends_at_its_timeout() {
    let fixture = Fixture::new(Duration::ZERO, Duration::from_millis(200)).await;
    let (_client, _backend) = fixture.active_request().await;
    let drained = fixture.stop().await;
    assert_eq!(drain_status(drained).await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn a_drain_cannot_be_started_over_the_network() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    assert_eq!(send(fixture.sidecar, "POST", "/drain").await.0, 404);
    let sidecar = fixture.sidecar;
    let mut drained = tokio::spawn(async move { get(sidecar, "/drained").await });
    assert!(
        timeout(SETTLE_TIME, &mut drained).await.is_err(),
        "ended early"
    );
    assert_eq!(get(fixture.sidecar, "/ready").await, 200);
    let (mut client, mut backend) = fixture.active_request().await;
    reply(&mut backend).await;
    let response = read_until(&mut client, "hello").await;
    assert!(!response.contains("connection: close"), "{response}");
    drained.abort();
    fixture.end().await;
}

#[tokio::test]
async fn a_restarted_sidecar_reports_ready() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    assert_eq!(drain_status(fixture.stop().await).await, 200);
    fixture.serving.abort();
    let (sidecar, serving) = start(&fixture.config).await;
    assert_eq!(get(sidecar, "/ready").await, 200);
    serving.abort();
    fixture.end().await;
}

#[tokio::test]
async fn a_drain_ends_when_envoy_exits() {
    let fixture = Fixture::new(TIMEOUT * 10, TIMEOUT * 10).await;
    let (_client, _backend) = fixture.active_request().await;
    let drained = fixture.stop().await;
    timeout(TIMEOUT, fixture.supervisor.shutdown())
        .await
        .unwrap();
    assert_eq!(drain_status(drained).await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn a_drain_continues_while_envoys_main_thread_is_busy() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    let (_client, _backend) = fixture.active_request().await;
    let envoy = Pid::from_raw(fixture.pid);
    stop_main_thread(envoy);
    let mut drained = fixture.stop().await;
    assert!(
        timeout(ADMIN_TIMEOUT, &mut drained).await.is_err(),
        "ended early"
    );
    ptrace::detach(envoy, None).unwrap();
    fixture.end().await;
}

#[tokio::test]
async fn envoy_is_alive_during_a_drain_and_until_it_hangs() {
    let fixture = Fixture::new(TIMEOUT * 10, TIMEOUT * 10).await;
    assert_eq!(get(fixture.sidecar, "/live").await, 200);
    let drained = fixture.stop().await;
    assert_eq!(get(fixture.sidecar, "/live").await, 200);
    assert_eq!(get(fixture.sidecar, "/ready").await, 503);
    drained.abort();

    let envoy = Pid::from_raw(fixture.pid);
    stop_all_threads(envoy);
    assert_eq!(get(fixture.sidecar, "/live").await, 503);
    kill(envoy, Signal::SIGCONT).unwrap();
    assert_eq!(get(fixture.sidecar, "/live").await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn envoy_is_ready_until_its_worker_threads_hang() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT).await;
    let envoy = Pid::from_raw(fixture.pid);
    stop_main_thread(envoy);
    assert_eq!(get(fixture.sidecar, "/ready").await, 200);
    ptrace::detach(envoy, None).unwrap();

    stop_all_threads(envoy);
    assert_eq!(get(fixture.sidecar, "/ready").await, 503);
    kill(envoy, Signal::SIGCONT).unwrap();
    assert_eq!(get(fixture.sidecar, "/ready").await, 200);
    fixture.end().await;
}

/// Otherwise, the remaining Envoys would get its clients, and be overloaded too.
#[tokio::test]
async fn an_overloaded_envoy_is_ready() {
    let fixture = Fixture::with_memory(Duration::ZERO, TIMEOUT, Some(1)).await;
    let overloaded = async {
        while !send(fixture.sidecar, "GET", "/metrics")
            .await
            .1
            .contains(OVERLOADED)
        {
            tokio::time::sleep(SETTLE_TIME).await;
        }
    };
    timeout(TIMEOUT, overloaded).await.expect("overload");
    assert_eq!(get(fixture.sidecar, "/ready").await, 200);
    fixture.end().await;
}

/// The probes of a busy pod and of a pod under attack.
#[tokio::test]
async fn probes_are_served_while_slow_clients_are_connected() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT * 10).await;
    let mut slow = Vec::new();
    for _ in 0..600 {
        let mut stream = TcpStream::connect(fixture.sidecar).await.unwrap();
        stream.write_all(b"GET /drai").await.unwrap();
        slow.push(stream);
    }
    assert_eq!(get(fixture.sidecar, "/live").await, 200);
    assert_eq!(get(fixture.sidecar, "/ready").await, 200);
    fixture.end().await;
}

#[tokio::test]
async fn envoys_metrics_are_forwarded() {
    let fixture = Fixture::new(Duration::ZERO, TIMEOUT).await;
    let (status, page) = send(fixture.sidecar, "GET", "/metrics").await;
    assert_eq!(status, 200);
    assert!(page.contains("# TYPE envoy_server_live gauge"), "{page}");
    fixture.end().await;
}

#[tokio::test]
async fn a_stale_control_socket_is_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let control: PathBuf = dir.path().join("sidecar.sock");
    std::fs::write(&control, "").unwrap();
    let config = SidecarConfig {
        admin_socket: dir.path().join("none"),
        readiness_socket: dir.path().join("none"),
        control_socket: control.clone(),
        ..SidecarConfig::default()
    };
    let (sidecar, serving) = start(&config).await;
    assert_eq!(get(sidecar, "/ready").await, 503);
    sidecar::start_drain(&control).await.unwrap();
    serving.abort();
}
