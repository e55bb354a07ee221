//! Runs the state against a simulated cluster: a leader, followers, and Envoys that read their files late.

use jiff::SignedDuration;
use k8s_openapi::ByteString;

use super::super::cert::{self, Ca};
use super::*;
use crate::kube::names;

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

fn desired_secret(name: &str) -> FleetSecret {
    let (namespace, secret_name) = secret_name(name);
    FleetSecret {
        namespace,
        name: secret_name,
        labels: [("app".to_owned(), "web".to_owned())].into(),
        ..FleetSecret::default()
    }
}

fn own_secret(name: &str) -> Name {
    (NAMESPACE.to_owned(), name.to_owned())
}

/// The name of a fleet's Secret.
fn secret_name(fleet_name: &str) -> Name {
    let name = names::certificate_secret(&fleet(fleet_name));
    ("apps".to_owned(), name)
}

/// A leader that has created the Secrets of these fleets.
fn leader(names: &[&str]) -> (Cluster, SecretsState) {
    let mut cluster = Cluster::default();
    let mut leader = cluster.leader(names);
    cluster.reconcile(&mut leader, at(0));
    (cluster, leader)
}

fn cas(state: &SecretsState) -> &CaBundle {
    state.cas.as_ref().unwrap()
}

fn pems(state: &SecretsState) -> BTreeSet<String> {
    let certificates = cas(state).certificates();
    certificates.map(|ca| ca.pem.clone()).collect()
}

#[test]
fn twelve_years_of_rotation_reject_no_valid_peer() {
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
        // Another replica takes over every month. Its only state is the Secrets.
        if hour % 720 == 0 {
            leader = cluster.leader(&names);
        }
    }
    assert_eq!(issuers.len(), 4, "a new CA every 3 years and 4 months");
    assert_eq!(writes, 3 * 3, "three rotations of three steps");
    assert!(first.is_disjoint(&pems(&leader)), "the first CA is retired");
    let bundle = cert::read_bundle(&cluster.files(&secret_name("a")).ca_bundle);
    assert_eq!(bundle.len(), 1, "Envoys have only the current CA");
}

#[test]
fn fleet_changes_do_not_delay_ca_promotion() {
    let (mut cluster, mut leader) = leader(&["a"]);
    cluster.reconcile(&mut leader, at(INTRODUCED));
    let introduced = cas(&leader).next.clone();
    assert!(introduced.is_some());
    leader.set_fleet(fleet("forbidden"), Some(desired_secret("forbidden")));
    for hour in (INTRODUCED / HOUR + 1..PROMOTED / HOUR).step_by(12) {
        let now = at(hour * HOUR);
        let name = format!("new-{hour}");
        leader.set_fleet(fleet(&name), Some(desired_secret(&name)));
        leader.failed(now, &secret_name("forbidden"), "forbidden".to_owned());
        cluster.reconcile(&mut leader, now);
        assert_eq!(cas(&leader).next, introduced);
    }
    cluster.reconcile(&mut leader, at(PROMOTED));
    assert_eq!(cas(&leader).issuing, introduced);
    assert_eq!(cas(&leader).next, None);
    let stored = &cluster.secrets[&own_secret(secret::CA)];
    let keys: Vec<_> = stored.data.iter().flat_map(BTreeMap::keys).collect();
    assert_eq!(
        keys,
        ["ca.crt", "tls.crt", "tls.key"],
        "the previous key is deleted"
    );
}

#[test]
fn followers_and_unsynced_leaders_write_nothing() {
    let cluster = Cluster::default();
    let mut follower = cluster.join(config());
    assert_eq!(follower.next(at(0)), []);
    let mut unsynced = SecretsState::new(config());
    unsynced.set_leading(true);
    for source in [SecretSource::Ca, SecretSource::Fleets(None)] {
        assert_eq!(unsynced.next(at(0)), []);
        unsynced.handle_event(source.clone(), Event::Init);
        unsynced.handle_event(source, Event::InitDone);
    }
    assert_eq!(
        unsynced.next(at(0)),
        [],
        "the server's Secret isn't listed yet"
    );
    unsynced.handle_event(SecretSource::Server, Event::Init);
    unsynced.handle_event(SecretSource::Server, Event::InitDone);
    assert_eq!(unsynced.next(at(0)), [own_secret(secret::CA)]);
}

