//! Which port of which address each local fleet has.
//!
//! In: what Gateways ask for, and a machine that can be asked. Out: the state of each fleet: addresses, and ports that
//! can't be had with the reason. Ports are tried before Envoy is told to listen there, because Envoy would share some
//! ports with a stranger without a word, and refuse others only after the status has promised them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use sesame_fleet::local::ports::{PortProblem, probe};
use sesame_model::FleetId;
use sesame_translate::fleet::{AddressProblem, FleetRequest, FleetState};

use crate::plan::Planner;

/// The first pause before what failed is tried again; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// What Envoy says of a listener whose port somebody else has, in the words of the operating system (`EADDRINUSE`).
const IN_USE: &str = "Address already in use";

/// Where ports are.
pub(crate) trait Machine: Send {
    /// Whether a port can be listened on now; port 0 asks for the address alone.
    fn probe(&self, address: SocketAddr) -> Result<(), PortProblem>;
}

/// The machine that this runs on.
#[derive(Debug)]
pub(crate) struct ThisMachine;

impl Machine for ThisMachine {
    fn probe(&self, address: SocketAddr) -> Result<(), PortProblem> {
        probe(address.ip(), address.port())
    }
}

/// Ports that our Envoys have, and those that they don't get.
pub(crate) struct Ports {
    machine: Box<dyn Machine>,
    planner: Planner,
    port_offset: u16,
    /// Ports that were free when they were given to a fleet, so that its Envoy has them.
    granted: BTreeMap<FleetId, BTreeSet<SocketAddr>>,
    /// Ports of fleets that are gone but whose Envoys may not be.
    ending: BTreeMap<FleetId, BTreeSet<SocketAddr>>,
    /// What failed last.
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

    /// The state of every fleet that there should be; none is marked as ready.
    pub(crate) fn plan(
        &mut self,
        requests: &BTreeMap<FleetId, FleetRequest>,
        now: Instant,
    ) -> BTreeMap<FleetId, FleetState> {
        let machine = &self.machine;
        let usable = |address: IpAddr| {
            let here = machine.probe(SocketAddr::new(address, 0));
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

    /// The ports that the fleet gets. Notes in its state those that it doesn't.
    fn grants(
        &self,
        fleet: &FleetId,
        request: &FleetRequest,
        state: &mut FleetState,
    ) -> BTreeSet<SocketAddr> {
        let mut grants = BTreeSet::new();
        for &port in &request.ports {
            if state.ports.contains_key(&port) {
                continue;
            }
            let addresses = state.addresses.iter().filter_map(|address| address.ip());
            let sockets: Vec<SocketAddr> = addresses
                .map(|ip| SocketAddr::new(ip, port.saturating_add(self.port_offset)))
                .collect();
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

    /// Why a fleet can't have a port, if it can't.
    fn refuse(&self, fleet: &FleetId, socket: SocketAddr) -> Option<String> {
        let has = |book: &BTreeMap<FleetId, BTreeSet<SocketAddr>>, fleet: &FleetId| {
            book.get(fleet)
                .is_some_and(|sockets| sockets.contains(&socket))
        };
        if has(&self.granted, fleet) {
            return None;
        }
        let problem = self.machine.probe(socket).err()?;
        if matches!(problem, PortProblem::InUse(_)) {
            // Our own Envoys let go of their ports in a moment.
            if has(&self.ending, fleet) {
                return None;
            }
            let mut ours = self.granted.iter().chain(&self.ending);
            if let Some((owner, _)) = ours.find(|(_, sockets)| sockets.contains(&socket)) {
                return Some(format!(
                    "{socket} is still held by the Envoy of Gateway {owner}"
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
                    Some(AddressProblem::NotUsable(why)) => Some(why.clone()),
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

    /// When to plan again though nothing was asked.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.retry.map(|(at, _)| at)
    }

    /// An Envoy refused the listener of a Gateway's port. If that is because somebody took the port since it was tried,
    /// it is no more the fleet's, and the next plan tries it again: true.
    pub(crate) fn refused(&mut self, fleet: &FleetId, port: u16, message: &str) -> bool {
        // With other reasons an older listener may well be there, and hold the port.
        if !message.contains(IN_USE) {
            return false;
        }
        let bound = port.saturating_add(self.port_offset);
        let Some(sockets) = self.granted.get_mut(fleet) else {
            return false;
        };
        let before = sockets.len();
        sockets.retain(|socket| socket.port() != bound);
        sockets.len() < before
    }

    /// The Envoy of a fleet has ended.
    pub(crate) fn ended(&mut self, fleet: &FleetId) {
        self.ending.remove(fleet);
    }

    /// Whether a fleet has a port, so that an Envoy has something to do.
    pub(crate) fn has_any(&self, fleet: &FleetId) -> bool {
        self.granted
            .get(fleet)
            .is_some_and(|sockets| !sockets.is_empty())
    }
}

#[cfg(test)]
mod tests;
