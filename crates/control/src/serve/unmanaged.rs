//! Envoys that somebody else runs, as a place for the one fleet that they are.
//!
//! In: where clients reach them, as a Service's status or as the operator said. Out: the fleet's state. Whether they run is
//! not ours to see: each replica of Sesame knows only those that are connected to it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use sesame_model::FleetId;
use sesame_translate::fleet::{AddressProblem, FleetAddress, FleetState};

use super::inbox::Inbox;
use crate::place::{Place, Requests};

/// What is said while nobody has said where the Envoys are.
const NO_ADDRESS: &str = "nobody knows yet where clients reach these Envoys: the Service that --envoy-service names has \
                          no address, or Sesame was started without --envoy-service and --address";

/// The place.
pub(super) struct UnmanagedPlace {
    /// News of [`FleetId::unmanaged`].
    news: Arc<Inbox<Vec<FleetAddress>>>,
    addresses: Vec<FleetAddress>,
}

impl UnmanagedPlace {
    pub(super) fn new(news: Arc<Inbox<Vec<FleetAddress>>>) -> Self {
        Self {
            news,
            addresses: Vec::new(),
        }
    }
}

impl Place for UnmanagedPlace {
    fn plan(
        &mut self,
        requests: &Requests,
        changed: &BTreeSet<FleetId>,
        _now: Instant,
    ) -> Vec<(FleetId, Option<FleetState>)> {
        let mut fleets = changed.clone();
        for (fleet, addresses) in self.news.take() {
            self.addresses = addresses.unwrap_or_default();
            fleets.insert(fleet);
        }
        let state = |fleet: &FleetId| {
            requests.contains_key(fleet).then(|| FleetState {
                addresses: self.addresses.clone(),
                problem: self
                    .addresses
                    .is_empty()
                    .then(|| AddressProblem::NotAssigned(NO_ADDRESS.to_owned())),
                ready: !self.addresses.is_empty(),
                ..FleetState::default()
            })
        };
        let states = fleets.iter().map(|fleet| (fleet.clone(), state(fleet)));
        states.collect()
    }

    fn follow(&mut self, _requests: &Requests, _changed: &BTreeSet<FleetId>) {}

    fn awaited(&self) -> BTreeSet<FleetId> {
        BTreeSet::new()
    }
}

#[cfg(test)]
mod tests {
    use sesame_api::NamespacedName;
    use sesame_translate::fleet::FleetRequest;

    use super::*;

    #[test]
    fn a_fleet_is_where_its_service_is() {
        let fleet = FleetId::unmanaged();
        let request = FleetRequest::new(NamespacedName::new("ns", "web"));
        let requests = Requests::from([(fleet.clone(), request)]);
        let news = Arc::new(Inbox::default());
        let mut place = UnmanagedPlace::new(Arc::clone(&news));
        let all = BTreeSet::from([fleet.clone()]);
        fn plan(
            place: &mut UnmanagedPlace,
            requests: &Requests,
            changed: &BTreeSet<FleetId>,
        ) -> Option<Option<FleetState>> {
            let states = place.plan(requests, changed, Instant::now());
            states.into_iter().next().map(|(_, state)| state)
        }
        let first = plan(&mut place, &requests, &all).flatten().unwrap();
        assert!(!first.ready && matches!(first.problem, Some(AddressProblem::NotAssigned(_))));
        // Nothing new is no news.
        assert_eq!(plan(&mut place, &requests, &BTreeSet::new()), None);
        let address = FleetAddress::Hostname("lb.example.com".to_owned());
        news.put(fleet.clone(), Some(vec![address.clone()]));
        let second = plan(&mut place, &requests, &BTreeSet::new());
        let second = second.flatten().unwrap();
        assert!(second.ready && second.addresses == [address] && second.problem.is_none());
        assert_eq!(plan(&mut place, &Requests::new(), &all), Some(None));
    }
}
