//! Settings of the server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use crate::resource::FleetId;

/// Decides whether a stream may join a fleet. Gets the extensions of the request (the peer's address and, over TLS, its
/// certificates) and the fleet that the client claims. The text of an error is sent to the client.
pub type Authorize =
    Arc<dyn Fn(&tonic::Extensions, &FleetId) -> Result<(), String> + Send + Sync + 'static>;

/// Decides from the first request of a stream whether its client supports resource variants.
pub type SupportsVariants = fn(&DeltaDiscoveryRequest) -> bool;

/// Settings of a [`crate::Registry`].
#[derive(Clone, Default)]
pub struct ServerConfig {
    /// Limits on what a client may cost.
    pub limits: Limits,
    /// Which clients may join which fleet. Without it every client may join any fleet: safe only for a Unix socket in a
    /// private directory.
    pub authorize: Option<Authorize>,
    /// Which clients get [variants](crate::Resource::with_variant) of resources; without it none do.
    pub supports_variants: Option<SupportsVariants>,
}

impl fmt::Debug for ServerConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerConfig")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

/// Limits on what a client may cost; the stream of a client that exceeds one is closed. Also the server's delays.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Concurrent streams, over all fleets.
    pub streams: usize,
    /// Concurrent streams that wait for an unknown fleet.
    pub waiting_streams: usize,
    /// Subscribed names, or initial resource versions, per stream and type.
    pub names: usize,
    /// Length of one name, in bytes.
    pub name_bytes: usize,
    /// Size of one request, in bytes. A reconnecting client lists all its resources in one request: some 40 bytes each, plus
    /// the name.
    pub request_bytes: usize,
    /// Size of the node in a request, in bytes. Envoy's lists its extensions: about 60 kB.
    pub node_bytes: usize,
    /// Size at which a response is split, in bytes. A larger resource goes out whole, alone.
    pub response_bytes: usize,
    /// Deadline for the first request of a stream.
    pub first_request_timeout: Duration,
    /// How long listeners and routes wait for the acknowledgement of the clusters they came with. Envoy gives up on a cluster
    /// without endpoints after 15 s.
    pub warming_timeout: Duration,
    /// How long an unreferenced cluster is kept, for requests and retries in flight, and for a reconnecting client that has
    /// not listed its routes yet.
    pub removal_delay: Duration,
    /// How long a removed scope is kept. Envoy drops one at once and answers 404 on connections of listeners that still use it,
    /// until those listeners are replaced and drained.
    pub scope_removal_delay: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            streams: 10_000,
            waiting_streams: 1_000,
            names: 100_000,
            name_bytes: 2_048,
            request_bytes: 16 << 20,
            node_bytes: 1 << 20,
            response_bytes: 1 << 20,
            first_request_timeout: Duration::from_secs(30),
            warming_timeout: Duration::from_secs(20),
            removal_delay: Duration::from_secs(1),
            // Envoy's default drain time.
            scope_removal_delay: Duration::from_secs(600),
        }
    }
}
