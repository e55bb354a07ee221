//! Certificates in Secrets on a real API server: concurrent replicas, repairs, added and removed fleets.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sesame_fleet::kube::identity::cert::{self, Leaf};
use sesame_fleet::kube::identity::{self, CaConfig, FleetSecret, Handle, TlsFiles, secret};
use sesame_fleet::kube::names;
use sesame_model::FleetId;
use sesame_testkit::api_server::ApiServer;
use tokio::sync::watch;

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);
const DNS_NAME: &str = "sesame-xds.sesame-system.svc";

/// Sesame's namespace, a user's namespace, and a clock.
struct Fixture {
    client: Client,
    sesame: String,
    apps: String,
    /// How far the replicas' clocks are ahead, in seconds.
    ahead: Arc<AtomicI64>,
}

struct Replica {
    handle: Handle,
    files: watch::Receiver<Option<TlsFiles>>,
    requests: Arc<Requests>,
}

/// Counters for a replica's requests to the API server.
#[derive(Default)]
struct Requests {
    writes: AtomicUsize,
    watches: AtomicUsize,
}

impl Requests {
    /// A client that counts its requests.
    fn count(self: &Arc<Self>, client: Client) -> Client {
        let this = Arc::clone(self);
        let namespace = client.default_namespace().to_owned();
        let service = tower::service_fn(move |request: http::Request<kube::client::Body>| {
            let query = request.uri().query().unwrap_or_default();
            if *request.method() != http::Method::GET {
                this.writes.fetch_add(1, Ordering::Relaxed);
            } else if query.contains("watch=true") {
                this.watches.fetch_add(1, Ordering::Relaxed);
            }
            let client = client.clone();
            async move { client.send(request).await }
        });
        Client::new(service, namespace)
    }
}

impl Fixture {
    async fn new(name: &str) -> Self {
        let server = ApiServer::shared().await.unwrap();
        let client = server.admin().await.unwrap();
        let fixture = Self {
            sesame: format!("sesame-{name}"),
            apps: format!("apps-{name}"),
            ahead: Arc::default(),
            client,
        };
        let namespaces: Api<Namespace> = Api::all(fixture.client.clone());
        for name in [&fixture.sesame, &fixture.apps] {
            let namespace = Namespace {
                metadata: ObjectMeta {
                    name: Some(name.clone()),
                    ..ObjectMeta::default()
                },
                ..Namespace::default()
            };
            namespaces
                .create(&PostParams::default(), &namespace)
                .await
                .unwrap();
        }
        fixture
    }

    fn replica(&self) -> Replica {
        let mut config = CaConfig::new(&self.sesame, vec![DNS_NAME.to_owned()]);
        let ahead = Arc::clone(&self.ahead);
        config.clock = Arc::new(move || {
            Timestamp::now() + SignedDuration::from_secs(ahead.load(Ordering::Relaxed))
        });
        let requests = Arc::new(Requests::default());
        let (handle, files) = identity::start(requests.count(self.client.clone()), config);
        Replica {
            handle,
            files,
            requests,
        }
    }

    fn own_secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.sesame)
    }

    async fn ca(&self) -> Secret {
        self.own_secrets().get(secret::CA).await.unwrap()
    }

    fn fleet_secrets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.apps)
    }

    fn fleet(&self) -> FleetId {
        FleetId::of_gateway(self.apps.as_str(), "gw")
    }

    fn secret_name(&self) -> String {
        names::certificate_secret(&self.fleet())
    }

    fn desired_secret(&self) -> FleetSecret {
        FleetSecret {
            namespace: self.apps.clone(),
            name: self.secret_name(),
            labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
            ..FleetSecret::default()
        }
    }

    /// Waits until the fleet's Secret is valid. Returns its files.
    async fn issued(&self) -> TlsFiles {
        let name = self.fleet().uri();
        eventually(|| async {
            let secrets = self.fleet_secrets();
            let secret = secrets.get_opt(&self.secret_name()).await.unwrap()?;
            let files = files(&secret);
            let leaf = Leaf::read(&files).ok()?;
            (leaf.names == [name.clone()]).then_some(files)
        })
        .await
    }
}

