//! Secrets that can't be written or deleted, that others modify, and absences of all leaders.

use super::*;

#[test]
fn a_secret_that_is_not_ours_is_retried_ever_later_and_delays_no_other() {
    let mut cluster = Cluster::default();
    let name = app("a-xds");
    cluster.secrets.insert(name.clone(), Secret::default());
    let mut leader = cluster.leader(&["a", "b"]);
    cluster.reconcile(&mut leader, at(0));
    assert!(cluster.secrets.contains_key(&app("b-xds")));
    assert_eq!(cluster.secrets[&name], Secret::default());
    let failure = leader.failure().unwrap();
    assert!(failure.contains("apps/a-xds"), "{failure}");
    assert!(failure.contains("not created by Sesame"), "{failure}");
    let mut now = at(0);
    for _ in 0..12 {
        now = leader.next_time().unwrap();
        assert_eq!(leader.next(now), std::slice::from_ref(&name));
        leader.failed(now, &name, "not ours".to_owned());
        assert_eq!(leader.next(now), []);
    }
    let delay = leader.next_time().unwrap().duration_since(now);
    assert_eq!(delay, SignedDuration::from_secs(120));
    leader.want(fleet("a"), None);
    cluster.reconcile(&mut leader, now);
    assert_eq!(leader.failure(), None);
    assert_eq!(cluster.secrets[&name], Secret::default());
}

#[test]
fn after_years_without_a_leader_everything_is_issued_anew() {
    for away in [40 * DAY, 4 * YEAR, 6 * YEAR, 30 * YEAR] {
        let (mut cluster, mut leader) = leader(&["a"]);
        cluster.reconcile(&mut leader, at(INTRODUCED));
        let now = at(INTRODUCED + away);
        cluster.reconcile(&mut leader, now);
        let server = cluster.files(&own(secret::SERVER));
        handshake(&server, &cluster.files(&app("a-xds")), now).unwrap();
    }
}

#[test]
fn a_secret_that_cannot_be_deleted_delays_no_other_and_is_retried() {
    let (mut cluster, mut leader) = leader(&["a"]);
    leader.want(fleet("a"), None);
    leader.want(fleet("b"), Some(owner("b")));
    let now = at(1);
    assert_eq!(leader.next(now), [app("a-xds"), app("b-xds")]);
    leader.queue.insert(app("b-xds"));
    leader.failed(now, &app("a-xds"), "forbidden".to_owned());
    cluster.reconcile(&mut leader, now);
    assert!(cluster.secrets.contains_key(&app("a-xds")));
    assert!(cluster.secrets.contains_key(&app("b-xds")));
    let retry = leader.next_time().unwrap();
    cluster.reconcile(&mut leader, retry);
    assert!(!cluster.secrets.contains_key(&app("a-xds")));
    assert_eq!(leader.failure(), None);
}

#[test]
fn a_follower_forgets_the_secrets_that_the_leader_deletes() {
    let (cluster, _) = leader(&["a"]);
    let secret = cluster.secrets[&app("a-xds")].clone();
    for watch_is_first in [true, false] {
        let mut follower = cluster.leader(&["a"]);
        follower.lead(false);
        let delete = Event::Delete(secret.clone());
        if watch_is_first {
            follower.see(Source::Fleets(None), delete.clone());
        }
        follower.want(fleet("a"), None);
        follower.see(Source::Fleets(None), delete);
        assert!(!follower.entries.contains_key(&app("a-xds")));
        assert!(!follower.queue.contains(&app("a-xds")));
    }
}

#[test]
fn orphans_are_deleted_when_all_fleets_are_known_and_copies_never() {
    let in_place = |name: &str| FleetOwner {
        secret_name: crate::kube::names::certificate_secret(&fleet(name)),
        ..owner(name)
    };
    let mut cluster = Cluster::default();
    let mut leader = cluster.leader(&[]);
    for name in ["a", "b"] {
        leader.want(fleet(name), Some(in_place(name)));
    }
    cluster.reconcile(&mut leader, at(0));
    let kept = app(&in_place("a").secret_name);
    let orphan = app(&in_place("b").secret_name);
    let copy = ("elsewhere".to_owned(), "copy".to_owned());
    let copied = cluster.secrets[&orphan].clone();
    cluster.insert(&copy, copied);
    let mut next = cluster.leader(&[]);
    next.want(fleet("a"), Some(in_place("a")));
    cluster.reconcile(&mut next, at(1));
    assert!(cluster.secrets.contains_key(&orphan), "its fleet may come");
    next.settle();
    cluster.reconcile(&mut next, at(2));
    assert!(!cluster.secrets.contains_key(&orphan));
    assert!(cluster.secrets.contains_key(&copy));
    assert!(cluster.secrets.contains_key(&kept));
}

#[test]
fn a_secret_missing_from_a_new_list_is_created_again() {
    let (mut cluster, mut leader) = leader(&["a"]);
    cluster.secrets.remove(&app("a-xds"));
    let fleets = Source::Fleets(None);
    leader.see(fleets.clone(), Event::Init);
    leader.see(fleets, Event::InitDone);
    cluster.reconcile(&mut leader, at(HOUR));
    assert!(cluster.secrets.contains_key(&app("a-xds")));
    assert_eq!(cluster.writes, 4, "no other Secret is written");
}

#[test]
fn a_secret_modified_again_and_again_is_restored_less_and_less_often() {
    let (mut cluster, mut leader) = leader(&["a"]);
    let name = app("a-xds");
    let mut restored = Vec::new();
    for second in 1..600 {
        cluster.secrets.get_mut(&name).unwrap().data = None;
        cluster.show(&mut leader, &name);
        let before = cluster.writes;
        cluster.reconcile(&mut leader, at(second));
        if cluster.writes > before {
            restored.push(second);
        }
    }
    assert_eq!(restored[..5], [1, 2, 4, 8, 16]);
    assert!(restored.len() < 15, "{restored:?}");
    // The last modification is undone without another event.
    let now = leader.next_time().unwrap();
    cluster.reconcile(&mut leader, now);
    assert!(cluster.secrets[&name].data.is_some());
}
