//! An Envoy moves between two replicas: one serves a sharded route table, the other serves it whole. No request is
//! lost.
//!
//! Between the two sharding thresholds, a table's form depends on its history: one replica saw the table when it was
//! large, the other didn't.

use std::cell::Cell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::Path;
use std::time::Duration;

use prost::Message as _;
use sesame_control::core::{Core, Input};
use sesame_control::{Admin, BootstrapOptions, FleetId, MAX_CONNECTIONS, Options, XdsAddress};
use sesame_envoy::{ResourceChange, names};
use sesame_fleet::local::admin::Admin as AdminSocket;
use sesame_fleet::local::{BootstrapFormat, EnvoySpec, Supervisor, SupervisorConfig, binary};
use sesame_model::{FleetAddress, FleetState};
use sesame_testkit::backend::Backend;
use sesame_testkit::client::{Connect, Connection, Request};
use sesame_testkit::many;
use sesame_xds::{Registry, Resource, ResourceType, Update, XdsEvent};
use tokio::net::UnixListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tokio_stream::wrappers::UnixListenerStream;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Hosts in a table that may be whole or sharded.
const HOSTS: usize = 300;
/// Hosts in a table that is always sharded.
const MANY: usize = 420;
/// Number of times the Envoy moves.
const CHANGES: usize = 4;
const PATIENCE: Duration = Duration::from_secs(60);

/// A replica with the resources it serves.
struct Replica {
    core: Core,
    registry: Registry,
}

impl Replica {
    /// A replica whose table once had this many hosts, of which [`HOSTS`] remain.
    fn new(seen: usize, port: u16, backend: SocketAddr) -> Self {
        let mut replica = Self {
            core: Core::new(Options::default()),
            registry: Registry::new(sesame_xds::ServerConfig {
                supports_variants: Some(sesame_envoy::has_module),
                ..sesame_xds::ServerConfig::default()
            }),
        };
        let mut gateway = many::gateway(port);
        gateway["spec"]["addresses"] =
            serde_json::json!([{"type": "IPAddress", "value": ADDRESS.to_string()}]);
        let apps = (0..seen).flat_map(|index| many::app(index, backend));
        let objects = std::iter::once(gateway).chain(apps);
        let state = FleetState {
            addresses: vec![FleetAddress::Ip(ADDRESS)],
            ready: true,
            ..FleetState::default()
        };
        let inputs = objects.map(|value| Input::Upsert(many::object(&value)));
        replica.commit(inputs.chain([Input::Fleet(fleet(), Some(state))]));
        let gone = (HOSTS..seen).flat_map(|index| many::app(index, backend));
        replica.commit(gone.map(|value| Input::Remove(many::object(&value).key())));
        // No Envoy has connected yet.
        let settled = replica.core.settle();
        replica.publish(settled, 3);
        replica
    }

    fn commit(&mut self, inputs: impl Iterator<Item = Input>) {
        let step = self.core.apply(inputs);
        self.publish(step.resources, step.commit.revision());
    }

    fn publish(&self, changes: Vec<ResourceChange>, revision: u64) {
        let mut update = Update {
            revision,
            ..Update::default()
        };
        for change in changes {
            let ty = ResourceType::from_type_url(change.type_url).expect("a supported type");
            match (change.message(), change.message_with_module()) {
                (Some(body), None) => update.upserts.push((ty, Resource::new(change.name, body))),
                (Some(body), Some(variant)) => {
                    let resource = Resource::new(change.name, body).with_variant(variant);
                    update.upserts.push((ty, resource));
                }
                (None, _) => update.removals.push((ty, change.name.into())),
            }
        }
        let id = sesame_xds::FleetId::new(fleet().to_string());
        self.registry.apply(&id, update);
    }

    /// Whether it serves a sharded table to new connections.
    fn in_shards(&self) -> bool {
        let resources = self.core.resources(&fleet()).unwrap_or_default();
        let mut listeners = resources
            .iter()
            .filter(|change| change.type_url == names::LISTENER);
        listeners.any(|listener| listener.with_module.is_some())
    }

    fn serve(&self, socket: &Path) -> Serving {
        let (end, ended) = oneshot::channel();
        let registry = self.registry.clone();
        // The previous replica's socket.
        let _ = std::fs::remove_file(socket);
        let incoming = UnixListenerStream::new(UnixListener::bind(socket).expect("a socket"));
        let task = tokio::spawn(async move {
            let shutdown = async {
                let _ = ended.await;
            };
            registry
                .serve_incoming(incoming, shutdown)
                .await
                .expect("a server");
        });
        Serving { end, task }
    }

