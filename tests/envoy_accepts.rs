//! Envoy takes whatever is translated: random sets of objects go to real Envoys, one set after the other as changes of the
//! one before, and none is answered by a rejection.
//!
//! `SESAME_CASES` says how many sets. A failure prints the objects as a file for `sesame translate`.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use serde_json::{Value, json};
use sesame_control::core::{Input, Step};
use sesame_control::{FleetId, Options};
use sesame_fleet::local::admin::Admin;
use sesame_fleet::local::{
    BootstrapFormat, Config, Event as Process, Events as Processes, FleetSpec, Supervisor, binary,
    ports,
};
use sesame_testkit::generate::{self, GATEWAYS, PORTS, Set};
use sesame_tests::world::{World, cases, input};
use sesame_translate::fleet::{FleetAddress, FleetState};
use sesame_xds::{Event, Events, Registry, Resource, ResourceType, Update};
use tempfile::TempDir;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// For a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// Envoys share ports without a word, so that only one test at a time may look for free ones.
static TURN: Mutex<()> = Mutex::new(());

/// Real Envoys, one for each Gateway that there can be, and a world whose resources they get.
struct Rig {
    world: World,
    before: Set,
    registry: Registry,
    events: Events,
    supervisor: Supervisor,
    processes: Processes,
    server: JoinHandle<()>,
    end_server: oneshot::Sender<()>,
    _dir: TempDir,
}

impl Rig {
    async fn start() -> Self {
        let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
        let dir = tempfile::tempdir().expect("a folder");
        let run_dir = dir.path().join("run");
        let mut config = Config::new(envoy.path, run_dir);
        config.drain = Duration::ZERO;
        let (supervisor, processes) = Supervisor::new(config).expect("a supervisor");

        let registry = Registry::new(sesame_xds::Config::default());
        let events = registry.events();
        let (end_server, ended) = oneshot::channel();
        let socket = dir.path().join("xds.sock");
        let server = tokio::spawn({
            let (registry, socket) = (registry.clone(), socket.clone());
            async move {
                let shutdown = async {
                    let _ = ended.await;
                };
                registry
                    .serve_unix(&socket, shutdown)
                    .await
                    .expect("a server");
            }
        });

        let mut world = World::new(Options::default());
        let mut offsets = free_offsets();
        for fleet in fleets() {
            let state = FleetState {
                addresses: addresses(),
                port_offset: offsets.next().expect("ports that nobody uses"),
                ready: true,
                ..FleetState::default()
            };
            world.apply([Input::Fleet(fleet.clone(), Some(state))]);
            let admin_socket = supervisor.dir(fleet.as_str()).admin_socket();
            let bootstrap = sesame_envoy::bootstrap(&sesame_control::BootstrapOptions {
                fleet: fleet.clone(),
                node_id: fleet.to_string(),
                xds: sesame_control::XdsAddress::Unix(socket.clone()),
                admin: sesame_control::Admin::Unix(admin_socket.clone()),
                max_connections: sesame_control::MAX_CONNECTIONS,
                memory_limit: None,
                module: supervisor.has_module(),
            });
            supervisor.ensure(FleetSpec {
                id: fleet.to_string(),
                bootstrap: prost::Message::encode_to_vec(&bootstrap),
                format: BootstrapFormat::Protobuf,
                concurrency: Some(1),
                admin_socket,
            });
            registry.apply(&xds_id(&fleet), Update::default());
        }
        let mut rig = Self {
            world,
            before: Set::default(),
            registry,
            events,
            supervisor,
            processes,
            server,
            end_server,
            _dir: dir,
        };
        rig.wait_until_ready().await;
        rig
    }

    async fn wait_until_ready(&mut self) {
        let mut waiting: BTreeSet<Arc<str>> =
            fleets().map(|fleet| fleet.to_string().into()).collect();
        let all = async {
            while !waiting.is_empty() {
                match self.processes.recv().await.expect("an event") {
                    Process::Ready { id, .. } => {
                        waiting.remove(&id);
                    }
                    Process::Exited { id, status, .. } => panic!("Envoy of {id} ended: {status}"),
                    Process::Failed { message, .. } => panic!("{message}"),
                    Process::Started { .. } | Process::Log { .. } => {}
                }
            }
        };
        timeout(PATIENCE, all).await.expect("Envoys in time");
    }

