//! Real Envoys that receive the resources of a world.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::{Duration, Instant};

use envoy_types::pb::envoy::config::core::v3::address::Address as Place;
use envoy_types::pb::envoy::config::core::v3::socket_address::PortSpecifier;
use envoy_types::pb::envoy::config::listener::v3::Listener;
use prost::Message;
use sesame_control::core::{Input, Step};
use sesame_control::{FleetId, Port};
use sesame_fleet::local::admin::Admin;
use sesame_fleet::local::{
    BootstrapFormat, EnvoySpec, ProcessEvent, ProcessEvents, Supervisor, SupervisorConfig, binary,
    ports,
};
use sesame_model::{FleetAddress, FleetState};
use sesame_testkit::generate::{PORTS, Set};
use sesame_tests::world::{World, input};
use sesame_xds::{EventReceiver, Registry, Resource, ResourceType, Update, XdsEvent};
use tempfile::TempDir;
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_stream::wrappers::UnixListenerStream;

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Real Envoys, one per fleet, and the world whose resources they receive.
pub(crate) struct Rig {
    world: World,
    fleets: BTreeSet<FleetId>,
    /// Addresses that replace those of listeners, by listener name; empty to keep all addresses.
    places: BTreeMap<&'static str, SocketAddr>,
    before: Set,
    /// The number of resources that Envoys got.
    sent: usize,
    registry: Registry,
    events: EventReceiver,
    supervisor: Supervisor,
    processes: ProcessEvents,
    server: JoinHandle<()>,
    end_server: oneshot::Sender<()>,
    _dir: TempDir,
}

impl Rig {
    /// Starts Envoys for these fleets.
    pub(crate) async fn start(
        mut world: World,
        fleets: BTreeSet<FleetId>,
        places: BTreeMap<&'static str, SocketAddr>,
    ) -> Self {
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

        let mut offsets = free_offsets();
        for fleet in &fleets {
            let state = FleetState {
                addresses: addresses(),
                port_offset: offsets.next().expect("free ports"),
                ready: true,
                ..FleetState::default()
            };
            world.apply([Input::Fleet(fleet.clone(), Some(state))]);
            let admin_socket = supervisor.dir(fleet).admin_socket();
            let bootstrap = sesame_envoy::bootstrap(&sesame_control::BootstrapOptions {
                fleet: fleet.clone(),
                node_id: fleet.to_string(),
                xds: sesame_control::XdsAddress::Unix(socket.clone()),
                admin: sesame_control::Admin::Unix(admin_socket.clone()),
                readiness: None,
                max_connections: sesame_control::MAX_CONNECTIONS,
                heap_limit: None,
                module: supervisor.has_module(),
            });
            supervisor.ensure(EnvoySpec {
                fleet: fleet.clone(),
                bootstrap: prost::Message::encode_to_vec(&bootstrap),
                format: BootstrapFormat::Protobuf,
                concurrency: Some(1),
                admin_socket,
            });
            registry.apply(&xds_id(fleet), Update::default());
        }
        let mut rig = Self {
            world,
            fleets,
            places,
            before: Set::default(),
            sent: 0,
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

    /// The world.
    pub(crate) fn world(&self) -> &World {
        &self.world
    }

    /// How an Envoy exits, with its last log lines.
    async fn exit(&mut self) -> String {
        let mut lines = Vec::new();
        loop {
            match self.processes.recv().await.expect("an event") {
                ProcessEvent::Log { line, .. } => lines.push(format!("{line:?}")),
                ProcessEvent::Exited { fleet, status, .. } => {
                    let last = lines.split_off(lines.len().saturating_sub(40));
                    return format!("Envoy of {fleet} exited: {status}\n{}", last.join("\n"));
                }
                _ => {}
            }
        }
    }

    async fn wait_until_ready(&mut self) {
        let mut waiting = self.fleets.clone();
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
                    ProcessEvent::Hung { fleet, .. } => panic!("Envoy of {fleet} hangs"),
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
    pub(crate) async fn change_to(&mut self, objects: &Set) -> Result<(), String> {
        let changes = objects.changes_from(&self.before);
        self.before = objects.clone();
        let step = self.world.apply(changes.into_iter().map(input));
        let mut waiting: BTreeSet<sesame_xds::FleetId> = BTreeSet::new();
        for (fleet, update) in updates(&step, &self.places) {
            waiting.insert(fleet.clone());
            self.sent += update.upserts.len();
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
                    XdsEvent::Rejected {
                        fleet, rejection, ..
                    } => {
                        problems.push(format!("{fleet} rejected {rejection:?}"));
                    }
                    XdsEvent::WarmingTimedOut(client) => {
                        problems.push(format!("{}: cluster warming timed out", client.fleet));
                    }
                    XdsEvent::Disconnected(client) => {
                        let exit = timeout(Duration::from_secs(5), self.exit()).await;
                        problems.push(format!("{} has disconnected: {exit:?}", client.fleet));
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

    /// Stops the Envoys. Panics if they didn't get any resources.
    pub(crate) async fn stop(self) {
        assert!(self.sent > 0, "none of the sets configures an Envoy");
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

fn xds_id(fleet: &FleetId) -> sesame_xds::FleetId {
    sesame_xds::FleetId::new(fleet.to_string())
}

/// The changes for each fleet, in the form the xDS server accepts.
fn updates(
    step: &Step,
    places: &BTreeMap<&'static str, SocketAddr>,
) -> BTreeMap<sesame_xds::FleetId, Update> {
    let mut updates: BTreeMap<sesame_xds::FleetId, Update> = BTreeMap::new();
    for change in &step.resources {
        let ty = ResourceType::from_type_url(change.type_url).expect("a supported type");
        let update = updates.entry(xds_id(&change.fleet)).or_default();
        update.revision = step.commit.revision();
        match change.message() {
            Some(message) => {
                let name = change.name.as_str();
                let resource = match ty == ResourceType::Listener && !places.is_empty() {
                    true => Resource::new(name, moved(&message, places[name])),
                    false => Resource::new(name, message),
                };
                update.upserts.push((ty, resource));
            }
            None => update.removals.push((ty, change.name.as_str().into())),
        }
    }
    updates
}

/// An address that no outgoing connection uses: assigned ports with an offset are among the ephemeral ports.
pub(crate) const LOOPBACK: Ipv4Addr = Ipv4Addr::new(127, 87, 0, 1);

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

/// The listener, moved to this address only.
fn moved(listener: &[u8], place: SocketAddr) -> Vec<u8> {
    let mut listener = Listener::decode(listener).expect("a listener");
    listener.additional_addresses.clear();
    let address = listener
        .address
        .as_mut()
        .and_then(|all| all.address.as_mut());
    let Some(Place::SocketAddress(socket)) = address else {
        panic!("not a socket: {address:?}");
    };
    socket.address = place.ip().to_string();
    socket.port_specifier = Some(PortSpecifier::PortValue(place.port().into()));
    listener.encode_to_vec()
}
