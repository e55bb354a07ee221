//! A local run with real files and real streams, and fake Envoys.
//!
//! Each test has its own loopback address, so tests don't interfere.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use sesame_control::event::{ChangeKind, RunEvent};
use sesame_control::files::FilesConfig;
use sesame_control::local::{Events, Local, LocalConfig};
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Request, send};
use sesame_testkit::fake_envoy::{FakeEnvoy, Message, Server, State};
use sesame_xds::ResourceType::{self, Cluster, Listener, Route, Secret};
use tempfile::{NamedTempFile, TempDir};
use tokio::time::timeout;

/// Longer than any step takes, even on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(30);
const PORT: u16 = 8080;

struct Run {
    files: TempDir,
    address: String,
    local: Local,
    events: Events,
}

/// Starts a run with a Gateway `ns/edge` and a Service `ns/shop`.
async fn start(address: &str, change: impl FnOnce(&mut LocalConfig)) -> Run {
    let files = tempfile::tempdir().unwrap();
    write(files.path(), "gateway.yaml", &gateway(address));
    write(
        files.path(),
        "service.yaml",
        "apiVersion: v1\nkind: Service\nmetadata: {name: shop, namespace: ns}\nspec: {ports: [{port: 80}]}\n",
    );
    let envoy = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/envoy.sh");
    let mut config = LocalConfig::new(FilesConfig::new([files.path()]), envoy);
    config.drain = Duration::ZERO;
    change(&mut config);
    let (local, events) = Local::start(config).await.unwrap();
    Run {
        files,
        address: address.to_owned(),
        local,
        events,
    }
}

fn gateway(address: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {{name: edge, namespace: ns}}\n\
         spec:\n  gatewayClassName: sesame\n  addresses: [{{value: {address}}}]\n\
         \x20 listeners: [{{name: web, port: {PORT}, protocol: HTTP}}]\n"
    )
}

fn route(hostname: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: HTTPRoute\nmetadata: {{name: shop, namespace: ns}}\n\
         spec:\n  parentRefs: [{{name: edge}}]\n  hostnames: [{hostname}]\n\
         \x20 rules: [{{backendRefs: [{{name: shop, port: 80}}]}}]\n"
    )
}

/// Writes or replaces a file atomically, by renaming.
fn write(folder: &Path, name: &str, text: &str) {
    let mut file = NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    file.persist(folder.join(name)).unwrap();
}

impl Run {
    /// An Envoy of the Gateway. It rejects a resource if `bad` returns true for its type and bytes as text.
    async fn envoy(
        &self,
        bad: impl Fn(ResourceType, &str) -> bool + Send + Sync + 'static,
    ) -> FakeEnvoy {
        FakeEnvoy::builder("ns/edge", "local")
            .follow(|ty, _| match ty {
                Listener => vec![(Route, PORT.to_string())],
                _ => Vec::new(),
            })
            .reject(move |ty, _, body| {
                bad(ty, &String::from_utf8_lossy(body)).then(|| "invalid part".to_owned())
            })
            .connect(Server::Unix(self.local.xds_socket()))
            .await
            .unwrap()
    }

    /// Waits for an event for which `find` returns a value.
    async fn until<T>(&mut self, what: &str, mut find: impl FnMut(&RunEvent) -> Option<T>) -> T {
        let mut received = Vec::new();
        let events = &mut self.events;
        let found = timeout(TIMEOUT, async {
            loop {
                let event = events.recv().await.unwrap();
                if let Some(found) = find(&event) {
                    return found;
                }
                received.push(event);
            }
        });
        match found.await {
            Ok(found) => found,
            Err(_) => panic!("no {what} among {received:#?}"),
        }
    }

    async fn ready(&mut self) -> usize {
        self.until("ready", |event| match event {
            RunEvent::Ready { gateways, .. } => Some(*gateways),
            _ => None,
        })
        .await
    }

