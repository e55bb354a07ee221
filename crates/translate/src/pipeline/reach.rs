//! What leads where: the clusters and certificates that a fleet comes to know of.

use std::collections::BTreeSet;

use sesame_model::{
    Action, CertificateKey, ClusterKey, FleetId, Listener, ListenerKey, ListenerKind, Target,
    VirtualHost, VirtualHostKey,
};

/// The clusters that a host leads to.
pub(super) fn clusters_of(key: &VirtualHostKey, host: &VirtualHost) -> Vec<(FleetId, ClusterKey)> {
    let mut clusters = BTreeSet::new();
    for route in &host.routes {
        if let Action::Forward(forward) = &route.action {
            clusters.extend(forward.mirrors.iter().map(|mirror| &mirror.cluster));
            clusters.extend(
                forward
                    .targets
                    .iter()
                    .filter_map(|target| match &target.target {
                        Target::Cluster(cluster) => Some(cluster),
                        Target::Refused => None,
                    }),
            );
        }
    }
    clusters
        .into_iter()
        .map(|cluster| (key.table.fleet.clone(), cluster.clone()))
        .collect()
}

/// The certificates that a port offers.
pub(super) fn certificates_of(
    key: &ListenerKey,
    listener: &Listener,
) -> Vec<(FleetId, CertificateKey)> {
    match &listener.kind {
        ListenerKind::Http { .. } => Vec::new(),
        ListenerKind::Https { chains } => chains
            .iter()
            .flat_map(|chain| &chain.certificates)
            .map(|certificate| (key.fleet.clone(), certificate.clone()))
            .collect(),
    }
}
