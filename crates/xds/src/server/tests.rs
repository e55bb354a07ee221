//! Races between the registry and its streams.

mod clients;

use std::thread;

use super::*;

/// The last waiting client of a fleet leaves while the fleet's first update arrives.
#[test]
fn no_update_is_lost_to_a_dropped_fleet() {
    for round in 0..100 {
        let registry = Registry::new(ServerConfig::default());
        let id = FleetId::new("f");
        let member = registry.inner.join(&id, "n".into()).unwrap();
        let fleet = Arc::clone(&member.fleet);
        thread::scope(|scope| {
            // Delays the update at the fleet's lock, so this thread usually wins the race.
            let state = fleet.state.lock().unwrap();
            scope.spawn(|| registry.apply(&id, Update::default()));
            thread::sleep(Duration::from_millis(1));
            drop(state);
            drop(member);
        });
        assert_eq!(registry.fleets(), [id], "round {round}");
    }
}

/// A stream of a busy fleet joins and leaves while another fleet is updated.
#[test]
fn a_busy_fleet_does_not_delay_others() {
    let registry = Registry::new(ServerConfig::default());
    let (busy, other) = (FleetId::new("busy"), FleetId::new("other"));
    registry.apply(&busy, Update::default());
    let member = registry.inner.join(&busy, "n".into()).unwrap();
    let fleet = Arc::clone(&member.fleet);
    thread::scope(|scope| {
        let state = fleet.state.lock().unwrap();
        let joining = scope.spawn(|| registry.inner.join(&busy, "m".into()).unwrap());
        let leaving = scope.spawn(|| drop(member));
        // Both threads wait for the fleet by now, or will soon.
        thread::sleep(Duration::from_millis(20));
        registry.apply(&other, Update::default());
        assert_eq!(registry.fleets(), [busy.clone(), other.clone()]);
        assert!(!joining.is_finished() && !leaving.is_finished());
        drop(state);
    });
}

#[test]
fn a_fleet_has_a_limited_number_of_streams() {
    let limits = Limits {
        fleet_streams: 2,
        waiting_streams: 3,
        ..Limits::default()
    };
    let registry = Registry::new(ServerConfig {
        limits,
        ..ServerConfig::default()
    });
    let join = |fleet: &str| registry.inner.join(&FleetId::new(fleet), "n".into());
    let refused = |fleet: &str| join(fleet).err().unwrap().message().to_owned();
    let members = [join("a").unwrap(), join("a").unwrap()];
    assert_eq!(refused("a"), "the fleet has too many streams");
    let _third = join("b").unwrap();
    let waiting = "too many streams are waiting for unknown fleets";
    assert_eq!(refused("b"), waiting);
    // An updated fleet's clients don't wait.
    registry.apply(&FleetId::new("a"), Update::default());
    let _fourth = join("b").unwrap();
    let _fifth = join("c").unwrap();
    assert_eq!(refused("d"), waiting);
    drop(members);
    registry.remove_fleet(&FleetId::new("b"));
    assert_eq!(registry.inner.fleets().waiting, 1);
    let _sixth = join("d").unwrap();
}
