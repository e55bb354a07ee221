//! Where fleets run: on this machine, or in a cluster.
//!
//! The owner's interface to both. In: requests of Gateways. Out: states of fleets. A runner must not depend on the purpose
//! of a fleet.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use sesame_model::{FleetId, FleetRequest, FleetState, Port};

/// All requested fleets.
pub(crate) type Requests = BTreeMap<FleetId, FleetRequest>;

/// Runs fleets. No method blocks.
pub(crate) trait FleetRunner: Send {
    /// States of fleets: those in `changed`, whose request was added, changed or removed, and those with news since the last
    /// call. An unchanged state may be repeated; `None`: the fleet is gone.
    ///
    /// `ready` is the runner's view; an Envoy that acknowledges its resources is ready in any case.
    fn plan(
        &mut self,
        requests: &Requests,
        changed: &BTreeSet<FleetId>,
        now: Instant,
    ) -> Vec<(FleetId, Option<FleetState>)>;

    /// Applies the requests. Called after resources have been published, so that new Envoys find theirs.
    fn follow(&mut self, requests: &Requests, changed: &BTreeSet<FleetId>);

    /// The next call of [`follow`](Self::follow) has all requested fleets: others that run are orphans.
    fn complete(&mut self) {}

    /// When to plan again without new requests.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// An Envoy rejected the listener of a Gateway's port. Returns true if the next plan will differ.
    fn refused(&mut self, _fleet: &FleetId, _port: Port, _message: &str) -> bool {
        false
    }

    /// The last Envoy of a removed fleet has ended; its ports are free.
    fn ended(&mut self, _fleet: &FleetId) {}

    /// Fleets whose Envoys must serve before the run is announced as ready.
    fn awaited(&self) -> BTreeSet<FleetId>;
}
