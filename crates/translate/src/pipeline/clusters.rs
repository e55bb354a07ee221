//! The clusters of backends, and their endpoints.

use std::sync::Arc;

use sesame_api::{NamespacedName, ObjectKey};
use sesame_engine::{Builder, Table};
use sesame_model::{BackendName, Cluster, ClusterKey, Endpoints, FleetId};

use crate::gateway_api::route::backends;
use crate::gateway_api::xbackend::{self, XBackends};
use crate::gateway_api::{backend_tls, backend_traffic};
use crate::http_proxy::extensions;
use crate::inputs::Inputs;
use crate::shared::authorities::AuthorityState;
use crate::shared::services::{self, Backend, RoutedBackend};

/// Declares the backends of the `referenced` clusters. `targets` contains those with policies.
pub(super) fn backends(
    b: &mut Builder,
    inputs: &Inputs,
    referenced: Table<ClusterKey, ()>,
    (xbackends, authorities): (XBackends, Table<ObjectKey, AuthorityState>),
    (targets, policies, traffic_policies): (
        Table<ObjectKey, ()>,
        backend_tls::Policies,
        backend_traffic::Policies,
    ),
) -> Table<ClusterKey, RoutedBackend> {
    let inputs = *inputs;
    b.derive("backend", referenced, move |reader, key: &ClusterKey| {
        let targeted = reader.exists(targets, &backends::backend_of(key));
        let backend = match &key.backend {
            BackendName::ServicePort { service, port } => {
                let name = NamespacedName::new(key.namespace.clone(), service.clone());
                let service = reader.get(inputs.services, &name);
                let service = service.as_deref();
                let backend = services::backend(key, &name, *port, service);
                let port = service.and_then(|service| service.port(*port, key.transport()));
                match key.tls() {
                    Some(tls) => services::verifiable(reader, authorities, tls, backend),
                    None if targeted => {
                        backend_tls::secured(reader, policies, key, &name, port, backend)
                    }
                    None => backend,
                }
                .keyed_by_tls(key)
            }
            BackendName::XBackend { name } => xbackend::backend(reader, xbackends, key, name),
            BackendName::Host(host) => {
                let backend = Backend::Serves(services::of_host(key, host));
                match key.tls() {
                    Some(tls) => services::verifiable(reader, authorities, tls, backend),
                    None => backend,
                }
            }
            BackendName::ExtensionService { .. } => services::extension(reader, authorities, key),
        };
        let session = xbackend::session(reader, xbackends, key).or_else(|| {
            targeted
                .then(|| backend_traffic::session(reader, traffic_policies, xbackends, key))
                .flatten()
        });
        Some(RoutedBackend { backend, session })
    })
}

/// Declares the stages. The clusters of fleets determine the client certificates in use. `targets` contains the
/// backends with policies: a new retry limit updates the cluster in place, and doesn't change routes.
pub(super) fn stages(
    b: &mut Builder,
    inputs: &Inputs,
    rows: Table<ClusterKey, RoutedBackend>,
    (xbackends, extensions): (XBackends, extensions::Read),
    (targets, policies): (Table<ObjectKey, ()>, backend_traffic::Policies),
    fleet_clusters: Table<(FleetId, ClusterKey), ()>,
) -> (Table<ClusterKey, Cluster>, Table<ClusterKey, Endpoints>) {
    let inputs = *inputs;
    let presenting = b.index(
        fleet_clusters,
        "fleet's clusters that present a certificate",
        |(_, cluster): &(FleetId, ClusterKey), ()| {
            let certificate = cluster.client_certificate();
            let plain = certificate.map(|_| cluster.with_client_certificate(None));
            plain.into_iter().collect()
        },
    );
    let clusters = b.derive_many("cluster", rows, move |reader, key: &ClusterKey| {
        let Some(found) = reader.get(rows, key) else {
            return Vec::new();
        };
        let targeted = reader.exists(targets, &backends::backend_of(key));
        let limit = targeted.then(|| backend_traffic::retries(reader, policies, key));
        let mut clusters = found.backend.clusters(key, |secured| {
            let members = reader.keys(presenting, secured);
            members.into_iter().map(|(_, cluster)| cluster).collect()
        });
        for (_, cluster) in &mut clusters {
            cluster.retries = limit.flatten().filter(|_| cluster.protocol.is_http());
        }
        clusters
    });
    let endpoints = b.derive("endpoints", clusters, move |reader, key: &ClusterKey| {
        let (service, port) = match &key.backend {
            BackendName::ServicePort { service, port } => (service, port),
            BackendName::XBackend { .. } => {
                let xbackend = backends::backend_of(key);
                return xbackend::endpoints(reader, &inputs, xbackends, &xbackend);
            }
            BackendName::Host(_) => return None,
            BackendName::ExtensionService { .. } => {
                let extension = backends::backend_of(key);
                return extensions::endpoints(reader, &inputs, extensions, &extension);
            }
        };
        let name = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(service));
        let service = reader.get(inputs.services, &name)?;
        let port = service.port(*port, key.transport())?;
        let slices = reader.by(inputs.slices_by_service, &name);
        Some(services::endpoints(
            &service,
            port,
            key.health_port(),
            slices.iter().map(|(_, slice)| &**slice),
        ))
    });
    (clusters, endpoints)
}
