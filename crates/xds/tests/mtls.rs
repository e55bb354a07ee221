//! Discovery over mutual TLS and real sockets.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustls::ClientConfig;
use sesame_testkit::certs::{self, Authority};
use sesame_testkit::fake_envoy::{FakeEnvoy, Server};
use sesame_xds::ResourceType::Cluster;
use sesame_xds::tls::{self, Identity, MAX_HANDSHAKES, Pem, Refusal, RefusalReason};
use sesame_xds::{FleetId, Limits, Registry, Resource, ServerConfig, Update};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, oneshot};
use tokio::task::JoinHandle;

/// Generous, for busy machines.
const PATIENCE: Duration = Duration::from_secs(20);
const DAY: Duration = Duration::from_secs(86_400);
const NAME: &str = "sesame-xds.sesame-system.svc";
const FLEET: &str = "ns/gateway";

struct Running {
    registry: Registry,
    identity: Identity,
    address: SocketAddr,
    refusals: broadcast::Receiver<Refusal>,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
}

impl Running {
    async fn start(identity: Identity) -> Running {
        Running::start_with(identity, Limits::default()).await
    }

    async fn start_with(identity: Identity, limits: Limits) -> Running {
        let registry = Registry::new(ServerConfig {
            limits,
            authorize: Some(tls::authorize(&identity)),
            ..ServerConfig::default()
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let (serving, shown) = (registry.clone(), identity.clone());
        let task = tokio::spawn(async move {
            let shutdown = async { stopped.await.unwrap_or_default() };
            serving.serve_tls(listener, &shown, shutdown).await.unwrap();
        });
        let running = Running {
            registry,
            refusals: identity.refusals().subscribe(),
            identity,
            address,
            stop: Some(stop),
            task,
        };
        running.apply(1, "first");
        running
    }

    fn apply(&self, revision: u64, cluster: &str) {
        let update = Update {
            upserts: vec![(Cluster, Resource::new(cluster, b"x".to_vec()))],
            removals: Vec::new(),
            revision,
        };
        self.registry.apply(&FleetId::new(FLEET), update);
    }

    fn server(&self, config: Arc<ClientConfig>) -> Server {
        Server::Tls {
            address: self.address,
            name: NAME.to_owned(),
            config,
        }
    }

    /// Connects a valid client, to show that the server works.
    async fn served(&self, config: Arc<ClientConfig>) -> FakeEnvoy {
        let builder = FakeEnvoy::builder(FLEET, "good");
        let envoy = builder.connect(self.server(config)).await.unwrap();
        envoy
            .until(|state| state.names(Cluster).contains(&"first"))
            .await
            .unwrap();
        envoy
    }

    /// Connects a client that should be refused, and returns its refusal.
    async fn refused(&mut self, fleet: &str, config: Arc<ClientConfig>) -> Refusal {
        // In TLS 1.3 a client may consider itself connected before it is refused.
        let envoy = FakeEnvoy::builder(fleet, "bad")
            .connect(self.server(config))
            .await;
        if let Ok(envoy) = envoy {
            envoy.until(|state| state.ended().is_some()).await.unwrap();
            assert!(envoy.state().messages().is_empty(), "nothing was served");
        }
        self.refusal().await
    }

    async fn refusal(&mut self) -> Refusal {
        tokio::time::timeout(PATIENCE, self.refusals.recv())
            .await
            .expect("a refusal")
            .unwrap()
    }

    async fn stop(mut self) {
        self.stop.take().unwrap().send(()).unwrap();
        tokio::time::timeout(PATIENCE, &mut self.task)
            .await
            .expect("the server stops despite open streams")
            .unwrap();
    }
}

fn pem(authority: &Authority, trusted: &[&Authority]) -> Pem {
    let identity = authority.issue(&[NAME]).unwrap();
    Pem {
        chain: identity.chain,
        private_key: identity.private_key,
        ca_bundle: trusted.iter().map(|authority| authority.pem()).collect(),
    }
}

/// A client with a certificate issued by `authority` for these URIs, valid for a day.
fn client(authority: &Authority, uris: &[&str], trusted: &Authority) -> Arc<ClientConfig> {
    let now = SystemTime::now();
    let identity = authority.issue_client(uris, now - DAY, now + DAY).unwrap();
    certs::client_config_as(Some(&identity), &trusted.pem(), &["h2"]).unwrap()
}

fn uri() -> String {
    sesame_model::FleetId::of_gateway("ns", "gateway").uri()
}

fn good(authority: &Authority) -> Arc<ClientConfig> {
    client(authority, &[&uri()], authority)
}

#[tokio::test]
async fn only_clients_with_a_certificate_of_their_fleet_are_served() {
    let ours = Authority::new().unwrap();
    let theirs = Authority::new().unwrap();
    let identity = Identity::new(&pem(&ours, &[&ours])).unwrap();
    let mut running = Running::start(identity).await;
    let _first = running.served(good(&ours)).await;

    let refusal = running.refused("ns/other", good(&ours)).await;
    assert_eq!(refusal.reason, RefusalReason::WrongFleet);
    assert_eq!(refusal.fleet, Some(FleetId::new(FLEET)));
    assert!(refusal.message.contains("ns/other"), "{}", refusal.message);

    let stranger = client(&theirs, &[&uri()], &ours);
    let refusal = running.refused(FLEET, stranger).await;
    assert_eq!(refusal.reason, RefusalReason::UnknownCa, "{refusal:?}");

    let anonymous = certs::client_config(&ours.pem(), &["h2"]).unwrap();
    let refusal = running.refused(FLEET, anonymous).await;
    assert_eq!(refusal.reason, RefusalReason::NoCertificate, "{refusal:?}");

    let now = SystemTime::now();
    let between = |from, to| {
        let identity = ours.issue_client(&[&uri()], from, to).unwrap();
        certs::client_config_as(Some(&identity), &ours.pem(), &["h2"]).unwrap()
    };
    let expired = between(now - 2 * DAY, now - DAY);
    let refusal = running.refused(FLEET, expired).await;
    assert_eq!(refusal.reason, RefusalReason::Expired, "{refusal:?}");
    let early = between(now + DAY, now + 2 * DAY);
    let refusal = running.refused(FLEET, early).await;
    assert_eq!(refusal.reason, RefusalReason::NotYetValid, "{refusal:?}");

    let two = [
        uri(),
        sesame_model::FleetId::of_gateway("ns", "other").uri(),
    ];
    for names in [&[][..], &["spiffe://elsewhere/x"], &[&two[0], &two[1]]] {
        let refusal = running.refused(FLEET, client(&ours, names, &ours)).await;
        assert_eq!(refusal.reason, RefusalReason::NoFleet, "{refusal:?}");
    }

    let server_only = ours.issue(&[NAME]).unwrap();
    let unnamed = certs::client_config_as(Some(&server_only), &ours.pem(), &["h2"]).unwrap();
    let refusal = running.refused(FLEET, unnamed).await;
    assert_eq!(
        refusal.reason,
        RefusalReason::NoFleet,
        "a DNS name names no fleet"
    );

    let distrusts = client(&ours, &[&uri()], &theirs);
    let refusal = running.refused(FLEET, distrusts).await;
    assert_eq!(
        refusal.reason,
        RefusalReason::ServerCertificateRejected,
        "{refusal:?}"
    );

    let address = format!("http://{}", running.address).parse().unwrap();
    let plain = FakeEnvoy::builder(FLEET, "plain")
        .connect(Server::Tcp(address))
        .await;
    if let Ok(envoy) = plain {
        envoy.until(|state| state.ended().is_some()).await.unwrap();
    }
    assert_eq!(running.refusal().await.reason, RefusalReason::NotTls);

    let _still = running.served(good(&ours)).await;
    let total: u64 = running.identity.refusals().counts().values().sum();
    assert_eq!(total, 11, "{:?}", running.identity.refusals().counts());
    running.stop().await;
}

#[tokio::test]
async fn open_streams_survive_a_ca_rotation() {
    let (old, new) = (Authority::new().unwrap(), Authority::new().unwrap());
    let identity = Identity::new(&pem(&old, &[&old])).unwrap();
    let mut running = Running::start(identity).await;
    let early = running.served(good(&old)).await;

    // Introduce the new CA.
    running.identity.replace(&pem(&old, &[&old, &new])).unwrap();
    let _old = running.served(good(&old)).await;
    let _mixed = running.served(client(&new, &[&uri()], &old)).await;
    // Promote it.
    running.identity.replace(&pem(&new, &[&old, &new])).unwrap();
    let _mixed = running.served(client(&old, &[&uri()], &new)).await;
    let _new = running.served(good(&new)).await;
    // Retire the old one.
    running.identity.replace(&pem(&new, &[&new])).unwrap();
    let refusal = running.refused(FLEET, client(&old, &[&uri()], &new)).await;
    assert_eq!(refusal.reason, RefusalReason::UnknownCa);

    running.apply(2, "second");
    early
        .until(|state| state.names(Cluster).contains(&"second"))
        .await
        .unwrap();
    assert!(early.state().connected() && early.state().ended().is_none());
    running.stop().await;
}

#[tokio::test]
async fn invalid_certificates_do_not_replace_valid_ones() {
    let (ours, theirs) = (Authority::new().unwrap(), Authority::new().unwrap());
    let good_pem = pem(&ours, &[&ours]);
    let identity = Identity::new(&good_pem).unwrap();
    let bad = [
        Pem {
            private_key: pem(&theirs, &[&theirs]).private_key,
            ..good_pem.clone()
        },
        Pem {
            private_key: "garbage".to_owned(),
            ..good_pem.clone()
        },
        Pem {
            chain: String::new(),
            ..good_pem.clone()
        },
        Pem {
            ca_bundle: "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n".to_owned(),
            ..good_pem.clone()
        },
    ];
    for bad in bad {
        let error = identity.replace(&bad).unwrap_err();
        assert!(!error.to_string().contains("PRIVATE"), "{error}");
    }
    let running = Running::start(identity).await;
    let _served = running.served(good(&ours)).await;
    running.stop().await;
}

#[tokio::test]
async fn without_a_server_certificate_clients_are_refused() {
    let ours = Authority::new().unwrap();
    let mut running = Running::start(Identity::pending()).await;
    let refusal = running.refused(FLEET, good(&ours)).await;
    assert_eq!(refusal.reason, RefusalReason::NotReady);
    running.identity.replace(&pem(&ours, &[&ours])).unwrap();
    let _served = running.served(good(&ours)).await;
    running.stop().await;
}

#[tokio::test]
async fn a_connection_ends_when_its_client_certificate_expires() {
    let ours = Authority::new().unwrap();
    let identity = Identity::new(&pem(&ours, &[&ours])).unwrap();
    let running = Running::start(identity).await;
    let lasting = running.served(good(&ours)).await;
    let now = SystemTime::now();
    let short = ours
        .issue_client(&[&uri()], now - DAY, now + Duration::from_secs(10))
        .unwrap();
    let short = certs::client_config_as(Some(&short), &ours.pem(), &["h2"]).unwrap();
    let ending = running.served(short).await;
    ending.until(|state| state.ended().is_some()).await.unwrap();
    assert!(lasting.state().connected());
    running.stop().await;
}

#[tokio::test]
async fn a_fleet_has_a_limited_number_of_connections() {
    let ours = Authority::new().unwrap();
    let identity = Identity::new(&pem(&ours, &[&ours])).unwrap();
    let limits = Limits {
        fleet_streams: 2,
        ..Limits::default()
    };
    let mut running = Running::start_with(identity, limits).await;
    let first = running.served(good(&ours)).await;
    let second = running.served(good(&ours)).await;
    let refusal = running.refused(FLEET, good(&ours)).await;
    assert_eq!(refusal.reason, RefusalReason::TooManyConnections);
    assert_eq!(refusal.fleet, Some(FleetId::new(FLEET)));
    drop(first);
    // The server takes a moment to notice that the connection is closed.
    let patience = std::time::Instant::now() + PATIENCE;
    while running
        .registry
        .status(&FleetId::new(FLEET))
        .is_some_and(|status| status.clients.len() > 1)
    {
        assert!(std::time::Instant::now() < patience);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let _third = running.served(good(&ours)).await;
    assert!(second.state().connected());
    running.stop().await;
}

#[tokio::test]
async fn idle_connections_do_not_keep_out_valid_clients() {
    let ours = Authority::new().unwrap();
    let identity = Identity::new(&pem(&ours, &[&ours])).unwrap();
    let running = Running::start(identity).await;
    let mut silent = Vec::new();
    for n in 0..1_000 {
        let mut stream = TcpStream::connect(running.address).await.unwrap();
        if n % 2 == 0 {
            // The start of a handshake record.
            stream.write_all(&[22, 3, 1, 2, 0]).await.unwrap();
        }
        silent.push(stream);
    }
    let _served = running.served(good(&ours)).await;
    let displaced = running.identity.refusals().counts()[&RefusalReason::TooManyHandshakes];
    // All idle connections were accepted before the valid one, and all but the newest were displaced.
    assert!(
        displaced >= u64::try_from(1_000 - MAX_HANDSHAKES).unwrap(),
        "{displaced} were displaced"
    );
    let mut end = Vec::new();
    let ended = tokio::time::timeout(PATIENCE, silent[1].read_to_end(&mut end)).await;
    assert!(ended.is_ok(), "the oldest connection is closed");
    running.stop().await;
}

#[tokio::test]
async fn a_directory_is_polled() {
    let (old, new) = (Authority::new().unwrap(), Authority::new().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let write = |pem: &Pem| {
        let parts = [&pem.chain, &pem.private_key, &pem.ca_bundle];
        for (name, text) in tls::files::FILES.into_iter().zip(parts) {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
    };
    let missing = tls::files::open(dir.path().to_owned(), PATIENCE).await;
    let message = missing.err().unwrap().to_string();
    assert!(message.contains("tls.crt"), "{message}");

    write(&pem(&old, &[&old]));
    let period = Duration::from_millis(20);
    let (identity, following) = tls::files::open(dir.path().to_owned(), period)
        .await
        .unwrap();
    let following = tokio::spawn(following);
    let running = Running::start(identity).await;
    let before = running.served(good(&old)).await;
    // A partial update is ignored.
    std::fs::write(dir.path().join("tls.key"), "half").unwrap();
    tokio::time::sleep(period * 5).await;
    let _still = running.served(good(&old)).await;
    let shown = running.identity.config().unwrap();
    write(&pem(&new, &[&new]));
    let replaced = async {
        while Arc::ptr_eq(&shown, &running.identity.config().unwrap()) {
            tokio::time::sleep(period).await;
        }
    };
    tokio::time::timeout(PATIENCE, replaced).await.unwrap();
    let _after = running.served(good(&new)).await;
    assert!(before.state().connected());
    following.abort();
    running.stop().await;
}
