//! Certificates kept in Secrets of a real API server: replicas that agree, Secrets that are mended, fleets that come and go.
#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use kube::api::{DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;
use sesame_fleet::kube::identity::issue::Subject;
use sesame_fleet::kube::identity::{
    self, Config, Files, FleetOwner, Handle, Periods, ServerIdentity, read, secret,
};
use sesame_model::FleetId;
use sesame_testkit::api_server::ApiServer;
use tokio::sync::watch;

/// For a machine that is busy.
const PATIENCE: Duration = Duration::from_secs(60);
const NAME: &str = "sesame-xds.sesame-system.svc";

/// A namespace of Sesame's and one of its user's, and a clock.
struct Place {
    client: Client,
    sesame: String,
    apps: String,
    /// Seconds to add to the time.
    ahead: Arc<AtomicI64>,
}

/// A replica.
struct Replica {
    handle: Handle,
    shown: watch::Receiver<Option<ServerIdentity>>,
}

impl Place {
    async fn new(name: &str) -> Self {
        let server = ApiServer::shared().await.unwrap();
        let client = server.admin().await.unwrap();
        let place = Self {
            sesame: format!("sesame-{name}"),
            apps: format!("apps-{name}"),
            ahead: Arc::default(),
            client,
        };
        let namespaces: Api<Namespace> = Api::all(place.client.clone());
        for name in [&place.sesame, &place.apps] {
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
        place
    }

    fn replica(&self) -> Replica {
        let mut config = Config::new(&self.sesame, vec![NAME.to_owned()]);
        let ahead = Arc::clone(&self.ahead);
        config.clock = Arc::new(move || {
            Timestamp::now() + SignedDuration::from_secs(ahead.load(Ordering::Relaxed))
        });
        let (handle, shown) = identity::start(self.client.clone(), config);
        Replica { handle, shown }
    }

    fn own(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.sesame)
    }

    /// The Secret of the authorities.
    async fn authority(&self) -> Secret {
        self.own().get(secret::AUTHORITY).await.unwrap()
    }

    fn of_fleets(&self) -> Api<Secret> {
        Api::namespaced(self.client.clone(), &self.apps)
    }

    fn fleet(&self) -> FleetId {
        FleetId::of_gateway(&self.apps, "gw")
    }

    fn owner(&self) -> FleetOwner {
        FleetOwner {
            namespace: self.apps.clone(),
            secret_name: "gw-xds".to_owned(),
            labels: BTreeMap::from([("team".to_owned(), "blue".to_owned())]),
            ..FleetOwner::default()
        }
    }

    /// Waits until the fleet's Secret is good; gives what is in it.
    async fn issued(&self) -> Files {
        let subject = Subject::Fleet(self.fleet());
        eventually(|| async {
            let secret = self.of_fleets().get_opt("gw-xds").await.unwrap()?;
            let files = files(&secret);
            read::leaf(&files, &subject).ok().map(|_| files)
        })
        .await
    }
}

impl Replica {
    async fn until(&mut self, wanted: impl Fn(&ServerIdentity) -> bool) -> ServerIdentity {
        let shown = self
            .shown
            .wait_for(|shown| shown.as_ref().is_some_and(&wanted));
        let shown = tokio::time::timeout(PATIENCE, shown)
            .await
            .expect("a change in time");
        shown.unwrap().clone().unwrap()
    }
}

async fn eventually<T, F: Future<Output = Option<T>>>(look: impl Fn() -> F) -> T {
    let search = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, search)
        .await
        .expect("it comes about in time")
}

fn files(secret: &Secret) -> Files {
    let part = |key: &str| {
        let bytes = secret.data.as_ref().and_then(|data| data.get(key));
        bytes.map_or_else(String::new, |bytes| {
            String::from_utf8(bytes.0.clone()).unwrap()
        })
    };
    Files {
        certified: identity::Certified {
            certificate: part("tls.crt"),
            private_key: part("tls.key"),
        },
        authorities: part("ca.crt"),
    }
}

/// One end takes the other's certificate, and the other the one's.
fn agree(server: &Files, client: &Files, place: &Place) {
    let server = read::leaf(server, &Subject::Server(vec![NAME.to_owned()])).unwrap();
    let client = read::leaf(client, &Subject::Fleet(place.fleet())).unwrap();
    assert!(server.trusts.contains(&client.issuer) && client.trusts.contains(&server.issuer));
}

