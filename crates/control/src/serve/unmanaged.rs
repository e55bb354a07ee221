//! The runner of the fleet of unmanaged Envoys.
//!
//! In: the Envoys' addresses, from a Service's status or from the operator. Out: the fleet's state. Each replica of
//! Sesame sees only the Envoys connected to it, so it doesn't report whether they are running.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use sesame_model::{FleetAddress, FleetId, FleetProblem, FleetState};

use super::fleet_updates::FleetUpdates;
use crate::runner::{FleetRunner, Requests};

/// Message while the addresses are unknown.
const NO_ADDRESS: &str = "the addresses of these Envoys are unknown: the Service in --envoy-service has no address \
                          yet, or neither --envoy-service nor --address is set";

pub(super) struct UnmanagedRunner {
    /// Updates of [`FleetId::Unmanaged`].
    updates: Arc<FleetUpdates<Vec<FleetAddress>>>,
    addresses: Vec<FleetAddress>,
}

impl UnmanagedRunner {
    pub(super) fn new(updates: Arc<FleetUpdates<Vec<FleetAddress>>>) -> Self {
        Self {
            updates,
            addresses: Vec::new(),
        }
    }
}

impl FleetRunner for UnmanagedRunner {
    fn plan(
        &mut self,
        requests: &Requests,
        changed: &BTreeSet<FleetId>,
        _now: Instant,
    ) -> Vec<(FleetId, Option<FleetState>)> {
        let mut fleets = changed.clone();
        for (fleet, addresses) in self.updates.take() {
            self.addresses = addresses.unwrap_or_default();
            fleets.insert(fleet);
        }
        let state = |fleet: &FleetId| {
            requests.contains_key(fleet).then(|| FleetState {
                addresses: self.addresses.clone(),
                problem: self
                    .addresses
                    .is_empty()
                    .then(|| FleetProblem::AddressNotAssigned(NO_ADDRESS.to_owned())),
                ready: !self.addresses.is_empty(),
                ..FleetState::default()
            })
        };
        let states = fleets.iter().map(|fleet| (fleet.clone(), state(fleet)));
        states.collect()
    }

    fn apply(&mut self, _requests: &Requests, _changed: &BTreeSet<FleetId>) {}

    fn required_for_ready(&self) -> BTreeSet<FleetId> {
        BTreeSet::new()
    }
}

#[cfg(test)]
mod tests {
    use sesame_model::FleetRequest;

    use super::*;

    #[test]
    fn the_fleet_has_the_addresses_of_its_service() {
        let fleet = FleetId::Unmanaged;
        let request = FleetRequest::new();
        let requests = Requests::from([(fleet.clone(), request)]);
        let updates = Arc::new(FleetUpdates::default());
        let mut runner = UnmanagedRunner::new(Arc::clone(&updates));
        let all = BTreeSet::from([fleet.clone()]);
        fn plan(
            runner: &mut UnmanagedRunner,
            requests: &Requests,
            changed: &BTreeSet<FleetId>,
        ) -> Option<Option<FleetState>> {
            let states = runner.plan(requests, changed, Instant::now());
            states.into_iter().next().map(|(_, state)| state)
        }
        let first = plan(&mut runner, &requests, &all).flatten().unwrap();
        assert!(!first.ready && matches!(first.problem, Some(FleetProblem::AddressNotAssigned(_))));
        assert_eq!(plan(&mut runner, &requests, &BTreeSet::new()), None);
        let address = FleetAddress::Hostname("lb.example.com".to_owned());
        updates.put(fleet.clone(), Some(vec![address.clone()]));
        let second = plan(&mut runner, &requests, &BTreeSet::new());
        let second = second.flatten().unwrap();
        assert!(second.ready && second.addresses == [address] && second.problem.is_none());
        assert_eq!(plan(&mut runner, &Requests::new(), &all), Some(None));
    }
}
