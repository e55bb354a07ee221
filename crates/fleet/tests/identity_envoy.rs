//! A real Envoy that gets its configuration over mutual TLS, and whose certificate is replaced while it does.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use sesame_envoy::{Admin, BootstrapOptions, MAX_CONNECTIONS, XdsAddress, XdsTls, xds_secrets};
use sesame_fleet::kube::identity::issue::Subject;
use sesame_fleet::kube::identity::plan::{self, Authorities, Step};
use sesame_fleet::kube::identity::{Files, Periods};
use sesame_fleet::local::{self, BootstrapFormat, Supervisor, binary};
use sesame_model::FleetId;
use sesame_xds::ResourceType::Cluster;
use sesame_xds::{Event, Events, Registry, Resource, Update, tls};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// For a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "sesame-xds.sesame-system.svc";
const FLEET: &str = "apps/gw";

/// A folder as the kubelet makes it of a Secret: files are links into a folder that is a link itself, which is
/// turned to another one in a single step.
struct Mount(PathBuf);

impl Mount {
    fn new(path: PathBuf, files: &Files) -> Self {
        std::fs::create_dir(&path).unwrap();
        let mount = Self(path);
        mount.turn("first", files);
        for name in tls::files::FILES {
            symlink(Path::new("..data").join(name), mount.0.join(name)).unwrap();
        }
        mount
    }

    fn turn(&self, version: &str, files: &Files) {
        let folder = self.0.join(version);
        std::fs::create_dir(&folder).unwrap();
        let parts = [
            &files.certified.certificate,
            &files.certified.private_key,
            &files.authorities,
        ];
        for (name, text) in tls::files::FILES.into_iter().zip(parts) {
            std::fs::write(folder.join(name), text).unwrap();
        }
        let new = self.0.join("..data_tmp");
        symlink(version, &new).unwrap();
        std::fs::rename(&new, self.0.join("..data")).unwrap();
    }
}

