//! The clusters, certificates and trust bundles that each fleet may get: those that its hosts and listeners refer to.

use std::collections::BTreeSet;

use sesame_engine::{Builder, Table};
use sesame_model::{
    CertificateKey, ChainTarget, ClusterKey, FleetId, Listener, ListenerKey, Termination, TlsMode,
    TrustBundleKey, VirtualHost, VirtualHostKey,
};

/// The clusters that fleets connect to: those of hosts and listeners, and those of destinations.
type Connected = [Table<(FleetId, ClusterKey), ()>; 2];

/// Declares the stage for the trust bundles of each fleet.
pub(super) fn trust_bundles(
    b: &mut Builder,
    [clusters, destinations]: Connected,
    listeners: Table<ListenerKey, Listener>,
) -> Table<(FleetId, TrustBundleKey), ()> {
    let of_cluster = |(fleet, cluster): &(FleetId, ClusterKey), (): &()| {
        let bundle = cluster.trust_bundle();
        Vec::from_iter(bundle.map(|bundle| (fleet.clone(), bundle)))
    };
    let by_cluster = b.index(clusters, "fleet's clusters by trust bundle", of_cluster);
    let by_destination = b.index(
        destinations,
        "fleet's destinations by trust bundle",
        of_cluster,
    );
    let by_listener = b.index(listeners, "listeners by trust bundle", trust_bundles_of);
    b.union_keys(
        "fleet's trust bundles",
        [by_cluster.into(), by_destination.into(), by_listener.into()],
    )
}

/// Declares the stage for the certificates of each fleet.
pub(super) fn certificates(
    b: &mut Builder,
    [clusters, destinations]: Connected,
    listeners: Table<ListenerKey, Listener>,
) -> Table<(FleetId, CertificateKey), ()> {
    let of_cluster = |(fleet, cluster): &(FleetId, ClusterKey), (): &()| {
        let certificate = cluster.client_certificate();
        Vec::from_iter(certificate.map(|certificate| (fleet.clone(), certificate.clone())))
    };
    let by_cluster = b.index(clusters, "fleet's clusters by certificate", of_cluster);
    let by_destination = b.index(
        destinations,
        "fleet's destinations by certificate",
        of_cluster,
    );
    let by_listener = b.index(listeners, "listeners by certificate", certificates_of);
    b.union_keys(
        "fleet's certificates",
        [by_listener.into(), by_cluster.into(), by_destination.into()],
    )
}

/// The clusters that a host refers to.
pub(super) fn clusters_of(key: &VirtualHostKey, host: &VirtualHost) -> Vec<(FleetId, ClusterKey)> {
    let clusters: BTreeSet<_> = host.clusters().collect();
    clusters
        .into_iter()
        .map(|cluster| (key.table.fleet.clone(), cluster.clone()))
        .collect()
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
fn certificates_of(key: &ListenerKey, listener: &Listener) -> Vec<(FleetId, CertificateKey)> {
    terminations(listener)
        .flat_map(|termination| &termination.certificates)
        .map(|certificate| (key.fleet.clone(), certificate.clone()))
        .collect()
}

/// The trust bundles that verify a listener's clients.
fn trust_bundles_of(key: &ListenerKey, listener: &Listener) -> Vec<(FleetId, TrustBundleKey)> {
    let bundles: BTreeSet<_> = terminations(listener)
        .filter_map(|termination| Some(&termination.clients.as_ref()?.authorities))
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
        TlsMode::Terminate(termination) => Some(termination),
        TlsMode::Passthrough => None,
    })
}
