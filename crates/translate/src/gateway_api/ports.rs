//! What listens where, and which route tables there are.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use sesame_model::{Listener, ListenerKey, ListenerKind, RouteTable, RouteTableKey, TlsChain};

use super::attach::{AttachPoints, ListenerPoint};
use super::gateway::GatewayState;
use super::http_route::virtual_host::table_of;
use crate::fleet::{FleetAddress, FleetState};
use crate::shared::hostname;

/// Where an Envoy accepts connections for a Gateway.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bind<'a> {
    /// On the addresses of its fleet, but for the ports that it can't have.
    Fleet(&'a FleetState),
    /// On every address, at the Gateway's ports as they are. Nothing that is learned of the fleet later closes a listener.
    Everywhere {
        /// IPv6 too.
        ipv6: bool,
    },
}

/// The ports of a Gateway.
pub(crate) fn listeners(
    state: &GatewayState,
    points: &AttachPoints,
    bind: Bind<'_>,
) -> Vec<(ListenerKey, Listener)> {
    let mut ports = Vec::new();
    for (port, members) in serving_by_port(points) {
        let bind = bind.sockets(port);
        if !bind.is_empty() {
            let kind = kind(state, points, &members);
            ports.push((
                ListenerKey {
                    fleet: points.fleet.clone(),
                    port,
                },
                Listener { bind, kind },
            ));
        }
    }
    ports
}

/// Listeners that take traffic, by port.
fn serving_by_port(points: &AttachPoints) -> BTreeMap<u16, Vec<&ListenerPoint>> {
    let mut ports: BTreeMap<u16, Vec<&ListenerPoint>> = BTreeMap::new();
    for point in points.listeners.iter().filter(|point| point.serving) {
        ports.entry(point.port).or_default().push(point);
    }
    ports
}

/// All listeners of a port speak the same protocol: others are in conflict and take no traffic.
fn kind(state: &GatewayState, points: &AttachPoints, members: &[&ListenerPoint]) -> ListenerKind {
    if let Some(plain) = members.iter().find(|point| !point.secure) {
        return ListenerKind::Http {
            routes: table_of(points, plain),
        };
    }
    let mut chains: Vec<TlsChain> = members
        .iter()
        .map(|point| TlsChain {
            server_name: (&*point.domain != hostname::ANY).then(|| point.domain.to_string()),
            certificates: state
                .listeners
                .iter()
                .find(|listener| listener.name == point.name)
                .map(|listener| listener.certificates.clone())
                .unwrap_or_default(),
            routes: table_of(points, point),
        })
        .collect();
    chains.sort_by(|a, b| a.server_name.cmp(&b.server_name));
    ListenerKind::Https { chains }
}

/// The route tables of a Gateway: one for each plain port, one for each TLS listener.
pub(crate) fn route_tables(points: &AttachPoints) -> Vec<(RouteTableKey, RouteTable)> {
    let mut tables = Vec::new();
    for members in serving_by_port(points).into_values() {
        let (secure, plain): (Vec<&ListenerPoint>, Vec<&ListenerPoint>) =
            members.iter().partition(|point| point.secure);
        if let Some(first) = plain.first() {
            let reserved = sorted(
                plain
                    .iter()
                    .copied()
                    .filter(|point| &*point.domain != hostname::ANY),
            );
            tables.push((
                table_of(points, first),
                RouteTable {
                    reserved,
                    misdirected: Vec::new(),
                },
            ));
        }
        for point in &secure {
            let own = sorted(
                [*point]
                    .into_iter()
                    .filter(|point| &*point.domain != hostname::ANY),
            );
            let others = sorted(
                secure
                    .iter()
                    .copied()
                    .filter(|other| other.name != point.name),
            );
            tables.push((
                table_of(points, point),
                RouteTable {
                    reserved: own,
                    misdirected: others,
                },
            ));
        }
    }
    tables
}

fn sorted<'a>(points: impl Iterator<Item = &'a ListenerPoint>) -> Vec<String> {
    let mut domains: Vec<String> = points.map(|point| point.domain.to_string()).collect();
    domains.sort();
    domains
}

impl Bind<'_> {
    /// Where a port of the Gateway is bound: sorted, each once.
    fn sockets(self, port: u16) -> Vec<SocketAddr> {
        let fleet = match self {
            Self::Fleet(fleet) => fleet,
            Self::Everywhere { ipv6 } => {
                let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
                let v6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port);
                return std::iter::once(v4).chain(ipv6.then_some(v6)).collect();
            }
        };
        let moved = port.checked_add(fleet.port_offset);
        let Some(moved) = moved.filter(|_| !fleet.ports.contains_key(&port)) else {
            return Vec::new();
        };
        let ips = fleet.addresses.iter().filter_map(FleetAddress::ip);
        let mut sockets: Vec<SocketAddr> = ips.map(|ip| SocketAddr::new(ip, moved)).collect();
        sockets.sort();
        sockets.dedup();
        sockets
    }
}