/// A leader that has created all Secrets and then observes a modified one. Also returns the original Secret.
fn modified(name: &Name, modify: impl FnOnce(&mut Secret)) -> (Cluster, SecretsState, Secret) {
    let (mut cluster, mut leader) = leader(&["a"]);
    let secret = cluster.secrets.get_mut(name).unwrap();
    let good = secret.clone();
    modify(secret);
    cluster.send_event(&mut leader, name);
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
        let (mut cluster, mut leader, good) = modified(&own_secret(secret::CA), modify);
        cluster.reconcile(&mut leader, at(HOUR));
        assert_eq!(cluster.secrets[&own_secret(secret::CA)].data, good.data);
        assert_eq!(cluster.writes, 4, "three created, one restored");
    }
}

#[test]
fn a_modified_certificate_is_reissued() {
    let other = Ca::generate(at(0)).unwrap();
    let invalid = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    let modifications: [&dyn Fn(&mut Secret); 5] = [
        &|s| set(s, "tls.crt", invalid),
        &|s| set(s, "tls.key", &other.private_key),
        &|s| {
            set(s, "tls.crt", &other.certificate.pem);
            set(s, "tls.key", &other.private_key);
        },
        &|s| set(s, "ca.crt", &other.certificate.pem),
        &|s| s.data = None,
    ];
    for modify in modifications {
        for name in [secret_name("a"), own_secret(secret::SERVER)] {
            let (mut cluster, mut leader, _) = modified(&name, modify);
            assert!(
                leader.server_files().is_some(),
                "the last valid certificate"
            );
            cluster.reconcile(&mut leader, at(HOUR));
            let server = cluster.files(&own_secret(secret::SERVER));
            handshake(&server, &cluster.files(&secret_name("a")), at(HOUR)).unwrap();
            assert_eq!(cluster.writes, 4, "three created, one restored");
            assert_eq!(leader.server_files(), Some(&server));
        }
    }
}

#[test]
fn new_dns_names_take_effect_when_the_replica_leads() {
    let (mut cluster, _) = leader(&["a"]);
    let mut config = config();
    config.dns_names.push("sesame.example".to_owned());
    let mut replica = cluster.join(config.clone());
    let before = replica.server_files().cloned().unwrap();
    replica.set_leading(true);
    cluster.reconcile(&mut replica, at(HOUR));
    let after = replica.server_files().cloned().unwrap();
    assert_ne!(after.certificate, before.certificate);
    assert_eq!(Leaf::read(&after).unwrap().names, config.dns_names);
}

#[test]
fn removed_labels_are_restored_without_reissuing() {
    let name = secret_name("a");
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
fn a_lost_ca_key_is_replaced_and_its_certificates_stay_valid() {
    let (mut cluster, _) = leader(&["a"]);
    let mut replicas = replicas(&cluster, [0, 13 * HOUR]);
    let mut envoys = envoys(&cluster, &["a"], [20 * HOUR]);
    let lost = cluster.files(&own_secret(secret::SERVER)).ca_bundle;
    cluster.secrets.remove(&own_secret(secret::CA));
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
fn the_secret_of_a_removed_fleet_is_deleted() {
    let (mut cluster, mut leader) = leader(&["a"]);
    leader.set_fleet(fleet("b"), Some(desired_secret("b")));
    cluster.reconcile(&mut leader, at(1));
    leader.set_fleet(fleet("a"), None);
    cluster.reconcile(&mut leader, at(2));
    let names: Vec<_> = cluster.secrets.keys().cloned().collect();
    let kept = [
        secret_name("b"),
        own_secret(secret::CA),
        own_secret(secret::SERVER),
    ];
    assert_eq!(names, kept);
    let before = cluster.writes;
    leader.set_fleet(fleet("a"), Some(desired_secret("a")));
    cluster.reconcile(&mut leader, at(3));
    assert_eq!(cluster.writes, before + 1);
}

#[test]
fn a_restart_writes_nothing_and_renewals_are_spread_out() {
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
    assert_eq!(cluster.writes, 52 + 51, "every leaf certificate once");
    assert!(days.len() >= 3 && days.first() >= Some(&16), "{days:?}");
}
