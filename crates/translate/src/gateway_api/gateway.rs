//! A Gateway: which of its listeners are valid and why the others aren't, and its client certificate.

use sesame_api::{Gateway, Kind, ObjectKey};
use sesame_engine::Reader;
use sesame_model::CertificateKey;

use super::listener_state::ListenerState;
use super::{certificate_ref, conflicts, listener};
use crate::problem::Problem;
use crate::shared::client_certificates::{ClientCertificate, Invalid};

/// The state of one of our Gateways.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayState {
    /// Why it isn't served.
    pub refused: Option<Problem>,
    /// True if the fleet serves another Gateway instead: routes can't attach to this one.
    pub elsewhere: bool,
    /// Why its fleet can't be created or changed. An existing fleet keeps serving.
    pub frozen: Option<Problem>,
    /// In the Gateway's order.
    pub listeners: Vec<ListenerState>,
    /// The client certificate for backends, if the Gateway refers to one, or why it can't be used.
    pub client_certificate: Option<Result<CertificateKey, Problem>>,
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
    key: &ObjectKey,
    gateway: &Gateway,
    obstacles: Obstacles,
    in_cluster: bool,
) -> GatewayState {
    let owner = listener::Owner {
        kind: Kind::Gateway,
        namespace: &gateway.meta.namespace,
        listeners: &gateway.spec.listeners,
        gateway: key,
    };
    let mut listeners = listener::read_all(reader, sources, owner);
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
        client_certificate: certificate_ref::client_certificate(reader, sources, gateway),
    }
}

impl GatewayState {
    /// Why it isn't served, if its fleet serves another Gateway.
    pub(crate) fn elsewhere(&self) -> Option<&Problem> {
        self.refused.as_ref().filter(|_| self.elsewhere)
    }

    /// The certificate that its fleet presents to backends with a TLS policy; `None` if it doesn't present one.
    pub(crate) fn presented(&self) -> Option<ClientCertificate> {
        if self.refused.is_some() {
            return None;
        }
        let certificate = self.client_certificate.as_ref()?;
        Some(ClientCertificate {
            with_policy: Some(certificate.clone().map_err(|_| Invalid)),
            without_policy: None,
        })
    }
}
