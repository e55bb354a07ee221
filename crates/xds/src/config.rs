//! Server settings.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::config::core::v3::Node;

use crate::resource::FleetId;

/// Decides whether a stream may join a fleet, given the request's extensions (the peer's address and, over TLS, its
/// certificates) and the fleet that the client claims. The error text is sent to the client.
pub type Authorize =
    Arc<dyn Fn(&tonic::Extensions, &FleetId) -> Result<(), String> + Send + Sync + 'static>;

/// Decides whether a client supports resource variants.
pub type SupportsVariants = fn(&Node) -> bool;

/// Settings for a [`crate::Registry`].
#[derive(Clone, Default)]
pub struct ServerConfig {
    /// Resource limits and delays.
    pub limits: Limits,
    /// Which clients may join which fleet. If `None`, any client may join any fleet: safe only for a Unix socket in a
    /// private directory.
    pub authorize: Option<Authorize>,
    /// Which clients get resource [variants](crate::Resource::with_variant). If `None`, none do.
    pub supports_variants: Option<SupportsVariants>,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Client limits and server delays. A client's stream is closed if it exceeds a limit.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Concurrent streams across all fleets.
    pub streams: usize,
    /// Concurrent streams, and connections over TLS, of a fleet.
    pub fleet_streams: usize,
    /// Concurrent streams waiting for an unknown fleet.
    pub waiting_streams: usize,
    /// Subscribed names, or initial resource versions, per stream and type.
    pub names: usize,
    /// Subscribed names, and initial resource versions, across all streams of a fleet, in addition to what
    /// [`Limits::fleet_streams`] clients need for all of the fleet's resources. A name counts once for each 128 bytes.
    pub fleet_names: usize,
    /// Length of a name, in bytes.
    pub name_bytes: usize,
    /// Size of a request, in bytes. A reconnecting client lists all its resources in one request, at about 40 bytes
    /// each plus the name. Requests of a fleet that haven't been processed have at most as many bytes together, not
    /// counting those below 4 KiB.
    pub request_bytes: usize,
    /// Size of the node in a request, in bytes. Envoy's node lists its extensions and takes about 60 kB.
    pub node_bytes: usize,
    /// Size at which a response is split, in bytes. A resource larger than this gets a response of its own.
    pub response_bytes: usize,
    /// Deadline for the beginning of a stream's first request, and for the rest of a request that has begun; a large
    /// request has more time, at 64 KiB per second.
    pub request_timeout: Duration,
    /// How long listeners and routes wait for an ACK of the clusters in the same update. Envoy stops waiting for a
    /// cluster's endpoints after 15 s.
    pub warming_timeout: Duration,
    /// How long new and changed clusters wait for the first health checks of their endpoints.
    pub check_timeout: Duration,
    /// How long an unreferenced cluster is kept, for in-flight requests and retries, and for a reconnecting client that
    /// has not listed its routes yet.
    pub removal_delay: Duration,
    /// Whether a cluster with this name is removed without that delay: Envoy selects such clusters by a connection's
    /// port or server name, so no route refers to them.
    pub clusters_removed_immediately: fn(&str) -> bool,
    /// How long a removed scope is kept. Envoy drops a scope immediately and answers 404 on connections of listeners
    /// that still use it, until those listeners are replaced and drained.
    pub scope_removal_delay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            streams: 10_000,
            fleet_streams: 1_024,
            waiting_streams: 1_000,
            names: 100_000,
            fleet_names: 64 << 10,
            name_bytes: 2_048,
            request_bytes: 16 << 20,
            node_bytes: 256 << 10,
            response_bytes: 256 << 10,
            request_timeout: Duration::from_secs(30),
            warming_timeout: Duration::from_secs(20),
            check_timeout: Duration::from_millis(250),
            removal_delay: Duration::from_secs(1),
            clusters_removed_immediately: |_| false,
            // Envoy's default drain time.
            scope_removal_delay: Duration::from_secs(600),
        }
    }
}
