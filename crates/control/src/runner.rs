//! The interface between the translator and the runner of fleets: local processes, or pods in a cluster.
//!
//! In: fleet requests. Out: fleet states. A runner must not depend on the purpose of a fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use sesame_model::{FleetId, FleetRequest, FleetState, Port};

/// All requested fleets.
pub(crate) type Requests = BTreeMap<FleetId, FleetRequest>;

/// Runs fleets. Methods don't block.
pub(crate) trait FleetRunner: Send {
    /// States of fleets: those in `changed`, whose request was added, changed or removed, and those whose state has
    /// changed since the last call. An unchanged state may be repeated; `None` means that the fleet is gone.
    ///
    /// A fleet is also ready if one of its Envoys has ACKed its resources.
    fn plan(
        &mut self,
        requests: &Requests,
        changed: &BTreeSet<FleetId>,
        now: Instant,
    ) -> Vec<(FleetId, Option<FleetState>)>;

    /// Applies the requests. Called after resources have been published, so that new Envoys find their resources.
    fn apply(&mut self, requests: &Requests, changed: &BTreeSet<FleetId>);

    /// The next call to [`apply`](Self::apply) contains all requested fleets: other running fleets are orphans.
    fn requests_complete(&mut self) {}

    /// When to call [`plan`](Self::plan) again without new requests.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// An Envoy rejected the listener of a Gateway's port. Returns true if the next plan will differ.
    fn listener_rejected(&mut self, _fleet: &FleetId, _port: Port, _message: &str) -> bool {
        false
    }

    /// The last Envoy of a removed fleet has exited; its ports are free.
    fn stopped(&mut self, _fleet: &FleetId) {}

    /// Fleets whose Envoys must have served or failed before [`RunEvent::Ready`](crate::event::RunEvent::Ready).
    fn required_for_ready(&self) -> BTreeSet<FleetId>;
}
