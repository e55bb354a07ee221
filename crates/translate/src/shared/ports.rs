//! The listener and the route tables of each port of a fleet, merged from all owners' listeners.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use sesame_api::ObjectKey;
use sesame_engine::{Index, Reader, Table};
use sesame_model::{
    Chain, ChainTarget, ChainTls, FleetAddress, FleetId, FleetState, Listener, ListenerKey,
    ListenerSettings, Port, RouteTable, RouteTableKey, Termination, TlsMode, Tracing, Transport,
};

use crate::shared::client_certificates::{self, ClientCertificates};
use crate::shared::connections::{ChainKey, ServedChain, has_destination};
use crate::shared::hostname;
use crate::shared::listeners::{AttachPoints, ListenerId, ListenerPoint, isolated};

/// How an object's TLS listeners terminate TLS, by listener name.
pub(crate) type Terminations = BTreeMap<Arc<str>, Arc<Termination>>;

/// The tables needed to build ports.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    /// Listeners by port.
    pub(crate) points_by_port: Index<ObjectKey, AttachPoints, ListenerKey>,
    /// TLS settings by owner.
    pub(crate) terminations: Table<ObjectKey, Terminations>,
    /// Forwarded connections by listener.
    pub(crate) chains: Index<ChainKey, ServedChain, ListenerId>,
    /// The connections for which [`may_need_chain`] is true.
    pub(crate) own_chains: Index<ChainKey, ServedChain, ListenerId>,
    /// The client certificates of fleets.
    pub(crate) client_certificates: ClientCertificates,
    /// How fleets trace requests.
    pub(crate) tracing: Table<FleetId, Tracing>,
    /// The settings of fleets' listeners.
    pub(crate) settings: Table<FleetId, ListenerSettings>,
}

/// The addresses that an Envoy binds.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bind<'a> {
    /// The addresses of its fleet, except for unavailable ports.
    Fleet(&'a FleetState),
    /// All addresses, so that changes to the fleet's state never close a listener.
    Everywhere {
        /// Whether these include IPv6 addresses.
        ipv6: bool,
    },
}

/// The listener of a port; `None` if no owner's listener serves it, or there is no address to bind.
pub(crate) fn listener(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &ListenerKey,
    bind: Bind<'_>,
) -> Option<Listener> {
    let bind = bind.sockets(key.port);
    if bind.is_empty() {
        return None;
    }
    let owners = reader.by(sources.points_by_port, key);
    let on_port: Vec<&ListenerPoint> = owners
        .iter()
        .flat_map(|(_, points)| points.serving_on(key.port))
        .collect();
    if on_port.is_empty() {
        return None;
    }
    let chains = match key.port.transport {
        Transport::Tcp => chains(reader, sources, &on_port),
        Transport::Udp => Vec::new(),
    };
    let serves_http = |chain: &Chain| matches!(chain.target, ChainTarget::Http(_));
    let tracing = match chains.iter().any(serves_http) {
        true => reader.get(sources.tracing, &key.fleet),
        false => None,
    };
    let settings = match key.port.transport {
        Transport::Tcp => reader.get(sources.settings, &key.fleet),
        Transport::Udp => None,
    };
    Some(Listener {
        bind,
        chains,
        tracing,
        settings: settings.unwrap_or_default(),
    })
}

fn chains(reader: &mut Reader<'_>, sources: Sources, on_port: &[&ListenerPoint]) -> Vec<Chain> {
    let mut chains = Vec::new();
    for point in on_port {
        let terminations = reader.get(sources.terminations, &point.listener.id.owner);
        let of_listener = |all: Arc<Terminations>| all.get(point.name()).cloned();
        let termination = terminations.and_then(of_listener).unwrap_or_default();
        match &point.listener.table {
            Some(table) => chains.push(Chain {
                tls: tls(point, &point.domain, TlsMode::Terminate(termination)),
                target: ChainTarget::Http(table.clone()),
            }),
            None => chains.extend(forwarding(reader, sources, point, on_port, &termination)),
        }
    }
    chains.sort_by(|a, b| a.server_name().cmp(&b.server_name()));
    // Plain listeners share a route table, and therefore a chain. Among TLS listeners with the same hostname, the first
    // owner's wins: owners are sorted by the precedence of their sources.
    chains.dedup_by(|later, first| {
        let both_tls = later.tls.is_some() && first.tls.is_some();
        later == first || (both_tls && later.server_name() == first.server_name())
    });
    chains
}

/// Whether a server name may need its own chain even if the listener's other routes are exact: true if it has a
/// wildcard, or if its connections have no destination.
pub(crate) fn may_need_chain(key: &ChainKey, chain: &ServedChain) -> bool {
    key.domain.starts_with('*') || !chain.has_destination()
}

