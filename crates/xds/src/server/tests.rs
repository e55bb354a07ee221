//! What happens at the same time.

use std::thread;

use super::*;

/// The last client that waits for a fleet leaves just when its first update comes.
#[test]
fn no_update_goes_to_a_fleet_that_is_forgotten() {
    for round in 0..100 {
        let registry = Registry::new(Config::default());
        let fleet = FleetId::new("f");
        let attached = registry.inner.attach(&fleet, "n".into()).unwrap();
        let shared = Arc::clone(&attached.shared);
        thread::scope(|scope| {
            // The update is held up as far in as it comes; mostly this thread is then faster.
            let state = shared.state.lock().unwrap();
            scope.spawn(|| registry.apply(&fleet, Update::default()));
            thread::sleep(Duration::from_millis(1));
            drop(state);
            drop(attached);
        });
        assert_eq!(registry.fleets(), [fleet], "round {round}");
    }
}
