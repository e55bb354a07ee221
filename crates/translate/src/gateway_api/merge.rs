//! Merges the listeners of a Gateway with those of its ListenerSets.
//!
//! The first listener of a port determines its protocol, and the first listener with a hostname gets that hostname. The
//! order of precedence: the Gateway's listeners, then those of its sets by age (oldest first) and name (ListenerSets
//! before XListenerSets); within a set, the set's own order (ListenerSetSpec.listeners). Rows are keyed by port or by
//! hostname, so a set affects only the sets that compete with it.

use std::sync::Arc;

use sesame_api::{ObjectKey, reason};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::Port;

use super::listener_state::ListenerState;
use crate::problem::Problem;
use crate::shared::hostname;
use crate::shared::listeners::{ListenerId, Protocol};
use crate::shared::precedence::Seniority;

/// The valid listeners of a Gateway or ListenerSet, in its order.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Claims {
    /// The Gateway.
    gateway: ObjectKey,
    /// The order among sets; `None`, which comes first, for the Gateway itself.
    seniority: Option<Seniority>,
    listeners: Vec<Claim>,
}

#[derive(Clone, Debug, PartialEq)]
struct Claim {
    name: Arc<str>,
    port: Port,
    protocol: Protocol,
    domain: Arc<str>,
    serving: bool,
}

/// A port of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct PortKey {
    pub(crate) gateway: ObjectKey,
    pub(crate) port: Port,
}

/// A hostname on a port of a Gateway.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct HostKey {
    port: PortKey,
    domain: Arc<str>,
}

/// The first listener of a port.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PortClaim {
    first: ListenerId,
    protocol: Protocol,
    /// Whether any of the port's listeners is served.
    pub(crate) serving: bool,
}

/// The merged listeners of all Gateways.
#[derive(Clone, Copy)]
pub(crate) struct Merged {
    /// The first listener of each port.
    ports: Table<PortKey, PortClaim>,
    /// The listener that gets each hostname.
    hosts: Table<HostKey, ListenerId>,
    /// The ports of each Gateway.
    pub(crate) by_gateway: Index<PortKey, PortClaim, ObjectKey>,
}

impl Claims {
    /// The claims of an object's listeners.
    pub(crate) fn of(
        gateway: ObjectKey,
        seniority: Option<Seniority>,
        listeners: &[ListenerState],
    ) -> Self {
        let valid = listeners.iter().filter(|listener| listener.accepted());
        let claim = |listener: &ListenerState| Claim {
            name: Arc::clone(&listener.name),
            port: listener.bound_port(),
            protocol: listener.protocol,
            domain: Arc::clone(&listener.domain),
            serving: listener.serving(),
        };
        Self {
            gateway,
            seniority,
            listeners: valid.map(claim).collect(),
        }
    }

    fn port(&self, claim: &Claim) -> PortKey {
        PortKey {
            gateway: self.gateway.clone(),
            port: claim.port,
        }
    }

    fn host(&self, claim: &Claim) -> HostKey {
        HostKey {
            port: self.port(claim),
            domain: Arc::clone(&claim.domain),
        }
    }
}

/// Declares the stages.
pub(crate) fn stages(b: &mut Builder, claims: Table<ObjectKey, Claims>) -> Merged {
    let by_port = b.index(claims, "claims by port", |_, claims| {
        let mut ports: Vec<PortKey> = claims.listeners.iter().map(|c| claims.port(c)).collect();
        ports.sort();
        ports.dedup();
        ports
    });
    let by_host = b.index(claims, "claims by host", |_, claims| {
        let mut hosts: Vec<HostKey> = claims.listeners.iter().map(|c| claims.host(c)).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    });
    let ports = b.derive("port claim", by_port, move |reader, key| {
        port_claim(reader, by_port, key)
    });
    let hosts = b.derive("host claim", by_host, move |reader, key: &HostKey| {
        let protocol = reader.get(ports, &key.port)?.protocol;
        let owners = reader.by(by_host, key);
        let claims = owners.iter().flat_map(|(owner, claims)| {
            let own = claims
                .listeners
                .iter()
                .map(move |claim| (owner, &**claims, claim));
            own.filter(|(_, claims, claim)| claims.host(claim) == *key)
        });
        claims
            .filter(|(_, _, claim)| claim.protocol.shares_port_with(protocol))
            .min_by(|(_, a, _), (_, b, _)| a.seniority.cmp(&b.seniority))
            .map(|(owner, _, claim)| id(owner, claim))
    });
    Merged {
        ports,
        hosts,
        by_gateway: b.index(ports, "ports by gateway", |key: &PortKey, _| {
            vec![key.gateway.clone()]
        }),
    }
}

fn port_claim(
    reader: &mut Reader<'_>,
    by_port: Index<ObjectKey, Claims, PortKey>,
    key: &PortKey,
) -> Option<PortClaim> {
    let owners = reader.by(by_port, key);
    let (owner, first) = owners
        .iter()
        .min_by(|(_, a), (_, b)| a.seniority.cmp(&b.seniority))?;
    let mut claims = first.listeners.iter();
    let claim = claims.find(|claim| claim.port == key.port)?;
    let all = owners.iter().flat_map(|(_, claims)| &claims.listeners);
    let serving = all
        .filter(|other| other.port == key.port && other.protocol.shares_port_with(claim.protocol))
        .any(|other| other.serving);
    Some(PortClaim {
        first: id(owner, claim),
        protocol: claim.protocol,
        serving,
    })
}

fn id(owner: &ObjectKey, claim: &Claim) -> ListenerId {
    ListenerId {
        owner: owner.clone(),
        name: Arc::clone(&claim.name),
    }
}

/// Why a valid listener of the set `owner` loses to one that takes precedence.
pub(super) fn conflict(
    reader: &mut Reader<'_>,
    merged: Merged,
    gateway: &ObjectKey,
    owner: &ObjectKey,
    listener: &ListenerState,
) -> Option<Problem> {
    let host = HostKey {
        port: PortKey {
            gateway: gateway.clone(),
            port: listener.bound_port(),
        },
        domain: Arc::clone(&listener.domain),
    };
    let port = reader.get(merged.ports, &host.port)?;
    // Other sets may be in namespaces that the set's owner can't read.
    let name = |winner: &ListenerId| match &winner.owner {
        same if same == owner => format!("listener {}", winner.name),
        other if other == gateway => format!("listener {} of the Gateway", winner.name),
        _ => "a listener of a ListenerSet that takes precedence".to_owned(),
    };
    if !listener.protocol.shares_port_with(port.protocol) {
        return Some(Problem::new(
            reason::listener::PROTOCOL_CONFLICT,
            format!(
                "{} uses port {} with protocol {}; change the port or protocol",
                name(&port.first),
                listener.port,
                port.protocol
            ),
        ));
    }
    let winner = reader.get(merged.hosts, &host)?;
    if winner.owner == *owner && winner.name == listener.name {
        return None;
    }
    let with = match &*listener.domain {
        hostname::ANY => "without a hostname".to_owned(),
        domain => format!("with hostname {domain}"),
    };
    Some(Problem::new(
        reason::listener::HOSTNAME_CONFLICT,
        format!(
            "{} also uses port {} {with}; change the port or hostname",
            name(&winner),
            listener.port
        ),
    ))
}
