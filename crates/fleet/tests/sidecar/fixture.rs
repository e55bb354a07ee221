//! An Envoy with a sidecar, its clients, and a backend in the test.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

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
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// Long enough to detect that a drain ends too early.
pub(crate) const SETTLE_TIME: Duration = Duration::from_millis(700);

const FLEET: &str = "default/web";

/// Envoy's port for HTTP.
pub(crate) const WEB: u16 = 8080;

/// Envoy's port for plain TCP.
pub(crate) const RAW: u16 = 9000;

/// An Envoy with a sidecar, and a backend in the test.
pub(crate) struct Fixture {
    pub(crate) supervisor: Supervisor,
    /// Envoy's address.
    pub(crate) ip: IpAddr,
    pub(crate) backend: TcpListener,
    pub(crate) config: SidecarConfig,
    pub(crate) sidecar: SocketAddr,
    pub(crate) serving: JoinHandle<()>,
    /// Envoy's process ID.
    pub(crate) pid: i32,
    _dir: TempDir,
}

impl Fixture {
    pub(crate) async fn new(delay: Duration, drain_timeout: Duration) -> Self {
        Self::with_options(delay, drain_timeout, |_| {}).await
    }

    /// With changed options of Envoy's bootstrap.
    pub(crate) async fn with_options(
        delay: Duration,
        drain_timeout: Duration,
        change: impl FnOnce(&mut BootstrapOptions),
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
        let bootstrap = bootstrap(&config, change, ip, backend_port);
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
    pub(crate) async fn stop(&self) -> JoinHandle<u16> {
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
    pub(crate) async fn active_request(&self) -> (TcpStream, TcpStream) {
        let mut client = TcpStream::connect((self.ip, WEB)).await.unwrap();
        send_request(&mut client).await;
        let (mut backend, _) = timeout(TIMEOUT, self.backend.accept())
            .await
            .unwrap()
            .unwrap();
        read_until(&mut backend, "\r\n\r\n").await;
        (client, backend)
    }

    pub(crate) async fn end(self) {
        self.serving.abort();
        timeout(TIMEOUT, self.supervisor.shutdown()).await.unwrap();
    }
}

pub(crate) async fn start(config: &SidecarConfig) -> (SocketAddr, JoinHandle<()>) {
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

pub(crate) async fn send_request(client: &mut TcpStream) {
    client
        .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
        .await
        .unwrap();
}

pub(crate) async fn reply(backend: &mut TcpStream) {
    backend
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello")
        .await
        .unwrap();
}

/// Reads until the text ends with `end`. Returns all of it.
pub(crate) async fn read_until(stream: &mut TcpStream, end: &str) -> String {
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
pub(crate) async fn send(to: SocketAddr, method: &str, path: &str) -> (u16, String) {
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

pub(crate) async fn get(from: SocketAddr, path: &str) -> u16 {
    send(from, "GET", path).await.0
}

pub(crate) async fn drain_status(drained: JoinHandle<u16>) -> u16 {
    timeout(TIMEOUT, drained)
        .await
        .expect("the drain ends")
        .unwrap()
}

/// Listeners for clients, with the admin interface, readiness listener and overload manager of a fleet's bootstrap.
fn bootstrap(
    config: &SidecarConfig,
    change: impl FnOnce(&mut BootstrapOptions),
    ip: IpAddr,
    backend: u16,
) -> String {
    let mut options = BootstrapOptions {
        fleet: FLEET.parse().unwrap(),
        node_id: String::new(),
        xds: XdsAddress::Unix("unused".into()),
        admin: Admin::Unix(config.admin_socket.clone()),
        readiness: Some(config.readiness_socket.clone()),
        max_connections: MAX_CONNECTIONS,
        heap_limit: None,
        module: false,
    };
    change(&mut options);
    let own = sesame_envoy::to_json(&sesame_envoy::bootstrap(&options)).unwrap();
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