/// A discovery server on a port.
struct Server {
    registry: Registry,
    events: Events,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Server {
    async fn start(identity: &tls::Identity, address: SocketAddr) -> Self {
        let registry = Registry::new(sesame_xds::Config {
            authorize: Some(tls::authorize(identity)),
            ..sesame_xds::Config::default()
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

    /// Sends a cluster, and waits for the Envoy's word that it has it. Gives the number of its stream.
    async fn taken(&mut self, number: u64) -> u64 {
        let cluster = format!("cluster-{number}");
        let update = Update {
            upserts: vec![(Cluster, Resource::new(cluster.as_str(), named(&cluster)))],
            revision: number,
            ..Update::default()
        };
        self.registry
            .apply(&sesame_xds::FleetId::new(FLEET), update);
        let search = async {
            loop {
                match self.events.next().await {
                    Event::Acked {
                        revision, client, ..
                    } if revision == number => return client,
                    Event::Rejected { message, .. } => panic!("Envoy refuses: {message}"),
                    _ => {}
                }
            }
        };
        let taken = tokio::time::timeout(PATIENCE, search).await;
        taken.expect("Envoy takes it in time")
    }

    async fn stop(self) -> SocketAddr {
        self.stop.send(()).unwrap();
        self.task.await.unwrap();
        self.address
    }
}

/// A `Cluster` with a name and nothing else, encoded: its first field is the name.
fn named(name: &str) -> Vec<u8> {
    let mut out = vec![0x0a, u8::try_from(name.len()).unwrap()];
    out.extend_from_slice(name.as_bytes());
    out
}

fn authorities(step: Step, before: Option<&Authorities>) -> Authorities {
    plan::take(step, Timestamp::now(), &Periods::default(), before).unwrap()
}

fn issue(authorities: &Authorities, subject: &Subject) -> Files {
    plan::issue(Timestamp::now(), &Periods::default(), authorities, subject)
        .unwrap()
        .unwrap()
}

fn pem(files: Files) -> tls::Pem {
    tls::Pem {
        chain: files.certified.certificate,
        private_key: files.certified.private_key,
        authorities: files.authorities,
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
        max_connections: MAX_CONNECTIONS,
        memory_limit: None,
        module: false,
    });
    let json = sesame_envoy::to_json(&bootstrap).unwrap();
    json.to_string().into_bytes()
}

#[tokio::test]
async fn an_envoy_is_served_by_its_certificate_and_by_the_next_one_without_a_break() {
    let dir = tempfile::tempdir().unwrap();
    let fleet = FleetId(FLEET.into());
    let client = Subject::Fleet(fleet.clone());
    let server = Subject::Server(vec![NAME.to_owned()]);

    let first = authorities(Step::Found, None);
    let identity = tls::Identity::new(&pem(issue(&first, &server))).unwrap();
    let mount = Mount::new(dir.path().join("certificates"), &issue(&first, &client));
    let mut discovery = Server::start(&identity, ([127, 0, 0, 1], 0).into()).await;

    let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
    let local = local::Config::new(envoy.path, dir.path().join("run"));
    let (supervisor, _events) = Supervisor::new(local).unwrap();
    let admin = supervisor.dir(FLEET).admin_socket();
    supervisor.ensure(local::FleetSpec {
        id: FLEET.to_owned(),
        bootstrap: config(fleet, discovery.address, &mount, admin.clone()),
        format: BootstrapFormat::Json,
        concurrency: Some(1),
        admin_socket: admin,
    });
    let stream = discovery.taken(1).await;

    // Another authority comes; all get certificates of it; the first is forgotten by the server.
    let both = authorities(Step::Introduce, Some(&first));
    let second = authorities(Step::Promote, Some(&both));
    mount.turn("second", &issue(&second, &client));
    let last = authorities(Step::Retire, Some(&second));
    identity.replace(&pem(issue(&last, &server))).unwrap();
    assert_eq!(
        discovery.taken(2).await,
        stream,
        "the stream has not been dropped"
    );

    // The server starts again: only the new certificate helps now, and Envoy has not been told to read it.
    let address = discovery.stop().await;
    let mut discovery = Server::start(&identity, address).await;
    discovery.taken(3).await;
    supervisor.shutdown().await;
    discovery.stop().await;
}

#[tokio::test]
async fn an_envoy_with_another_fleets_certificate_is_given_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let first = authorities(Step::Found, None);
    let server = Subject::Server(vec![NAME.to_owned()]);
    let other = Subject::Fleet(FleetId("apps/other".into()));
    let identity = tls::Identity::new(&pem(issue(&first, &server))).unwrap();
    let mount = Mount::new(dir.path().join("certificates"), &issue(&first, &other));
    let discovery = Server::start(&identity, ([127, 0, 0, 1], 0).into()).await;
    let mut refusals = identity.refusals().subscribe();

    let envoy = binary::find(None).unwrap_or_else(|error| panic!("{error}"));
    let local = local::Config::new(envoy.path, dir.path().join("run"));
    let (supervisor, _events) = Supervisor::new(local).unwrap();
    let admin = supervisor.dir(FLEET).admin_socket();
    supervisor.ensure(local::FleetSpec {
        id: FLEET.to_owned(),
        bootstrap: config(
            FleetId(FLEET.into()),
            discovery.address,
            &mount,
            admin.clone(),
        ),
        format: BootstrapFormat::Json,
        concurrency: Some(1),
        admin_socket: admin,
    });
    let refusal = tokio::time::timeout(PATIENCE, refusals.recv()).await;
    let refusal = refusal.expect("a refusal in time").unwrap();
    assert_eq!(refusal.reason, tls::Reason::WrongFleet);
    assert_eq!(refusal.fleet, Some(sesame_xds::FleetId::new("apps/other")));
    supervisor.shutdown().await;
    discovery.stop().await;
}
