//! backendRefs → [`Target`]s: checks permission first, then existence, then the protocol.

use std::sync::Arc;

use sesame_api::{
    BackendObjectReference, BackendRef, Kind, NamespacedName, ObjectKey, RouteFilter, reason,
};
use sesame_engine::{Reader, Table};
use sesame_model::{ClusterKey, ClusterPolicy, Target};

use crate::problem::Problem;
use crate::shared::grants::{self, Grants, Referrer};
use crate::shared::services::Backend;

/// The cluster policy for a kind of route.
pub(crate) type Policy<'a> = Option<&'a Arc<ClusterPolicy>>;

/// The tables needed to resolve references.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    pub(crate) grants: Grants,
    pub(crate) backends: Table<ClusterKey, Backend>,
}

/// The targets of a valid reference.
pub(crate) struct Targets {
    /// For requests, and for connections that Sesame reads or has decrypted.
    pub(crate) usual: Target,
    /// For connections that are encrypted for the backend: the Service's TLS policy doesn't apply.
    pub(crate) passthrough: Target,
}

/// Resolves the references of one route or policy and collects errors.
pub(crate) struct Resolver<'a, 'r> {
    reader: &'a mut Reader<'r>,
    sources: Sources,
    referrer: Referrer<'a>,
    policy: Policy<'a>,
    pub(crate) problems: Vec<Problem>,
}

impl<'a, 'r> Resolver<'a, 'r> {
    /// A resolver for the references of an object.
    pub(crate) fn new(
        reader: &'a mut Reader<'r>,
        sources: Sources,
        of: &'a ObjectKey,
        policy: Policy<'a>,
    ) -> Self {
        Self {
            reader,
            sources,
            referrer: Referrer {
                kind: of.kind,
                namespace: &of.namespace,
            },
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
        self.resolve(reference).unwrap_or_else(|problem| {
            self.problems.push(Problem::new(
                problem.reason,
                format!("{field}: {}", problem.message),
            ));
            Targets {
                usual: Target::Refused,
                passthrough: Target::Refused,
            }
        })
    }

    /// The cluster of a valid and permitted reference, whether or not its Service exists.
    pub(crate) fn permitted(
        &mut self,
        reference: &BackendObjectReference,
    ) -> Result<ClusterKey, Problem> {
        if reference.known_kind() != Some(Kind::Service) {
            let group = reference.group.or_core();
            return Err(Problem::new(
                reason::route::INVALID_KIND,
                format!(
                    "kind {} in group {group} is not supported as a backend; use a Service",
                    reference.kind
                ),
            ));
        }
        let Referrer { kind, namespace } = self.referrer;
        let service = reference.resolve(namespace);
        if !grants::permitted(
            self.reader,
            self.sources.grants,
            self.referrer,
            Kind::Service,
            &service,
        ) {
            return Err(Problem::new(
                reason::route::REF_NOT_PERMITTED,
                format!(
                    "no ReferenceGrant in namespace {} allows {} in namespace {namespace} to reference Service {}",
                    service.namespace,
                    several(kind),
                    service.name
                ),
            ));
        }
        cluster_key(reference, namespace, self.policy).ok_or_else(|| {
            Problem::new(
                reason::route::BACKEND_NOT_FOUND,
                format!("port is required; set it to a port of Service {service}"),
            )
        })
    }

    fn resolve(&mut self, reference: &BackendObjectReference) -> Result<Targets, Problem> {
        let key = self.permitted(reference)?;
        match self.reader.get(self.sources.backends, &key).as_deref() {
            Some(Backend::Serves(_)) => Ok(Targets {
                usual: Target::Cluster(key.clone()),
                passthrough: Target::Cluster(key),
            }),
            Some(Backend::Secured(secured)) => Ok(Targets {
                usual: Target::Cluster(secured.0.clone()),
                passthrough: Target::Cluster(key),
            }),
            // The status of the policy says why.
            Some(Backend::Refused) => Ok(Targets {
                usual: Target::Refused,
                passthrough: Target::Cluster(key),
            }),
            Some(Backend::UnsupportedProtocol(message)) => Err(Problem::new(
                reason::route::UNSUPPORTED_PROTOCOL,
                message.clone(),
            )),
            Some(Backend::NotFound(message)) => Err(Problem::new(
                reason::route::BACKEND_NOT_FOUND,
                message.clone(),
            )),
            None => Err(Problem::new(
                reason::route::BACKEND_NOT_FOUND,
                format!("Service {}/{} does not exist", key.namespace, key.service),
            )),
        }
    }
}

/// The plural of a kind's name.
fn several(kind: Kind) -> String {
    match kind.as_str().strip_suffix("cy") {
        Some(stem) => format!("{stem}cies"),
        None => format!("{kind}s"),
    }
}

/// The cluster for a reference of an object in `namespace`, if it names a port of a Service.
pub(crate) fn cluster_key(
    reference: &BackendObjectReference,
    namespace: &Arc<str>,
    policy: Policy<'_>,
) -> Option<ClusterKey> {
    if reference.known_kind() != Some(Kind::Service) {
        return None;
    }
    let NamespacedName { namespace, name } = reference.resolve(namespace);
    Some(ClusterKey {
        namespace,
        service: name,
        port: reference.port?,
        policy: policy.cloned(),
    })
}

/// All clusters that a rule refers to, permitted or not: its backends, their mirrors, and the rule's own mirrors.
pub(crate) fn referenced(
    filters: &[RouteFilter],
    backend_refs: &[BackendRef],
    namespace: &Arc<str>,
    policy: Policy<'_>,
) -> Vec<ClusterKey> {
    let of_backends = backend_refs.iter().map(BackendRef::object_reference);
    let filters = backend_refs
        .iter()
        .flat_map(|backend| &backend.filters)
        .chain(filters);
    let of_mirrors = filters.filter_map(|filter| match filter {
        RouteFilter::RequestMirror(mirror) => Some(mirror.backend_ref.clone()),
        _ => None,
    });
    of_backends
        .chain(of_mirrors)
        .filter_map(|reference| cluster_key(&reference, namespace, policy))
        .collect()
}
