//! Names of resources and resource types.
//!
//! In: model keys. Out: names of xDS resources. It must not depend on the contents of resources.
//!
//! A name is unique within its type and fleet, identifies the object in a config dump, and depends only on the key.

use std::fmt::Display;

use sesame_model::{
    CertificateKey, ClusterKey, DestinationKey, ListenerKey, RouteTableKey, TrustBundleKey,
};

/// Type URL of clusters (CDS).
pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Type URL of endpoints (EDS).
pub const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Type URL of certificates and trust bundles (SDS).
pub const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// Type URL of listeners (LDS).
pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Type URL of scopes (SRDS), which map requests to shards of a route table.
pub const SCOPE: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
/// Type URL of route tables (RDS).
pub const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// All resource types of this crate, in dependency order: each type comes before the types that refer to it.
pub const TYPES: [&str; 6] = [CLUSTER, ENDPOINTS, SECRET, LISTENER, SCOPE, ROUTES];

/// A cluster that never exists: requests for it get `RouteAction.cluster_not_found_response_code`, and connections to
/// it are closed. Other cluster names contain a slash.
pub const REFUSED: &str = "refused";

/// `namespace/service:port`, `xbackend:namespace/name`, or `extension:namespace/name`.
pub fn cluster(key: &ClusterKey) -> String {
    key.to_string()
}

/// `service.namespace`: the host in requests that Envoy itself sends to a cluster, since the cluster's name is not a
/// valid host.
pub(crate) fn authority(key: &ClusterKey) -> String {
    format!("{}.{}", key.backend.object(), key.namespace)
}

/// `namespace/name`.
pub fn secret(key: &CertificateKey) -> String {
    key.to_string()
}

/// `ca:namespace/policy`, `ca:xbackend:namespace/name`, `ca:secret:namespace/name`, or `clients:namespace/gateway`.
/// Certificate names don't contain a colon.
pub fn trust_bundle(key: &TrustBundleKey) -> String {
    key.to_string()
}

/// `80`, or `53/udp` for a UDP port.
pub fn listener(key: &ListenerKey) -> String {
    key.name()
}

/// `443/example.com`: the cluster for forwarded connections.
pub fn destination(key: &DestinationKey) -> String {
    key.to_string()
}

/// Whether Envoy selects a cluster by a connection's port or server name, so that no route refers to it. The names of
/// all other clusters contain a colon.
pub fn is_destination(cluster: &str) -> bool {
    !cluster.contains(':')
}

/// The name of the destination for a connection's server name, as a format string.
pub(crate) fn destination_by_server_name(key: &ListenerKey) -> String {
    format!("{}/%REQUESTED_SERVER_NAME%", key.name())
}

/// `53/udp/*`: the cluster for a UDP port.
pub fn datagrams(key: &ListenerKey) -> String {
    format!("{}/*", key.name())
}

/// `80`.
pub fn routes(key: &RouteTableKey) -> String {
    key.name()
}

/// `80#3.17`: shard 17 of the route table `80`, in version 3 of the numbers; `80#3-16.7`, if it has 16 shards instead of
/// all [`sesame_shard::SHARDS`]. Names of whole tables don't contain `#`.
///
/// With a request's number, it is also the name of a scope and the value of the shard header, since an Envoy's listeners
/// share all scopes.
pub fn shard(key: &RouteTableKey, shards: u32, number: impl Display) -> String {
    let (table, version) = (routes(key), sesame_shard::VERSION);
    match shards {
        sesame_shard::SHARDS => format!("{table}#{version}.{number}"),
        shards => format!("{table}#{version}-{shards}.{number}"),
    }
}
