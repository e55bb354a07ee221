//! What a Gateway's listeners are: which of them can be served, and why the others can't.

use std::sync::Arc;

use sesame_api::{Gateway, Kind, RouteGroupKind};
use sesame_engine::{Reader, Table};
use sesame_model::{CertificateKey, FleetId};

use super::attach::{AllowedNamespaces, AttachPoints, ListenerPoint};
use super::problem::Problem;
use super::{conflicts, listener};
use crate::pipeline::Inputs;
use crate::shared::certificates::CertificateState;
use crate::shared::hostname;

/// A Gateway of ours, read.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayState {
    /// Why nothing of it is served.
    pub refused: Option<Problem>,
    /// It isn't served because another one is: routes can't be here at all.
    pub elsewhere: bool,
    /// Why its fleet can't be made or changed. What there is of it goes on serving.
    pub frozen: Option<Problem>,
    /// In the order of the Gateway.
    pub listeners: Vec<ListenerState>,
}

/// A listener, read.
#[derive(Clone, Debug, PartialEq)]
pub struct ListenerState {
    /// Its name.
    pub name: Arc<str>,
    /// Its port.
    pub port: u16,
    /// What it speaks.
    pub protocol: Protocol,
    /// Its hostname; `*` for none.
    pub domain: Arc<str>,
    /// Kinds of routes that may attach.
    pub kinds: Vec<Kind>,
    /// Namespaces whose routes may attach.
    pub namespaces: AllowedNamespaces,
    /// Certificates that can be served. Those that can't are in `unresolved`.
    pub certificates: Vec<CertificateKey>,
    /// Why it isn't accepted.
    pub refused: Option<Problem>,
    /// Which other listener it collides with.
    pub conflicted: Option<Problem>,
    /// Which of its references lead nowhere.
    pub unresolved: Option<Problem>,
    /// Whose connections a client might share with another listener's.
    pub overlapping: Option<Problem>,
}

/// What a listener speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// Plain HTTP.
    Http,
    /// HTTP over TLS that ends here.
    Https,
    /// Other things over TLS.
    Tls,
    /// Plain TCP.
    Tcp,
    /// UDP.
    Udp,
    /// Something that we don't know.
    Unknown,
}

impl ListenerState {
    /// True if there is nothing wrong with the listener itself.
    pub fn accepted(&self) -> bool {
        self.refused.is_none() && self.conflicted.is_none()
    }

    /// True if it takes traffic.
    pub fn serving(&self) -> bool {
        self.accepted()
            && match self.protocol {
                Protocol::Http => true,
                Protocol::Https => !self.certificates.is_empty(),
                _ => false,
            }
    }

    /// The kinds as statuses name them.
    pub fn supported_kinds(&self) -> Vec<RouteGroupKind> {
        self.kinds
            .iter()
            .copied()
            .map(RouteGroupKind::from)
            .collect()
    }
}

/// Reads a Gateway. `elsewhere` says why it is another one's turn, `wrong` why its parameters can't be read.
pub(crate) fn read(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    certificates: Table<CertificateKey, CertificateState>,
    gateway: &Gateway,
    elsewhere: Option<Problem>,
    wrong: Option<Problem>,
    in_cluster: bool,
) -> GatewayState {
    let mut listeners: Vec<ListenerState> = gateway
        .spec
        .listeners
        .iter()
        .enumerate()
        .map(|(index, listener)| {
            listener::read(reader, inputs, certificates, gateway, index, listener)
        })
        .collect();
    conflicts::mark(&mut listeners);
    conflicts::mark_overlaps(reader, certificates, &mut listeners);
    let is_elsewhere = elsewhere.is_some();
    // In a cluster a slip of the pen in a ConfigMap must not stop what serves. On one's own machine it had better be seen.
    let (refused, frozen) = match in_cluster {
        true => (elsewhere, wrong),
        false => (elsewhere.or(wrong), None),
    };
    GatewayState {
        refused,
        elsewhere: is_elsewhere,
        frozen,
        listeners,
    }
}

/// A Gateway as routes see it.
pub(crate) fn attach_points(fleet: FleetId, state: &GatewayState) -> AttachPoints {
    AttachPoints {
        fleet,
        closed: state.refused.clone().filter(|_| state.elsewhere),
        listeners: state
            .listeners
            .iter()
            .map(|listener| ListenerPoint {
                name: Arc::clone(&listener.name),
                port: listener.port,
                secure: listener.protocol == Protocol::Https,
                domain: Arc::clone(&listener.domain),
                serving: state.refused.is_none() && listener.serving(),
                kinds: listener.kinds.clone(),
                namespaces: listener.namespaces.clone(),
            })
            .collect(),
    }
}

/// The Secrets that a Gateway's listeners name, permitted or not: for the index of Gateways by Secret.
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
