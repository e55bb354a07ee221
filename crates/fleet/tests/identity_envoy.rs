//! A real Envoy that gets its configuration over mutual TLS while its certificate is replaced.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use sesame_envoy::{Admin, BootstrapOptions, MAX_CONNECTIONS, XdsAddress, XdsTls, xds_secrets};
use sesame_fleet::kube::identity::TlsFiles;
use sesame_fleet::kube::identity::ca::CaBundle;
use sesame_fleet::kube::identity::cert::Subject;
use sesame_fleet::local::{self, BootstrapFormat, Supervisor, binary};
use sesame_model::FleetId;
use sesame_xds::ResourceType::Cluster;
use sesame_xds::{EventReceiver, Registry, Resource, Update, XdsEvent, tls};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const NAME: &str = "sesame-xds.sesame-system.svc";
const FLEET: &str = "apps/gw";

/// A mounted Secret, as the kubelet creates it: the files link into a folder that is itself a link, which is replaced
/// atomically.
struct Mount(PathBuf);

impl Mount {
    fn new(path: PathBuf, files: &TlsFiles) -> Self {
        std::fs::create_dir(&path).unwrap();
        let mount = Self(path);
        mount.switch("first", files);
        for name in tls::files::FILES {
            symlink(Path::new("..data").join(name), mount.0.join(name)).unwrap();
        }
        mount
    }

    fn switch(&self, version: &str, files: &TlsFiles) {
        let folder = self.0.join(version);
        std::fs::create_dir(&folder).unwrap();
        let parts = [&files.certificate, &files.private_key, &files.ca_bundle];
        for (name, text) in tls::files::FILES.into_iter().zip(parts) {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let new = self.0.join("..data_tmp");
        symlink(version, &new).unwrap();
        std::fs::rename(&new, self.0.join("..data")).unwrap();
    }
}

/// An xDS server on a port.
struct Server {
    registry: Registry,
    events: EventReceiver,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(identity: &tls::Identity, address: SocketAddr) -> Self {
        let registry = Registry::new(sesame_xds::ServerConfig {
            authorize: Some(tls::authorize(identity)),
            ..sesame_xds::ServerConfig::default()
        });
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (serving, identity) = (registry.clone(), identity.clone());
        let task = tokio::spawn(async move {
            let shutdown = async { stopped.await.unwrap_or_default() };
            serving
                .serve_tls(listener, &identity, shutdown)
                .await
                .unwrap();
        });
        Self {
            events: registry.events(),
            registry,
            address,
            stop,
            task,
        }
    }

    /// Sends a cluster and waits for the ACK. Returns the stream's number.
    async fn acked(&mut self, number: u64) -> u64 {
        let cluster = format!("cluster-{number}");
        let update = Update {
            upserts: vec![(
                Cluster,
                Resource::new(cluster.as_str(), encoded_cluster(&cluster)),
            )],
            revision: number,
            ..Update::default()
        };
        self.registry
            .apply(&sesame_xds::FleetId::new(FLEET), update);
        let search = async {
            loop {
                match self.events.next().await {
                    XdsEvent::Acked { revision, client } if revision == number => {
                        return client.stream;
                    }
                    XdsEvent::Rejected { rejection, .. } => panic!("{rejection:?}"),
                    _ => {}
                }
            }
        };
        let acked = tokio::time::timeout(TIMEOUT, search).await;
        acked.expect("an ACK in time")
    }