    /// Waits for a condition of the Gateway, or of its listener, to have this status and reason.
    async fn condition(&mut self, part: Option<&str>, type_: &str, reason: &str) -> String {
        self.until(reason, |event| match event {
            RunEvent::Status { changes, .. } => changes
                .iter()
                .find(|change| {
                    change.object.to_string() == "Gateway/ns/edge"
                        && change.part.as_deref() == part
                        && change.condition == type_
                        && change.reason == reason
                })
                .map(|change| change.message.clone()),
            _ => None,
        })
        .await
    }

    fn status_of(&self, kind: &str) -> Value {
        let statuses = self.local.status_store().statuses();
        let found = statuses.into_iter().find(|s| s.key.kind.as_str() == kind);
        found.map(|found| found.status).unwrap_or_default()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn files_and_their_changes_are_served() {
    let mut run = start("127.0.77.1", |_| {}).await;
    write(run.files.path(), "route.yaml", &route("a.example"));
    let envoy = run.envoy(|_, _| false).await;
    assert_eq!(run.ready().await, 1);
    envoy
        .until(|state| state.names(Cluster) == ["ns/shop:80"] && state.names(Route) == ["8080"])
        .await
        .unwrap();
    let status = run.status_of("Gateway");
    assert_eq!(status["addresses"][0]["value"], run.address);
    for condition in status["conditions"].as_array().unwrap() {
        assert_eq!(condition["status"], "True", "{status:#}");
        assert!(condition["lastTransitionTime"].is_string());
    }

    write(run.files.path(), "route.yaml", &route("b.example"));
    let revision = run
        .until("change", |event| match event {
            RunEvent::Change {
                revision,
                objects,
                resources: 1,
                ..
            } if objects[0].change == ChangeKind::Changed => Some(*revision),
            _ => None,
        })
        .await;
    let after = run
        .until("served", |event| match event {
            RunEvent::Served {
                revision: served,
                gateway,
                after_ms,
            } if *served == revision && gateway == "ns/edge" => Some(*after_ms),
            _ => None,
        })
        .await;
    assert!(after > 0.0);
    let has = |name: &str| {
        let body = envoy.state().body(Route, "8080").unwrap().to_vec();
        String::from_utf8_lossy(&body).contains(name)
    };
    assert!(has("b.example") && !has("a.example"));
    run.local.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejection_stays_in_the_status_until_it_is_fixed() {
    let mut run = start("127.0.77.2", |_| {}).await;
    let bad = |ty, body: &str| ty == Route && body.contains("bad.example");
    let _envoy = run.envoy(bad).await;
    run.ready().await;
    let part = Some("listener web");
    write(run.files.path(), "route.yaml", &route("bad.example"));
    let message = run.condition(part, "Programmed", "Invalid").await;
    assert!(message.contains("invalid part"), "{message}");
    write(run.files.path(), "route.yaml", &route("good.example"));
    run.condition(part, "Programmed", "Programmed").await;
    run.local.shutdown().await;
}

/// The Gateway with these listeners.
fn gateway_with(address: &str, listeners: &[String]) -> String {
    gateway(address).replace(
        &format!("{{name: web, port: {PORT}, protocol: HTTP}}"),
        &listeners.join(", "),
    )
}

/// HTTPS listeners with these names, whose certificates are in Secrets of the same names.
fn https_gateway(address: &str, names: &[&str]) -> String {
    let listener = |name: &&str| {
        format!(
            "{{name: {name}, hostname: {name}.example, port: {PORT}, protocol: HTTPS, \
             tls: {{certificateRefs: [{{name: {name}}}]}}}}"
        )
    };
    gateway_with(address, &names.iter().map(listener).collect::<Vec<_>>())
}

/// A Secret with a new certificate. JSON is YAML.
fn secret(name: &str) -> (String, Identity) {
    let identity = Identity::self_signed(&[&format!("{name}.example")]).unwrap();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "ns"},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": identity.chain, "tls.key": identity.private_key},
    });
    (secret.to_string(), identity)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_certificate_is_in_the_status_of_its_listener_only() {
    let address = "127.0.77.20";
    let mut run = start(address, |_| {}).await;
    let (rejected, identity) = secret("bad");
    // A line of its signature.
    let part_of_it = identity.chain.lines().rev().nth(2).unwrap().to_owned();
    let envoy = FakeEnvoy::builder("ns/edge", "local")
        .follow(|ty, body| {
            let body = String::from_utf8_lossy(body);
            let names = ["ns/good", "ns/bad"].into_iter();
            let secrets = names.filter(|name| ty == Listener && body.contains(name));
            secrets.map(|name| (Secret, name.to_owned())).collect()
        })
        .reject(move |ty, _, body| {
            let body = String::from_utf8_lossy(body);
            (ty == Secret && body.contains(&part_of_it)).then(|| "invalid part".to_owned())
        })
        .connect(Server::Unix(run.local.xds_socket()))
        .await
        .unwrap();
    run.ready().await;
    for name in ["good", "bad"] {
        write(run.files.path(), &format!("{name}.yaml"), &secret(name).0);
    }
    let gateway = https_gateway(address, &["good", "bad"]);
    write(run.files.path(), "gateway.yaml", &gateway);
    envoy
        .until(|state| state.names(Secret) == ["ns/bad", "ns/good"])
        .await
        .unwrap();

    write(run.files.path(), "bad.yaml", &rejected);
    let part = Some("listener bad");
    let message = run.condition(part, "Programmed", "Invalid").await;
    assert!(message.contains("invalid part"), "{message}");
    // What `sesame status` shows.
    let shown = |run: &Run| {
        let overview = run.local.status_store().overview(1, 0);
        let listeners = overview.gateways[0].listeners.iter();
        let messages = listeners.map(|listener| listener.message.clone().unwrap_or_default());
        messages.collect::<Vec<_>>()
    };
    assert_eq!(shown(&run), [String::new(), message]);

    write(run.files.path(), "bad.yaml", &secret("bad").0);
    run.condition(part, "Programmed", "Programmed").await;
    assert_eq!(shown(&run), ["", ""]);
    run.local.shutdown().await;
}

/// TLS listeners with these names, which are their hostnames' first labels.
fn tls_gateway(address: &str, names: &[&str]) -> String {
    let listener = |name: &&str| {
        format!(
            "{{name: {name}, hostname: {name}.example, port: {PORT}, protocol: TLS, tls: {{mode: Passthrough}}}}"
        )
    };
    gateway_with(address, &names.iter().map(listener).collect::<Vec<_>>())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rejected_filter_chain_does_not_affect_others() {
    let address = "127.0.77.19";
    let mut run = start(address, |config| {
        config.admin = Some("127.0.77.19:0".parse().unwrap());
    })
    .await;
    let admin = run.local.admin().unwrap();
    let until = async |path: &str, wanted: &dyn Fn(&str) -> bool| {
        let request = Request::get("localhost", path);
        let shown = async {
            loop {
                let page = send(admin, &request).await.unwrap().body;
                if wanted(&String::from_utf8_lossy(&page)) {
                    return;
                }
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(TIMEOUT, shown).await.expect(path);
    };
    let shows = async |path: &str, line: &str| until(path, &|page| page.contains(line)).await;
    let bad = |ty, body: &str| ty == Listener && body.contains("8080/bad.example");
    let envoy = run.envoy(bad).await;
    run.ready().await;
    let change = |run: &Run, names| {
        write(
            run.files.path(),
            "gateway.yaml",
            &tls_gateway(address, names),
        )
    };
    let has = |state: &State, text: &str| {
        let listener = state.body(Listener, "8080").unwrap_or_default();
        String::from_utf8_lossy(listener).contains(text)
    };

    change(&run, &["good", "bad", "other"]);
    let message = run
        .condition(Some("listener bad"), "Programmed", "Invalid")
        .await;
    assert!(message.contains("invalid part"), "{message}");
    envoy
        .until(|state| {
            has(state, "8080/good.example")
                && has(state, "8080/other.example")
                && has(state, "refused")
        })
        .await
        .unwrap();
    assert!(has(&envoy.state(), "bad.example"));
    shows("/metrics", "sesame_rejected_parts 1").await;
    let rejected = "ok\nan Envoy of ns/edge rejected the filter chain of ";
    shows("/readyz", rejected).await;

    // A new Envoy gets the others too, and nothing that it rejects.
    let fresh = run.envoy(bad).await;
    fresh
        .until(|state| has(state, "8080/good.example") && has(state, "8080/other.example"))
        .await
        .unwrap();
    let rejects = |message: &Message| matches!(message, Message::Nack(..));
    assert!(!fresh.state().messages().iter().any(rejects));

    change(&run, &["good", "bad", "new"]);
    envoy
        .until(|state| has(state, "8080/new.example") && !has(state, "other.example"))
        .await
        .unwrap();

    change(&run, &["good", "new"]);
    envoy
        .until(|state| !has(state, "bad.example"))
        .await
        .unwrap();
    shows("/metrics", "sesame_rejected_parts 0").await;
    until("/readyz", &|page| page == "ok\n").await;
    run.local.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_is_not_programmed_while_its_envoy_is_down() {
    let mut run = start("127.0.77.3", |_| {}).await;
    let mut envoy = run.envoy(|_, _| false).await;
    let (mut pid, mut ready) = (None, false);
    let pid = run
        .until("ready, and envoy-started", |event| {
            match event {
                RunEvent::EnvoyStarted { pid: of, .. } => pid = Some(*of),
                RunEvent::Ready { .. } => ready = true,
                _ => {}
            }
            pid.filter(|_| ready)
        })
        .await;
    envoy.disconnect();
    let kill = tokio::process::Command::new("kill")
        .args(["-KILL", &pid.to_string()])
        .status();
    assert!(kill.await.unwrap().success());
    run.condition(None, "Programmed", "Pending").await;
    envoy.reconnect().await.unwrap();
    run.condition(None, "Programmed", "Programmed").await;
    run.local.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_envoy_of_a_removed_gateway_is_stopped() {
    let mut run = start("127.0.77.4", |_| {}).await;
    let envoy = run.envoy(|_, _| false).await;
    run.ready().await;
    fs::remove_file(run.files.path().join("gateway.yaml")).unwrap();
    let restart = run
        .until("envoy-exited", |event| match event {
            RunEvent::EnvoyExited { restart_in_ms, .. } => Some(*restart_in_ms),
            _ => None,
        })
        .await;
    assert_eq!(restart, None);
    envoy.until(|state| state.ended().is_some()).await.unwrap();
    assert_eq!(run.local.status_store().statuses(), []);
    run.local.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_port_in_use_is_reported_and_assigned_once_it_is_free() {
    let other = TcpListener::bind(("127.0.77.5", PORT)).unwrap();
    let mut run = start("127.0.77.5", |_| {}).await;
    let part = Some("listener web");
    let message = run.condition(part, "Accepted", "PortUnavailable").await;
    assert!(message.contains("in use by another program"), "{message}");
    assert_eq!(run.ready().await, 0, "no Envoy needs to serve");
    drop(other);
    run.until("envoy-started", |event| {
        matches!(event, RunEvent::EnvoyStarted { .. }).then_some(())
    })
    .await;
    let envoy = run.envoy(|_, _| false).await;
    run.condition(None, "Programmed", "Programmed").await;
    assert_eq!(envoy.state().names(Listener), ["8080"]);
    run.local.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_envoy_that_cannot_be_started_is_reported() {
    let mut run = start("127.0.77.6", |config| {
        config.envoy = "/nowhere/envoy".into()
    })
    .await;
    let message = run
        .until("envoy-failed", |event| match event {
            RunEvent::EnvoyFailed { message, .. } => Some(message.clone()),
            _ => None,
        })
        .await;
    assert!(message.contains("/nowhere/envoy"), "{message}");
    assert_eq!(run.ready().await, 0);
    run.local.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_in_files_are_reported_and_other_files_are_served() {
    let mut run = start("127.0.77.7", |_| {}).await;
    let _envoy = run.envoy(|_, _| false).await;
    assert_eq!(run.ready().await, 1);
    write(run.files.path(), "broken.yaml", "a: b: c\n");
    let text = |event: &RunEvent| match event {
        RunEvent::Problem(problem) => Some(problem.text.clone()),
        _ => None,
    };
    let problem = run.until("problem", text).await;
    assert!(problem.contains("broken.yaml:1:"), "{problem}");
    assert_eq!(run.local.status_store().problems().len(), 1);
    fs::remove_file(run.files.path().join("broken.yaml")).unwrap();
    run.until("problem-solved", |event| {
        matches!(event, RunEvent::ProblemSolved(_)).then_some(())
    })
    .await;
    run.local.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn admin_pages_show_the_state() {
    let mut run = start("127.0.77.8", |config| {
        config.admin = Some("127.0.77.8:0".parse().unwrap());
    })
    .await;
    let admin = run.local.admin().unwrap();
    let page = async |path: &str| {
        let request = Request::get("localhost", path);
        send(admin, &request).await.unwrap()
    };
    let envoy = run.envoy(|_, _| false).await;
    run.ready().await;
    envoy
        .until(|state| !state.names(Route).is_empty())
        .await
        .unwrap();

    assert_eq!(page("/healthz").await.status, 200);
    assert_eq!(page("/readyz").await.status, 200);
    let status = page("/status").await.json();
    assert_eq!(status[0]["kind"], "Gateway");
    assert_eq!(status[0]["metadata"]["name"], "edge");
    let fleets = page("/fleets").await.json();
    assert_eq!(fleets[0]["fleet"], "ns/edge");
    assert_eq!(fleets[0]["resources"]["listener"], 1);
    assert_eq!(fleets[0]["clients"][0]["nodeId"], "local");
    let config = page("/config?fleet=ns/edge").await.json();
    assert_eq!(config["listeners"][0]["name"], "8080");
    assert_eq!(page("/config").await.status, 400);
    assert_eq!(page("/config?fleet=ns/none").await.status, 404);
    let metrics = page("/metrics").await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    for line in [
        "sesame_objects{kind=\"Gateway\"} 1",
        "sesame_served_seconds_count 1",
        "# EOF",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    assert!(page("/debug/engine").await.json()["rows"].as_u64() > Some(1));
    assert_eq!(page("/problems").await.json(), serde_json::json!([]));
    assert_eq!(page("/nothing").await.status, 404);
    // The Host may resolve to this address, but isn't localhost.
    for path in ["/status", "/metrics", "/nothing"] {
        let request = Request::get("rebound.example", path);
        assert_eq!(send(admin, &request).await.unwrap().status, 403, "{path}");
    }
    run.local.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_removes_processes_and_files() {
    let mut run = start("127.0.77.9", |_| {}).await;
    let _envoy = run.envoy(|_, _| false).await;
    let pid = run
        .until("envoy-started", |event| match event {
            RunEvent::EnvoyStarted { pid, .. } => Some(*pid),
            _ => None,
        })
        .await;
    let socket: PathBuf = run.local.xds_socket();
    assert!(socket.exists());
    run.local.shutdown().await;
    let mut events = std::iter::from_fn(|| run.events.try_recv().ok());
    assert!(events.any(|event| matches!(event, RunEvent::EnvoyExited { .. })));
    assert!(!socket.parent().unwrap().exists());
    assert!(!Path::new(&format!("/proc/{pid}")).exists() || cfg!(not(target_os = "linux")));
}