    /// Has the Envoys go over to these objects.
    ///
    /// # Errors
    /// What they say against it.
    async fn go_over(&mut self, objects: &Set) -> Result<(), String> {
        let changes = objects.changes_from(&self.before);
        self.before = objects.clone();
        let step = self.world.apply(changes.into_iter().map(input));
        let mut waiting: BTreeSet<Arc<str>> = BTreeSet::new();
        for (fleet, update) in updates(&step) {
            waiting.insert(fleet.as_str().into());
            self.registry.apply(&fleet, update);
        }
        let touched = waiting.clone();
        let revision = step.commit.revision();
        let mut problems = Vec::new();
        let all = async {
            while !waiting.is_empty() {
                match self.events.next().await {
                    Event::Acked {
                        fleet,
                        revision: of,
                        ..
                    } if of == revision => {
                        waiting.remove(fleet.as_str());
                    }
                    Event::Rejected {
                        fleet,
                        resource_type,
                        name,
                        message,
                        ..
                    } => {
                        problems.push(format!("{fleet} refuses {resource_type} {name}: {message}"))
                    }
                    Event::WarmingTimedOut { fleet, .. } => {
                        problems.push(format!("{fleet} did not get its clusters ready"));
                    }
                    Event::Disconnected { fleet, .. } => {
                        problems.push(format!("{fleet} is gone"));
                        break;
                    }
                    Event::Acked { .. } | Event::Recovered { .. } | Event::Connected { .. } => {}
                }
            }
        };
        if timeout(PATIENCE, all).await.is_err() {
            problems.push(format!("{waiting:?} did not answer"));
        }
        for fleet in touched {
            problems.extend(self.idle_listeners(&fleet).await);
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("\n"))
        }
    }

    /// Listeners that Envoy has taken, and for which it still waits for something that never comes.
    async fn idle_listeners(&self, fleet: &str) -> Option<String> {
        let admin = Admin::new(self.supervisor.dir(fleet).admin_socket());
        let started = Instant::now();
        loop {
            let path = "/stats?filter=^listener_manager.total_listeners_warming$";
            let stats = admin.get(path).await.map_err(|error| error.to_string());
            match stats.as_deref().map(|stats| stats.ends_with(b" 0\n")) {
                Ok(true) => return None,
                Ok(false) if started.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                _ => return Some(format!("{fleet}: listeners are not ready: {stats:?}")),
            }
        }
    }

    async fn stop(self) {
        timeout(PATIENCE, self.supervisor.shutdown())
            .await
            .expect("ended in time");
        let _ = self.end_server.send(());
        timeout(PATIENCE, self.server)
            .await
            .expect("ended in time")
            .expect("a server that ended well");
    }
}

fn fleets() -> impl Iterator<Item = FleetId> {
    GATEWAYS
        .into_iter()
        .map(|(namespace, name)| FleetId::of_gateway(namespace, name))
}

fn xds_id(fleet: &FleetId) -> sesame_xds::FleetId {
    sesame_xds::FleetId::new(fleet.as_str())
}

/// What the fleets get, as the server takes it.
fn updates(step: &Step) -> BTreeMap<sesame_xds::FleetId, Update> {
    let mut updates: BTreeMap<sesame_xds::FleetId, Update> = BTreeMap::new();
    for change in &step.resources {
        let ty = ResourceType::from_type_url(change.type_url).expect("a type that is spoken");
        let update = updates.entry(xds_id(&change.fleet)).or_default();
        update.revision = step.commit.revision();
        match change.message() {
            Some(message) => {
                let resource = Resource::new(change.name.as_str(), message);
                update.upserts.push((ty, resource));
            }
            None => update.removals.push((ty, change.name.as_str().into())),
        }
    }
    updates
}

/// The machine's loopback addresses.
fn addresses() -> Vec<FleetAddress> {
    let ips = [
        IpAddr::V4(Ipv4Addr::LOCALHOST),
        IpAddr::V6(Ipv6Addr::LOCALHOST),
    ];
    ips.into_iter()
        .filter(|&ip| ports::probe(ip, 0).is_ok())
        .map(FleetAddress::Ip)
        .collect()
}

/// Offsets with which all ports of a Gateway are free, below the ports that systems give to clients.
fn free_offsets() -> impl Iterator<Item = u16> {
    let all_free = |offset: &u16| {
        let mut free = PORTS
            .iter()
            .chain(&[1])
            .map(|port| ports::probe(IpAddr::V4(Ipv4Addr::LOCALHOST), port + offset));
        free.all(|probed| probed.is_ok())
    };
    // Steps such that no two Gateways ever share a port.
    (10_000..20_000).step_by(1_013).filter(all_free)
}

/// Tries random values, prints one that is wrong as small as possible, and ends the Envoys either way.
fn try_all<T: std::fmt::Debug>(
    strategy: impl Strategy<Value = T>,
    count: u32,
    objects: impl Fn(&T) -> Set,
) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::new().expect("a runtime");
    let rig = RefCell::new(runtime.block_on(Rig::start()));
    let mut runner = TestRunner::new(ProptestConfig {
        cases: count,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    });
    let result = runner.run(&strategy.prop_map(|value| objects(&value)), |set| {
        let done = runtime.block_on(rig.borrow_mut().go_over(&set));
        done.map_err(TestCaseError::fail)
    });
    runtime.block_on(rig.into_inner().stop());
    match result {
        Ok(()) => {}
        Err(TestError::Fail(reason, set)) => panic!("{reason}\n\n{set:?}"),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

#[test]
fn envoy_takes_every_set() {
    try_all(generate::sets(), cases(2_000), Set::clone);
}

#[test]
fn envoy_takes_every_regular_expression() {
    let few = prop::collection::vec(generate::regexes(), 1..16);
    try_all(few, cases(2_000).div_ceil(4), |regexes| route_with(regexes));
}

/// One route that matches paths by these expressions.
fn route_with(regexes: &[String]) -> Set {
    let path = |regex: &String| json!({"matches": [{"path": {"type": "RegularExpression", "value": regex}}]});
    let rules: Vec<Value> = regexes.iter().map(path).collect();
    let [(namespace, name), ..] = GATEWAYS;
    Set::new([
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "gatewayClassName": "sesame",
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
            },
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"namespace": namespace, "name": "route"},
            "spec": {"parentRefs": [{"name": name}], "rules": rules},
        }),
    ])
}
