//! Runner of local fleets: each fleet with a free port runs as one process.
//!
//! In: requests of Gateways. Out: states, and orders to start and stop Envoys.

use std::collections::BTreeSet;
use std::time::Instant;

use sesame_model::{FleetId, FleetState, Port};
use tokio::sync::{mpsc, watch};

use super::ports::Ports;
use crate::runner::{FleetRunner, Requests};

/// An order for an Envoy process. None is dropped, since every stop is confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// Start the fleet.
    Start(FleetId),
    /// Stop the fleet; [`Message::FleetEnded`](crate::owner::Message::FleetEnded) confirms its end.
    Stop(FleetId),
}

pub(crate) struct LocalRunner {
    pub(super) ports: Ports,
    /// Fleets of the last plan.
    planned: BTreeSet<FleetId>,
    /// Fleets whose Envoys should run.
    wanted: watch::Sender<BTreeSet<FleetId>>,
    /// The steps from each value of `wanted` to the next. Unbounded, since the receiver never waits.
    orders: mpsc::UnboundedSender<Order>,
}

impl LocalRunner {
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

impl FleetRunner for LocalRunner {
    /// Plans all fleets, since a port that one releases is free for another.
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

    /// An Envoy starts when its fleet has a port, and runs as long as its Gateway exists: it keeps its connections while it
    /// has no port.
    fn follow(&mut self, requests: &Requests, _changed: &BTreeSet<FleetId>) {
        let (ports, orders) = (&self.ports, &self.orders);
        self.wanted.send_if_modified(|wanted| {
            let new: BTreeSet<FleetId> = requests
                .keys()
                .filter(|fleet| wanted.contains(*fleet) || ports.has_any(fleet))
                .cloned()
                .collect();
            // At shutdown there is no receiver.
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

    fn refused(&mut self, fleet: &FleetId, port: Port, message: &str) -> bool {
        self.ports.refused(fleet, port, message)
    }

    fn ended(&mut self, fleet: &FleetId) {
        self.ports.ended(fleet);
    }

    fn awaited(&self) -> BTreeSet<FleetId> {
        self.wanted.borrow().clone()
    }
}
