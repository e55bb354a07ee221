//! The runner of local fleets: each fleet with an available port is one process.
//!
//! In: fleet requests. Out: fleet states, and commands that start and stop Envoys.

use std::collections::BTreeSet;
use std::time::Instant;

use sesame_model::{FleetId, FleetState, Port};
use tokio::sync::{mpsc, watch};

use super::ports::Ports;
use crate::runner::{FleetRunner, Requests};

/// A command for an Envoy process. Every command is executed, and every stop is confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FleetCommand {
    /// Start the fleet's Envoy.
    Start(FleetId),
    /// Stop the fleet's Envoy; [`Message::FleetStopped`](crate::translator::Message::FleetStopped) confirms it.
    Stop(FleetId),
}

pub(crate) struct LocalRunner {
    pub(super) ports: Ports,
    /// Fleets of the last plan.
    planned: BTreeSet<FleetId>,
    /// Fleets whose Envoys should run.
    desired: watch::Sender<BTreeSet<FleetId>>,
    /// The changes from each value of `desired` to the next. Unbounded, since the receiver never waits.
    commands: mpsc::UnboundedSender<FleetCommand>,
}

impl LocalRunner {
    pub(crate) fn new(
        ports: Ports,
        desired: watch::Sender<BTreeSet<FleetId>>,
        commands: mpsc::UnboundedSender<FleetCommand>,
    ) -> Self {
        Self {
            ports,
            planned: BTreeSet::new(),
            desired,
            commands,
        }
    }
}

impl FleetRunner for LocalRunner {
    /// Plans all fleets, since one fleet may get the port that another releases.
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

    /// An Envoy starts when its fleet has an available port, and runs as long as its Gateway exists: without ports, it
    /// keeps its connections.
    fn apply(&mut self, requests: &Requests, _changed: &BTreeSet<FleetId>) {
        let (ports, commands) = (&self.ports, &self.commands);
        self.desired.send_if_modified(|desired| {
            let new: BTreeSet<FleetId> = requests
                .keys()
                .filter(|fleet| desired.contains(*fleet) || ports.has_ports(fleet))
                .cloned()
                .collect();
            // At shutdown, the receiver is gone.
            for fleet in desired.difference(&new) {
                let _ = commands.send(FleetCommand::Stop(fleet.clone()));
            }
            for fleet in new.difference(desired) {
                let _ = commands.send(FleetCommand::Start(fleet.clone()));
            }
            let changed = new != *desired;
            *desired = new;
            changed
        });
    }

    fn due(&self) -> Option<Instant> {
        self.ports.due()
    }

    fn listener_rejected(&mut self, fleet: &FleetId, port: Port, message: &str) -> bool {
        self.ports.listener_rejected(fleet, port, message)
    }

    fn stopped(&mut self, fleet: &FleetId) {
        self.ports.stopped(fleet);
    }

    fn required_for_ready(&self) -> BTreeSet<FleetId> {
        self.desired.borrow().clone()
    }
}
