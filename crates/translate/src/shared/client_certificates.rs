//! The certificate that a fleet presents to backends with TLS.
//!
//! An object's rules and connections are the same for all fleets. The certificate is added where they become part of a
//! fleet's configuration: in a virtual host, and in the chains of a port. So only hosts and ports with such backends
//! depend on it.

use std::sync::Arc;

use sesame_engine::{Reader, Table};
use sesame_model::{
    Action, CertificateKey, ClusterKey, ExternalAuth, FleetId, GlobalRate, RateService, Route,
    RoutePolicy, Target, TlsSettings, WeightedBackend,
};

/// The client certificates of fleets that must present one.
pub(crate) type ClientCertificates = Table<FleetId, ClientCertificate>;

/// The client certificates that a fleet presents to backends with TLS, except those that have one of their own. `None`
/// means none.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientCertificate {
    /// For backends with a TLS policy.
    pub(crate) with_policy: Option<Presented>,
    /// For other backends.
    pub(crate) without_policy: Option<Presented>,
}

/// A client certificate; an error if it isn't valid: the fleet must not connect.
pub(crate) type Presented = Result<CertificateKey, Invalid>;

/// There is no valid certificate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Invalid;

impl ClientCertificate {
    /// The certificate for a backend.
    fn presented_to(&self, key: &ClusterKey) -> Option<&Presented> {
        match key.tls()? {
            TlsSettings::Policy(_) => self.with_policy.as_ref(),
            TlsSettings::Verified(_) | TlsSettings::Unverified | TlsSettings::Service => {
                self.without_policy.as_ref()
            }
            TlsSettings::Own | TlsSettings::Plaintext => None,
        }
    }

    /// The cluster that the fleet uses instead; `None` if it must not connect.
    pub(crate) fn cluster(&self, key: &ClusterKey) -> Option<ClusterKey> {
        match self.presented_to(key) {
            None => Some(key.clone()),
            Some(Ok(certificate)) => Some(key.with_client_certificate(Some(certificate.clone()))),
            Some(Err(Invalid)) => None,
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

    /// The limits with the fleet's certificate; `None` if the fleet must not connect to the service.
    fn rate(&self, rate: &GlobalRate) -> Option<Arc<GlobalRate>> {
        let cluster = self.cluster(&rate.service.cluster)?;
        Some(Arc::new(GlobalRate {
            service: Arc::new(RateService {
                cluster,
                ..RateService::clone(&rate.service)
            }),
            descriptors: rate.descriptors.clone(),
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
        if let Some(policy) = &route.policy
            && let Some(rate) = &policy.global_rate
        {
            let own = self.rate(rate);
            if own.is_none() && !rate.service.fail_open {
                route.action = Action::Respond(503);
            }
            route.policy = Some(Arc::new(RoutePolicy {
                global_rate: own,
                ..RoutePolicy::clone(policy)
            }));
        }
        if let Action::Forward(forward) = &mut route.action {
            let forward = Arc::make_mut(forward);
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

/// Whether connections to a cluster may have a client certificate of the fleet.
pub(crate) fn is_secured(cluster: &ClusterKey) -> bool {
    let tls = cluster.tls();
    tls.is_some_and(|tls| !matches!(tls, TlsSettings::Own | TlsSettings::Plaintext))
}

/// The routes with the fleet's certificate.
pub(crate) fn of_routes(
    reader: &mut Reader<'_>,
    certificates: ClientCertificates,
    fleet: &FleetId,
    mut routes: Vec<Arc<Route>>,
) -> Vec<Arc<Route>> {
    let secured = |route: &Route| route.clusters().any(is_secured);
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
    let secured = checks.iter().any(|auth| is_secured(&auth.cluster));
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
    if target.cluster().is_some_and(is_secured)
        && let Some(certificate) = reader.get(certificates, fleet)
    {
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
    if clusters.any(is_secured)
        && let Some(certificate) = reader.get(certificates, fleet)
    {
        for backend in &mut targets {
            certificate.set_in(&mut backend.target);
        }
    }
    targets
}
