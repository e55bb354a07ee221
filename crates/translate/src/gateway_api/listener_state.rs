//! The listeners of a Gateway or ListenerSet: which are valid, and the data that other stages need.

use std::sync::Arc;

use sesame_api::{Kind, Listener, ListenerFilter, ObjectKey, RouteGroupKind};
use sesame_model::{
    CertificateKey, ClientValidation, ClusterKey, FleetId, ListenerKey, Port, Termination,
    VirtualHostKey,
};

use super::route::backends::auth_cluster;
use crate::problem::Problem;
use crate::shared::hostname;
use crate::shared::listeners::{
    AllowedNamespaces, AttachPoints, ListenerChecks, ListenerId, ListenerPoint, ListenerRef,
    Protocol, RequestChecks,
};
use crate::shared::ports::Terminations;

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
    /// How clients' certificates are verified; `None` if clients aren't asked for one.
    pub clients: Option<Arc<ClientValidation>>,
    /// The checks for its requests; `None` without filters.
    pub checks: Option<RequestChecks>,
    /// Why it isn't accepted.
    pub refused: Option<Problem>,
    /// Why its filters are invalid. If set, the listener isn't accepted, but keeps its hostname and responds with
    /// errors: otherwise a wider listener would serve its requests unchecked.
    pub invalid_filters: Option<Problem>,
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

    /// True if it serves routes.
    pub fn serves_routes(&self) -> bool {
        self.serving() && self.invalid_filters.is_none()
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

/// The listeners of an object as attachment points for routes. `served` is false if none of them is served.
pub(crate) fn attach_points(
    fleet: FleetId,
    owner: &ObjectKey,
    listeners: &[ListenerState],
    served: bool,
    closed: Option<Problem>,
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
        let table = listener.protocol.table(&port);
        ListenerPoint {
            listener: Arc::new(ListenerRef { id, port, table }),
            protocol: listener.protocol,
            passthrough: listener.passthrough,
            domain: Arc::clone(&listener.domain),
            serving: served && listener.serving(),
            kinds: listener.kinds.clone(),
            namespaces: listener.namespaces.clone(),
            checks: listener.checks.is_some(),
            fallback: false,
        }
    };
    AttachPoints {
        listeners: listeners.iter().map(point).collect(),
        fleet,
        closed,
    }
}

/// How TLS listeners terminate TLS.
pub(crate) fn terminations(listeners: &[ListenerState]) -> Terminations {
    let tls = listeners
        .iter()
        .filter(|listener| listener.protocol.is_tls());
    let termination = |listener: &ListenerState| {
        Arc::new(Termination {
            certificates: listener.certificates.clone(),
            clients: listener.clients.clone(),
            versions: None,
        })
    };
    tls.map(|listener| (Arc::clone(&listener.name), termination(listener)))
        .collect()
}

/// The checks of an object's listeners, given its attachment points.
pub(crate) fn checks(
    points: &AttachPoints,
    listeners: &[ListenerState],
) -> Vec<(ListenerId, ListenerChecks)> {
    let points = points.listeners.iter().zip(listeners);
    let served = points.filter(|(point, _)| point.serving);
    let checks = served.filter_map(|(point, listener)| {
        let host = VirtualHostKey {
            table: point.listener.table.clone()?,
            domain: Arc::clone(&point.domain),
        };
        let checks = listener.checks.clone()?;
        Some((point.listener.id.clone(), ListenerChecks { host, checks }))
    });
    checks.collect()
}

/// The clusters of the authorization services that the listeners of an object in `namespace` refer to, permitted or
/// not, for the index by backend.
pub(crate) fn referenced_services(namespace: &Arc<str>, listeners: &[Listener]) -> Vec<ClusterKey> {
    let filters = listeners
        .iter()
        .flat_map(|listener| &listener.filters.requests);
    let mut keys: Vec<ClusterKey> = filters
        .filter_map(|filter| match filter {
            ListenerFilter::ExternalAuth(auth) => auth_cluster(auth, namespace),
            ListenerFilter::ExtensionRef(_) | ListenerFilter::Unknown(_) => None,
        })
        .collect();
    keys.sort();
    keys.dedup();
    keys
}

/// The Secrets that listeners of an object in `namespace` refer to, permitted or not, for the index by Secret.
pub(crate) fn referenced_secrets(
    namespace: &Arc<str>,
    listeners: &[Listener],
) -> Vec<CertificateKey> {
    let mut keys: Vec<CertificateKey> = listeners
        .iter()
        .flat_map(|listener| listener.tls.iter().flat_map(|tls| &tls.certificate_refs))
        .filter(|reference| reference.known_kind() == Some(Kind::Secret))
        .map(|reference| {
            let name = reference.resolve(namespace);
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
pub(super) fn domain_of(listener: &Listener) -> Arc<str> {
    hostname::domain(listener.hostname().map(|hostname| &**hostname))
        .to_ascii_lowercase()
        .into()
}
