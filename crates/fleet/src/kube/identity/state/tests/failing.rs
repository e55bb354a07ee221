//! What can't be written, or deleted, and what comes and goes all the time.

use super::*;

/// A leader with a fleet, and the next authority in all bundles; and when that was so.
fn introduced() -> (Cluster, State, i64) {
    let mut cluster = Cluster::default();
    let mut leader = cluster.join();
    leader.lead(true);
    leader.want(fleet("a"), Some(owner("a")));
    cluster.work(&mut leader, start());
    let when = 10 * YEAR / 3 + DAY;
    cluster.work(&mut leader, at(when));
    assert!(leader.authorities().unwrap().everywhere.is_some());
    (cluster, leader, when)
}

#[test]
fn new_fleets_do_not_put_off_the_next_authority() {
    let (mut cluster, mut leader, when) = introduced();
    for hour in 1..=24 {
        let name = format!("new-{hour}");
        leader.want(fleet(&name), Some(owner(&name)));
        cluster.work(&mut leader, at(when + hour * HOUR));
    }
    let authorities = leader.authorities().unwrap();
    assert!(authorities.next.is_none(), "it signs after a day");
}

#[test]
fn a_fleet_that_cant_be_written_does_not_keep_the_next_authority_away_for_ever() {
    let (mut cluster, mut leader, _) = introduced();
    leader.want(fleet("b"), Some(owner("b")));
    let mut signs = None;
    for day in (10 * 365 / 3 + 2)..6 * 365 {
        let now = at(day * DAY);
        // Its namespace forbids it, again and again.
        leader.failed(now, &fleet("b"), "forbidden".to_owned(), false);
        cluster.work(&mut leader, now);
        let authorities = leader.authorities().unwrap();
        assert!(now < authorities.signer().unwrap().trusted.end, "{now}");
        if authorities.next.is_none() {
            signs.get_or_insert(day);
        }
    }
    let day = signs.expect("the next one signs");
    assert!((4 * 365..5 * 365).contains(&day), "{day}");
    let last = leader.authorities().unwrap().fingerprints();
    assert_eq!(last.len(), 1, "the first one is forgotten");
}

#[test]
fn when_nobody_led_for_years_everything_is_made_anew_and_the_work_ends() {
    for away in [40 * DAY, 4 * YEAR, 6 * YEAR, 30 * YEAR] {
        let (mut cluster, mut leader, when) = introduced();
        let now = when + away;
        cluster.work(&mut leader, at(now));
        let server = cluster.files(&Cluster::own(secret::SERVER));
        let client = cluster.files(&("apps".to_owned(), "a-xds".to_owned()));
        shake_hands(&server, &client, at(now)).unwrap();
    }
}

#[test]
fn a_secret_that_cant_be_deleted_holds_up_nobody() {
    let mut cluster = Cluster::default();
    let mut leader = cluster.join();
    leader.lead(true);
    leader.want(fleet("a"), Some(owner("a")));
    cluster.work(&mut leader, start());
    leader.want(fleet("a"), None);
    leader.want(fleet("b"), Some(owner("b")));
    let now = at(1);
    let Some(Job::Remove(id, _)) = leader.next(now).unwrap() else {
        panic!("the Secret is to go");
    };
    leader.not_removed(now, &id);
    cluster.work(&mut leader, now);
    assert!(
        cluster
            .secrets
            .contains_key(&("apps".to_owned(), "b-xds".to_owned()))
    );
    // It is tried again.
    let again = leader.next_look().unwrap();
    assert_eq!(again, at(2));
    assert!(matches!(leader.next(again).unwrap(), Some(Job::Remove(..))));
}

#[test]
fn who_follows_does_not_remember_what_the_leader_has_taken_away() {
    let mut cluster = Cluster::default();
    let mut leader = cluster.join();
    leader.lead(true);
    leader.want(fleet("a"), Some(owner("a")));
    cluster.work(&mut leader, start());
    let secret = cluster.secrets[&("apps".to_owned(), "a-xds".to_owned())].clone();
    let gone = || Seen::Gone(Source::Fleets(0), Box::new(secret.clone()));
    for watch_is_first in [true, false] {
        let mut follower = cluster.join();
        follower.want(fleet("a"), Some(owner("a")));
        if watch_is_first {
            follower.see(gone());
        }
        follower.want(fleet("a"), None);
        follower.see(gone());
        assert_eq!(follower.removals.len(), 0);
    }
}

#[test]
fn secrets_that_are_left_of_unwanted_fleets_go_when_all_wishes_are_known() {
    let mut cluster = Cluster::default();
    let mut leader = cluster.join();
    leader.lead(true);
    let at_home = |name: &str| FleetOwner {
        secret_name: crate::kube::names::certificate_secret(&fleet(name)),
        ..owner(name)
    };
    for name in ["a", "b"] {
        leader.want(fleet(name), Some(at_home(name)));
    }
    cluster.work(&mut leader, start());
    // Somebody copies one, with all that is on it.
    let original = ("apps".to_owned(), at_home("b").secret_name);
    let copy = ("elsewhere".to_owned(), "copy".to_owned());
    let data = cluster.secrets[&original].clone();
    cluster.write(copy.clone(), |s| {
        s.metadata.annotations = data.metadata.annotations.clone();
        s.metadata.labels = data.metadata.labels.clone();
    });
    let mut next = cluster.join();
    next.lead(true);
    next.want(fleet("a"), Some(at_home("a")));
    cluster.work(&mut next, at(1));
    assert!(cluster.secrets.contains_key(&original), "the wish may come");
    next.settle();
    cluster.work(&mut next, at(2));
    assert!(!cluster.secrets.contains_key(&original));
    assert!(
        cluster.secrets.contains_key(&copy),
        "that is somebody else's"
    );
    let kept = ("apps".to_owned(), at_home("a").secret_name);
    assert!(cluster.secrets.contains_key(&kept));
}

#[test]
fn who_spoils_a_secret_again_and_again_is_answered_less_and_less_often() {
    let mut cluster = Cluster::default();
    let mut leader = cluster.join();
    leader.lead(true);
    leader.want(fleet("a"), Some(owner("a")));
    cluster.work(&mut leader, start());
    let place = ("apps".to_owned(), "a-xds".to_owned());
    let mut answers = Vec::new();
    for second in 0..600 {
        let mut spoiled = cluster.secrets[&place].clone();
        spoiled.data = None;
        cluster.secrets.insert(place.clone(), spoiled.clone());
        leader.see(Seen::Is(Source::Fleets(0), Box::new(spoiled)));
        let before = cluster.writes;
        cluster.work(&mut leader, at(second));
        if cluster.writes > before {
            answers.push(second);
        }
    }
    assert_eq!(answers[..4], [0, 1, 2, 4], "at once, then slower");
    assert!(answers.len() < 15, "{answers:?}");
    // The last answer comes without anybody's doing.
    let now = leader.next_look().unwrap();
    cluster.work(&mut leader, now);
    assert!(cluster.secrets[&place].data.is_some());
}
