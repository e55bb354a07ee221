//! The clusters, certificates and trust bundles that each fleet may get: those that its hosts and listeners refer to.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_engine::{Builder, Keys, Table};
use sesame_model::{
    Certificate, CertificateKey, ChainTarget, ClusterKey, FleetId, Listener, ListenerKey, Route,
    Termination, TlsMode, TrustBundleKey, VirtualHost, VirtualHostKey,
};

use crate::shared::certificates::CertificateState;

/// The clusters that a host refers to.
fn clusters_of(key: &VirtualHostKey, host: &VirtualHost) -> Vec<(FleetId, ClusterKey)> {
    let clusters: BTreeSet<_> = host.clusters().collect();
    clusters
        .into_iter()
        .map(|cluster| (key.table.fleet.clone(), cluster.clone()))
        .collect()
}

/// Declares the clusters of hosts. Most changes of a host affect few of its clusters.
pub(super) fn hosts_by_cluster(
    b: &mut Builder,
    hosts: Table<VirtualHostKey, VirtualHost>,
) -> Keys<(FleetId, ClusterKey)> {
    b.index_keys(
        hosts,
        "virtual hosts by cluster",
        clusters_of,
        changed_clusters_of,
    )
}

/// The clusters that only the old version of a host refers to, and those that only the new one does. The routes at the
/// start and at the end of the list, which both versions share, are searched only if the clusters of the others differ.
fn changed_clusters_of(
    key: &VirtualHostKey,
    old: &VirtualHost,
    new: &VirtualHost,
) -> [Vec<(FleetId, ClusterKey)>; 2] {
    let pairs = old.routes.iter().zip(&new.routes);
    let start = pairs.take_while(|(old, new)| Arc::ptr_eq(old, new)).count();
    let pairs = old.routes[start..].iter().rev();
    let pairs = pairs.zip(new.routes[start..].iter().rev());
    let end = pairs.take_while(|(old, new)| Arc::ptr_eq(old, new)).count();
    let (old_end, new_end) = (old.routes.len() - end, new.routes.len() - end);
    let of_old: BTreeSet<_> = clusters(&old.routes[start..old_end])
        .chain(old.clusters_of_checks())
        .collect();
    let of_new: BTreeSet<_> = clusters(&new.routes[start..new_end])
        .chain(new.clusters_of_checks())
        .collect();
    let mut changed: BTreeSet<_> = of_old.symmetric_difference(&of_new).copied().collect();
    for route in old.routes[..start].iter().chain(&old.routes[old_end..]) {
        if changed.is_empty() {
            break;
        }
        route.clusters().for_each(|cluster| {
            changed.remove(cluster);
        });
    }
    [of_old, of_new].map(|of_one| {
        let only = of_one.intersection(&changed);
        only.map(|cluster| (key.table.fleet.clone(), (*cluster).clone()))
            .collect()
    })
}

fn clusters(routes: &[Arc<Route>]) -> impl Iterator<Item = &ClusterKey> {
    routes.iter().flat_map(|route| route.clusters())
}

/// The clusters that a listener forwards connections to, and the one that gets its spans.
pub(super) fn listener_clusters_of(
    key: &ListenerKey,
    listener: &Listener,
) -> Vec<(FleetId, ClusterKey)> {
    let targets = listener
        .chains
        .iter()
        .flat_map(|chain| match &chain.target {
            ChainTarget::Weighted(targets) => &targets[..],
            ChainTarget::Http(_)
            | ChainTarget::Destination
            | ChainTarget::DestinationByServerName => &[],
        });
    let collector = listener.tracing.iter().map(|tracing| &tracing.collector);
    let targets = targets.map(|backend| &backend.target).chain(collector);
    let clusters: BTreeSet<_> = targets.filter_map(|target| target.cluster()).collect();
    clusters
        .into_iter()
        .map(|cluster| (key.fleet.clone(), cluster.clone()))
        .collect()
}

/// The certificates that a listener presents.
pub(super) fn certificates_of(
    key: &ListenerKey,
    listener: &Listener,
) -> Vec<(FleetId, CertificateKey)> {
    let certificates: BTreeSet<_> = terminations(listener)
        .flat_map(|termination| &termination.certificates)
        .collect();
    certificates
        .into_iter()
        .map(|certificate| (key.fleet.clone(), certificate.clone()))
        .collect()
}

/// The trust bundles that verify a listener's clients.
pub(super) fn trust_bundles_of(
    key: &ListenerKey,
    listener: &Listener,
) -> Vec<(FleetId, TrustBundleKey)> {
    let bundles: BTreeSet<_> = terminations(listener)
        .filter_map(|termination| termination.clients.as_ref()?.authorities.as_ref())
        .collect();
    bundles
        .into_iter()
        .map(|bundle| (key.fleet.clone(), bundle.clone()))
        .collect()
}

/// How the chains of a listener terminate TLS.
fn terminations(listener: &Listener) -> impl Iterator<Item = &Termination> {
    let chains = listener.chains.iter();
    chains.filter_map(|chain| match &chain.tls.as_ref()?.mode {
        TlsMode::Terminate(termination) => Some(&**termination),
        TlsMode::Passthrough => None,
    })
}

/// Declares the valid certificates.
pub(super) fn valid_certificates(
    b: &mut Builder,
    states: Table<CertificateKey, CertificateState>,
) -> Table<CertificateKey, Certificate> {
    b.derive("certificate", states, move |reader, key| {
        match &*reader.get(states, key)? {
            CertificateState::Valid { certificate, .. } => Some(certificate.clone()),
            CertificateState::Missing | CertificateState::Invalid(_) => None,
        }
    })
}
