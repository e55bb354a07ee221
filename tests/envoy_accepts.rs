//! Envoy accepts everything that Sesame generates: real Envoys receive random sets of objects, each as a change from
//! the previous one, and reject none.
//!
//! `SESAME_CASES` sets the number of sets. A failure prints the objects in a form that `sesame translate` reads.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use serde_json::{Value, json};
use sesame_control::core::{Input, Step};
use sesame_control::{FleetId, Options, Port};
use sesame_fleet::local::admin::Admin;
use sesame_fleet::local::{
    BootstrapFormat, EnvoySpec, ProcessEvent, ProcessEvents, Supervisor, SupervisorConfig, binary,
    ports,
};
use sesame_model::{FleetAddress, FleetState};
use sesame_testkit::generate::{self, GATEWAYS, PORTS, Set};
use sesame_tests::world::{World, cases, input};
use sesame_xds::{EventReceiver, Registry, Resource, ResourceType, Update, XdsEvent};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Envoys can share ports without an error, so only one test at a time may look for free ones.
static TURN: Mutex<()> = Mutex::new(());

/// Real Envoys, one per possible Gateway and one for the default fleet, and the world whose resources they receive.
struct Rig {
    world: World,
    before: Set,
    registry: Registry,
    events: EventReceiver,
    supervisor: Supervisor,
    processes: ProcessEvents,
    server: JoinHandle<()>,
    end_server: oneshot::Sender<()>,
    _dir: TempDir,
}

