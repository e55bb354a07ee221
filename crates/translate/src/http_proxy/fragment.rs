//! The contribution of one HTTPProxy, regardless of where it is included.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use sesame_api::HTTPProxy;
use sesame_engine::Reader;
use sesame_model::{CertificateKey, ClusterKey};

use super::findings::{About, Finding, Findings};
use super::route::{self, OwnRoute};
use super::tcp::{self, TcpTargets};
use super::{clients, default_headers, fallback, host, includes, jwt};
use crate::inputs::Inputs;
use crate::settings::Settings;
use crate::shared::default_fleet::Sources;
use crate::shared::jwks::JwksEntry;

/// The maximum number of clusters of an HTTPProxy.
const MAX_CLUSTERS: usize = 512;

/// The maximum number of its clusters for one Service: each has a copy of the Service's endpoints.
const MAX_OF_SERVICE: usize = 64;

/// The objects that an HTTPProxy refers to, whether or not it may use them.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct References {
    /// The clusters of its Services and of its JWKS servers, up to [`MAX_CLUSTERS`] and [`MAX_OF_SERVICE`].
    pub(super) clusters: Box<[ClusterKey]>,
    /// Whether it has more clusters.
    exceeding: bool,
    /// The certificate of its host.
    pub(super) certificate: Option<CertificateKey>,
    /// The fallback certificate, if the HTTPProxy enables it.
    pub(super) fallback: Option<CertificateKey>,
    /// The CA bundle that verifies its clients.
    pub(super) clients: Option<CertificateKey>,
    /// The CRLs for its clients' certificates.
    pub(super) revoked: Option<CertificateKey>,
    /// The JWKS that it reads from Secrets.
    pub(super) jwks: Box<[JwksEntry]>,
}

/// Reads the references of an HTTPProxy.
pub(super) fn references(
    reader: &mut Reader<'_>,
    inputs: Inputs,
    settings: &Settings,
    proxy: &HTTPProxy,
) -> References {
    // The fragment reports the findings.
    let scratch = &mut Findings::default();
    let mut clusters = BTreeSet::new();
    let mut of_service: HashMap<(Arc<str>, Arc<str>), usize> = HashMap::new();
    let mut exceeding = false;
    let mut add = |cluster: ClusterKey| {
        if clusters.contains(&cluster) {
            return;
        }
        let (namespace, service) = (&cluster.namespace, cluster.backend.object());
        let service = (Arc::clone(namespace), Arc::clone(service));
        let count = of_service.entry(service).or_default();
        if clusters.len() == MAX_CLUSTERS || *count == MAX_OF_SERVICE {
            exceeding = true;
        } else {
            *count += 1;
            clusters.insert(cluster);
        }
    };
    // The routes come last, since only they can have so many.
    if let Some(tcp) = proxy.spec.tcp_proxy.as_deref() {
        let found = tcp::clusters(reader, inputs, proxy, tcp, scratch);
        for key in found.into_iter().flatten() {
            add(tcp::without_tls(&key));
            add(key);
        }
    }
    jwt::clusters(proxy).into_iter().for_each(&mut add);
    for (index, route) in proxy.spec.routes.iter().enumerate() {
        let field = route::field(index);
        let found = route::clusters(reader, inputs, proxy, (&field, route), scratch);
        found.into_iter().flatten().for_each(&mut add);
    }
    References {
        clusters: clusters.into_iter().collect(),
        exceeding,
        certificate: host::certificate(proxy),
        fallback: fallback::certificate(settings, proxy),
        clients: clients::authorities(proxy),
        revoked: clients::revoked(proxy),
        jwks: jwt::entries(proxy).collect(),
    }
}

/// The contribution of an HTTPProxy, without its inclusions.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Fragment {
    /// Its routes, in order, except routes whose conditions don't define which requests match.
    pub(super) routes: Box<[OwnRoute]>,
    /// The size of the instance's default header changes on each route, in bytes.
    pub(super) default_bytes: usize,
    /// The backends for forwarded connections.
    pub(super) tcp: Option<TcpTargets>,
    /// Findings about its own fields, except the host's fields.
    pub(super) findings: Box<[Finding]>,
}

/// Reads a fragment.
pub(super) fn read(
    reader: &mut Reader<'_>,
    of: (Inputs, Sources),
    proxy: &HTTPProxy,
    references: &References,
) -> Fragment {
    let mut findings = Findings::default();
    if references.exceeding {
        let message = format!(
            "the Services with their ports, protocols and policies are more than {MAX_CLUSTERS} different backends, or \
             more than {MAX_OF_SERVICE} of one Service; requests for the others may get 503; divide this HTTPProxy into several"
        );
        findings.error(About::SERVICE, "spec.routes", message);
    }
    let settings = reader.get(of.0.settings, &());
    let namespace = &proxy.meta.namespace;
    let defaults = settings.map(|all| default_headers::of_object(&all.ingress.headers, namespace));
    let defaults = defaults.unwrap_or_default();
    // Without their actions, the routes of an HTTPProxy that exceeds a limit have errors that aren't its author's.
    let mut of_reduced = Findings::default();
    let of_routes = match &proxy.spec.exceeded {
        Some(exceeded) => {
            findings.error(About::SIZE, &exceeded.path_text(), &exceeded.message);
            &mut of_reduced
        }
        None => &mut findings,
    };
    let routes = 0..proxy.spec.routes.len();
    let routes = routes.filter_map(|index| route::read(reader, of, proxy, index, of_routes));
    let mut routes = Vec::from_iter(routes);
    if proxy.spec.exceeded.is_some() && proxy.spec.routes.is_empty() {
        routes.push(OwnRoute::unavailable());
    }
    let routes = routes.into_iter();
    let routes: Box<[OwnRoute]> = routes
        .map(|route| OwnRoute {
            plan: route.plan.with_defaults(&defaults),
            ..route
        })
        .collect();
    repeated(&routes, &mut findings);
    includes::links(proxy, &mut findings);
    let tcp = tcp::read(reader, of, proxy, &mut findings);
    Fragment {
        routes,
        default_bytes: defaults.requests.bytes() + defaults.responses.bytes(),
        tcp,
        findings: findings.list.into(),
    }
}

/// Reports routes that never get requests, since an earlier route has the same conditions.
fn repeated(routes: &[OwnRoute], findings: &mut Findings) {
    let mut seen = HashMap::new();
    for route in routes.iter().filter(|route| !route.partial) {
        let requests = route.conditions.requests();
        let first = *seen.entry(requests).or_insert(route.index);
        if first != route.index {
            let message = format!(
                "the same as the conditions of {}, which takes precedence; change or remove one of the routes",
                route::field(first)
            );
            let field = format!("{}.conditions", route::field(route.index));
            findings.warn(About::OVERLAP, &field, message);
        }
    }
}
