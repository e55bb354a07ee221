//! Names of resources and of their types.
//!
//! In: keys of the model. Out: the names by which Envoys ask. It must not know what the resources contain.
//!
//! A name is unique within its type and fleet, says to a reader of an Envoy's dump which object is meant, and doesn't
//! change while the key doesn't.

use std::fmt::Display;

use sesame_model::{CertificateKey, ClusterKey, ListenerKey, RouteTableKey};

/// Type URL of clusters (CDS).
pub const CLUSTER: &str = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
/// Type URL of endpoints (EDS).
pub const ENDPOINTS: &str = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment";
/// Type URL of certificates (SDS).
pub const SECRET: &str = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret";
/// Type URL of listeners (LDS).
pub const LISTENER: &str = "type.googleapis.com/envoy.config.listener.v3.Listener";
/// Type URL of scopes (SRDS): which shard of a route table is for which requests.
pub const SCOPE: &str = "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration";
/// Type URL of route tables (RDS).
pub const ROUTES: &str = "type.googleapis.com/envoy.config.route.v3.RouteConfiguration";

/// All types that this crate makes, in the order in which an Envoy needs them: what is named by later ones first.
pub const TYPES: [&str; 6] = [CLUSTER, ENDPOINTS, SECRET, LISTENER, SCOPE, ROUTES];

/// A cluster that never exists: who is sent there gets the status of
/// `RouteAction.cluster_not_found_response_code`. No cluster's own name lacks the slash.
pub const REFUSED: &str = "refused";

/// `namespace/service:port`.
pub fn cluster(key: &ClusterKey) -> String {
    key.to_string()
}

/// `namespace/name`.
pub fn secret(key: &CertificateKey) -> String {
    key.to_string()
}

/// The port as the Gateway names it.
pub fn listener(key: &ListenerKey) -> String {
    key.port.to_string()
}

/// `80`, or `443/web` for the TLS listener `web`.
pub fn routes(key: &RouteTableKey) -> String {
    key.name()
}

/// `80#17`: the shard 17 of the route table `80`. No table's own name has a `#`. Scopes, and what a request says of its
/// shard, are called the same, since the listeners of an Envoy share all scopes.
pub fn shard(key: &RouteTableKey, number: impl Display) -> String {
    format!("{}#{number}", routes(key))
}
