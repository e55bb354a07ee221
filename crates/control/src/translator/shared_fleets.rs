//! Reports on fleets without a Gateway.
//!
//! In: the requests and states of fleets. Out: the default fleet, for the status store, and events about problems with
//! such fleets, which no status contains.

use sesame_model::{FleetId, FleetRequest, FleetState};
use sesame_translate::fleet::Rejected;

use super::Translator;
use crate::event::RunEvent;

impl Translator {
    /// Fleets that can exist without a Gateway: the default fleet never has one, the fleet of unmanaged Envoys may.
    const SHARED: [FleetId; 2] = [FleetId::Default, FleetId::Unmanaged];

    pub(super) fn update_shared_fleets(&mut self) {
        for fleet in Self::SHARED {
            let found = self.shared_fleet(&fleet);
            let problem = found
                .as_ref()
                .and_then(|(request, state)| problem(request, state, self.port_conflict(&fleet)));
            if problem.as_ref() != self.fleet_problems.get(&fleet) {
                match &problem {
                    Some(problem) => self.fleet_problems.insert(fleet.clone(), problem.clone()),
                    None => self.fleet_problems.remove(&fleet),
                };
                self.emit(RunEvent::FleetProblem {
                    gateway: fleet.to_string(),
                    message: problem,
                });
            }
            if fleet == FleetId::Default {
                self.outputs.status_store.set_default_fleet(found);
            }
        }
    }

    /// The request and the state of a fleet without a Gateway. The state includes rejected listeners.
    fn shared_fleet(&self, fleet: &FleetId) -> Option<(FleetRequest, FleetState)> {
        let request = self.requests.get(fleet)?;
        if request.owner.is_some() {
            return None;
        }
        let mut state = self.states.get(fleet)?.clone();
        for &port in &request.ports {
            let rejected = Rejected::listener(fleet.clone(), port);
            if self.rejected.contains(&rejected) {
                let rejected = format!("an Envoy rejected the listener on port {port}");
                state.ports.entry(port).or_insert(rejected);
            }
        }
        Some((request.clone(), state))
    }

    fn port_conflict(&self, fleet: &FleetId) -> Option<String> {
        let conflicts = self.core.outputs().port_conflicts;
        let conflict = self.core.engine().get(conflicts, fleet)?;
        Some(String::clone(&conflict))
    }
}

/// The problem with a fleet, or with its ports.
fn problem(request: &FleetRequest, state: &FleetState, conflict: Option<String>) -> Option<String> {
    let ports = request.ports.iter();
    let of_ports = ports.filter_map(|port| state.ports.get(port)).cloned();
    let of_fleet = state.problem.as_ref();
    let of_fleet = of_fleet.map(|problem| problem.message().to_owned());
    let all: Vec<String> = of_fleet
        .into_iter()
        .chain(of_ports)
        .chain(conflict)
        .collect();
    (!all.is_empty()).then(|| all.join("; "))
}
