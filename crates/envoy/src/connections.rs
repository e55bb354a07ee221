//! Network filters that forward connections without reading them.
//!
//! In: a [`ChainTarget`](sesame_model::ChainTarget). Out: the filters of its chain. Where possible, the filters only
//! name a cluster, which is a resource of its own, since changing a chain closes its connections.

use std::time::Duration;

use envoy_types::pb::envoy::config::listener::v3::{Filter, filter};
use envoy_types::pb::envoy::extensions::filters::network::set_filter_state::v3 as state;
use envoy_types::pb::envoy::extensions::filters::network::tcp_proxy::v3 as tcp;
use envoy_types::util::pack_any;
use prost::Name;
use sesame_model::{ListenerKey, ListenerSettings, Target, WeightedBackend};

use tcp::tcp_proxy::weighted_cluster::ClusterWeight;
use tcp::tcp_proxy::{ClusterSpecifier, WeightedCluster};

use crate::{access_log, names, wire};

/// Idle timeout of a connection, longer than the usual lifetime of idle database connections. Without it, connections
/// of vanished clients would stay open forever.
const IDLE: Duration = Duration::from_hours(24);

/// Maximum number of endpoints that Envoy tries before it closes a connection.
const CONNECT_ATTEMPTS: u32 = 3;

/// Filters that forward connections to a cluster, which may not exist.
pub(crate) fn to_cluster(
    key: &ListenerKey,
    settings: &ListenerSettings,
    cluster: String,
) -> Vec<Filter> {
    vec![tcp_proxy(key, settings, ClusterSpecifier::Cluster(cluster))]
}

/// Filters that forward a connection to the destination for its server name, in lowercase.
pub(crate) fn by_server_name(key: &ListenerKey, settings: &ListenerSettings) -> Vec<Filter> {
    // Overrides the TCP proxy's own cluster.
    let cluster = wire::filter_state(
        "envoy.tcp_proxy.cluster",
        names::destination_by_server_name(key),
    );
    let state = state::Config {
        on_new_connection: vec![cluster],
        ..Default::default()
    };
    let mut filters = vec![network_filter(
        "envoy.filters.network.set_filter_state",
        state,
    )];
    filters.extend(to_cluster(key, settings, names::REFUSED.to_owned()));
    filters
}

/// Filters that distribute connections across backends by weight.
pub(crate) fn weighted(
    key: &ListenerKey,
    settings: &ListenerSettings,
    backends: &[WeightedBackend],
) -> Vec<Filter> {
    let clusters = backends.iter().map(|backend| ClusterWeight {
        name: match &backend.target {
            Target::Cluster(cluster) => names::cluster(cluster),
            Target::Refused => names::REFUSED.to_owned(),
        },
        weight: backend.weight,
        ..Default::default()
    });
    let clusters = WeightedCluster {
        clusters: clusters.collect(),
    };
    vec![tcp_proxy(
        key,
        settings,
        ClusterSpecifier::WeightedClusters(clusters),
    )]
}

fn tcp_proxy(key: &ListenerKey, settings: &ListenerSettings, clusters: ClusterSpecifier) -> Filter {
    let proxy = tcp::TcpProxy {
        stat_prefix: names::listener(key),
        cluster_specifier: Some(clusters),
        idle_timeout: Some(wire::duration(IDLE)),
        access_log: access_log::access_log(settings),
        max_connect_attempts: wire::uint32(CONNECT_ATTEMPTS),
        ..Default::default()
    };
    network_filter("envoy.filters.network.tcp_proxy", proxy)
}

fn network_filter(name: &str, config: impl Name) -> Filter {
    Filter {
        name: name.to_owned(),
        config_type: Some(filter::ConfigType::TypedConfig(pack_any(config))),
    }
}