impl Replica {
    async fn until(&mut self, condition: impl Fn(&TlsFiles) -> bool) -> TlsFiles {
        let files = self
            .files
            .wait_for(|files| files.as_ref().is_some_and(&condition));
        let files = tokio::time::timeout(TIMEOUT, files).await;
        files.expect("a timely change").unwrap().clone().unwrap()
    }

    /// Waits until the replica has listed all Secrets: only then do its watches start.
    async fn synced(&self) {
        eventually(|| async {
            let watches = self.requests.watches.load(Ordering::Relaxed);
            (watches >= 3).then_some(())
        })
        .await;
    }

    fn writes(&self) -> usize {
        self.requests.writes.load(Ordering::Relaxed)
    }
}

async fn eventually<T, F: Future<Output = Option<T>>>(poll: impl Fn() -> F) -> T {
    let search = async {
        loop {
            if let Some(found) = poll().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, search)
        .await
        .expect("in time")
}

fn files(secret: &Secret) -> TlsFiles {
    let part = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.map_or_else(String::new, |bytes| {
            String::from_utf8(bytes.0.clone()).unwrap()
        })
    };
    TlsFiles {
        certificate: part("tls.crt"),
        private_key: part("tls.key"),
        ca_bundle: part("ca.crt"),
    }
}

/// Asserts that each side trusts the other's issuer.
fn assert_mutual_trust(server: &TlsFiles, client: &TlsFiles) {
    for (one, other) in [(server, client), (client, server)] {
        let issuer = Leaf::read(other).unwrap().issuer;
        let mut cas = cert::read_bundle(&one.ca_bundle).into_iter();
        assert!(cas.any(|ca| ca.pem == issuer));
    }
}

/// Asserts that an xDS server with a replica's files serves a client with a fleet's files.
async fn assert_serves(server: &TlsFiles, client: &TlsFiles, fixture: &Fixture) {
    use sesame_testkit::certs;
    use sesame_testkit::fake_envoy::{FakeEnvoy, Server};
    use sesame_xds::ResourceType::Cluster;
    use sesame_xds::tls;
    let identity = tls::Identity::new(&tls::Pem {
        chain: server.certificate.clone(),
        private_key: server.private_key.clone(),
        ca_bundle: server.ca_bundle.clone(),
    })
    .unwrap();
    let registry = sesame_xds::Registry::new(sesame_xds::ServerConfig {
        authorize: Some(tls::authorize(&identity)),
        ..sesame_xds::ServerConfig::default()
    });
    let update = sesame_xds::Update {
        upserts: vec![(Cluster, sesame_xds::Resource::new("c", b"x".to_vec()))],
        ..sesame_xds::Update::default()
    };
    registry.apply(
        &sesame_xds::FleetId::new(fixture.fleet().to_string()),
        update,
    );
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        registry
            .serve_tls(listener, &identity, std::future::pending())
            .await
    });
    let identity = certs::Identity {
        chain: client.certificate.clone(),
        private_key: client.private_key.clone(),
    };
    let config = certs::client_config_as(Some(&identity), &client.ca_bundle, &["h2"]).unwrap();
    let server = Server::Tls {
        address,
        name: DNS_NAME.to_owned(),
        config,
    };
    let builder = FakeEnvoy::builder(&fixture.fleet().to_string(), "pod");
    let envoy = builder.connect(server).await.unwrap();
    envoy
        .until(|state| state.names(Cluster) == ["c"])
        .await
        .unwrap();
    serving.abort();
}

#[tokio::test]
async fn concurrent_leaders_agree() {
    let fixture = Fixture::new("race").await;
    let mut replicas = [fixture.replica(), fixture.replica(), fixture.replica()];
    for replica in &replicas {
        replica
            .handle
            .set_fleet(fixture.fleet(), Some(fixture.desired_secret()));
        replica.handle.set_leading(true);
    }
    let issued = fixture.issued().await;
    replicas[0].until(|_| true).await;
    let stored = files(&fixture.own_secrets().get(secret::SERVER).await.unwrap());
    for replica in &mut replicas {
        let server = replica.until(|files| *files == stored).await;
        assert_mutual_trust(&server, &issued);
    }
    assert_serves(&stored, &issued, &fixture).await;
    let ca = files(&fixture.ca().await);
    assert_eq!(cert::read_bundle(&ca.ca_bundle).len(), 1);
    let secret = fixture
        .fleet_secrets()
        .get(&fixture.secret_name())
        .await
        .unwrap();
    assert_eq!(secret.metadata.labels.unwrap()["team"], "blue");
}

