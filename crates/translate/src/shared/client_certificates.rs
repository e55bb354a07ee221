//! The certificate that a fleet presents to backends with a TLS policy.
//!
//! An object's rules and connections are the same for all fleets. The certificate is added where they become part of a
//! fleet's configuration: in a virtual host, and in the chains of a port. So only hosts and ports with such backends
//! depend on it.

use std::sync::Arc;

use sesame_engine::{Reader, Table};
use sesame_model::{
    Action, CertificateKey, ClusterKey, ExternalAuth, FleetId, Route, Target, WeightedBackend,
};

/// The client certificates of fleets that must present one.
pub(crate) type ClientCertificates = Table<FleetId, ClientCertificate>;

/// The client certificate that a fleet presents.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ClientCertificate {
    /// This certificate.
    Valid(CertificateKey),
    /// No valid certificate: the fleet must not connect to backends with a TLS policy.
    Invalid,
}

impl ClientCertificate {
    /// The cluster that the fleet uses instead; `None` if it must not connect.
    pub(crate) fn cluster(&self, key: &ClusterKey) -> Option<ClusterKey> {
        match self {
            _ if !key.takes_gateway_certificate() => Some(key.clone()),
            Self::Valid(certificate) => {
                Some(key.with_client_certificate(Some(certificate.clone())))
            }
            Self::Invalid => None,
        }
    }

    fn set_in(&self, target: &mut Target) {
        if let Target::Cluster(key) = target {
            *target = self.cluster(key).map_or(Target::Refused, Target::Cluster);
        }
    }

    /// The check with the fleet's certificate; `None` if the fleet must not connect to the service.
    pub(crate) fn auth(&self, auth: &Arc<ExternalAuth>) -> Option<Arc<ExternalAuth>> {
        let cluster = self.cluster(&auth.cluster)?;
        Some(Arc::new(ExternalAuth {
            cluster,
            ..ExternalAuth::clone(auth)
        }))
    }

    fn set_in_route(&self, route: &mut Route) {
        if let Some(auth) = &mut route.auth {
            match self.auth(auth) {
                Some(own) => *auth = own,
                None => {
                    route.auth = None;
                    route.action = Action::Respond(500);
                }
            }
        }
        if let Action::Forward(forward) = &mut route.action {
            for target in &mut forward.targets {
                self.set_in(&mut target.target);
            }
            forward.mirrors.retain_mut(|mirror| {
                let cluster = self.cluster(&mirror.cluster);
                cluster.map(|cluster| mirror.cluster = cluster).is_some()
            });
        }
    }
}

/// The routes with the fleet's certificate.
pub(crate) fn of_routes(
    reader: &mut Reader<'_>,
    certificates: ClientCertificates,
    fleet: &FleetId,
    mut routes: Vec<Arc<Route>>,
) -> Vec<Arc<Route>> {
    let secured = |route: &Route| route.clusters().any(ClusterKey::takes_gateway_certificate);
    let mut changed = routes.iter_mut().filter(|route| secured(route)).peekable();
    if changed.peek().is_some()
        && let Some(certificate) = reader.get(certificates, fleet)
    {
        for route in changed {
            certificate.set_in_route(Arc::make_mut(route));
        }
    }
    routes
}

/// The checks with the fleet's certificate; `None` if the fleet must not connect to one of the services.
pub(crate) fn of_checks(
    reader: &mut Reader<'_>,
    certificates: ClientCertificates,
    fleet: &FleetId,
    checks: &[Arc<ExternalAuth>],
) -> Option<Vec<Arc<ExternalAuth>>> {
    let secured = checks.iter().any(|auth| auth.cluster.tls().is_some());
    match secured.then(|| reader.get(certificates, fleet)).flatten() {
        Some(certificate) => checks.iter().map(|auth| certificate.auth(auth)).collect(),
        None => Some(checks.to_vec()),
    }
}

/// A target with the fleet's certificate.
pub(crate) fn of_target(
    reader: &mut Reader<'_>,
    certificates: ClientCertificates,
    fleet: &FleetId,
    mut target: Target,
) -> Target {
    let secured = target.cluster().is_some_and(|key| key.tls().is_some());
    if secured && let Some(certificate) = reader.get(certificates, fleet) {
        certificate.set_in(&mut target);
    }
    target
}

/// The targets of connections with the fleet's certificate.
pub(crate) fn of_targets(
    reader: &mut Reader<'_>,
    certificates: ClientCertificates,
    fleet: &FleetId,
    targets: &[WeightedBackend],
) -> Vec<WeightedBackend> {
    let mut targets = targets.to_vec();
    let mut clusters = targets
        .iter()
        .filter_map(|backend| backend.target.cluster());
    if clusters.any(ClusterKey::takes_gateway_certificate)
        && let Some(certificate) = reader.get(certificates, fleet)
    {
        for backend in &mut targets {
            certificate.set_in(&mut backend.target);
        }
    }
    targets
}
