//! The whole of it without an API server: a map of Secrets, a leader, replicas and Envoys that get what they get late.

use k8s_openapi::ByteString;
use sesame_xds::tls as discovery;

use super::*;

mod failing;
mod world;

use world::{Cluster, processes, shake_hands};

const NAMESPACE: &str = "sesame-system";
const NAME: &str = "sesame-xds.sesame-system.svc";
const HOUR: i64 = 3_600;
const DAY: i64 = 24 * HOUR;
const YEAR: i64 = 365 * DAY;

fn start() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

fn at(seconds: i64) -> Timestamp {
    start() + SignedDuration::from_secs(seconds)
}

fn config() -> Config {
    Config::new(NAMESPACE, vec![NAME.to_owned()])
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

#[test]
fn in_twelve_years_no_envoy_is_refused_and_every_authority_is_followed() {
    let mut cluster = Cluster::default();
    let mut leader = cluster.join();
    leader.lead(true);
    let names = ["a", "b", "c"];
    for name in names {
        leader.want(fleet(name), Some(owner(name)));
    }
    cluster.work(&mut leader, start());
    let (mut replicas, mut envoys) = processes(&cluster, &names);
    let first = leader.authorities().unwrap().fingerprints();
    let mut steps = 0;
    let mut signers = std::collections::BTreeSet::new();
    let mut most = 0;
    for hour in 1..(12 * YEAR / HOUR) {
        let (seconds, now) = (hour * HOUR, at(hour * HOUR));
        let took = cluster.work(&mut leader, now);
        for process in replicas.iter_mut().chain(&mut envoys) {
            process.run(&cluster, seconds);
        }
        let authorities = leader.authorities().unwrap();
        signers.extend(authorities.signing.as_ref().map(|a| a.trusted.fingerprint));
        most = most.max(authorities.trusted().count());
        for (server, client) in replicas
            .iter()
            .flat_map(|s| envoys.iter().map(move |c| (s, c)))
        {
            assert!(
                server.takes(client, now),
                "{now}: a replica refuses {:?}",
                client.subject
            );
            assert!(
                client.takes(server, now),
                "{now}: {:?} refuses a replica",
                client.subject
            );
            if took > 0 {
                // What was just worked out is true of real certificates.
                shake_hands(&server.files, &client.files, now).unwrap();
            }
        }
        steps += took;
        // The leader changes every month, and knows only what stands in Secrets.
        if hour % 720 == 0 {
            leader = cluster.join();
            leader.lead(true);
            for name in names {
                leader.want(fleet(name), Some(owner(name)));
            }
        }
    }
    assert_eq!(
        signers.len(),
        4,
        "every 3 years and 4 months another one signs"
    );
    assert_eq!(
        steps,
        3 * 4,
        "introduced, everywhere, promoted, retired: three times"
    );
    assert_eq!(most, 2, "no more than two at a time");
    let last = leader.authorities().unwrap().fingerprints();
    assert!(first.is_disjoint(&last), "the first authority is forgotten");
    let bundle = read::authorities(&cluster.files(&envoys[0].place).authorities);
    assert_eq!(bundle.len(), 1, "also by Envoys");
}

#[test]
fn an_authority_is_not_used_before_everybody_has_known_it_for_a_while() {
    let mut cluster = Cluster::default();
    let mut leader = cluster.join();
    leader.lead(true);
    leader.want(fleet("a"), Some(owner("a")));
    cluster.work(&mut leader, start());
    let introduced = 10 * YEAR / 3 + DAY;
    cluster.work(&mut leader, at(introduced));
    assert!(leader.authorities().unwrap().everywhere.is_some());
    // Just before the time is over there comes a fleet whose Secret can't be written.
    let almost = at(introduced + DAY - HOUR);
    leader.want(fleet("b"), Some(owner("b")));
    let Some(Job::Fleets(batch)) = leader.next(almost).unwrap() else {
        panic!("the new fleet is to be written");
    };
    assert!(batch.iter().any(|(id, _)| *id == fleet("b")));
    leader.failed(almost, &fleet("b"), "forbidden".to_owned(), false);
    assert!(leader.failures().unwrap().contains("forbidden"));
    // It is noted that perhaps not all have it.
    cluster.work(&mut leader, almost);
    assert_eq!(leader.authorities().unwrap().everywhere, None);
    // Then it can, and only a whole period later the next authority signs.
    let mended = introduced + 3 * DAY;
    cluster.work(&mut leader, at(mended));
    assert!(leader.failures().is_none());
    cluster.work(&mut leader, at(mended + DAY - 60));
    assert!(leader.authorities().unwrap().next.is_some(), "not yet");
    cluster.work(&mut leader, at(mended + DAY));
    assert!(leader.authorities().unwrap().next.is_none(), "now");
}

#[test]
fn a_place_that_somebody_else_has_holds_up_nobody() {
    let mut cluster = Cluster::default();
    let mut leader = cluster.join();
    leader.lead(true);
    leader.want(fleet("a"), Some(owner("a")));
    let mut now = start();
    while let Some(job) = leader.next(now).unwrap() {
        match job {
            Job::Fleets(batch) => {
                leader.failed(now, &batch[0].0, "somebody else's".to_owned(), true);
            }
            Job::Authorities { to, .. } => {
                let place = Cluster::own(secret::AUTHORITY);
                let written = cluster.write(place, |s| secret::write_authorities(s, &to));
                leader.see_authorities(Some(&written));
            }
            Job::Server => {
                let subject = leader.server_subject().clone();
                let place = Cluster::own(secret::SERVER);
                let written = cluster.fill(&leader, now, &subject, place, |_| {});
                leader.see_server(Some(&written));
            }
            Job::Remove(..) => unreachable!("nothing is to go"),
        }
    }
    assert!(leader.complete());
    assert!(leader.failures().unwrap().contains("somebody else's"));
    // It is tried again, later and later.
    for _ in 0..12 {
        now = leader.next_look().unwrap();
        assert!(matches!(leader.next(now).unwrap(), Some(Job::Fleets(_))));
        leader.failed(now, &fleet("a"), "somebody else's".to_owned(), true);
        assert_eq!(leader.next(now).unwrap(), None);
    }
    let pause = leader.next_look().unwrap().duration_since(now);
    assert_eq!(pause, SignedDuration::from_secs(120));
}

#[test]
fn who_does_not_lead_or_does_not_know_writes_nothing() {
    let cluster = Cluster::default();
    let mut follower = cluster.join();
    assert_eq!(follower.next(start()).unwrap(), None);
    let mut blind = State::new(&config());
    blind.lead(true);
    assert_eq!(blind.next(start()).unwrap(), None);
    for source in [Source::Authority, Source::Fleets(0)] {
        blind.see(Seen::Begin(source));
        blind.see(Seen::Complete(source));
    }
    assert_eq!(
        blind.next(start()).unwrap(),
        None,
        "the server's Secret is not known yet"
    );
}

/// Everything is made; then `spoil` does something to a Secret, which the leader sees.
fn spoiled(name: &str, spoil: impl FnOnce(&mut Secret)) -> (Cluster, State, Secret) {
    let mut cluster = Cluster::default();
    let mut leader = cluster.join();
    leader.lead(true);
    leader.want(fleet("a"), Some(owner("a")));
    cluster.work(&mut leader, start());
    let source = match name {
        secret::AUTHORITY => Source::Authority,
        secret::SERVER => Source::Server,
        _ => Source::Fleets(0),
    };
    let (_, secret) = cluster
        .secrets
        .iter_mut()
        .find(|(place, _)| place.1 == name)
        .unwrap();
    let good = secret.clone();
    spoil(secret);
    leader.see(Seen::Is(source, Box::new(secret.clone())));
    (cluster, leader, good)
}

fn set(secret: &mut Secret, key: &str, text: &str) {
    let data = secret.data.get_or_insert_default();
    data.insert(key.to_owned(), ByteString(text.as_bytes().to_vec()));
}

#[test]
fn a_spoiled_authority_is_put_back_by_who_remembers_it() {
    let other = super::super::issue::authority(start(), &Periods::default()).unwrap();
    let spoils: [&dyn Fn(&mut Secret); 4] = [
        &|s| set(s, "tls.crt", "garbage"),
        &|s| set(s, "tls.key", &other.private_key),
        &|s| s.data = None,
        &|s| _ = s.data.as_mut().unwrap().remove("tls.key"),
    ];
    for spoil in spoils {
        let (mut cluster, mut leader, good) = spoiled(secret::AUTHORITY, spoil);
        cluster.work(&mut leader, at(HOUR));
        let mended = &cluster.secrets[&Cluster::own(secret::AUTHORITY)];
        assert_eq!(mended.data, good.data);
        assert_eq!(cluster.writes, 4, "three at first, one to mend");
    }
}

#[test]
fn a_spoiled_certificate_is_made_anew() {
    let other = super::super::issue::authority(start(), &Periods::default()).unwrap();
    let spoils: [&dyn Fn(&mut Secret); 5] = [
        &|s| {
            set(
                s,
                "tls.crt",
                "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            )
        },
        &|s| set(s, "tls.key", &other.private_key),
        &|s| {
            set(s, "tls.crt", &other.certificate);
            set(s, "tls.key", &other.private_key);
        },
        &|s| set(s, "ca.crt", &other.certificate),
        &|s| s.data = None,
    ];
    for spoil in spoils {
        for name in ["a-xds", secret::SERVER] {
            let (mut cluster, mut leader, _) = spoiled(name, spoil);
            let shown = leader.shown().cloned();
            cluster.work(&mut leader, at(HOUR));
            let own = Cluster::own(secret::SERVER);
            let (server, client) = (
                cluster.files(&own),
                cluster.files(&("apps".to_owned(), "a-xds".to_owned())),
            );
            shake_hands(&server, &client, at(HOUR)).unwrap();
            assert_eq!(cluster.writes, 4, "three at first, one to mend");
            assert!(
                shown.is_some(),
                "what was good is shown until there is better"
            );
            assert_eq!(leader.shown().unwrap().files, server);
        }
    }
}

#[test]
fn a_replica_that_wants_other_names_shows_what_there_is_until_it_leads() {
    let (mut cluster, _, _) = spoiled(secret::AUTHORITY, |_| {});
    let mut config = config();
    config.dns_names.push("sesame.example".to_owned());
    let mut other = cluster.join_as(&config);
    let before = other.shown().cloned().expect("there is something to show");
    other.lead(true);
    cluster.work(&mut other, at(HOUR));
    let after = other.shown().cloned().unwrap();
    assert_ne!(after.files.certified, before.files.certified);
    assert!(read::leaf(&after.files, &Subject::Server(config.dns_names)).is_ok());
}

#[test]
fn marks_that_somebody_took_are_put_back_and_the_certificate_stays() {
    let (mut cluster, mut leader, good) = spoiled("a-xds", |secret| {
        secret.metadata.labels = None;
        secret
            .metadata
            .annotations
            .as_mut()
            .unwrap()
            .insert("theirs".to_owned(), "1".to_owned());
    });
    cluster.work(&mut leader, at(HOUR));
    let mended = &cluster.secrets[&("apps".to_owned(), "a-xds".to_owned())];
    assert_eq!(mended.metadata.labels, good.metadata.labels);
    assert_eq!(mended.data, good.data);
    assert!(
        mended
            .metadata
            .annotations
            .as_ref()
            .unwrap()
            .contains_key("theirs")
    );
}

#[test]
fn a_lost_key_is_followed_without_cutting_off_those_who_have_certificates() {
    let (mut cluster, _, _) = spoiled(secret::AUTHORITY, |_| {});
    let (mut replicas, mut envoys) = processes(&cluster, &["a"]);
    cluster.secrets.remove(&Cluster::own(secret::AUTHORITY));
    // Nobody remembers it.
    let mut leader = cluster.join();
    leader.lead(true);
    leader.want(fleet("a"), Some(owner("a")));
    for hour in 1..60 * 24 {
        let now = at(hour * HOUR);
        cluster.work(&mut leader, now);
        for process in replicas.iter_mut().chain(&mut envoys) {
            process.run(&cluster, hour * HOUR);
        }
        for server in &replicas {
            assert!(
                server.takes(&envoys[0], now) && envoys[0].takes(server, now),
                "{now}"
            );
        }
    }
    let authorities = leader.authorities().unwrap();
    assert!(authorities.signing.is_some() && authorities.retired.is_empty());
    shake_hands(&replicas[0].files, &envoys[0].files, at(60 * DAY)).unwrap();
}

#[test]
fn a_fleet_that_is_gone_takes_its_secret_along_and_another_stays() {
    let (mut cluster, mut leader, _) = spoiled(secret::SERVER, |_| {});
    leader.want(fleet("b"), Some(owner("b")));
    cluster.work(&mut leader, at(1));
    let before = cluster.writes;
    leader.want(fleet("a"), None);
    cluster.work(&mut leader, at(2));
    let names: Vec<_> = cluster
        .secrets
        .keys()
        .map(|(_, name)| name.as_str())
        .collect();
    assert_eq!(names, ["b-xds", "sesame-ca", "sesame-xds"]);
    // It comes again; nobody else is written.
    leader.want(fleet("a"), Some(owner("a")));
    cluster.work(&mut leader, at(3));
    assert_eq!(cluster.writes, before + 1);
    // It moves.
    let moved = FleetOwner {
        secret_name: "moved".to_owned(),
        ..owner("a")
    };
    leader.want(fleet("a"), Some(moved));
    cluster.work(&mut leader, at(4));
    let names: Vec<_> = cluster
        .secrets
        .keys()
        .map(|(_, name)| name.as_str())
        .collect();
    assert_eq!(names, ["b-xds", "moved", "sesame-ca", "sesame-xds"]);
}

#[test]
fn a_restart_writes_nothing() {
    let mut cluster = Cluster::default();
    let mut leader = cluster.join();
    leader.lead(true);
    let names: Vec<String> = (0..50).map(|n| format!("f{n}")).collect();
    for name in &names {
        leader.want(fleet(name), Some(owner(name)));
    }
    cluster.work(&mut leader, start());
    assert_eq!(cluster.writes, 52);
    let mut next = cluster.join();
    next.lead(true);
    for name in &names {
        next.want(fleet(name), Some(owner(name)));
    }
    cluster.work(&mut next, at(HOUR));
    assert_eq!(cluster.writes, 52);
    // Renewals don't come all at once.
    let mut days = std::collections::BTreeSet::new();
    for day in 1..22 {
        let before = cluster.writes;
        cluster.work(&mut next, at(day * DAY));
        if cluster.writes > before {
            days.insert(day);
        }
    }
    assert_eq!(cluster.writes, 103, "each once, but the authority");
    assert!(days.len() >= 3 && days.first() >= Some(&16), "{days:?}");
}

#[test]
fn both_ends_write_a_fleets_name_alike() {
    for name in ["ns/gw", "a b", "ü/%", "x/../y", "~._-"] {
        let ours = super::super::fleet_uri(&FleetId(name.into()));
        assert_eq!(ours, discovery::fleet_uri(&sesame_xds::FleetId::new(name)));
    }
}
