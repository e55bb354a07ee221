//! The state with a map of Secrets instead of an API server: a leader, followers, and Envoys that read their files late.

use jiff::SignedDuration;
use k8s_openapi::ByteString;

use super::super::cert::{self, Ca};
use super::*;

mod failing;
mod world;

use world::{Cluster, envoys, handshake, replicas};

const NAMESPACE: &str = "sesame-system";
const DNS_NAME: &str = "sesame-xds.sesame-system.svc";
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;
/// When the first CA's successor is introduced and promoted.
const INTRODUCED: i64 = 10 * YEAR / 3;
const PROMOTED: i64 = INTRODUCED + 31 * DAY;

fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
    start + SignedDuration::from_secs(seconds)
}

fn config() -> CaConfig {
    CaConfig::new(NAMESPACE, vec![DNS_NAME.to_owned()])
}

fn fleet(name: &str) -> FleetId {
    FleetId::of_gateway("apps", name)
}

fn owner(name: &str) -> FleetOwner {
    FleetOwner {
        namespace: "apps".to_owned(),
        secret_name: format!("{name}-xds"),
        labels: [("app".to_owned(), "web".to_owned())].into(),
        ..FleetOwner::default()
    }
}

fn own(name: &str) -> Name {
    (NAMESPACE.to_owned(), name.to_owned())
}

fn app(name: &str) -> Name {
    ("apps".to_owned(), name.to_owned())
}

/// A leader that has created the Secrets of these fleets.
fn leader(names: &[&str]) -> (Cluster, State) {
    let mut cluster = Cluster::default();
    let mut leader = cluster.leader(names);
    cluster.reconcile(&mut leader, at(0));
    (cluster, leader)
}

fn cas(state: &State) -> &CaBundle {
    state.cas.as_ref().unwrap()
}

fn pems(state: &State) -> BTreeSet<String> {
    let certificates = cas(state).certificates();
    certificates.map(|ca| ca.pem.clone()).collect()
}

#[test]
fn in_twelve_years_of_rotations_no_valid_peer_is_rejected() {
    let names = ["a", "b", "c"];
    let (mut cluster, mut leader) = leader(&names);
    let mut replicas = replicas(&cluster, [0, 13 * HOUR]);
    let mut envoys = envoys(&cluster, &names, [0, HOUR, 9 * DAY]);
    let first = pems(&leader);
    let mut writes = 0;
    let mut issuers = BTreeSet::new();
    for hour in 1..(12 * YEAR / HOUR) {
        let (seconds, now) = (hour * HOUR, at(hour * HOUR));
        let written = cluster.reconcile(&mut leader, now);
        for process in replicas.iter_mut().chain(&mut envoys) {
            process.run(&cluster, seconds);
        }
        let issuing = cas(&leader).issuing.as_ref().unwrap();
        issuers.insert(issuing.certificate.pem.clone());
        assert!(cas(&leader).certificates().count() <= 2);
        for server in &replicas {
            for client in &envoys {
                let subject = &client.subject;
                assert!(server.accepts(client, now), "{now}: of {subject:?}");
                assert!(client.accepts(server, now), "{now}: by {subject:?}");
                if written > 0 {
                    handshake(&server.files, &client.files, now).unwrap();
                }
            }
        }
        writes += written;
        // Another replica leads every month; it knows only what is in Secrets.
        if hour % 720 == 0 {
            leader = cluster.leader(&names);
        }
    }
    assert_eq!(issuers.len(), 4, "another CA every 3 years and 4 months");
    assert_eq!(writes, 3 * 3, "introduced, promoted, retired: three times");
    assert!(first.is_disjoint(&pems(&leader)), "the first CA is retired");
    let bundle = cert::read_bundle(&cluster.files(&app("a-xds")).ca_bundle);
    assert_eq!(bundle.len(), 1, "also by Envoys");
}

