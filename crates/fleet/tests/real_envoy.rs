//! The supervisor with a real Envoy: requests, restarts, drains, and ports.

use std::net::IpAddr;
use std::os::unix::process::ExitStatusExt;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_fleet::local::admin::Admin;
use sesame_fleet::local::{
    BootstrapFormat, EnvoySpec, Level, ProcessEvent, ProcessEvents, Supervisor, SupervisorConfig,
    binary, ports,
};
use sesame_model::Port;
use sesame_testkit::loopback::new_ip;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

const FLEET: &str = "default/web";

const PORT: u16 = 8080;

struct Fixture {
    supervisor: Supervisor,
    events: ProcessEvents,
    ip: IpAddr,
    _dir: TempDir,
}

fn fixture(drain: Duration) -> Fixture {
    fixture_with(|config| config.drain = drain)
}

fn fixture_with(change: impl FnOnce(&mut SupervisorConfig)) -> Fixture {
    let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
    let dir = tempfile::tempdir().expect("a folder for the test");
    let mut config = SupervisorConfig::new(envoy.path, dir.path().join("run"));
    change(&mut config);
    let (supervisor, events) = Supervisor::new(config).expect("a supervisor");
    Fixture {
        supervisor,
        events,
        ip: new_ip(),
        _dir: dir,
    }
}

impl Fixture {
    fn ensure(&self, bootstrap: String) {
        self.supervisor.ensure(EnvoySpec {
            fleet: FLEET.parse().expect("a fleet"),
            bootstrap: bootstrap.into_bytes(),
            format: BootstrapFormat::Yaml,
            concurrency: Some(1),
            admin_socket: self
                .supervisor
                .dir(&FLEET.parse().expect("a fleet"))
                .admin_socket(),
        });
    }

