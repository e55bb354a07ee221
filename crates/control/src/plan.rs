//! Which fleet listens where on this machine.
//!
//! In: what all Gateways ask for. Out: addresses for each, and which ports it can't have because another one has them.
//! Pure: whether an address is this machine's is asked of the caller.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

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
    /// address, the first by name has it.
    pub(crate) fn plan(
        &mut self,
        requests: &BTreeMap<FleetId, FleetRequest>,
        mut usable: impl FnMut(IpAddr) -> Result<(), String>,
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

        let mut claims = Claims::default();
        let mut states = BTreeMap::new();
        for (fleet, wish) in wishes {
            let state = self.state(fleet, wish, &requests[fleet], &mut claims);
            states.insert(fleet.clone(), state);
        }
        states
    }

    fn state<'a>(
        &self,
        fleet: &'a FleetId,
        wish: Wish,
        request: &FleetRequest,
        claims: &mut Claims<'a>,
    ) -> FleetState {
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
        let mut ports = BTreeMap::new();
        for &port in &request.ports {
            if let Err(why) = self.claim(fleet, &addresses, port, claims) {
                ports.insert(port, why);
            }
        }
        FleetState {
            addresses: addresses
                .into_iter()
                .map(|ip| FleetAddress {
                    value: ip.to_string(),
                    ip: Some(ip),
                })
                .collect(),
            problem,
            ports,
            port_offset: self.port_offset,
            ready: false,
        }
    }

    fn claim<'a>(
        &self,
        fleet: &'a FleetId,
        addresses: &[IpAddr],
        port: u16,
        claims: &mut Claims<'a>,
    ) -> Result<(), String> {
        if port.checked_add(self.port_offset).is_none() {
            return Err(format!(
                "port {port} moved up by {} is beyond 65535: choose a smaller --port-offset",
                self.port_offset
            ));
        }
        for &address in addresses {
            if let Some(owner) = claims.owner(address, port) {
                return Err(format!(
                    "port {port} of {address} is taken by Gateway {owner}: use another port or address"
                ));
            }
        }
        claims
            .by_port
            .entry(port)
            .or_default()
            .extend(addresses.iter().map(|&address| (address, fleet)));
        Ok(())
    }
}

/// Who has which port of which address.
#[derive(Debug, Default)]
struct Claims<'a> {
    by_port: BTreeMap<u16, Vec<(IpAddr, &'a FleetId)>>,
}

impl Claims<'_> {
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
