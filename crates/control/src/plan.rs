//! Addresses and ports of fleets on this machine.
//!
//! In: requests of all Gateways. Out: addresses for each, and the ports that conflict with another Gateway's. Pure: the
//! caller says whether an address is usable.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sesame_fleet::local::addresses::Allocator;
use sesame_model::{
    AddressRequest, FleetAddress, FleetId, FleetProblem, FleetRequest, FleetState, Port,
};

/// Plans, and keeps the loopback address of each fleet.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    allocator: Allocator,
    port_offset: u16,
}

/// The addresses that one fleet requests, parsed.
#[derive(Debug, Default)]
struct Wish {
    /// Explicit addresses without duplicates, in the order of the Gateway.
    exactly: Vec<IpAddr>,
    /// Also one that Sesame chooses.
    any: bool,
    problem: Option<FleetProblem>,
}

impl Planner {
    /// `port_offset` is added to a Gateway's port to get the port to bind.
    pub(crate) fn new(port_offset: u16) -> Self {
        Self {
            allocator: Allocator::new(),
            port_offset,
        }
    }

    /// A state for every requested fleet: not ready, ports not probed.
    ///
    /// `usable` returns the problem with a requested address. If two Gateways request the same port of the same address, the
    /// one that `has` it keeps it; else the first by name gets it.
    pub(crate) fn plan(
        &mut self,
        requests: &BTreeMap<FleetId, FleetRequest>,
        mut usable: impl FnMut(IpAddr) -> Result<(), String>,
        has: impl Fn(&FleetId, (IpAddr, Port)) -> bool,
    ) -> BTreeMap<FleetId, FleetState> {
        let wishes: BTreeMap<&FleetId, Wish> = requests
            .iter()
            .map(|(fleet, request)| (fleet, wish(request, &mut usable)))
            .collect();
        let asked_for: BTreeSet<_> = wishes
            .values()
            .flat_map(|wish| &wish.exactly)
            .filter_map(|address| match address {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            })
            .collect();
        let without = wishes
            .iter()
            .filter(|(_, wish)| wish.any)
            .map(|(fleet, _)| *fleet);
        self.allocator.assign(without, &asked_for);

        let mut states: BTreeMap<FleetId, FleetState> = wishes
            .into_iter()
            .map(|(fleet, wish)| (fleet.clone(), self.state(fleet, wish)))
            .collect();
        self.claim_ports(requests, &mut states, has);
        states
    }

    fn state(&self, fleet: &FleetId, wish: Wish) -> FleetState {
        let mut addresses = wish.exactly;
        let mut problem = wish.problem;
        if wish.any {
            match self.allocator.get(fleet) {
                Some(address) => addresses.push(address.into()),
                None => {
                    problem = problem.or(Some(FleetProblem::AddressNotAssigned(
                        "every address of 127.0.0.0/8 is taken: ask for one with spec.addresses"
                            .to_owned(),
                    )));
                }
            }
        }
        FleetState {
            addresses: addresses.into_iter().map(FleetAddress::Ip).collect(),
            problem,
            ports: BTreeMap::new(),
            port_offset: self.port_offset,
            ready: false,
        }
    }

    /// Assigns each port of each address to one fleet, preferring the fleet that has it.
    fn claim_ports(
        &self,
        requests: &BTreeMap<FleetId, FleetRequest>,
        states: &mut BTreeMap<FleetId, FleetState>,
        has: impl Fn(&FleetId, (IpAddr, Port)) -> bool,
    ) {
        let mut claims = Claims::default();
        for incumbents in [true, false] {
            for (fleet, request) in requests {
                let Some(state) = states.get_mut(fleet) else {
                    continue;
                };
                for &port in &request.ports {
                    let Some(bound) = port.checked_add(self.port_offset) else {
                        let why = format!(
                            "port {port} moved up by {} is beyond 65535: choose a smaller --port-offset",
                            self.port_offset
                        );
                        state.ports.insert(port, why);
                        continue;
                    };
                    let addresses: Vec<IpAddr> = state
                        .addresses
                        .iter()
                        .filter_map(FleetAddress::ip)
                        .collect();
                    let incumbent = addresses.iter().any(|&ip| has(fleet, (ip, bound)));
                    if incumbents == incumbent
                        && let Err(why) = claims.claim(fleet, &addresses, port)
                    {
                        state.ports.insert(port, why);
                    }
                }
            }
        }
    }
}

/// The fleet that has each port of each address.
#[derive(Debug, Default)]
struct Claims<'a> {
    by_port: BTreeMap<Port, Vec<(IpAddr, &'a FleetId)>>,
}

impl<'a> Claims<'a> {
    fn claim(
        &mut self,
        fleet: &'a FleetId,
        addresses: &[IpAddr],
        port: Port,
    ) -> Result<(), String> {
        for &address in addresses {
            if let Some(owner) = self.owner(address, port) {
                return Err(format!(
                    "port {port} of {address} is taken by Gateway {owner}: use another port or address"
                ));
            }
        }
        let claimed = addresses.iter().map(|&address| (address, fleet));
        self.by_port.entry(port).or_default().extend(claimed);
        Ok(())
    }

    fn owner(&self, address: IpAddr, port: Port) -> Option<&FleetId> {
        let overlap = |other: IpAddr| {
            other == address
                || (other.is_ipv4() == address.is_ipv4()
                    && (other.is_unspecified() || address.is_unspecified()))
        };
        let mut claims = self.by_port.get(&port)?.iter();
        claims
            .find(|(other, _)| overlap(*other))
            .map(|(_, owner)| *owner)
    }
}

fn wish(request: &FleetRequest, usable: &mut impl FnMut(IpAddr) -> Result<(), String>) -> Wish {
    let mut wish = Wish {
        any: request.addresses.is_empty(),
        ..Wish::default()
    };
    let mut unsupported = None;
    for address in &request.addresses {
        match address {
            AddressRequest::Any => wish.any = true,
            AddressRequest::Ip(ip) if wish.exactly.contains(ip) => {}
            AddressRequest::Ip(ip) => match usable(*ip) {
                Ok(()) => wish.exactly.push(*ip),
                Err(why) => wish.not_usable(why),
            },
            AddressRequest::InvalidIp(value) => {
                wish.not_usable(format!("{value:?} is not an IP address"));
            }
            AddressRequest::Hostname(_) => _ = unsupported.get_or_insert("Hostname"),
            AddressRequest::Other(type_) => _ = unsupported.get_or_insert(type_),
        }
    }
    if let Some(type_) = unsupported {
        // The Gateway is not accepted, so its fleet gets no address.
        let why = format!(
            "spec.addresses: type {type_} is not supported on this machine: use IPAddress, or leave addresses out"
        );
        return Wish {
            problem: Some(FleetProblem::UnsupportedAddress(why)),
            ..Wish::default()
        };
    }
    wish
}

impl Wish {
    fn not_usable(&mut self, why: String) {
        self.problem.get_or_insert_with(|| {
            FleetProblem::AddressNotUsable(format!("spec.addresses: {why}"))
        });
    }
}

#[cfg(test)]
mod tests;