    /// A bootstrap that responds to every request with `hello`.
    fn bootstrap(&self) -> String {
        format!(
            r#"
admin: {{ address: {{ pipe: {{ path: "{admin}" }} }} }}
static_resources:
  listeners:
  - name: web
    address: {{ socket_address: {{ address: {ip}, port_value: {PORT} }} }}
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
              - match: {{ prefix: "/" }}
                direct_response: {{ status: 200, body: {{ inline_string: hello }} }}
          http_filters:
          - name: router
            typed_config: {{ "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }}
"#,
            admin = self
                .supervisor
                .dir(&FLEET.parse().expect("a fleet"))
                .admin_socket()
                .display(),
            ip = self.ip,
        )
    }

    /// The next event that `pick` accepts.
    async fn event<T>(&mut self, pick: impl Fn(&ProcessEvent) -> Option<T>) -> T {
        let search = async {
            loop {
                let event = self.events.recv().await.expect("an event");
                if let Some(picked) = pick(&event) {
                    return picked;
                }
            }
        };
        timeout(TIMEOUT, search).await.expect("an event in time")
    }

    async fn serving(&mut self) -> Pid {
        let pid = self
            .event(|event| match event {
                ProcessEvent::Started { pid, .. } => Some(*pid),
                _ => None,
            })
            .await;
        self.event(|event| matches!(event, ProcessEvent::Ready { .. }).then_some(()))
            .await;
        Pid::from_raw(i32::try_from(pid).expect("a process number"))
    }

    async fn stop(&self) {
        timeout(
            TIMEOUT,
            self.supervisor.stop(&FLEET.parse().expect("a fleet")),
        )
        .await
        .expect("stopped in time");
    }

    fn port_is_free(&self) -> bool {
        ports::probe(self.ip, Port::tcp(PORT)).is_ok()
    }
}

/// A connection that stays open between requests.
struct Client(TcpStream);

impl Client {
    async fn connect(ip: IpAddr) -> Self {
        let stream = TcpStream::connect((ip, PORT));
        Self(stream.await.expect("a connection"))
    }

    /// Sends a request. Returns the whole response, which ends with the body `hello`.
    async fn get(&mut self) -> String {
        self.0
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .expect("a request sent");
        let mut response = String::new();
        let mut buffer = [0; 4096];
        while !response.ends_with("hello") {
            let n = self.0.read(&mut buffer).await.expect("a response");
            assert!(n > 0, "connection closed after {response:?}");
            response.push_str(std::str::from_utf8(&buffer[..n]).expect("text"));
        }
        response
    }
}

#[tokio::test]
async fn an_envoy_serves_restarts_and_releases_its_port() {
    let mut fixture = fixture(Duration::from_secs(1));
    fixture.ensure(fixture.bootstrap());
    let first = fixture.serving().await;
    assert!(!fixture.port_is_free());
    let response = Client::connect(fixture.ip).await.get().await;
    assert!(response.starts_with("HTTP/1.1 200 OK"), "{response}");

    kill(first, Signal::SIGKILL).expect("a process to kill");
    let second = fixture.serving().await;
    assert_ne!(first, second);
    Client::connect(fixture.ip).await.get().await;

    fixture.stop().await;
    assert!(fixture.port_is_free());
}

#[tokio::test]
async fn a_hung_envoy_is_replaced() {
    let limit = Duration::from_secs(3);
    let mut fixture = fixture_with(|config| config.hang_timeout = limit);
    fixture.ensure(fixture.bootstrap());
    let first = fixture.serving().await;
    kill(first, Signal::SIGSTOP).expect("a process to stop");
    let unresponsive = fixture
        .event(|event| match event {
            ProcessEvent::Hung { unresponsive, .. } => Some(*unresponsive),
            _ => None,
        })
        .await;
    assert_eq!(unresponsive, limit);
    let (status, restart_in) = fixture
        .event(|event| match event {
            ProcessEvent::Exited {
                status, restart_in, ..
            } => Some((*status, *restart_in)),
            _ => None,
        })
        .await;
    assert_eq!(status.signal(), Some(9));
    assert_eq!(restart_in, Some(Duration::ZERO));

    let second = fixture.serving().await;
    assert_ne!(first, second);
    Client::connect(fixture.ip).await.get().await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_drain_ends_when_the_last_client_disconnects() {
    // The test would time out if the drain lasted for its whole timeout.
    let mut fixture = fixture(TIMEOUT * 10);
    fixture.ensure(fixture.bootstrap());
    fixture.serving().await;
    let mut client = Client::connect(fixture.ip).await;
    let response = client.get().await;
    assert!(!response.contains("connection: close"), "{response}");

    let ip = fixture.ip;
    let requests = async {
        // Long enough for a stop that doesn't drain.
        sleep(Duration::from_millis(500)).await;
        let draining = async {
            while !Client::connect(ip)
                .await
                .get()
                .await
                .contains("connection: close")
            {
                sleep(Duration::from_millis(20)).await;
            }
        };
        timeout(TIMEOUT, draining).await.expect("a drain in time");
        let response = client.get().await;
        assert!(response.contains("connection: close"), "{response}");
        drop(client);
    };
    tokio::join!(fixture.stop(), requests);
    let status = fixture
        .event(|event| match event {
            ProcessEvent::Exited { status, .. } => Some(*status),
            _ => None,
        })
        .await;
    assert_eq!(status.code(), Some(0));
    assert!(fixture.port_is_free());
}

#[tokio::test]
async fn a_drain_without_clients_ends_at_once() {
    let mut fixture = fixture(TIMEOUT * 10);
    fixture.ensure(fixture.bootstrap());
    fixture.serving().await;
    fixture.stop().await;
    assert!(fixture.port_is_free());
}

#[tokio::test]
async fn a_rejected_bootstrap_is_logged() {
    let mut fixture = fixture(Duration::ZERO);
    fixture.ensure("static_resources: { listeners: [ { nonsense: 1 } ] }".to_owned());
    let message = fixture
        .event(|event| match event {
            ProcessEvent::Log { line, .. } if line.level == Level::Critical => {
                Some(line.message.clone())
            }
            _ => None,
        })
        .await;
    assert!(message.contains("nonsense"), "{message}");
    fixture
        .event(|event| match event {
            ProcessEvent::Exited { status, .. } => (status.code() == Some(1)).then_some(()),
            _ => None,
        })
        .await;
}

#[tokio::test]
async fn the_admin_interface_responds() {
    let mut fixture = fixture(Duration::ZERO);
    fixture.ensure(fixture.bootstrap());
    fixture.serving().await;
    let admin = Admin::new(
        fixture
            .supervisor
            .dir(&FLEET.parse().expect("a fleet"))
            .admin_socket(),
    );
    let info = admin.get("/server_info").await.expect("a response");
    let info = String::from_utf8_lossy(&info);
    assert!(info.contains(binary::VERSION), "{info}");
    let error = admin.get("/no-such-page").await.unwrap_err();
    assert!(error.to_string().contains("404"), "{error}");
}