#[tokio::test]
async fn a_follower_serves_with_the_leaders_certificates() {
    let fixture = Fixture::new("follow").await;
    let (leader, mut follower) = (fixture.replica(), fixture.replica());
    for replica in [&leader, &follower] {
        replica
            .handle
            .set_fleet(fixture.fleet(), Some(fixture.desired_secret()));
    }
    leader.synced().await;
    follower.synced().await;
    assert_eq!(leader.writes(), 0, "there is no leader yet");
    assert_eq!(*follower.files.borrow(), None);
    leader.handle.set_leading(true);
    let first = follower.until(|_| true).await;
    let issued = fixture.issued().await;

    // Everything is renewed.
    let day = 86_400;
    fixture.ahead.store(25 * day, Ordering::Relaxed);
    leader.handle.set_leading(true);
    let second = follower
        .until(|files| files.certificate != first.certificate)
        .await;
    let expiry = |files: &TlsFiles| Leaf::read(files).unwrap().not_after;
    assert!(expiry(&second) > expiry(&first));
    assert_eq!(second.ca_bundle, first.ca_bundle);
    eventually(|| async { (fixture.issued().await != issued).then_some(()) }).await;

    // The CA is rotated. Each step is awaited before the clock advances, since the next step is timed from it.
    let old = fixture.ca().await;
    let introduced = |now: &Secret| now.data.as_ref().unwrap().contains_key("next.crt");
    let promoted = |now: &Secret| {
        let key = |secret: &Secret| secret.data.as_ref().unwrap()["tls.key"].clone();
        key(now) != key(&old)
    };
    type Step<'a> = &'a dyn Fn(&Secret) -> bool;
    let steps: [(i64, usize, Step<'_>); 3] = [
        (1_300, 2, &introduced),
        (1_332, 2, &promoted),
        (1_830, 1, &promoted),
    ];
    for (days, trusted, done) in steps {
        fixture.ahead.store(days * day, Ordering::Relaxed);
        leader.handle.set_leading(true);
        eventually(|| async { done(&fixture.ca().await).then_some(()) }).await;
        let has_trusted = |files: &TlsFiles| cert::read_bundle(&files.ca_bundle).len() == trusted;
        let server = follower.until(has_trusted).await;
        let issued =
            eventually(|| async { Some(fixture.issued().await).filter(has_trusted) }).await;
        assert_mutual_trust(&server, &issued);
    }
    let last = follower.until(|_| true).await;
    assert_ne!(first.ca_bundle, last.ca_bundle);
    assert_eq!(follower.writes(), 0);
}

#[tokio::test]
async fn modified_and_deleted_secrets_are_restored() {
    let fixture = Fixture::new("repair").await;
    let mut leader = fixture.replica();
    leader
        .handle
        .set_fleet(fixture.fleet(), Some(fixture.desired_secret()));
    leader.handle.set_leading(true);
    let first = leader.until(|_| true).await;
    let issued = fixture.issued().await;
    let ca = fixture.ca().await;
    let apply = PatchParams::default();

    // The CA's Secret is restored.
    let garbage = json!({"data": {"tls.key": ByteString(b"garbage".to_vec())}});
    fixture
        .own_secrets()
        .patch(secret::CA, &apply, &Patch::Merge(&garbage))
        .await
        .unwrap();
    let restored = || async {
        let now = fixture.own_secrets().get_opt(secret::CA).await.unwrap()?;
        (now.data == ca.data).then_some(())
    };
    eventually(restored).await;
    fixture
        .own_secrets()
        .delete(secret::CA, &DeleteParams::default())
        .await
        .unwrap();
    eventually(restored).await;

    // The server's certificate is reissued by the same CA.
    let invalid = json!({"data": {"tls.crt": ByteString(b"garbage".to_vec())}});
    fixture
        .own_secrets()
        .patch(secret::SERVER, &apply, &Patch::Merge(&invalid))
        .await
        .unwrap();
    let second = leader.until(|files| *files != first).await;
    assert_mutual_trust(&second, &issued);

    // A fleet's Secret is deleted, overwritten, and made immutable.
    let previous = Mutex::new(issued);
    let renewed = || async {
        let now = fixture.issued().await;
        let mut previous = previous.lock().unwrap();
        (now != *previous).then(|| *previous = now)
    };
    fixture
        .fleet_secrets()
        .delete(&fixture.secret_name(), &DeleteParams::default())
        .await
        .unwrap();
    eventually(renewed).await;
    fixture
        .fleet_secrets()
        .patch(&fixture.secret_name(), &apply, &Patch::Merge(&invalid))
        .await
        .unwrap();
    eventually(renewed).await;
    let immutable = json!({"data": invalid["data"], "immutable": true});
    fixture
        .fleet_secrets()
        .patch(&fixture.secret_name(), &apply, &Patch::Merge(&immutable))
        .await
        .unwrap();
    eventually(renewed).await;
    let unlabelled = json!({"metadata": {"labels": null}});
    fixture
        .fleet_secrets()
        .patch(&fixture.secret_name(), &apply, &Patch::Merge(&unlabelled))
        .await
        .unwrap();
    eventually(|| async {
        let labels = fixture
            .fleet_secrets()
            .get(&fixture.secret_name())
            .await
            .unwrap()
            .metadata
            .labels?;
        (labels.get("team")? == "blue").then_some(())
    })
    .await;
    let last = previous.lock().unwrap().clone();
    assert_serves(&second, &last, &fixture).await;
}

#[tokio::test]
async fn a_foreign_secret_is_reported_and_not_modified() {
    let fixture = Fixture::new("foreign").await;
    let theirs = Secret {
        metadata: ObjectMeta {
            name: Some(fixture.secret_name()),
            ..ObjectMeta::default()
        },
        data: Some([("password".to_owned(), ByteString(b"x".to_vec()))].into()),
        ..Secret::default()
    };
    let theirs = fixture
        .fleet_secrets()
        .create(&PostParams::default(), &theirs)
        .await
        .unwrap();
    let leader = fixture.replica();
    leader
        .handle
        .set_fleet(fixture.fleet(), Some(fixture.desired_secret()));
    leader.handle.set_leading(true);
    let mut failure = leader.handle.failure();
    let name = fixture.secret_name();
    let reported = failure.wait_for(|failure| {
        let failure = failure.as_deref();
        failure.is_some_and(|failure| failure.contains(&name))
    });
    tokio::time::timeout(TIMEOUT, reported)
        .await
        .unwrap()
        .unwrap();
    // The Secret stays when the fleet is removed.
    leader.handle.set_fleet(fixture.fleet(), None);
    let over = failure.wait_for(Option::is_none);
    tokio::time::timeout(TIMEOUT, over).await.unwrap().unwrap();
    let now = fixture
        .fleet_secrets()
        .get(&fixture.secret_name())
        .await
        .unwrap();
    assert_eq!(now, theirs);
}

#[tokio::test]
async fn the_secret_of_a_removed_fleet_is_deleted() {
    let fixture = Fixture::new("gone").await;
    let leader = fixture.replica();
    leader
        .handle
        .set_fleet(fixture.fleet(), Some(fixture.desired_secret()));
    leader.handle.set_leading(true);
    fixture.issued().await;
    leader.handle.set_fleet(fixture.fleet(), None);
    eventually(|| async {
        let none = fixture
            .fleet_secrets()
            .get_opt(&fixture.secret_name())
            .await
            .unwrap()
            .is_none();
        none.then_some(())
    })
    .await;
    assert!(
        fixture
            .own_secrets()
            .get_opt(secret::CA)
            .await
            .unwrap()
            .is_some()
    );
}