/// Lets a server of discovery be what a replica shows, and a client come with what a Secret has.
async fn served(shown: &ServerIdentity, client: &Files, place: &Place) {
    use sesame_testkit::certs;
    use sesame_testkit::fake_envoy::{FakeEnvoy, Server};
    use sesame_xds::ResourceType::Cluster;
    use sesame_xds::tls;
    let identity = tls::Identity::new(&tls::Pem {
        chain: shown.files.certified.certificate.clone(),
        private_key: shown.files.certified.private_key.clone(),
        authorities: shown.files.authorities.clone(),
    })
    .unwrap();
    let registry = sesame_xds::Registry::new(sesame_xds::Config {
        authorize: Some(tls::authorize(&identity)),
        ..sesame_xds::Config::default()
    });
    let update = sesame_xds::Update {
        upserts: vec![(Cluster, sesame_xds::Resource::new("c", b"x".to_vec()))],
        ..sesame_xds::Update::default()
    };
    registry.apply(&sesame_xds::FleetId::new(place.fleet().as_str()), update);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let serving = tokio::spawn(async move {
        registry
            .serve_tls(listener, &identity, std::future::pending())
            .await
    });
    let shows = certs::Identity {
        chain: client.certified.certificate.clone(),
        private_key: client.certified.private_key.clone(),
    };
    let config = certs::client_config_as(Some(&shows), &client.authorities, &["h2"]).unwrap();
    let server = Server::Tls {
        address,
        name: NAME.to_owned(),
        config,
    };
    let builder = FakeEnvoy::builder(place.fleet().as_str(), "pod");
    let envoy = builder.connect(server).await.unwrap();
    envoy
        .until(|state| state.names(Cluster) == ["c"])
        .await
        .unwrap();
    serving.abort();
}

#[tokio::test]
async fn two_replicas_that_both_lead_agree_and_what_they_issue_serves() {
    let place = Place::new("race").await;
    let mut replicas = [place.replica(), place.replica(), place.replica()];
    for replica in &replicas {
        replica.handle.fleet(place.fleet(), Some(place.owner()));
        replica.handle.lead(true);
    }
    let issued = place.issued().await;
    let first = replicas[0].until(|_| true).await;
    // All of them come to show what stands in the Secret, and there it stays.
    let stands = files(&place.own().get(secret::SERVER).await.unwrap());
    for replica in &mut replicas {
        let shown = replica.until(|shown| shown.files == stands).await;
        agree(&shown.files, &issued, &place);
    }
    served(&first, &issued, &place).await;
    let authority = place.authority().await;
    assert_eq!(
        read::authorities(&files(&authority).authorities).len(),
        1,
        "one authority"
    );
    let kept = place.of_fleets().get("gw-xds").await.unwrap();
    assert_eq!(kept.metadata.labels.unwrap()["team"], "blue");
}

