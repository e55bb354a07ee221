//! This machine as a place for fleets: each runs as one process, where a port can be had for it.
//!
//! In: what Gateways ask for. Out: states, and orders to start and to stop.

use std::collections::BTreeSet;
use std::time::Instant;

use sesame_model::FleetId;
use sesame_translate::fleet::FleetState;
use tokio::sync::{mpsc, watch};

use super::ports::Ports;
use crate::place::{Place, Requests};

/// What is to be done to Envoys. None is left out, since every end is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// The fleet should run.
    Start(FleetId),
    /// It should not, and [`Message::FleetEnded`](crate::owner::Message::FleetEnded) tells when it doesn't.
    Stop(FleetId),
}

/// This machine.
pub(crate) struct LocalPlace {
    pub(super) ports: Ports,
    /// Fleets of the last plan.
    planned: BTreeSet<FleetId>,
    /// Fleets whose Envoys should run.
    wanted: watch::Sender<BTreeSet<FleetId>>,
    /// The way from each value of `wanted` to the next. Without a bound, since whoever takes them never waits.
    orders: mpsc::UnboundedSender<Order>,
}

impl LocalPlace {
    pub(crate) fn new(
        ports: Ports,
        wanted: watch::Sender<BTreeSet<FleetId>>,
        orders: mpsc::UnboundedSender<Order>,
    ) -> Self {
        Self {
            ports,
            planned: BTreeSet::new(),
            wanted,
            orders,
        }
    }
}

impl Place for LocalPlace {
    /// All of them, since one that gives up a port makes way for another.
    fn plan(
        &mut self,
        requests: &Requests,
        _changed: &BTreeSet<FleetId>,
        now: Instant,
    ) -> Vec<(FleetId, Option<FleetState>)> {
        let states = self.ports.plan(requests, now);
        let planned = states.keys().cloned().collect();
        let before = std::mem::replace(&mut self.planned, planned);
        let gone = before.difference(&self.planned);
        let gone = gone.map(|fleet| (fleet.clone(), None));
        let states = states
            .into_iter()
            .map(|(fleet, state)| (fleet, Some(state)));
        gone.chain(states).collect()
    }

    /// An Envoy runs as soon as there is a port for it, and as long as its Gateway is there: it keeps its connections when
    /// it has no port for a while.
    fn follow(&mut self, requests: &Requests, _changed: &BTreeSet<FleetId>) {
        let (ports, orders) = (&self.ports, &self.orders);
        self.wanted.send_if_modified(|wanted| {
            let new: BTreeSet<FleetId> = requests
                .keys()
                .filter(|fleet| wanted.contains(*fleet) || ports.has_any(fleet))
                .cloned()
                .collect();
            // Nobody takes orders when all is about to end.
            for fleet in wanted.difference(&new) {
                let _ = orders.send(Order::Stop(fleet.clone()));
            }
            for fleet in new.difference(wanted) {
                let _ = orders.send(Order::Start(fleet.clone()));
            }
            let differs = new != *wanted;
            *wanted = new;
            differs
        });
    }

    fn due(&self) -> Option<Instant> {
        self.ports.due()
    }

    fn refused(&mut self, fleet: &FleetId, port: u16, message: &str) -> bool {
        self.ports.refused(fleet, port, message)
    }

    fn ended(&mut self, fleet: &FleetId) {
        self.ports.ended(fleet);
    }

    fn awaited(&self) -> BTreeSet<FleetId> {
        self.wanted.borrow().clone()
    }
}
