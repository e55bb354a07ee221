//! Assigns ports of addresses to local fleets.
//!
//! In: requests of Gateways, and a machine to probe. Out: the state of each fleet: addresses, and unavailable ports with the
//! reason. Ports are probed before Envoy listens on them, because Envoy would silently share some ports with another
//! process, and reject others only after the status has promised them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sesame_fleet::local::ports::{PortProblem, probe};
use sesame_model::{FleetId, FleetProblem, FleetRequest, FleetState, Port};

use crate::plan::Planner;

/// The first delay before a retry; each further delay is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest delay.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// Envoy's message for a port that another process has: the operating system's text for `EADDRINUSE`.
const IN_USE: &str = "Address already in use";

/// A port of an address.
type Socket = (IpAddr, Port);

/// Probes ports.
pub(crate) trait Machine: Send {
    /// Whether a port is free now; port 0 probes the address alone.
    fn probe(&self, address: IpAddr, port: Port) -> Result<(), PortProblem>;
}

/// The machine that Sesame runs on.
#[derive(Debug)]
pub(crate) struct ThisMachine;

impl Machine for ThisMachine {
    fn probe(&self, address: IpAddr, port: Port) -> Result<(), PortProblem> {
        probe(address, port)
    }
}

/// Ports of Sesame's Envoys, and unavailable ports.
pub(crate) struct Ports {
    machine: Box<dyn Machine>,
    planner: Planner,
    port_offset: u16,
    /// Ports that were free when they were assigned to a fleet, so its Envoy has them now.
    granted: BTreeMap<FleetId, BTreeSet<Socket>>,
    /// Ports of removed fleets whose Envoys may still run.
    ending: BTreeMap<FleetId, BTreeSet<Socket>>,
    /// Failures of the last plan.
    failing: BTreeSet<String>,
    retry: Option<(Instant, Duration)>,
}

impl Ports {
    pub(crate) fn new(port_offset: u16, machine: Box<dyn Machine>) -> Self {
        Self {
            machine,
            planner: Planner::new(port_offset),
            port_offset,
            granted: BTreeMap::new(),
            ending: BTreeMap::new(),
            failing: BTreeSet::new(),
            retry: None,
        }
    }

    /// The state of every requested fleet; none is marked as ready.
    pub(crate) fn plan(
        &mut self,
        requests: &BTreeMap<FleetId, FleetRequest>,
        now: Instant,
    ) -> BTreeMap<FleetId, FleetState> {
        let machine = &self.machine;
        let usable = |address: IpAddr| {
            let here = machine.probe(address, Port::tcp(0));
            here.map_err(|problem| problem.to_string())
        };
        let had = &self.granted;
        let has = |fleet: &FleetId, socket| had.get(fleet).is_some_and(|has| has.contains(&socket));
        let mut states = self.planner.plan(requests, usable, has);
        let mut granted = BTreeMap::new();
        for (fleet, state) in &mut states {
            let grants = self.grants(fleet, &requests[fleet], state);
            granted.insert(fleet.clone(), grants);
        }
        for (fleet, had) in std::mem::replace(&mut self.granted, granted) {
            if !had.is_empty() && !self.granted.contains_key(&fleet) {
                self.ending.insert(fleet, had);
            }
        }
        self.plan_retry(&states, now);
        states
    }

    /// The ports that the fleet gets. Adds unavailable ports to its state.
    fn grants(
        &self,
        fleet: &FleetId,
        request: &FleetRequest,
        state: &mut FleetState,
    ) -> BTreeSet<Socket> {
        let mut grants = BTreeSet::new();
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
                .find_map(|socket| self.refuse(fleet, *socket))
            {
                Some(why) => drop(state.ports.insert(port, why)),
                None => grants.extend(sockets),
            }
        }
        grants
    }

    /// Why a fleet can't have a port; `None`: it can.
    fn refuse(&self, fleet: &FleetId, socket: Socket) -> Option<String> {
        let has = |book: &BTreeMap<FleetId, BTreeSet<Socket>>, fleet: &FleetId| {
            book.get(fleet)
                .is_some_and(|sockets| sockets.contains(&socket))
        };
        if has(&self.granted, fleet) {
            return None;
        }
        let (ip, port) = socket;
        let problem = self.machine.probe(ip, port).err()?;
        if matches!(problem, PortProblem::InUse(_)) {
            // Sesame's own Envoys release their ports soon.
            if has(&self.ending, fleet) {
                return None;
            }
            let mut ours = self.granted.iter().chain(&self.ending);
            if let Some((owner, _)) = ours.find(|(_, sockets)| sockets.contains(&socket)) {
                let address = SocketAddr::new(ip, port.number);
                return Some(format!(
                    "{address} is still held by the Envoy of Gateway {owner}"
                ));
            }
        }
        Some(problem.to_string())
    }

    fn plan_retry(&mut self, states: &BTreeMap<FleetId, FleetState>, now: Instant) {
        let failing: BTreeSet<String> = states
            .iter()
            .flat_map(|(fleet, state)| {
                let ports = state.ports.values().cloned();
                let address = match &state.problem {
                    Some(FleetProblem::AddressNotUsable(why)) => Some(why.clone()),
                    _ => None,
                };
                ports
                    .chain(address)
                    .map(move |why| format!("{fleet} {why}"))
            })
            .collect();
        self.retry = match (self.retry, failing.is_empty()) {
            (_, true) => None,
            (Some((_, pause)), false) if failing == self.failing => {
                let pause = (pause * 2).min(LONGEST_PAUSE);
                Some((now + pause, pause))
            }
            _ => Some((now + FIRST_PAUSE, FIRST_PAUSE)),
        };
        self.failing = failing;
    }

    /// When to plan again without new requests.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.retry.map(|(at, _)| at)
    }

    /// An Envoy rejected the listener of a Gateway's port. Returns true if another process took the port after the probe:
    /// the port is no longer assigned, and the next plan probes it again.
    pub(crate) fn refused(&mut self, fleet: &FleetId, port: Port, message: &str) -> bool {
        // With other reasons the last good listener may still hold the port.
        if !message.contains(IN_USE) {
            return false;
        }
        let bound = port.checked_add(self.port_offset);
        let (Some(sockets), Some(bound)) = (self.granted.get_mut(fleet), bound) else {
            return false;
        };
        let before = sockets.len();
        sockets.retain(|(_, port)| *port != bound);
        sockets.len() < before
    }

    /// The Envoy of a fleet has ended.
    pub(crate) fn ended(&mut self, fleet: &FleetId) {
        self.ending.remove(fleet);
    }

    /// Whether a fleet has a port, so that an Envoy is useful.
    pub(crate) fn has_any(&self, fleet: &FleetId) -> bool {
        self.granted
            .get(fleet)
            .is_some_and(|sockets| !sockets.is_empty())
    }
}

#[cfg(test)]
mod tests;