    async fn stop(self) -> SocketAddr {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
        self.address
    }
}

/// An encoded `Cluster` with only a name, which is its first field.
fn encoded_cluster(name: &str) -> Vec<u8> {
    let mut out = vec![0x0a, u8::try_from(name.len()).unwrap()];
    out.extend_from_slice(name.as_bytes());
    out
}

/// Rotates the CA bundle as of this many days from now.
fn rotated(before: &CaBundle, days: i64) -> CaBundle {
    let now = Timestamp::now() + SignedDuration::from_hours(24 * days);
    before.rotated(now).unwrap()
}

fn issue(cas: &CaBundle, subject: &Subject) -> TlsFiles {
    cas.issue(Timestamp::now(), subject).unwrap()
}

fn pem(files: TlsFiles) -> tls::Pem {
    tls::Pem {
        chain: files.certificate,
        private_key: files.private_key,
        ca_bundle: files.ca_bundle,
    }
}

fn config(fleet: FleetId, address: SocketAddr, mount: &Mount, admin: PathBuf) -> Vec<u8> {
    let secrets = mount.0.with_file_name("secrets");
    let paths = XdsTls {
        certificate: mount.0.join("tls.crt"),
        private_key: mount.0.join("tls.key"),
        authority: mount.0.join("ca.crt"),
        server_name: NAME.to_owned(),
        secrets: Some(secrets.clone()),
    };
    std::fs::create_dir(&secrets).unwrap();
    for (name, text) in xds_secrets(&paths) {
        std::fs::write(secrets.join(name), text).unwrap();
    }
    let bootstrap = sesame_envoy::bootstrap(&BootstrapOptions {
        fleet,
        node_id: "pod-1".to_owned(),
        xds: XdsAddress::Tcp {
            host: address.ip().to_string(),
            port: address.port(),
            tls: Some(paths),
        },
        admin: Admin::Unix(admin),
        readiness: None,
        max_connections: MAX_CONNECTIONS,
        heap_limit: None,
        module: false,
    });
    let json = sesame_envoy::to_json(&bootstrap).unwrap();
    json.to_string().into_bytes()
}

#[tokio::test]
async fn a_renewed_certificate_keeps_the_stream() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FLEET.parse::<FleetId>().unwrap();
    let client = Subject::Fleet(fleet.clone());
    let server = Subject::Server(vec![NAME.to_owned()]);

    let first = rotated(&CaBundle::default(), 0);
    let identity = tls::Identity::new(&pem(issue(&first, &server))).unwrap();
    let mount = Mount::new(dir.path().join("certificates"), &issue(&first, &client));
    let mut discovery = Server::start(&identity, ([127, 0, 0, 1], 0).into()).await;

    let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
    let local = local::SupervisorConfig::new(envoy.path, dir.path().join("run"));
    let (supervisor, _events) = Supervisor::new(local).unwrap();
    let admin = supervisor.dir(&FLEET.parse().unwrap()).admin_socket();
    supervisor.ensure(local::EnvoySpec {
        fleet: FLEET.parse().unwrap(),
        bootstrap: config(fleet, discovery.address, &mount, admin.clone()),
        format: BootstrapFormat::Json,
        concurrency: Some(1),
        admin_socket: admin,
    });
    let stream = discovery.acked(1).await;

    // The next CA is introduced and promoted; the server retires the first one.
    let mut second = rotated(&first, 0);
    second.next = rotated(&CaBundle::default(), 0).issuing;
    let second = rotated(&second, 32);
    assert_ne!(second.issuing, first.issuing);
    mount.switch("second", &issue(&second, &client));
    let last = CaBundle {
        previous: Vec::new(),
        ..second
    };
    identity.replace(&pem(issue(&last, &server))).unwrap();
    assert_eq!(discovery.acked(2).await, stream, "the same stream");

    // The restarted server accepts only the new certificate, which Envoy has read without a restart.
    let address = discovery.stop().await;
    let mut discovery = Server::start(&identity, address).await;
    discovery.acked(3).await;
    supervisor.shutdown().await;
    discovery.stop().await;
}

#[tokio::test]
async fn an_envoy_with_another_fleets_certificate_is_rejected() {
    let dir = tempfile::tempdir().unwrap();
    let first = rotated(&CaBundle::default(), 0);
    let server = Subject::Server(vec![NAME.to_owned()]);
    let other = Subject::Fleet(FleetId::of_gateway("apps", "other"));
    let identity = tls::Identity::new(&pem(issue(&first, &server))).unwrap();
    let mount = Mount::new(dir.path().join("certificates"), &issue(&first, &other));
    let discovery = Server::start(&identity, ([127, 0, 0, 1], 0).into()).await;
    let mut refusals = identity.refusals().subscribe();

    let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
    let local = local::SupervisorConfig::new(envoy.path, dir.path().join("run"));
    let (supervisor, _events) = Supervisor::new(local).unwrap();
    let admin = supervisor.dir(&FLEET.parse().unwrap()).admin_socket();
    supervisor.ensure(local::EnvoySpec {
        fleet: FLEET.parse().unwrap(),
        bootstrap: config(
            FLEET.parse::<FleetId>().unwrap(),
            discovery.address,
            &mount,
            admin.clone(),
        ),
        format: BootstrapFormat::Json,
        concurrency: Some(1),
        admin_socket: admin,
    });
    let refusal = tokio::time::timeout(TIMEOUT, refusals.recv()).await;
    let refusal = refusal.expect("a refusal in time").unwrap();
    assert_eq!(refusal.reason, tls::RefusalReason::WrongFleet);
    assert_eq!(refusal.fleet, Some(sesame_xds::FleetId::new("apps/other")));
    supervisor.shutdown().await;
    discovery.stop().await;
}