    /// Waits until an Envoy has ACKed everything.
    async fn followed(&self, serving: impl FnOnce() -> Serving) -> Serving {
        let mut events = self.registry.events();
        let serving = serving();
        let acknowledged = async {
            loop {
                match events.next().await {
                    XdsEvent::Acked { .. } => return,
                    XdsEvent::Rejected { rejection, .. } => panic!("{rejection:?}"),
                    _ => {}
                }
            }
        };
        timeout(PATIENCE, acknowledged)
            .await
            .expect("an Envoy connects in time");
        serving
    }
}

struct Serving {
    end: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Serving {
    async fn stop(self) {
        let _ = self.end.send(());
        timeout(PATIENCE, self.task)
            .await
            .expect("the server exits in time")
            .expect("the server exits without a panic");
    }
}

fn fleet() -> FleetId {
    FleetId::of_gateway(many::NAMESPACE, many::GATEWAY)
}

fn free_port() -> u16 {
    let listener = TcpListener::bind((ADDRESS, 0)).expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Requests one host after another, on a persistent connection and on new ones, until `over` is set. Returns the number
/// of rounds.
///
/// # Panics
/// If a response isn't a 200.
async fn send(at: SocketAddr, over: &Cell<bool>) -> usize {
    let mut kept: Option<Connection> = None;
    let mut asked = 0;
    while !over.get() {
        let request = Request::get(&many::host(asked % HOSTS), "/");
        let mut open = match kept.take() {
            Some(open) => open,
            None => Connect::plain().open(at).await.expect("a connection"),
        };
        let response = open
            .send(&request)
            .await
            .expect("a response on the persistent connection");
        assert_eq!(
            response.status, 200,
            "{request:?} on the persistent connection"
        );
        if response.header("connection") != "close" {
            kept = Some(open);
        }
        let response = Connect::plain()
            .send(at, &request)
            .await
            .expect("a response");
        assert_eq!(response.status, 200, "{request:?}");
        asked += 1;
    }
    asked
}

#[tokio::test]
async fn no_request_is_lost_when_an_envoy_moves_between_sharded_and_whole_tables() {
    let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
    let dir = tempfile::tempdir().expect("a folder");
    let socket = dir.path().join("xds.sock");
    let backend = Backend::start("backend", SocketAddr::new(ADDRESS, 0));
    let backend = backend.await.expect("a backend");
    let port = free_port();
    let replicas = [MANY, HOSTS].map(|seen| Replica::new(seen, port, backend.address()));
    assert_eq!(replicas.each_ref().map(Replica::in_shards), [true, false]);

    let config = SupervisorConfig::new(envoy.path, dir.path().join("run"));
    let (supervisor, _processes) = Supervisor::new(config).expect("a supervisor");
    let admin_socket = supervisor.dir(&fleet()).admin_socket();
    let bootstrap = sesame_envoy::bootstrap(&BootstrapOptions {
        fleet: fleet(),
        node_id: "envoy".to_owned(),
        xds: XdsAddress::Unix(socket.clone()),
        admin: Admin::Unix(admin_socket.clone()),
        readiness: None,
        max_connections: MAX_CONNECTIONS,
        heap_limit: None,
        module: supervisor.has_module(),
    });
    let admin = AdminSocket::new(&admin_socket);
    supervisor.ensure(EnvoySpec {
        fleet: fleet(),
        bootstrap: bootstrap.encode_to_vec(),
        format: BootstrapFormat::Protobuf,
        concurrency: Some(1),
        admin_socket,
    });

    let at = SocketAddr::new(ADDRESS, port);
    let mut serving = replicas[0].followed(|| replicas[0].serve(&socket)).await;
    let opened = async {
        while Connect::plain().open(at).await.is_err() {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, opened).await.expect("a listener");
    let over = Cell::new(false);
    let changes = async {
        for change in 1..=CHANGES {
            // Meanwhile, the previous listeners drain.
            sleep(Duration::from_secs(2)).await;
            serving.stop().await;
            let next = &replicas[change % replicas.len()];
            serving = next.followed(|| next.serve(&socket)).await;
        }
        sleep(Duration::from_secs(7)).await;
        over.set(true);
        serving
    };
    let (serving, asked) = tokio::join!(changes, send(at, &over));
    assert!(asked > 100, "{asked}");
    let modified = admin.get("/stats?filter=listener_manager.listener_modified");
    let modified = modified.await.expect("statistics");
    let modified = String::from_utf8_lossy(&modified).into_owned();
    let expected = format!("listener_manager.listener_modified: {CHANGES}\n");
    assert_eq!(modified, expected, "each move changes the form");
    serving.stop().await;
    timeout(PATIENCE, supervisor.shutdown())
        .await
        .expect("Envoys exit in time");
}
