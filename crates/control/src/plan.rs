//! Which fleet listens where on this machine.
//!
//! In: what all Gateways ask for. Out: addresses for each, and which ports it can't have because another one has them.
//! Pure: whether an address is this machine's is asked of the caller.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use sesame_api::AddressType;
use sesame_fleet::local::addresses::Allocator;
use sesame_model::FleetId;
use sesame_translate::fleet::{AddressProblem, FleetAddress, FleetRequest, FleetState};

/// Plans, and remembers which loopback address it gave to whom.
#[derive(Debug, Default)]
pub(crate) struct Planner {
    allocator: Allocator,
    port_offset: u16,
}

/// The addresses that one fleet asks for, understood.
#[derive(Debug, Default)]
struct Wish {
    /// By number, without doubles, in the order of the Gateway.
    exactly: Vec<IpAddr>,
    /// One of our choice as well.
    any: bool,
    problem: Option<AddressProblem>,
}

impl Planner {
    /// `port_offset` is added to a Gateway's port to get the one that is bound.
    pub(crate) fn new(port_offset: u16) -> Self {
        Self {
            allocator: Allocator::new(),
            port_offset,
        }
    }

    /// A state for every fleet that there should be: not ready, and without a look at its ports.
    ///
    /// `usable` says what is wrong with an address that was asked for. Where two Gateways want the same port of the same
    /// address, the one that `has` it keeps it, else the first by name gets it.
    pub(crate) fn plan(
        &mut self,
        requests: &BTreeMap<FleetId, FleetRequest>,
        mut usable: impl FnMut(IpAddr) -> Result<(), String>,
        has: impl Fn(&FleetId, SocketAddr) -> bool,
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
            .map(|(fleet, _)| fleet.as_str());
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
            match self.allocator.get(fleet.as_str()) {
                Some(address) => addresses.push(address.into()),
                None => {
                    problem = problem.or(Some(AddressProblem::NotAssigned(
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

    /// Gives each port of each address to one fleet: first to those that have it.
    fn claim_ports(
        &self,
        requests: &BTreeMap<FleetId, FleetRequest>,
        states: &mut BTreeMap<FleetId, FleetState>,
        has: impl Fn(&FleetId, SocketAddr) -> bool,
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
                    let sockets = || addresses.iter().map(|ip| SocketAddr::new(*ip, bound));
                    if incumbents == sockets().any(|socket| has(fleet, socket))
                        && let Err(why) = claims.claim(fleet, &addresses, port)
                    {
                        state.ports.insert(port, why);
                    }
                }
            }
        }
    }
}

/// Who has which port of which address.
#[derive(Debug, Default)]
struct Claims<'a> {
    by_port: BTreeMap<u16, Vec<(IpAddr, &'a FleetId)>>,
}

impl<'a> Claims<'a> {
    fn claim(&mut self, fleet: &'a FleetId, addresses: &[IpAddr], port: u16) -> Result<(), String> {
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

    fn owner(&self, address: IpAddr, port: u16) -> Option<&FleetId> {
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
        if address.type_ != AddressType::IpAddress {
            let type_ = address.type_.as_str();
            unsupported.get_or_insert_with(|| {
                format!(
                    "spec.addresses: type {type_} is not supported on this machine: use IPAddress, or leave \
                     addresses out"
                )
            });
        } else if address.value.is_empty() {
            wish.any = true;
        } else {
            match address.value.parse::<IpAddr>() {
                Ok(ip) if wish.exactly.contains(&ip) => {}
                Ok(ip) => match usable(ip) {
                    Ok(()) => wish.exactly.push(ip),
                    Err(why) => wish.not_usable(why),
                },
                Err(_) => wish.not_usable(format!("{:?} is not an IP address", address.value)),
            }
        }
    }
    if let Some(why) = unsupported {
        // The Gateway is not accepted, so it gets nothing.
        return Wish {
            problem: Some(AddressProblem::Unsupported(why)),
            ..Wish::default()
        };
    }
    wish
}

impl Wish {
    fn not_usable(&mut self, why: String) {
        self.problem
            .get_or_insert_with(|| AddressProblem::NotUsable(format!("spec.addresses: {why}")));
    }
}

#[cfg(test)]
mod tests;
