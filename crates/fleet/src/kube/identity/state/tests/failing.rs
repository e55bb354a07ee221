//! Failed writes and deletions, modifications by other clients, and times without a leader.

use super::*;

#[test]
fn a_foreign_secret_causes_backoff_without_delaying_others() {
    let mut cluster = Cluster::default();
    let name = secret_name("a");
    cluster.secrets.insert(name.clone(), Secret::default());
    let mut leader = cluster.leader(&["a", "b"]);
    cluster.reconcile(&mut leader, at(0));
    assert!(cluster.secrets.contains_key(&secret_name("b")));
    assert_eq!(cluster.secrets[&name], Secret::default());
    let failure = leader.failure().unwrap();
    assert!(failure.contains("apps/a-"), "{failure}");
    assert!(failure.contains("not created by Sesame"), "{failure}");
    let mut now = at(0);
    for _ in 0..12 {
        now = leader.next_time().unwrap();
        assert_eq!(leader.next(now), std::slice::from_ref(&name));
        leader.failed(now, &name, "foreign".to_owned());
        assert_eq!(leader.next(now), []);
    }
    let delay = leader.next_time().unwrap().duration_since(now);
    assert_eq!(delay, SignedDuration::from_secs(120));
    leader.set_fleet(fleet("a"), None);
    cluster.reconcile(&mut leader, now);
    assert_eq!(leader.failure(), None);
    assert_eq!(cluster.secrets[&name], Secret::default());
}

#[test]
fn everything_is_reissued_after_years_without_a_leader() {
    for away in [40 * DAY, 4 * YEAR, 6 * YEAR, 30 * YEAR] {
        let (mut cluster, mut leader) = leader(&["a"]);
        cluster.reconcile(&mut leader, at(INTRODUCED));
        let now = at(INTRODUCED + away);
        cluster.reconcile(&mut leader, now);
        let server = cluster.files(&own_secret(secret::SERVER));
        handshake(&server, &cluster.files(&secret_name("a")), now).unwrap();
    }
}

#[test]
fn a_failed_deletion_is_retried_without_delaying_others() {
    let (mut cluster, mut leader) = leader(&["a"]);
    leader.set_fleet(fleet("a"), None);
    leader.set_fleet(fleet("b"), Some(desired_secret("b")));
    let now = at(1);
    assert_eq!(leader.next(now), [secret_name("a"), secret_name("b")]);
    leader.queue.insert(secret_name("b"));
    leader.failed(now, &secret_name("a"), "forbidden".to_owned());
    cluster.reconcile(&mut leader, now);
    assert!(cluster.secrets.contains_key(&secret_name("a")));
    assert!(cluster.secrets.contains_key(&secret_name("b")));
    let retry = leader.next_time().unwrap();
    cluster.reconcile(&mut leader, retry);
    assert!(!cluster.secrets.contains_key(&secret_name("a")));
    assert_eq!(leader.failure(), None);
}

#[test]
fn a_follower_forgets_deleted_secrets() {
    let (cluster, _) = leader(&["a"]);
    let secret = cluster.secrets[&secret_name("a")].clone();
    for watch_is_first in [true, false] {
        let mut follower = cluster.leader(&["a"]);
        follower.set_leading(false);
        let delete = Event::Delete(secret.clone());
        if watch_is_first {
            follower.handle_event(SecretSource::Fleets(None), delete.clone());
        }
        follower.set_fleet(fleet("a"), None);
        follower.handle_event(SecretSource::Fleets(None), delete);
        assert!(!follower.entries.contains_key(&secret_name("a")));
        assert!(!follower.queue.contains(&secret_name("a")));
    }
}

#[test]
fn orphans_are_deleted_once_all_fleets_are_known_and_copies_are_kept() {
    let (mut cluster, _) = leader(&["a", "b"]);
    let (kept, orphan) = (secret_name("a"), secret_name("b"));
    let copy = ("elsewhere".to_owned(), "copy".to_owned());
    let copied = cluster.secrets[&orphan].clone();
    cluster.insert(&copy, copied.clone());
    // All fleets were in Sesame's namespace.
    let central = own_secret(&orphan.1);
    cluster.insert(&central, copied);
    let mut next = cluster.leader(&["a"]);
    cluster.reconcile(&mut next, at(1));
    assert!(
        cluster.secrets.contains_key(&orphan),
        "its fleet may still be set"
    );
    next.mark_complete();
    cluster.reconcile(&mut next, at(2));
    assert!(!cluster.secrets.contains_key(&orphan));
    assert!(!cluster.secrets.contains_key(&central));
    assert!(cluster.secrets.contains_key(&copy));
    assert!(cluster.secrets.contains_key(&kept));
}

#[test]
fn a_relist_detects_a_missed_deletion() {
    let (mut cluster, mut leader) = leader(&["a"]);
    cluster.secrets.remove(&secret_name("a"));
    let fleets = SecretSource::Fleets(None);
    leader.handle_event(fleets.clone(), Event::Init);
    leader.handle_event(fleets, Event::InitDone);
    cluster.reconcile(&mut leader, at(HOUR));
    assert!(cluster.secrets.contains_key(&secret_name("a")));
    assert_eq!(cluster.writes, 4, "one Secret is written");
}

#[test]
fn repeated_modifications_back_off() {
    let (mut cluster, mut leader) = leader(&["a"]);
    let name = secret_name("a");
    let mut restored = Vec::new();
    for second in 1..600 {
        cluster.secrets.get_mut(&name).unwrap().data = None;
        cluster.send_event(&mut leader, &name);
        let before = cluster.writes;
        cluster.reconcile(&mut leader, at(second));
        if cluster.writes > before {
            restored.push(second);
        }
    }
    assert_eq!(restored[..5], [1, 2, 4, 8, 16]);
    assert!(restored.len() < 15, "{restored:?}");
    // The last modification is reverted without another event.
    let now = leader.next_time().unwrap();
    cluster.reconcile(&mut leader, now);
    assert!(cluster.secrets[&name].data.is_some());
}