#[test]
fn a_ca_issues_a_fixed_time_after_its_introduction_whatever_happens_to_fleets() {
    let (mut cluster, mut leader) = leader(&["a"]);
    cluster.reconcile(&mut leader, at(INTRODUCED));
    let introduced = cas(&leader).next.clone();
    assert!(introduced.is_some());
    leader.want(fleet("forbidden"), Some(owner("forbidden")));
    for hour in (INTRODUCED / HOUR + 1..PROMOTED / HOUR).step_by(12) {
        let now = at(hour * HOUR);
        let name = format!("new-{hour}");
        leader.want(fleet(&name), Some(owner(&name)));
        leader.failed(now, &app("forbidden-xds"), "forbidden".to_owned());
        cluster.reconcile(&mut leader, now);
        assert_eq!(cas(&leader).next, introduced);
    }
    cluster.reconcile(&mut leader, at(PROMOTED));
    assert_eq!(cas(&leader).issuing, introduced);
    assert_eq!(cas(&leader).next, None);
    let stored = &cluster.secrets[&own(secret::CA)];
    let keys: Vec<_> = stored.data.iter().flat_map(BTreeMap::keys).collect();
    assert_eq!(keys, ["ca.crt", "tls.crt", "tls.key"], "no old key is kept");
}

#[test]
fn followers_and_leaders_that_have_not_synced_write_nothing() {
    let cluster = Cluster::default();
    let mut follower = cluster.join(config());
    assert_eq!(follower.next(at(0)), []);
    let mut unsynced = State::new(config());
    unsynced.lead(true);
    for source in [Source::Ca, Source::Fleets(None)] {
        assert_eq!(unsynced.next(at(0)), []);
        unsynced.see(source.clone(), Event::Init);
        unsynced.see(source, Event::InitDone);
    }
    assert_eq!(unsynced.next(at(0)), [], "the server's Secret isn't known");
    unsynced.see(Source::Server, Event::Init);
    unsynced.see(Source::Server, Event::InitDone);
    assert_eq!(unsynced.next(at(0)), [own(secret::CA)]);
}

/// A leader that has created everything and sees a Secret that was modified since. Returns the original Secret.
fn modified(name: &Name, modify: impl FnOnce(&mut Secret)) -> (Cluster, State, Secret) {
    let (mut cluster, mut leader) = leader(&["a"]);
    let secret = cluster.secrets.get_mut(name).unwrap();
    let good = secret.clone();
    modify(secret);
    cluster.show(&mut leader, name);
    (cluster, leader, good)
}

fn set(secret: &mut Secret, key: &str, text: &str) {
    let data = secret.data.get_or_insert_default();
    data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
}

#[test]
fn a_leader_restores_a_modified_ca_from_memory() {
    let other = Ca::generate(at(0)).unwrap();
    let modifications: [&dyn Fn(&mut Secret); 4] = [
        &|s| set(s, "tls.crt", "garbage"),
        &|s| set(s, "tls.key", &other.private_key),
        &|s| s.data = None,
        &|s| _ = s.data.as_mut().unwrap().remove("tls.key"),
    ];
    for modify in modifications {
        let (mut cluster, mut leader, good) = modified(&own(secret::CA), modify);
        cluster.reconcile(&mut leader, at(HOUR));
        assert_eq!(cluster.secrets[&own(secret::CA)].data, good.data);
        assert_eq!(cluster.writes, 4, "three at first, one to restore");
    }
}

#[test]
fn a_modified_certificate_is_issued_anew() {
    let other = Ca::generate(at(0)).unwrap();
    let no_certificate = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let modifications: [&dyn Fn(&mut Secret); 5] = [
        &|s| set(s, "tls.crt", no_certificate),
        &|s| set(s, "tls.key", &other.private_key),
        &|s| {
            set(s, "tls.crt", &other.certificate.pem);
            set(s, "tls.key", &other.private_key);
        },
        &|s| set(s, "ca.crt", &other.certificate.pem),
        &|s| s.data = None,
    ];
    for modify in modifications {
        for name in [app("a-xds"), own(secret::SERVER)] {
            let (mut cluster, mut leader, _) = modified(&name, modify);
            assert!(leader.served().is_some(), "the last good certificate");
            cluster.reconcile(&mut leader, at(HOUR));
            let server = cluster.files(&own(secret::SERVER));
            handshake(&server, &cluster.files(&app("a-xds")), at(HOUR)).unwrap();
            assert_eq!(cluster.writes, 4, "three at first, one to restore");
            assert_eq!(leader.served(), Some(&server));
        }
    }
}

