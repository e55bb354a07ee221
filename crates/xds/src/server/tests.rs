//! Races between the registry and its streams.

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
