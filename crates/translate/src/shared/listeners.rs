//! Listeners of any kind of owner, in the form that routes and ports need.
//!
//! In: nothing. Out: plain data shared by the stages for ports, attachments and hosts.

use std::fmt;
use std::sync::Arc;

use sesame_api::{Kind, LabelSelector, ObjectKey};
use sesame_model::{
    ExternalAuth, FleetId, ListenerKey, Port, RouteTableKey, Transport, VirtualHostKey,
};

use crate::problem::Problem;
use crate::shared::hostname;

/// Identifies a listener, since several objects may have listeners with the same name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ListenerId {
    /// The object that declares it.
    pub owner: ObjectKey,
    /// Its name, unique within the owner.
    pub name: Arc<str>,
}

/// A listener, its port and its route table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenerRef {
    /// The listener.
    pub id: ListenerId,
    /// Its port.
    pub port: ListenerKey,
    /// The route table for its HTTP requests; `None` if it forwards connections without reading them.
    pub table: Option<RouteTableKey>,
}

/// The listeners of one object, in the form that routes need. Rotating a certificate doesn't change this row.
#[derive(Clone, Debug, PartialEq)]
pub struct AttachPoints {
    /// The fleet that serves the listeners.
    pub fleet: FleetId,
    /// Why routes can't attach to any of the listeners.
    pub closed: Option<Problem>,
    /// In the object's order.
    pub listeners: Vec<ListenerPoint>,
}

/// A listener, in the form that routes need.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerPoint {
    /// The listener, its port and its route table.
    pub listener: Arc<ListenerRef>,
    /// Its protocol.
    pub protocol: Protocol,
    /// True if it forwards TLS connections without terminating them.
    pub passthrough: bool,
    /// Its hostname, or `*` if it has none.
    pub domain: Arc<str>,
    /// True if it serves requests. Routes also attach to listeners that don't.
    pub serving: bool,
    /// The kinds of routes that may attach.
    pub kinds: Vec<Kind>,
    /// The namespaces whose routes may attach.
    pub namespaces: AllowedNamespaces,
    /// True if it has [`RequestChecks`].
    pub checks: bool,
    /// True if its host is also served on connections with the [fallback
    /// certificate](super::default_fleet::is_fallback).
    pub fallback: bool,
}

impl ListenerPoint {
    /// Its name, unique within the owner.
    pub fn name(&self) -> &Arc<str> {
        &self.listener.id.name
    }

    /// Its port.
    pub fn port(&self) -> Port {
        self.listener.port.port
    }
}

/// The checks that all requests of a listener go through before a route is selected.
#[derive(Clone, Debug, PartialEq)]
pub enum RequestChecks {
    /// Checks by these services, in order; never empty.
    By(Vec<Arc<ExternalAuth>>),
    /// A filter is invalid: all requests get 500.
    Invalid,
}

/// The checks of a listener, and its host.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerChecks {
    /// The listener's hostname. It has a virtual host even without routes.
    pub host: VirtualHostKey,
    /// The checks.
    pub checks: RequestChecks,
}

/// The namespaces whose routes may attach.
#[derive(Clone, Debug, PartialEq)]
pub enum AllowedNamespaces {
    /// All.
    All,
    /// The owner's.
    Same,
    /// Those with matching labels.
    Selected(LabelSelector),
    /// None: `allowedRoutes.namespaces` has an unknown value.
    None,
}

/// The protocol of a listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS, terminated here.
    Https,
    /// TLS, terminated or passed through.
    Tls,
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// An unknown value.
    Unknown,
}

impl AttachPoints {
    /// The ports of the listeners, for the index by port.
    pub fn ports(&self) -> Vec<ListenerKey> {
        let ports = self.listeners.iter().map(|point| &point.listener.port);
        ports.cloned().collect()
    }

    /// The ports and hostnames of the listeners, for the index by both.
    pub fn domains(&self) -> Vec<(ListenerKey, Arc<str>)> {
        let listeners = self.listeners.iter();
        let mut domains: Vec<_> = listeners
            .map(|point| (point.listener.port.clone(), Arc::clone(&point.domain)))
            .collect();
        domains.sort();
        domains.dedup();
        domains
    }

    /// The listeners that serve a port.
    pub fn serving_on(&self, port: Port) -> impl Iterator<Item = &ListenerPoint> {
        let listeners = self.listeners.iter();
        listeners.filter(move |point| point.serving && point.port() == port)
    }
}

/// Whether all requests for `domain` belong to more specific listeners on the same port ("listener isolation" in the
/// Gateway API reference).
pub fn isolated<'a>(
    listener: &ListenerPoint,
    mut others: impl Iterator<Item = &'a ListenerPoint>,
    domain: &str,
) -> bool {
    others.any(|other| {
        other.serving
            && other.port() == listener.port()
            && other.domain != listener.domain
            && hostname::covers(&listener.domain, &other.domain)
            && hostname::covers(&other.domain, domain)
    })
}

impl Protocol {
    /// Whether listeners with these two protocols can share a port, distinguished by hostname.
    pub fn shares_port_with(self, other: Self) -> bool {
        self == other
            || matches!(
                (self, other),
                (Self::Https, Self::Tls) | (Self::Tls, Self::Https)
            )
    }

    /// The route table of a port's listeners with this protocol; `None` if they forward connections without reading
    /// requests.
    pub fn table(self, port: &ListenerKey) -> Option<RouteTableKey> {
        matches!(self, Self::Http | Self::Https).then(|| RouteTableKey {
            fleet: port.fleet.clone(),
            port: port.port.number,
        })
    }

    /// The transport that carries it.
    pub fn transport(self) -> Transport {
        match self {
            Self::Udp => Transport::Udp,
            Self::Http | Self::Https | Self::Tls | Self::Tcp | Self::Unknown => Transport::Tcp,
        }
    }

    /// Whether connections start with a TLS handshake.
    pub fn is_tls(self) -> bool {
        matches!(self, Self::Https | Self::Tls)
    }

    /// Whether its listeners are distinguished by hostname.
    pub fn has_hostname(self) -> bool {
        matches!(self, Self::Http | Self::Https | Self::Tls)
    }
}

/// As written in a spec.
impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http => "HTTP",
            Self::Https => "HTTPS",
            Self::Tls => "TLS",
            Self::Tcp => "TCP",
            Self::Udp => "UDP",
            Self::Unknown => "unknown",
        })
    }
}