#[test]
fn a_replica_with_other_dns_names_serves_with_the_certificate_there_is_until_it_leads() {
    let (mut cluster, _) = leader(&["a"]);
    let mut config = config();
    config.dns_names.push("sesame.example".to_owned());
    let mut replica = cluster.join(config.clone());
    let before = replica.served().cloned().unwrap();
    replica.lead(true);
    cluster.reconcile(&mut replica, at(HOUR));
    let after = replica.served().cloned().unwrap();
    assert_ne!(after.certificate, before.certificate);
    assert_eq!(Leaf::read(&after).unwrap().names, config.dns_names);
}

#[test]
fn removed_labels_are_restored_and_the_certificate_stays() {
    let name = app("a-xds");
    let (mut cluster, mut leader, good) = modified(&name, |secret| {
        secret.metadata.labels = None;
        let annotations = secret.metadata.annotations.as_mut().unwrap();
        annotations.insert("theirs".to_owned(), "1".to_owned());
    });
    cluster.reconcile(&mut leader, at(HOUR));
    let restored = &cluster.secrets[&name];
    assert_eq!(restored.metadata.labels, good.metadata.labels);
    assert_eq!(restored.data, good.data);
    let annotations = restored.metadata.annotations.as_ref().unwrap();
    assert!(annotations.contains_key("theirs"));
}

#[test]
fn a_lost_ca_key_is_replaced_without_rejecting_certificates_of_the_lost_ca() {
    let (mut cluster, _) = leader(&["a"]);
    let mut replicas = replicas(&cluster, [0, 13 * HOUR]);
    let mut envoys = envoys(&cluster, &["a"], [20 * HOUR]);
    let lost = cluster.files(&own(secret::SERVER)).ca_bundle;
    cluster.secrets.remove(&own(secret::CA));
    let mut leader = cluster.leader(&["a"]);
    for hour in 1..60 * 24 {
        let now = at(hour * HOUR);
        cluster.reconcile(&mut leader, now);
        for process in replicas.iter_mut().chain(&mut envoys) {
            process.run(&cluster, hour * HOUR);
        }
        for server in &replicas {
            assert!(server.accepts(&envoys[0], now), "{now}");
            assert!(envoys[0].accepts(server, now), "{now}");
        }
    }
    assert!(cas(&leader).issuing.is_some());
    assert_eq!(cas(&leader).previous[0].pem, lost);
    handshake(&replicas[0].files, &envoys[0].files, at(60 * DAY)).unwrap();
    cluster.reconcile(&mut leader, at(5 * YEAR));
    assert_eq!(cas(&leader).previous, []);
}

#[test]
fn the_secret_of_a_fleet_is_deleted_with_it_and_moves_with_it() {
    let (mut cluster, mut leader) = leader(&["a"]);
    let names = |cluster: &Cluster| -> Vec<String> {
        let names = cluster.secrets.keys();
        names.map(|(_, name)| name.clone()).collect()
    };
    leader.want(fleet("b"), Some(owner("b")));
    cluster.reconcile(&mut leader, at(1));
    leader.want(fleet("a"), None);
    cluster.reconcile(&mut leader, at(2));
    assert_eq!(names(&cluster), ["b-xds", "sesame-ca", "sesame-xds"]);
    let before = cluster.writes;
    leader.want(fleet("a"), Some(owner("a")));
    cluster.reconcile(&mut leader, at(3));
    assert_eq!(cluster.writes, before + 1);
    let moved = FleetOwner {
        secret_name: "moved".to_owned(),
        ..owner("a")
    };
    leader.want(fleet("a"), Some(moved));
    cluster.reconcile(&mut leader, at(4));
    assert_eq!(
        names(&cluster),
        ["b-xds", "moved", "sesame-ca", "sesame-xds"]
    );
}

#[test]
fn a_restart_writes_nothing_and_renewals_are_spread() {
    let names: Vec<String> = (0..50).map(|n| format!("f{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (mut cluster, _) = leader(&names);
    assert_eq!(cluster.writes, 52);
    let mut next = cluster.leader(&names);
    cluster.reconcile(&mut next, at(HOUR));
    assert_eq!(cluster.writes, 52);
    let mut days = BTreeSet::new();
    for day in 1..22 {
        let before = cluster.writes;
        cluster.reconcile(&mut next, at(day * DAY));
        if cluster.writes > before {
            days.insert(day);
        }
    }
    assert_eq!(
        cluster.writes,
        52 + 51,
        "every certificate but the CA's once"
    );
    assert!(days.len() >= 3 && days.first() >= Some(&16), "{days:?}");
}
