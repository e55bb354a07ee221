//! Addresses and ports of fleets on this machine.
//!
//! In: fleet requests. Out: the addresses of each fleet, and the ports that conflict with another Gateway's. Pure: the
//! caller checks whether an address is usable.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use sesame_fleet::local::addresses::Allocator;
use sesame_model::{
    AddressValue, FleetAddress, FleetId, FleetProblem, FleetRequest, FleetState, Port, Routability,
};

/// Plans addresses and ports, and remembers the loopback address of each fleet.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    allocator: Allocator,
    port_offset: u16,
}

/// The addresses that a fleet requests, parsed.
#[derive(Debug, Default)]
struct RequestedAddresses {
    /// Explicit addresses without duplicates, in the Gateway's order.
    explicit: Vec<IpAddr>,
    /// Whether it also gets an address chosen by Sesame.
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
    /// `usable` returns the problem with a requested address. If two Gateways request the same port on the same
    /// address, the one that `holds` it keeps it; otherwise the first by name gets it.
    pub(crate) fn plan(
        &mut self,
        requests: &BTreeMap<FleetId, FleetRequest>,
        mut usable: impl FnMut(IpAddr) -> Result<(), String>,
        holds: impl Fn(&FleetId, (IpAddr, Port)) -> bool,
    ) -> BTreeMap<FleetId, FleetState> {
        let requested: BTreeMap<&FleetId, RequestedAddresses> = requests
            .iter()
            .map(|(fleet, request)| (fleet, requested_addresses(request, &mut usable)))
            .collect();
        let explicit: BTreeSet<_> = requested
            .values()
            .flat_map(|addresses| &addresses.explicit)
            .filter_map(|address| match address {
                IpAddr::V4(address) => Some(*address),
                IpAddr::V6(_) => None,
            })
            .collect();
        let any = requested.iter().filter(|(_, addresses)| addresses.any);
        self.allocator
            .assign(any.map(|(fleet, _)| *fleet), &explicit);

        let mut states: BTreeMap<FleetId, FleetState> = requested
            .into_iter()
            .map(|(fleet, addresses)| (fleet.clone(), self.state(fleet, addresses)))
            .collect();
        self.claim_ports(requests, &mut states, holds);
        states
    }

    fn state(&self, fleet: &FleetId, requested: RequestedAddresses) -> FleetState {
        let mut addresses = requested.explicit;
        let mut problem = requested.problem;
        if requested.any {
            match self.allocator.get(fleet) {
                Some(address) => addresses.push(address.into()),
                None => {
                    problem = problem.or(Some(FleetProblem::AddressNotAssigned(
                        "all addresses in 127.0.0.0/8 are assigned: set another address in spec.addresses"
                            .to_owned(),
                    )));
                }
            }
        }
        FleetState {
            addresses: addresses.into_iter().map(FleetAddress::Ip).collect(),
            problem,
            port_offset: self.port_offset,
            ..FleetState::default()
        }
    }

    /// Assigns each port on each address to one fleet, preferring the fleet that holds it.
    fn claim_ports(
        &self,
        requests: &BTreeMap<FleetId, FleetRequest>,
        states: &mut BTreeMap<FleetId, FleetState>,
        holds: impl Fn(&FleetId, (IpAddr, Port)) -> bool,
    ) {
        let mut claims = Vec::new();
        for (fleet, request) in requests {
            let Some(state) = states.get_mut(fleet) else {
                continue;
            };
            let addresses: Vec<IpAddr> = state
                .addresses
                .iter()
                .filter_map(FleetAddress::ip)
                .collect();
            for &port in &request.ports {
                match port.checked_add(self.port_offset) {
                    Some(bound) => {
                        let held = addresses.iter().any(|&ip| holds(fleet, (ip, bound)));
                        claims.push((held, fleet, port, addresses.clone()));
                    }
                    None => {
                        let reason = format!(
                            "port {port} plus --port-offset {} exceeds 65535: choose a smaller --port-offset",
                            self.port_offset
                        );
                        state.ports.insert(port, reason);
                    }
                }
            }
        }
        // The sort is stable: ties are resolved by name.
        claims.sort_by_key(|(held, ..)| Reverse(*held));
        let mut owners: BTreeMap<Port, Vec<(IpAddr, &FleetId)>> = BTreeMap::new();
        for (_, fleet, port, addresses) in claims {
            let owners = owners.entry(port).or_default();
            let conflict = addresses.iter().find_map(|&address| {
                let mut owners = owners.iter();
                let (_, owner) = owners.find(|(other, _)| overlap(*other, address))?;
                let owner = match owner {
                    FleetId::Gateway { .. } => format!("Gateway {owner}"),
                    FleetId::Default | FleetId::Unmanaged => {
                        "the default fleet for Ingresses and HTTPProxies".to_owned()
                    }
                };
                Some(format!(
                    "port {port} on {address} is already used by {owner}: use another port or address"
                ))
            });
            match (conflict, states.get_mut(fleet)) {
                (Some(reason), Some(state)) => drop(state.ports.insert(port, reason)),
                _ => owners.extend(addresses.into_iter().map(|address| (address, fleet))),
            }
        }
    }
}

/// Whether a socket on one address conflicts with a socket on the other.
fn overlap(a: IpAddr, b: IpAddr) -> bool {
    a == b || (a.is_ipv4() == b.is_ipv4() && (a.is_unspecified() || b.is_unspecified()))
}

fn requested_addresses(
    request: &FleetRequest,
    usable: &mut impl FnMut(IpAddr) -> Result<(), String>,
) -> RequestedAddresses {
    let mut requested = RequestedAddresses {
        any: request.addresses.is_empty(),
        ..RequestedAddresses::default()
    };
    let mut unsupported = None;
    for request in &request.addresses {
        match &request.routability {
            Routability::Default => {}
            other => {
                unsupported.get_or_insert_with(|| {
                    format!(
                        "routability {other} is not supported by `sesame local`: omit routability"
                    )
                });
            }
        }
        match &request.address {
            AddressValue::Any => requested.any = true,
            AddressValue::Ip(ip) if requested.explicit.contains(ip) => {}
            AddressValue::Ip(ip) => match usable(*ip) {
                Ok(()) => requested.explicit.push(*ip),
                Err(reason) => requested.not_usable(reason),
            },
            AddressValue::InvalidIp(value) => {
                requested.not_usable(format!("{value:?} is not an IP address"));
            }
            AddressValue::Hostname(_) => {
                unsupported.get_or_insert_with(|| unsupported_type("Hostname"));
            }
            AddressValue::Other(type_) => {
                unsupported.get_or_insert_with(|| unsupported_type(type_));
            }
        }
    }
    if let Some(unsupported) = unsupported {
        // The Gateway is not accepted, so its fleet doesn't get an address.
        let reason = format!("spec.addresses: {unsupported}");
        return RequestedAddresses {
            problem: Some(FleetProblem::UnsupportedAddress(reason)),
            ..RequestedAddresses::default()
        };
    }
    requested
}

fn unsupported_type(type_: &str) -> String {
    format!(
        "type {type_} is not supported by `sesame local`: use type IPAddress, or omit spec.addresses"
    )
}

impl RequestedAddresses {
    fn not_usable(&mut self, reason: String) {
        self.problem.get_or_insert_with(|| {
            FleetProblem::AddressNotUsable(format!("spec.addresses: {reason}"))
        });
    }
}

#[cfg(test)]
mod tests;
