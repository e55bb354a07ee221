//! Assigns ports on addresses to local fleets.
//!
//! In: fleet requests, and a prober. Out: the state of each fleet: addresses, and unavailable ports with the reason.
//! Ports are probed before Envoy listens on them: Envoy would silently share some ports with another process, and
//! reject others only after the status has reported them as programmed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sesame_fleet::local::ports::{PortProblem, probe};
use sesame_model::{FleetId, FleetProblem, FleetRequest, FleetState, Port};

use crate::plan::Planner;

/// The first backoff delay; each later delay is twice as long as the one before.
const MIN_BACKOFF: Duration = Duration::from_millis(100);
/// The longest backoff.
const MAX_BACKOFF: Duration = Duration::from_secs(2);

/// Envoy's message for a port that is in use by another process: the operating system's text for `EADDRINUSE`.
const ADDRESS_IN_USE: &str = "Address already in use";

/// A port on an address.
type Socket = (IpAddr, Port);

/// Probes ports.
pub(crate) trait PortProber: Send {
    /// Whether a port is free now; port 0 probes only the address.
    fn probe(&self, address: IpAddr, port: Port) -> Result<(), PortProblem>;
}

/// Probes the ports of this machine.
#[derive(Debug)]
pub(crate) struct SystemPortProber;

impl PortProber for SystemPortProber {
    fn probe(&self, address: IpAddr, port: Port) -> Result<(), PortProblem> {
        probe(address, port)
    }
}

/// The ports of Sesame's Envoys.
pub(crate) struct Ports {
    prober: Box<dyn PortProber>,
    planner: Planner,
    port_offset: u16,
    /// Ports that were free when they were assigned to a fleet; its Envoy now holds them.
    assigned: BTreeMap<FleetId, BTreeSet<Socket>>,
    /// Ports of removed fleets whose Envoys may still be running.
    stopping: BTreeMap<FleetId, BTreeSet<Socket>>,
    /// Unavailable ports and addresses of the last plan.
    failures: BTreeSet<String>,
    retry: Option<(Instant, Duration)>,
}

impl Ports {
    pub(crate) fn new(port_offset: u16, prober: Box<dyn PortProber>) -> Self {
        Self {
            prober,
            planner: Planner::new(port_offset),
            port_offset,
            assigned: BTreeMap::new(),
            stopping: BTreeMap::new(),
            failures: BTreeSet::new(),
            retry: None,
        }
    }

    /// The state of every requested fleet. Fleets aren't marked as ready.
    pub(crate) fn plan(
        &mut self,
        requests: &BTreeMap<FleetId, FleetRequest>,
        now: Instant,
    ) -> BTreeMap<FleetId, FleetState> {
        let prober = &self.prober;
        let usable = |address: IpAddr| {
            let probed = prober.probe(address, Port::tcp(0));
            probed.map_err(|problem| problem.to_string())
        };
        let holds = |fleet: &FleetId, socket| contains(&self.assigned, fleet, socket);
        let mut states = self.planner.plan(requests, usable, holds);
        let mut assigned = BTreeMap::new();
        for (fleet, state) in &mut states {
            let sockets = self.assign(fleet, &requests[fleet], state);
            assigned.insert(fleet.clone(), sockets);
        }
        for (fleet, sockets) in std::mem::replace(&mut self.assigned, assigned) {
            if !sockets.is_empty() && !self.assigned.contains_key(&fleet) {
                self.stopping.insert(fleet, sockets);
            }
        }
        self.schedule_retry(&states, now);
        states
    }

    /// The sockets assigned to the fleet. Adds unavailable ports to its state.
    fn assign(
        &self,
        fleet: &FleetId,
        request: &FleetRequest,
        state: &mut FleetState,
    ) -> BTreeSet<Socket> {
        let mut assigned = BTreeSet::new();
        for &port in &request.ports {
            if state.ports.contains_key(&port) {
                continue;
            }
            let addresses = state.addresses.iter().filter_map(|address| address.ip());
            let Some(bound) = port.checked_add(self.port_offset) else {
                continue;
            };
            let sockets: Vec<Socket> = addresses.map(|ip| (ip, bound)).collect();
            match sockets
                .iter()
                .find_map(|socket| self.unavailable(fleet, *socket))
            {
                Some(reason) => drop(state.ports.insert(port, reason)),
                None => assigned.extend(sockets),
            }
        }
        assigned
    }

    /// Why a socket is unavailable to a fleet; `None` if it is available.
    fn unavailable(&self, fleet: &FleetId, socket: Socket) -> Option<String> {
        if contains(&self.assigned, fleet, socket) {
            return None;
        }
        let (ip, port) = socket;
        let problem = self.prober.probe(ip, port).err()?;
        if matches!(problem, PortProblem::InUse(_)) {
            // The fleet's former Envoy will soon release its ports.
            if contains(&self.stopping, fleet, socket) {
                return None;
            }
            let mut ours = self.assigned.iter().chain(&self.stopping);
            if let Some((owner, _)) = ours.find(|(_, sockets)| sockets.contains(&socket)) {
                let address = SocketAddr::new(ip, port.number);
                return Some(format!(
                    "{address} is still held by the Envoy of Gateway {owner}"
                ));
            }
        }
        Some(problem.to_string())
    }

    fn schedule_retry(&mut self, states: &BTreeMap<FleetId, FleetState>, now: Instant) {
        let failures: BTreeSet<String> = states
            .iter()
            .flat_map(|(fleet, state)| {
                let ports = state.ports.values().cloned();
                let address = match &state.problem {
                    Some(FleetProblem::AddressNotUsable(reason)) => Some(reason.clone()),
                    _ => None,
                };
                ports
                    .chain(address)
                    .map(move |reason| format!("{fleet} {reason}"))
            })
            .collect();
        self.retry = match (self.retry, failures.is_empty()) {
            (_, true) => None,
            (Some((_, backoff)), false) if failures == self.failures => {
                let backoff = (backoff * 2).min(MAX_BACKOFF);
                Some((now + backoff, backoff))
            }
            _ => Some((now + MIN_BACKOFF, MIN_BACKOFF)),
        };
        self.failures = failures;
    }

    /// When to probe unavailable ports again.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.retry.map(|(at, _)| at)
    }

    /// An Envoy rejected the listener of a Gateway's port. Returns true if another process took the port after the
    /// probe. The port is then unassigned, and the next plan probes it again.
    pub(crate) fn listener_rejected(&mut self, fleet: &FleetId, port: Port, message: &str) -> bool {
        // After other errors, the last good version of the listener may still hold the port.
        if !message.contains(ADDRESS_IN_USE) {
            return false;
        }
        let bound = port.checked_add(self.port_offset);
        let (Some(sockets), Some(bound)) = (self.assigned.get_mut(fleet), bound) else {
            return false;
        };
        let before = sockets.len();
        sockets.retain(|(_, port)| *port != bound);
        sockets.len() < before
    }

    /// The Envoy of a fleet has stopped.
    pub(crate) fn stopped(&mut self, fleet: &FleetId) {
        self.stopping.remove(fleet);
    }

    /// Whether any port is assigned to a fleet.
    pub(crate) fn has_ports(&self, fleet: &FleetId) -> bool {
        self.assigned
            .get(fleet)
            .is_some_and(|sockets| !sockets.is_empty())
    }
}

fn contains(
    sockets: &BTreeMap<FleetId, BTreeSet<Socket>>,
    fleet: &FleetId,
    socket: Socket,
) -> bool {
    sockets
        .get(fleet)
        .is_some_and(|sockets| sockets.contains(&socket))
}

#[cfg(test)]
mod tests;
