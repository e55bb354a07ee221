//! Where fleets are: on this machine, or in a cluster.
//!
//! What the owner asks of either. In: what Gateways ask for. Out: what is so. A place must not know what a fleet is for.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use sesame_model::FleetId;
use sesame_translate::fleet::{FleetRequest, FleetState};

/// The fleets that there should be.
pub(crate) type Requests = BTreeMap<FleetId, FleetRequest>;

/// Somewhere where Envoys run. Nothing in it waits.
pub(crate) trait Place: Send {
    /// How fleets are: those in `changed`, whose request is new, differs or is gone, and all of which the place has
    /// learned something since. A fleet may be told again as it was; `None`: it is gone.
    ///
    /// `ready` is what the place knows of it; an Envoy that acknowledges what it is given is ready in any case.
    fn plan(
        &mut self,
        requests: &Requests,
        changed: &BTreeSet<FleetId>,
        now: Instant,
    ) -> Vec<(FleetId, Option<FleetState>)>;

    /// Makes it so, after resources have been handed out: what runs then has something to ask for.
    fn follow(&mut self, requests: &Requests, changed: &BTreeSet<FleetId>);

    /// Every fleet that there should be is asked for when [`follow`](Self::follow) is called next: others that run are left over.
    fn complete(&mut self) {}

    /// When to plan again though nothing was asked.
    fn due(&self) -> Option<Instant> {
        None
    }

    /// An Envoy refused the listener of a Gateway's port. True: that changes what the next plan says.
    fn refused(&mut self, _fleet: &FleetId, _port: u16, _message: &str) -> bool {
        false
    }

    /// The last Envoy of a fleet that is gone has ended, so that what it had is free.
    fn ended(&mut self, _fleet: &FleetId) {}

    /// Fleets without whose Envoys nobody is told that all is ready.
    fn awaited(&self) -> BTreeSet<FleetId>;
}