#[tokio::test]
async fn who_does_not_lead_waits_and_follows() {
    let place = Place::new("follow").await;
    let (leader, mut follower) = (place.replica(), place.replica());
    follower.handle.fleet(place.fleet(), Some(place.owner()));
    leader.handle.fleet(place.fleet(), Some(place.owner()));
    // Time enough to do what must not be done.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(
        place
            .own()
            .list(&Default::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    assert_eq!(*follower.shown.borrow(), None);
    leader.handle.lead(true);
    let first = follower.until(|_| true).await;
    let issued = place.issued().await;

    // Days go by, and everything is renewed without anybody being told.
    place.ahead.store(25 * 86_400, Ordering::Relaxed);
    leader.handle.lead(true);
    let second = follower
        .until(|shown| shown.files.certified != first.files.certified)
        .await;
    assert!(second.expires > first.expires);
    assert_eq!(second.files.authorities, first.files.authorities);
    eventually(|| async { (place.issued().await != issued).then_some(()) }).await;

    // Years go by, and another authority signs in the end; both are trusted meanwhile. A step is awaited before
    // the clock goes on: how long the next one takes is counted from it.
    let day = 86_400;
    let old = place.authority().await;
    let introduced = |now: &Secret| {
        let annotations = now.metadata.annotations.as_ref();
        annotations.is_some_and(|all| all.contains_key(secret::EVERYWHERE))
    };
    let promoted = |now: &Secret| {
        let key = |secret: &Secret| secret.data.as_ref().unwrap()["tls.key"].clone();
        key(now) != key(&old)
    };
    type Taken<'a> = &'a dyn Fn(&Secret) -> bool;
    let steps: [(i64, usize, Taken<'_>); 3] = [
        (1_300, 2, &introduced),
        (1_302, 2, &promoted),
        (1_340, 1, &promoted),
    ];
    for (days, trusted, taken) in steps {
        place.ahead.store(days * day, Ordering::Relaxed);
        leader.handle.lead(true);
        let many = |files: &Files| read::authorities(&files.authorities).len() == trusted;
        let shown = follower.until(|shown| many(&shown.files)).await;
        let issued = eventually(|| async { Some(place.issued().await).filter(many) }).await;
        agree(&shown.files, &issued, &place);
        eventually(|| async { taken(&place.authority().await).then_some(()) }).await;
    }
    let bundle = |files: &Files| read::authorities(&files.authorities);
    let last = follower.until(|_| true).await;
    assert_ne!(bundle(&first.files), bundle(&last.files));
}

#[tokio::test]
async fn what_somebody_spoils_is_mended() {
    let place = Place::new("mend").await;
    let mut leader = place.replica();
    leader.handle.fleet(place.fleet(), Some(place.owner()));
    leader.handle.lead(true);
    let first = leader.until(|_| true).await;
    let issued = place.issued().await;
    let authority = place.authority().await;
    let apply = PatchParams::default();

    // The authority's key: put back as it was, so that nobody notices.
    let garbage = json!({"data": {"tls.key": ByteString(b"garbage".to_vec())}});
    place
        .own()
        .patch(secret::AUTHORITY, &apply, &Patch::Merge(&garbage))
        .await
        .unwrap();
    let mended = || async {
        let now = place.own().get_opt(secret::AUTHORITY).await.unwrap()?;
        (now.data == authority.data).then_some(())
    };
    eventually(mended).await;
    place
        .own()
        .delete(secret::AUTHORITY, &DeleteParams::default())
        .await
        .unwrap();
    eventually(mended).await;

    // The server's: issued anew by the same authority; what was good is shown until then.
    let nonsense = json!({"data": {"tls.crt": ByteString(b"garbage".to_vec())}});
    place
        .own()
        .patch(secret::SERVER, &apply, &Patch::Merge(&nonsense))
        .await
        .unwrap();
    let second = leader.until(|shown| shown.files != first.files).await;
    agree(&second.files, &issued, &place);

    // A fleet's: deleted, emptied of meaning, and made impossible to change.
    let was = Mutex::new(issued);
    let renewed = || async {
        let now = place.issued().await;
        let mut was = was.lock().unwrap();
        (now != *was).then(|| *was = now)
    };
    place
        .of_fleets()
        .delete("gw-xds", &DeleteParams::default())
        .await
        .unwrap();
    eventually(renewed).await;
    place
        .of_fleets()
        .patch("gw-xds", &apply, &Patch::Merge(&nonsense))
        .await
        .unwrap();
    eventually(renewed).await;
    let stone = json!({"data": nonsense["data"], "immutable": true});
    place
        .of_fleets()
        .patch("gw-xds", &apply, &Patch::Merge(&stone))
        .await
        .unwrap();
    eventually(renewed).await;
    let unmarked = json!({"metadata": {"labels": null}});
    place
        .of_fleets()
        .patch("gw-xds", &apply, &Patch::Merge(&unmarked))
        .await
        .unwrap();
    eventually(|| async {
        let labels = place
            .of_fleets()
            .get("gw-xds")
            .await
            .unwrap()
            .metadata
            .labels?;
        (labels.get("team")? == "blue").then_some(())
    })
    .await;
    let last = was.lock().unwrap().clone();
    served(&second, &last, &place).await;
}

#[tokio::test]
async fn what_is_somebody_elses_is_left_alone_and_told() {
    let place = Place::new("foreign").await;
    let theirs = Secret {
        metadata: ObjectMeta {
            name: Some("gw-xds".to_owned()),
            ..ObjectMeta::default()
        },
        data: Some([("password".to_owned(), ByteString(b"x".to_vec()))].into()),
        ..Secret::default()
    };
    let theirs = place
        .of_fleets()
        .create(&PostParams::default(), &theirs)
        .await
        .unwrap();
    let leader = place.replica();
    leader.handle.fleet(place.fleet(), Some(place.owner()));
    leader.handle.lead(true);
    let mut trouble = leader.handle.trouble();
    let told = trouble.wait_for(|told| told.as_ref().is_some_and(|told| told.contains("gw-xds")));
    tokio::time::timeout(PATIENCE, told).await.unwrap().unwrap();
    // Not even when the fleet goes.
    leader.handle.fleet(place.fleet(), None);
    let over = trouble.wait_for(Option::is_none);
    tokio::time::timeout(PATIENCE, over).await.unwrap().unwrap();
    let now = place.of_fleets().get("gw-xds").await.unwrap();
    assert_eq!(now, theirs);
}

#[tokio::test]
async fn a_fleet_that_goes_takes_its_secret_along() {
    let place = Place::new("gone").await;
    let leader = place.replica();
    leader.handle.fleet(place.fleet(), Some(place.owner()));
    leader.handle.lead(true);
    place.issued().await;
    leader.handle.fleet(place.fleet(), None);
    eventually(|| async {
        let none = place.of_fleets().get_opt("gw-xds").await.unwrap().is_none();
        none.then_some(())
    })
    .await;
    assert!(
        place
            .own()
            .get_opt(secret::AUTHORITY)
            .await
            .unwrap()
            .is_some()
    );
}

#[tokio::test]
async fn a_certificate_can_be_carried_out_of_the_cluster() {
    let place = Place::new("carry").await;
    let periods = Periods::default();
    let issue =
        || identity::issue_once(place.client.clone(), &place.sesame, place.fleet(), &periods);
    let error = issue().await.unwrap_err().to_string();
    assert!(error.contains("sesame-ca"), "{error}");
    let mut leader = place.replica();
    leader.handle.lead(true);
    let shown = leader.until(|_| true).await;
    let carried = issue().await.unwrap();
    served(&shown, &carried, &place).await;
}
