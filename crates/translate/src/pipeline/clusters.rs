//! The clusters of backends, and their endpoints.

use std::sync::Arc;

use sesame_api::NamespacedName;
use sesame_engine::{Builder, Table};
use sesame_model::{BackendName, Cluster, ClusterKey, Endpoints, FleetId};

use crate::inputs::Inputs;
use crate::shared::services::{self, Backend};

/// Declares the stages. The clusters that fleets connect to determine the client certificates in use.
pub(super) fn stages(
    b: &mut Builder,
    inputs: &Inputs,
    backends: Table<ClusterKey, Backend>,
    connected: [Table<(FleetId, ClusterKey), ()>; 2],
) -> (Table<ClusterKey, Cluster>, Table<ClusterKey, Endpoints>) {
    let inputs = *inputs;
    let of_cluster = |(_, cluster): &(FleetId, ClusterKey), (): &()| {
        let certificate = cluster.client_certificate();
        Vec::from_iter(certificate.map(|_| cluster.with_client_certificate(None)))
    };
    let [clusters, destinations] = connected;
    let presenting = [
        b.index(
            clusters,
            "fleet's clusters that present a certificate",
            of_cluster,
        ),
        b.index(
            destinations,
            "fleet's destinations that present a certificate",
            of_cluster,
        ),
    ];
    let clusters = b.derive_many("cluster", backends, move |reader, key: &ClusterKey| {
        let Some(backend) = reader.get(backends, key) else {
            return Vec::new();
        };
        backend.clusters(key, |secured| {
            let members = presenting.map(|index| reader.keys(index, secured));
            let members = members.into_iter().flatten();
            members.map(|(_, cluster)| cluster).collect()
        })
    });
    let endpoints = b.derive("endpoints", clusters, move |reader, key: &ClusterKey| {
        let BackendName::ServicePort { service, port } = &key.backend else {
            return None;
        };
        let name = NamespacedName::new(Arc::clone(&key.namespace), Arc::clone(service));
        let service = reader.get(inputs.services, &name)?;
        let port = service.port(*port, key.transport())?;
        let slices = reader.by(inputs.slices_by_service, &name);
        Some(services::endpoints(
            &service,
            port,
            slices.iter().map(|(_, slice)| &**slice),
        ))
    });
    (clusters, endpoints)
}
