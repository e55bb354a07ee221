//! The clusters of backends, and their endpoints.

use std::sync::Arc;

use sesame_api::{NamespacedName, ObjectKey};
use sesame_engine::{Builder, Table};
use sesame_model::{BackendName, Cluster, ClusterKey, Endpoints, FleetId};

use crate::gateway_api::backend_traffic;
use crate::gateway_api::route::backends;
use crate::gateway_api::xbackend::{self, XBackends};
use crate::http_proxy::extensions;
use crate::inputs::Inputs;
use crate::shared::services::{self, RoutedBackend};

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
