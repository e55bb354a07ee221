//! backendRefs → [`Target`]s: permission first, then existence, then whether it can be spoken to.

use std::sync::Arc;

use sesame_api::{BackendObjectReference, HTTPRoute, Kind, NamespacedName, RouteFilter, reason};
use sesame_engine::{Reader, Table};
use sesame_model::{ClusterKey, Target};

use crate::gateway_api::problem::Problem;
use crate::pipeline::Inputs;
use crate::shared::grants;
use crate::shared::services::Backend;

/// Resolves references of one route and gathers what is wrong with them.
pub(super) struct Resolver<'a, 'r> {
    pub(super) reader: &'a mut Reader<'r>,
    pub(super) inputs: &'a Inputs,
    pub(super) backends: Table<ClusterKey, Backend>,
    /// The namespace of the route.
    pub(super) namespace: &'a Arc<str>,
    pub(super) problems: Vec<Problem>,
}

impl Resolver<'_, '_> {
    /// The target of a reference; [`Target::Refused`] if it is wrong or not permitted.
    pub(super) fn target(&mut self, field: &str, reference: &BackendObjectReference) -> Target {
        match self.cluster(reference) {
            Ok(key) => Target::Cluster(key),
            Err(problem) => {
                self.problems.push(Problem::new(
                    problem.reason,
                    format!("{field}: {}", problem.message),
                ));
                Target::Refused
            }
        }
    }

    fn cluster(&mut self, reference: &BackendObjectReference) -> Result<ClusterKey, Problem> {
        if reference.known_kind() != Some(Kind::Service) {
            let group = if reference.group.as_str().is_empty() {
                "core"
            } else {
                reference.group.as_str()
            };
            return Err(Problem::new(
                reason::route::INVALID_KIND,
                format!(
                    "kind {} of group {group} can't be a backend; use a Service",
                    reference.kind
                ),
            ));
        }
        let service = reference.resolve(self.namespace);
        if !grants::permitted(
            self.reader,
            self.inputs,
            Kind::HTTPRoute,
            self.namespace,
            Kind::Service,
            &service,
        ) {
            return Err(Problem::new(
                reason::route::REF_NOT_PERMITTED,
                format!(
                    "no ReferenceGrant in namespace {} lets HTTPRoutes of namespace {} refer to Service {}",
                    service.namespace, self.namespace, service.name
                ),
            ));
        }
        let Some(key) = cluster_key(reference, self.namespace) else {
            return Err(Problem::new(
                reason::route::BACKEND_NOT_FOUND,
                format!("a port of Service {service} must be named"),
            ));
        };
        match self.reader.get(self.backends, &key).as_deref() {
            Some(Backend::Serves(_)) => Ok(key),
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
                format!("Service {service} does not exist"),
            )),
        }
    }
}

/// The cluster that a reference means, if it names a port of a Service.
fn cluster_key(reference: &BackendObjectReference, namespace: &Arc<str>) -> Option<ClusterKey> {
    if reference.known_kind() != Some(Kind::Service) {
        return None;
    }
    let NamespacedName { namespace, name } = reference.resolve(namespace);
    Some(ClusterKey {
        namespace,
        service: name,
        port: reference.port?,
    })
}

/// Every cluster that a route may lead to, permitted or not: for the index of routes by backend.
pub(crate) fn referenced(route: &HTTPRoute) -> Vec<ClusterKey> {
    let namespace = &route.meta.namespace;
    let mirrors = |filters: &[RouteFilter]| -> Vec<ClusterKey> {
        filters
            .iter()
            .filter_map(|filter| match filter {
                RouteFilter::RequestMirror(mirror) => cluster_key(&mirror.backend_ref, namespace),
                _ => None,
            })
            .collect()
    };
    let mut keys = Vec::new();
    for rule in &route.spec.rules {
        keys.extend(mirrors(&rule.filters));
        for backend in &rule.backend_refs {
            keys.extend(cluster_key(&backend.object_reference(), namespace));
            keys.extend(mirrors(&backend.filters));
        }
    }
    keys.sort();
    keys.dedup();
    keys
}
