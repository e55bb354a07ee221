//! The supervisor with a real Envoy: it serves, survives a kill, drains, and releases its port.

use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sesame_fleet::local::admin::Admin;
use sesame_fleet::local::{
    BootstrapFormat, EnvoySpec, Level, ProcessEvent, ProcessEvents, Supervisor, SupervisorConfig,
    binary, ports,
};
use sesame_model::Port;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Generous, for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

const FLEET: &str = "default/web";

struct Rig {
    supervisor: Supervisor,
    events: ProcessEvents,
    port: u16,
    _dir: TempDir,
}

fn rig(drain: Duration) -> Rig {
    let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
    let dir = tempfile::tempdir().expect("a folder for the test");
    let mut config = SupervisorConfig::new(envoy.path, dir.path().join("run"));
    config.drain = drain;
    let (supervisor, events) = Supervisor::new(config).expect("a supervisor");
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = free.local_addr().expect("its number").port();
    Rig {
        supervisor,
        events,
        port,
        _dir: dir,
    }
}

impl Rig {
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

    /// Answers everything with `hello`.
    fn bootstrap(&self) -> String {
        format!(
            r#"
admin: {{ address: {{ pipe: {{ path: "{admin}" }} }} }}
static_resources:
  listeners:
  - name: web
    address: {{ socket_address: {{ address: 127.0.0.1, port_value: {port} }} }}
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
            port = self.port,
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
        timeout(PATIENCE, search).await.expect("an event in time")
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
            PATIENCE,
            self.supervisor.stop(&FLEET.parse().expect("a fleet")),
        )
        .await
        .expect("stopped in time");
    }

    fn port_is_free(&self) -> bool {
        ports::probe(IpAddr::V4(Ipv4Addr::LOCALHOST), Port::tcp(self.port)).is_ok()
    }
}

/// A connection that stays open between requests.
struct Client(TcpStream);

impl Client {
    async fn connect(port: u16) -> Self {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port));
        Self(stream.await.expect("a connection"))
    }

    /// The whole answer, which ends with the body `hello`.
    async fn get(&mut self) -> String {
        self.0
            .write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n")
            .await
            .expect("a request sent");
        let mut answer = String::new();
        let mut buffer = [0; 4096];
        while !answer.ends_with("hello") {
            let n = self.0.read(&mut buffer).await.expect("an answer");
            assert!(n > 0, "cut off behind {answer:?}");
            answer.push_str(std::str::from_utf8(&buffer[..n]).expect("text"));
        }
        answer
    }
}

#[tokio::test]
async fn serves_survives_a_kill_and_frees_its_port() {
    let mut rig = rig(Duration::from_secs(1));
    rig.ensure(rig.bootstrap());
    let first = rig.serving().await;
    assert!(!rig.port_is_free());
    let answer = Client::connect(rig.port).await.get().await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");

    kill(first, Signal::SIGKILL).expect("a process to kill");
    let second = rig.serving().await;
    assert_ne!(first, second);
    Client::connect(rig.port).await.get().await;

    rig.stop().await;
    assert!(rig.port_is_free());
}

#[tokio::test]
async fn ends_when_the_last_client_has_gone_and_not_before() {
    // The test would time out if the drain took the whole time.
    let mut rig = rig(PATIENCE * 10);
    rig.ensure(rig.bootstrap());
    rig.serving().await;
    let mut client = Client::connect(rig.port).await;
    let answer = client.get().await;
    assert!(!answer.contains("connection: close"), "{answer}");

    let port = rig.port;
    let visit = async {
        // Long enough for an end that doesn't wait.
        sleep(Duration::from_millis(500)).await;
        Client::connect(port).await.get().await;
        let answer = client.get().await;
        assert!(answer.contains("connection: close"), "{answer}");
        drop(client);
    };
    tokio::join!(rig.stop(), visit);
    let status = rig
        .event(|event| match event {
            ProcessEvent::Exited { status, .. } => Some(*status),
            _ => None,
        })
        .await;
    assert_eq!(status.code(), Some(0));
    assert!(rig.port_is_free());
}

#[tokio::test]
async fn without_clients_the_drain_time_is_not_waited_for() {
    let mut rig = rig(PATIENCE * 10);
    rig.ensure(rig.bootstrap());
    rig.serving().await;
    rig.stop().await;
    assert!(rig.port_is_free());
}

#[tokio::test]
async fn a_bootstrap_that_envoy_refuses_is_in_the_log() {
    let mut rig = rig(Duration::ZERO);
    rig.ensure("static_resources: { listeners: [ { nonsense: 1 } ] }".to_owned());
    let message = rig
        .event(|event| match event {
            ProcessEvent::Log { line, .. } if line.level == Level::Critical => {
                Some(line.message.clone())
            }
            _ => None,
        })
        .await;
    assert!(message.contains("nonsense"), "{message}");
    rig.event(|event| match event {
        ProcessEvent::Exited { status, .. } => (status.code() == Some(1)).then_some(()),
        _ => None,
    })
    .await;
}

#[tokio::test]
async fn the_admin_interface_answers() {
    let mut rig = rig(Duration::ZERO);
    rig.ensure(rig.bootstrap());
    rig.serving().await;
    let admin = Admin::new(
        rig.supervisor
            .dir(&FLEET.parse().expect("a fleet"))
            .admin_socket(),
    );
    let info = admin.get("/server_info").await.expect("an answer");
    let info = String::from_utf8_lossy(&info);
    assert!(info.contains(binary::VERSION), "{info}");
    let refused = admin.get("/no-such-page").await.unwrap_err();
    assert!(refused.to_string().contains("404"), "{refused}");
}