impl Rig {
    async fn start() -> Self {
        let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
        let dir = tempfile::tempdir().expect("a folder");
        let run_dir = dir.path().join("run");
        let mut config = SupervisorConfig::new(envoy.path, run_dir);
        config.drain = Duration::ZERO;
        let (supervisor, processes) = Supervisor::new(config).expect("a supervisor");

        let registry = Registry::new(sesame_xds::ServerConfig::default());
        let events = registry.events();
        let (end_server, ended) = oneshot::channel();
        let socket = dir.path().join("xds.sock");
        let incoming = UnixListenerStream::new(UnixListener::bind(&socket).expect("a socket"));
        let server = tokio::spawn({
            let registry = registry.clone();
            async move {
                let shutdown = async {
                    let _ = ended.await;
                };
                registry
                    .serve_incoming(incoming, shutdown)
                    .await
                    .expect("a server");
            }
        });

        let mut world = World::new(Options::default());
        let mut offsets = free_offsets();
        for fleet in fleets() {
            let state = FleetState {
                addresses: addresses(),
                port_offset: offsets.next().expect("free ports"),
                ready: true,
                ..FleetState::default()
            };
            world.apply([Input::Fleet(fleet.clone(), Some(state))]);
            let admin_socket = supervisor.dir(&fleet).admin_socket();
            let bootstrap = sesame_envoy::bootstrap(&sesame_control::BootstrapOptions {
                fleet: fleet.clone(),
                node_id: fleet.to_string(),
                xds: sesame_control::XdsAddress::Unix(socket.clone()),
                admin: sesame_control::Admin::Unix(admin_socket.clone()),
                max_connections: sesame_control::MAX_CONNECTIONS,
                memory_limit: None,
                module: supervisor.has_module(),
            });
            supervisor.ensure(EnvoySpec {
                fleet: fleet.clone(),
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
        let mut waiting: BTreeSet<FleetId> = fleets().collect();
        let all = async {
            while !waiting.is_empty() {
                match self.processes.recv().await.expect("an event") {
                    ProcessEvent::Ready { fleet, .. } => {
                        waiting.remove(&fleet);
                    }
                    ProcessEvent::Exited { fleet, status, .. } => {
                        panic!("Envoy of {fleet} exited: {status}")
                    }
                    ProcessEvent::Failed { message, .. } => panic!("{message}"),
                    ProcessEvent::Started { .. } | ProcessEvent::Log { .. } => {}
                }
            }
        };
        timeout(PATIENCE, all).await.expect("Envoys in time");
    }

    /// Changes the world to these objects and waits for the Envoys.
    ///
    /// # Errors
    /// The Envoys' rejections and timeouts.
    async fn change_to(&mut self, objects: &Set) -> Result<(), String> {
        let changes = objects.changes_from(&self.before);
        self.before = objects.clone();
        let step = self.world.apply(changes.into_iter().map(input));
        let mut waiting: BTreeSet<sesame_xds::FleetId> = BTreeSet::new();
        for (fleet, update) in updates(&step) {
            waiting.insert(fleet.clone());
            self.registry.apply(&fleet, update);
        }
        let touched = waiting.clone();
        let revision = step.commit.revision();
        let mut problems = Vec::new();
        let all = async {
            while !waiting.is_empty() {
                match self.events.next().await {
                    XdsEvent::Acked {
                        client,
                        revision: of,
                    } if of == revision => {
                        waiting.remove(&client.fleet);
                    }
                    XdsEvent::Rejected { fleet, rejection } => {
                        problems.push(format!("{fleet} rejected {rejection:?}"));
                    }
                    XdsEvent::WarmingTimedOut(client) => {
                        problems.push(format!("{}: cluster warming timed out", client.fleet));
                    }
                    XdsEvent::Disconnected(client) => {
                        problems.push(format!("{} has disconnected", client.fleet));
                        break;
                    }
                    XdsEvent::Acked { .. }
                    | XdsEvent::Recovered { .. }
                    | XdsEvent::Connected(_) => {}
                }
            }
        };
        if timeout(PATIENCE, all).await.is_err() {
            problems.push(format!("{waiting:?} did not respond"));
        }
        for fleet in touched {
            problems.extend(self.warming_listeners(&fleet).await);
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("\n"))
        }
    }

    /// Reports listeners that Envoy has accepted but that are still warming.
    async fn warming_listeners(&self, fleet: &sesame_xds::FleetId) -> Option<String> {
        let id = fleet.as_str().parse().expect("a fleet");
        let admin = Admin::new(self.supervisor.dir(&id).admin_socket());
        let started = Instant::now();
        loop {
            let path = "/stats?filter=^listener_manager.total_listeners_warming$";
            let stats = admin.get(path).await.map_err(|error| error.to_string());
            match stats.as_deref().map(|stats| stats.ends_with(b" 0\n")) {
                Ok(true) => return None,
                Ok(false) if started.elapsed() < PATIENCE => {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
                _ => return Some(format!("{fleet}: listeners are still warming: {stats:?}")),
            }
        }
    }

    async fn stop(self) {
        timeout(PATIENCE, self.supervisor.shutdown())
            .await
            .expect("the server exits in time");
        let _ = self.end_server.send(());
        timeout(PATIENCE, self.server)
            .await
            .expect("the server exits in time")
            .expect("the server exits without a panic");
    }
}

fn fleets() -> impl Iterator<Item = FleetId> {
    GATEWAYS
        .into_iter()
        .map(|(namespace, name)| FleetId::of_gateway(namespace, name))
        .chain([FleetId::Default])
}

fn xds_id(fleet: &FleetId) -> sesame_xds::FleetId {
    sesame_xds::FleetId::new(fleet.to_string())
}

/// The changes for each fleet, in the form the xDS server accepts.
fn updates(step: &Step) -> BTreeMap<sesame_xds::FleetId, Update> {
    let mut updates: BTreeMap<sesame_xds::FleetId, Update> = BTreeMap::new();
    for change in &step.resources {
        let ty = ResourceType::from_type_url(change.type_url).expect("a supported type");
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

/// An address that no outgoing connection uses: assigned ports with an offset are among the ephemeral ports.
const LOOPBACK: Ipv4Addr = Ipv4Addr::new(127, 87, 0, 1);

/// The loopback addresses for listeners.
fn addresses() -> Vec<FleetAddress> {
    let ips = [IpAddr::V4(LOOPBACK), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    ips.into_iter()
        .filter(|&ip| ports::probe(ip, Port::tcp(0)).is_ok())
        .map(FleetAddress::Ip)
        .collect()
}

/// Offsets at which the fixed ports of a Gateway are free.
fn free_offsets() -> impl Iterator<Item = u16> {
    let all_free = |offset: &u16| {
        let mut free = PORTS
            .iter()
            .chain(&[1])
            .map(|port| ports::probe(IpAddr::V4(LOOPBACK), Port::tcp(port + offset)));
        free.all(|probed| probed.is_ok())
    };
    // The step keeps the ports of different Gateways distinct.
    (10_000..20_000).step_by(1_013).filter(all_free)
}

/// Tries random values, panics with a minimal failing one, and stops the Envoys.
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
        let done = runtime.block_on(rig.borrow_mut().change_to(&set));
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
fn envoy_accepts_every_set() {
    try_all(generate::sets(), cases(2_000), Set::clone);
}

#[test]
fn envoy_accepts_many_routes_of_one_kind() {
    try_all(Just(generate::crowds()), 1, Set::clone);
}

#[test]
fn envoy_accepts_every_regular_expression() {
    let few = prop::collection::vec(generate::regexes(), 1..16);
    try_all(few, cases(2_000).div_ceil(4), |regexes| route_with(regexes));
}

/// A route that matches paths by these regular expressions.
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