/// The chains of a listener that forwards connections: one for its hostname, and others where that chain doesn't select
/// the right backend. A route with an exact hostname and a destination usually doesn't need a chain, so adding such a
/// route costs Envoy only a cluster.
fn forwarding(
    reader: &mut Reader<'_>,
    sources: Sources,
    point: &ListenerPoint,
    on_port: &[&ListenerPoint],
    termination: &Arc<Termination>,
) -> Vec<Chain> {
    let id = &point.listener.id;
    let isolated = |domain: &str| isolated(point, on_port.iter().copied(), domain);
    let mut served = reader.by(sources.own_chains, id);
    let wide: Vec<Arc<str>> = served
        .iter()
        .map(|(key, _)| Arc::clone(&key.domain))
        .filter(|domain| domain.starts_with('*') && !isolated(domain))
        .collect();
    if !wide.is_empty() {
        // Envoy prefers a wildcard's chain to a lookup by server name.
        served = reader.by(sources.chains, id);
    }
    let mode = match point.passthrough {
        true => TlsMode::Passthrough,
        false => TlsMode::Terminate(Arc::clone(termination)),
    };
    let chain = |domain: &Arc<str>, target| Chain {
        tls: tls(point, domain, mode.clone()),
        target,
    };
    let by_name = point.protocol.is_tls() && point.domain.starts_with('*');
    let without_route = match by_name {
        true => ChainTarget::DestinationByServerName,
        false => ChainTarget::Destination,
    };
    let domain = &point.domain;
    let mut chains = BTreeMap::from([(domain, chain(domain, without_route))]);
    for (key, served) in &served {
        let targets = served.targets(point);
        let destination = has_destination(targets);
        let covered = || wide.iter().any(|wide| hostname::covers(wide, &key.domain));
        if isolated(&key.domain) || (destination && !covered()) {
            continue;
        }
        let target = match destination {
            true => ChainTarget::Destination,
            false => ChainTarget::Weighted(client_certificates::of_targets(
                reader,
                sources.client_certificates,
                &point.listener.port.fleet,
                targets,
            )),
        };
        chains.insert(&key.domain, chain(&key.domain, target));
    }
    chains.into_values().collect()
}

/// `None` if the listener's protocol doesn't use TLS.
fn tls(point: &ListenerPoint, domain: &Arc<str>, mode: TlsMode) -> Option<ChainTls> {
    point.protocol.is_tls().then(|| ChainTls {
        server_name: (**domain != *hostname::ANY).then(|| Arc::clone(domain)),
        mode,
    })
}

/// The route table of a port; `None` if its listeners don't serve requests.
pub(crate) fn route_table(
    reader: &mut Reader<'_>,
    points_by_port: Index<ObjectKey, AttachPoints, ListenerKey>,
    key: &ListenerKey,
) -> Option<(RouteTableKey, RouteTable)> {
    let owners = reader.by(points_by_port, key);
    let on_port = || {
        let points = owners.iter();
        points.flat_map(|(_, points)| points.serving_on(key.port))
    };
    let table = on_port().find_map(|point| point.listener.table.clone())?;
    let secure = on_port().any(|point| point.protocol.is_tls());
    let domains = on_port().map(|point| &point.domain);
    // Without TLS, hosts without a virtual host get 404 from any listener.
    let mut reserved: Vec<Arc<str>> = domains
        .filter(|domain| secure || ***domain != *hostname::ANY)
        .cloned()
        .collect();
    reserved.sort();
    reserved.dedup();
    Some((table, RouteTable { reserved, secure }))
}

impl Bind<'_> {
    /// The sockets for a port, sorted, without duplicates.
    fn sockets(self, port: Port) -> Vec<SocketAddr> {
        let fleet = match self {
            Self::Fleet(fleet) => fleet,
            Self::Everywhere { ipv6 } => {
                let v4 = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port.number);
                let v6 = SocketAddr::new(Ipv6Addr::UNSPECIFIED.into(), port.number);
                return std::iter::once(v4).chain(ipv6.then_some(v6)).collect();
            }
        };
        let moved = port.checked_add(fleet.port_offset);
        let Some(moved) = moved.filter(|_| !fleet.ports.contains_key(&port)) else {
            return Vec::new();
        };
        let ips = fleet.addresses.iter().filter_map(FleetAddress::ip);
        let mut sockets: Vec<SocketAddr> =
            ips.map(|ip| SocketAddr::new(ip, moved.number)).collect();
        sockets.sort();
        sockets.dedup();
        sockets
    }
}
