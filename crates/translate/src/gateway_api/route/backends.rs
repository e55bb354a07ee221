//! backendRefs → [`Target`]s: checks permission first, then existence, then the protocol.

use std::sync::Arc;

use sesame_api::{
    BackendObjectReference, BackendRef, ExternalAuth, ExternalAuthProtocol, Kind, NamespacedName,
    ObjectKey, RouteFilter, reason,
};
use sesame_engine::{Reader, Table};
use sesame_model::{BackendName, ClusterKey, ClusterPolicy, Protocol, Session, Target};

use crate::problem::Problem;
use crate::shared::grants::{self, Grants, Referrer};
use crate::shared::services::{Backend, RoutedBackend};

/// The cluster policy for a kind of route.
pub(crate) type Policy<'a> = Option<&'a Arc<ClusterPolicy>>;

/// The tables needed to resolve references.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    pub(crate) grants: Grants,
    pub(crate) backends: Table<ClusterKey, RoutedBackend>,
}

/// The targets of a valid reference.
pub(crate) struct Targets {
    /// For requests, and for connections except TLS passthrough.
    pub(crate) usual: Target,
    /// For TLS passthrough: the backend's TLS settings don't apply.
    pub(crate) passthrough: Target,
    /// Session persistence for requests to the backend.
    pub(crate) session: Option<Arc<Session>>,
}

impl Targets {
    const REFUSED: Self = Self {
        usual: Target::Refused,
        passthrough: Target::Refused,
        session: None,
    };
}

/// Resolves the references of one object and collects errors.
pub(crate) struct Resolver<'a, 'r> {
    reader: &'a mut Reader<'r>,
    sources: Sources,
    referrer: Referrer<'a>,
    policy: Policy<'a>,
    pub(crate) problems: Vec<Problem>,
}

impl<'a, 'r> Resolver<'a, 'r> {
    /// A resolver for an object.
    pub(crate) fn new(
        reader: &'a mut Reader<'r>,
        sources: Sources,
        referrer: Referrer<'a>,
        policy: Policy<'a>,
    ) -> Self {
        Self {
            reader,
            sources,
            referrer,
            policy,
            problems: Vec::new(),
        }
    }

    /// The target of a reference; [`Target::Refused`] if it is invalid or not permitted.
    pub(crate) fn target(&mut self, field: &str, reference: &BackendObjectReference) -> Target {
        self.targets(field, reference).usual
    }

    /// Like [`Resolver::target`], for all kinds of connections.
    pub(crate) fn targets(&mut self, field: &str, reference: &BackendObjectReference) -> Targets {
        self.checked(field, reference, self.policy)
    }

    /// The target of a reference to an authorization service.
    pub(crate) fn auth_service(&mut self, field: &str, auth: &ExternalAuth) -> Target {
        let policy = auth_policy(auth);
        let field = format!("{field}.backendRef");
        self.service(&field, &auth.backend_ref, policy.as_ref())
    }

    /// The target of a reference for Envoy's own requests. Their Host is the Service's name, which an external host
    /// doesn't serve.
    pub(crate) fn service(
        &mut self,
        field: &str,
        reference: &BackendObjectReference,
        policy: Policy<'_>,
    ) -> Target {
        if reference.known_kind() == Some(Kind::XBackend) {
            self.problems.push(Problem::new(
                reason::route::INVALID_KIND,
                format!("{field}: an XBackend is not supported here; use a Service"),
            ));
            return Target::Refused;
        }
        self.checked(field, reference, policy).usual
    }

    fn checked(
        &mut self,
        field: &str,
        reference: &BackendObjectReference,
        policy: Policy<'_>,
    ) -> Targets {
        self.resolve(reference, policy).unwrap_or_else(|problem| {
            self.problems.push(Problem::new(
                problem.reason(),
                format!("{field}: {}", problem.message()),
            ));
            Targets::REFUSED
        })
    }

    /// The cluster of a valid and permitted reference, whether or not its backend exists.
    pub(crate) fn permitted(
        &mut self,
        reference: &BackendObjectReference,
        policy: Policy<'_>,
    ) -> Result<ClusterKey, Problem> {
        let Some(kind @ (Kind::Service | Kind::XBackend)) = reference.known_kind() else {
            let group = reference.group.or_core();
            return Err(Problem::new(
                reason::route::INVALID_KIND,
                format!(
                    "kind {} in group {group} is not supported as a backend; use a Service",
                    reference.kind
                ),
            ));
        };
        let namespace = self.referrer.namespace;
        let backend = reference.resolve(namespace).of_kind(kind);
        if !permitted(self.reader, self.sources.grants, self.referrer, &backend) {
            let referrers = several(self.referrer.kind);
            let message = match kind {
                Kind::XBackend => format!(
                    "XBackends in other namespaces cannot be used as backends; create an XBackend in namespace {namespace}"
                ),
                _ => format!(
                    "no ReferenceGrant in namespace {} allows {referrers} in namespace {namespace} to reference \
                     Service {}",
                    backend.namespace, backend.name
                ),
            };
            return Err(Problem::new(reason::route::REF_NOT_PERMITTED, message));
        }
        cluster_key(reference, namespace, policy).ok_or_else(|| {
            Problem::new(
                reason::route::BACKEND_NOT_FOUND,
                format!(
                    "port is required; set it to a port of Service {}",
                    backend.namespaced_name()
                ),
            )
        })
    }

