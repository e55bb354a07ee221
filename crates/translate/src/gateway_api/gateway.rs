//! The listeners of a Gateway: which ones are valid, and why the others aren't.

use std::sync::Arc;

use sesame_api::{Gateway, Kind, ObjectKey, RouteGroupKind};
use sesame_engine::Reader;
use sesame_model::{CertificateKey, FleetId, ListenerKey, Port};

use super::{conflicts, listener};
use crate::problem::Problem;
use crate::shared::hostname;
use crate::shared::listeners::{
    AllowedNamespaces, AttachPoints, ListenerId, ListenerPoint, ListenerRef, Protocol,
};
use crate::shared::ports::ServedCertificates;

/// The state of one of our Gateways.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayState {
    /// Why it isn't served.
    pub refused: Option<Problem>,
    /// True if the fleet serves another Gateway instead: no route can attach to this one.
    pub elsewhere: bool,
    /// Why its fleet can't be created or changed. An existing fleet keeps serving.
    pub frozen: Option<Problem>,
    /// In the Gateway's order.
    pub listeners: Vec<ListenerState>,
}

/// The state of a listener.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerState {
    /// Its name.
    pub name: Arc<str>,
    /// Its port.
    pub port: u16,
    /// Its protocol.
    pub protocol: Protocol,
    /// True if it forwards TLS connections without terminating them.
    pub passthrough: bool,
    /// Its hostname, or `*` if it has none.
    pub domain: Arc<str>,
    /// The kinds of routes that may attach.
    pub kinds: Vec<Kind>,
    /// The namespaces whose routes may attach.
    pub namespaces: AllowedNamespaces,
    /// The valid certificates. Invalid ones are reported in `unresolved`.
    pub certificates: Vec<CertificateKey>,
    /// Why it isn't accepted.
    pub refused: Option<Problem>,
    /// The conflict with another listener.
    pub conflicted: Option<Problem>,
    /// Its unresolved references.
    pub unresolved: Option<Problem>,
    /// The overlap with another listener, whose connections a client might reuse for this one.
    pub overlapping: Option<Problem>,
}

impl ListenerState {
    /// Its port and transport.
    pub fn bound_port(&self) -> Port {
        Port {
            number: self.port,
            transport: self.protocol.transport(),
        }
    }

    /// True if the listener itself is valid.
    pub fn accepted(&self) -> bool {
        self.refused.is_none() && self.conflicted.is_none()
    }

    /// True if it terminates TLS but has no valid certificate.
    pub fn lacks_certificate(&self) -> bool {
        self.protocol.is_tls() && !self.passthrough && self.certificates.is_empty()
    }

    /// True if it serves requests or connections.
    pub fn serving(&self) -> bool {
        self.accepted() && !self.lacks_certificate()
    }

    /// The supported kinds of routes, as shown in a status.
    pub fn supported_kinds(&self) -> Vec<RouteGroupKind> {
        self.kinds
            .iter()
            .copied()
            .map(RouteGroupKind::from)
            .collect()
    }
}

/// Why a Gateway isn't served, or why its fleet stays unchanged.
#[derive(Debug, Default)]
pub(crate) struct Obstacles {
    /// Set if the fleet serves another Gateway.
    pub(crate) elsewhere: Option<Problem>,
    /// Set if its parameters are invalid.
    pub(crate) parameters: Option<Problem>,
}

/// Reads a Gateway.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    sources: listener::Sources,
    gateway: &Gateway,
    obstacles: Obstacles,
    in_cluster: bool,
) -> GatewayState {
    let mut listeners = listener::read_all(reader, sources, gateway);
    conflicts::mark(&mut listeners);
    conflicts::mark_overlaps(reader, sources.certificates, &mut listeners);
    let Obstacles {
        elsewhere,
        parameters,
    } = obstacles;
    let is_elsewhere = elsewhere.is_some();
    // In a cluster, invalid parameters don't stop running Envoys. Locally, they make the Gateway invalid.
    let (refused, frozen) = match in_cluster {
        true => (elsewhere, parameters),
        false => (elsewhere.or(parameters), None),
    };
    GatewayState {
        refused,
        elsewhere: is_elsewhere,
        frozen,
        listeners,
    }
}

/// A Gateway's listeners as attachment points for routes.
pub(crate) fn attach_points(
    fleet: &FleetId,
    owner: &ObjectKey,
    state: &GatewayState,
) -> AttachPoints {
    let point = |listener: &ListenerState| {
        let id = ListenerId {
            owner: owner.clone(),
            name: Arc::clone(&listener.name),
        };
        let port = ListenerKey {
            fleet: fleet.clone(),
            port: listener.bound_port(),
        };
        let table = id.table(&port, listener.protocol);
        ListenerPoint {
            listener: Arc::new(ListenerRef { id, port, table }),
            protocol: listener.protocol,
            passthrough: listener.passthrough,
            domain: Arc::clone(&listener.domain),
            serving: state.refused.is_none() && listener.serving(),
            kinds: listener.kinds.clone(),
            namespaces: listener.namespaces.clone(),
        }
    };
    AttachPoints {
        fleet: fleet.clone(),
        closed: state.refused.clone().filter(|_| state.elsewhere),
        listeners: state.listeners.iter().map(point).collect(),
    }
}

/// The valid certificates of a Gateway's TLS listeners.
pub(crate) fn served_certificates(state: &GatewayState) -> ServedCertificates {
    let listeners = state.listeners.iter();
    let tls = listeners.filter(|listener| listener.protocol.is_tls());
    tls.map(|listener| (Arc::clone(&listener.name), listener.certificates.clone()))
        .collect()
}

/// The Secrets that a Gateway's listeners refer to, permitted or not, for the index of Gateways by Secret.
pub(crate) fn referenced_secrets(gateway: &Gateway) -> Vec<CertificateKey> {
    let mut keys: Vec<CertificateKey> = gateway
        .spec
        .listeners
        .iter()
        .flat_map(|listener| listener.tls.iter().flat_map(|tls| &tls.certificate_refs))
        .filter(|reference| reference.known_kind() == Some(Kind::Secret))
        .map(|reference| {
            let name = reference.resolve(&gateway.meta.namespace);
            CertificateKey {
                namespace: name.namespace,
                name: name.name,
            }
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

/// The hostname of a listener as a domain.
pub(super) fn domain_of(listener: &sesame_api::Listener) -> Arc<str> {
    hostname::domain(listener.hostname().map(|hostname| &**hostname))
        .to_ascii_lowercase()
        .into()
}
