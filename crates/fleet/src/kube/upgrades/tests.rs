use super::*;

fn key(name: &str) -> FleetKey {
    FleetKey {
        namespace: "default".into(),
        name: name.into(),
    }
}

/// A workload with an available pod.
fn workload(current_release: bool, rollout: Rollout) -> Option<WorkloadStatus> {
    Some(WorkloadStatus {
        available: 1,
        current_release,
        rollout,
        ..WorkloadStatus::default()
    })
}

fn outdated() -> Option<WorkloadStatus> {
    workload(false, Rollout::Done)
}

/// The names of the fleets whose upgrade starts.
fn started(upgrades: &mut Upgrades) -> Vec<String> {
    let keys = upgrades.start_next();
    keys.iter().map(|key| key.name.to_string()).collect()
}

/// Fleets of another release, while all replicas of Sesame run this one.
fn upgrades<'a>(names: impl IntoIterator<Item = &'a str>) -> Upgrades {
    let mut upgrades = Upgrades::default();
    upgrades.set_sesame_rolled_out(true);
    for name in names {
        upgrades.observe(&key(name), outdated());
    }
    upgrades
}

#[test]
fn fleets_wait_for_sesame() {
    let mut upgrades = upgrades(["a"]);
    upgrades.set_sesame_rolled_out(false);
    upgrades.configuration_changed(&key("a"));
    assert!(started(&mut upgrades).is_empty());
    assert!(upgrades.must_wait(&key("a")));
    upgrades.set_sesame_rolled_out(true);
    assert_eq!(started(&mut upgrades), ["a"]);
    assert!(!upgrades.must_wait(&key("a")));
}

#[test]
fn one_fleet_is_upgraded_after_the_other() {
    let mut upgrades = upgrades(["b", "a", "c"]);
    for (name, next) in [("a", "b"), ("b", "c")] {
        if name == "a" {
            assert_eq!(started(&mut upgrades), ["a"]);
        }
        // Applied, then rolled out.
        upgrades.observe(&key(name), outdated());
        upgrades.observe(&key(name), workload(true, Rollout::Progressing));
        assert!(started(&mut upgrades).is_empty());
        upgrades.observe(&key(name), workload(true, Rollout::Done));
        assert_eq!(started(&mut upgrades), [next]);
    }
    assert_eq!(upgrades.upgrading(), Some(&key("c")));
    upgrades.observe(&key("c"), None);
    assert_eq!((upgrades.upgrading(), upgrades.waiting()), (None, 0));
}

#[test]
fn a_failed_rollout_pauses_the_others_until_it_succeeds_or_the_fleet_is_gone() {
    for end in [workload(true, Rollout::Done), None] {
        let mut upgrades = upgrades(["a", "b"]);
        assert_eq!(started(&mut upgrades), ["a"]);
        upgrades.observe(&key("a"), workload(true, Rollout::Failed));
        assert!(started(&mut upgrades).is_empty());
        assert_eq!(upgrades.failed(), Some(&key("a")));
        // A change of its configuration starts another rollout.
        upgrades.observe(&key("a"), workload(true, Rollout::Progressing));
        assert_eq!(upgrades.failed(), None);
        assert!(started(&mut upgrades).is_empty());
        upgrades.observe(&key("a"), end);
        assert_eq!(started(&mut upgrades), ["b"]);
    }
}

#[test]
fn a_changed_configuration_waits_for_sesame_only() {
    let mut upgrades = upgrades(["a", "b", "c"]);
    assert_eq!(started(&mut upgrades), ["a"]);
    upgrades.observe(&key("a"), workload(true, Rollout::Failed));
    upgrades.configuration_changed(&key("c"));
    assert_eq!(started(&mut upgrades), ["c"]);
    // The rest waits for both.
    upgrades.observe(&key("a"), None);
    assert!(started(&mut upgrades).is_empty());
    upgrades.observe(&key("c"), workload(true, Rollout::Done));
    assert_eq!(started(&mut upgrades), ["b"]);
}

#[test]
fn fleets_that_are_down_do_not_delay_others() {
    let mut upgrades = upgrades(["c", "d"]);
    let down = WorkloadStatus {
        available: 0,
        ..outdated().unwrap()
    };
    upgrades.observe(&key("a"), Some(down));
    upgrades.observe(&key("b"), workload(false, Rollout::Failed));
    assert_eq!(started(&mut upgrades), ["a", "b", "c"]);
    upgrades.observe(&key("a"), workload(true, Rollout::Failed));
    upgrades.observe(&key("c"), workload(true, Rollout::Done));
    assert_eq!(started(&mut upgrades), ["d"]);
    assert_eq!(upgrades.failed(), None);
}

#[test]
fn new_fleets_and_later_rollouts_do_not_delay_upgrades() {
    let mut upgrades = upgrades([]);
    let new = WorkloadStatus {
        available: 0,
        ..workload(true, Rollout::Progressing).unwrap()
    };
    upgrades.observe(&key("new"), Some(new));
    upgrades.observe(&key("old"), workload(true, Rollout::Done));
    // Then their configuration changes.
    for name in ["new", "old"] {
        upgrades.observe(&key(name), workload(true, Rollout::Progressing));
    }
    upgrades.observe(&key("a"), outdated());
    assert_eq!(started(&mut upgrades), ["a"]);
}

#[test]
fn a_new_leader_waits_for_the_upgrade_in_progress() {
    let mut upgrades = upgrades(["a", "b"]);
    assert_eq!(started(&mut upgrades), ["a"]);
    upgrades.clear();
    upgrades.observe(&key("a"), workload(true, Rollout::Progressing));
    upgrades.observe(&key("b"), outdated());
    assert!(started(&mut upgrades).is_empty());
    upgrades.observe(&key("a"), workload(true, Rollout::Done));
    assert_eq!(started(&mut upgrades), ["b"]);
}