    fn resolve(
        &mut self,
        reference: &BackendObjectReference,
        policy: Policy<'_>,
    ) -> Result<Targets, Problem> {
        let key = self.permitted(reference, policy)?;
        let found = self.reader.get(self.sources.backends, &key);
        let session = found.as_ref().and_then(|found| found.session.clone());
        match found.as_deref().map(|found| &found.backend) {
            Some(Backend::Serves(_)) => Ok(Targets {
                usual: Target::Cluster(key.clone()),
                passthrough: Target::Cluster(key),
                session,
            }),
            Some(Backend::Secured(secured)) => Ok(Targets {
                usual: Target::Cluster(secured.0.clone()),
                passthrough: Target::Cluster(key),
                session,
            }),
            // The policy's status has the reason.
            Some(Backend::Refused(_)) => Ok(Targets {
                usual: Target::Refused,
                passthrough: Target::Cluster(key),
                session: None,
            }),
            // The XBackend's status has the reason.
            Some(Backend::Invalid) => Ok(Targets::REFUSED),
            Some(Backend::UnsupportedProtocol(message)) => Err(Problem::new(
                reason::route::UNSUPPORTED_PROTOCOL,
                message.clone(),
            )),
            Some(Backend::NotFound(message)) => Err(Problem::new(
                reason::route::BACKEND_NOT_FOUND,
                message.clone(),
            )),
            None => Err(Problem::new(reason::route::BACKEND_NOT_FOUND, {
                let backend = backend_of(&key);
                format!(
                    "{} {} does not exist",
                    backend.kind,
                    backend.namespaced_name()
                )
            })),
        }
    }
}

/// Whether a route may refer to a backend. An XBackend defines how its own namespace connects to a destination, so
/// routes in other namespaces may not refer to it (GEP-4894).
pub(crate) fn permitted(
    reader: &mut Reader<'_>,
    grants: Grants,
    referrer: Referrer<'_>,
    backend: &ObjectKey,
) -> bool {
    match backend.kind {
        Kind::XBackend => *referrer.namespace == backend.namespace,
        kind => grants::permitted(reader, grants, referrer, kind, &backend.namespaced_name()),
    }
}

/// The Service, XBackend or ExtensionService of a cluster. For the cluster of a host, the key of an object that can't
/// exist.
pub(crate) fn backend_of(cluster: &ClusterKey) -> ObjectKey {
    let kind = match &cluster.backend {
        BackendName::ServicePort { .. } => Kind::Service,
        BackendName::XBackend { .. } => Kind::XBackend,
        // No object has this name: it contains a colon.
        BackendName::Host(host) => {
            let namespace = Arc::clone(&cluster.namespace);
            return ObjectKey::new(Kind::XBackend, namespace, host.to_string());
        }
        BackendName::ExtensionService { .. } => Kind::ExtensionService,
    };
    let name = Arc::clone(cluster.backend.object());
    ObjectKey::new(kind, Arc::clone(&cluster.namespace), name)
}

/// The plural of a kind's name.
fn several(kind: Kind) -> String {
    match kind.as_str().strip_suffix("cy") {
        Some(stem) => format!("{stem}cies"),
        None => format!("{kind}s"),
    }
}

/// The cluster for a reference, if it names a port of a Service or an XBackend.
pub(crate) fn cluster_key(
    reference: &BackendObjectReference,
    namespace: &Arc<str>,
    policy: Policy<'_>,
) -> Option<ClusterKey> {
    let NamespacedName { namespace, name } = reference.resolve(namespace);
    let backend = match reference.known_kind()? {
        Kind::Service => BackendName::ServicePort {
            service: name,
            port: reference.port?,
        },
        Kind::XBackend => BackendName::XBackend { name },
        _ => return None,
    };
    Some(ClusterKey {
        namespace,
        backend,
        policy: policy.cloned(),
    })
}

/// The policy for clusters of gRPC services: HTTP/2, with or without TLS, whatever the Service's appProtocol.
pub(crate) fn grpc_policy() -> Arc<ClusterPolicy> {
    Arc::new(ClusterPolicy {
        protocol: Some(Protocol::Http2),
        ..ClusterPolicy::default()
    })
}

fn auth_policy(auth: &ExternalAuth) -> Option<Arc<ClusterPolicy>> {
    (auth.protocol == ExternalAuthProtocol::Grpc).then(grpc_policy)
}

/// The cluster of an authorization service, permitted or not.
pub(crate) fn auth_cluster(auth: &ExternalAuth, namespace: &Arc<str>) -> Option<ClusterKey> {
    cluster_key(&auth.backend_ref, namespace, auth_policy(auth).as_ref())
}

/// All clusters that a rule refers to, permitted or not: those of its backends and of all filters.
pub(crate) fn referenced(
    filters: &[RouteFilter],
    backend_refs: &[BackendRef],
    namespace: &Arc<str>,
    policy: Policy<'_>,
) -> Vec<ClusterKey> {
    let of_backends = backend_refs
        .iter()
        .filter_map(|backend| cluster_key(&backend.object_reference(), namespace, policy));
    let filters = backend_refs
        .iter()
        .flat_map(|backend| &backend.filters)
        .chain(filters);
    let of_filters = filters.filter_map(|filter| match filter {
        RouteFilter::RequestMirror(mirror) => cluster_key(&mirror.backend_ref, namespace, policy),
        RouteFilter::ExternalAuth(auth) => auth_cluster(auth, namespace),
        _ => None,
    });
    of_backends.chain(of_filters).collect()
}
