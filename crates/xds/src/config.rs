//! What the operator of the server may set: limits and who may be in which fleet.
//!
//! In: numbers and a hook. Out: the same, with defaults. It must not know: how they are kept.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use envoy_types::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;

use crate::resource::FleetId;

/// Decides whether a stream may belong to a fleet. It is given the extensions of the request (which
/// hold the peer's address and, over TLS, its certificates) and the fleet that the client claims;
/// an error's text is sent to the client.
pub type Authorize =
    Arc<dyn Fn(&tonic::Extensions, &FleetId) -> Result<(), String> + Send + Sync + 'static>;

/// Whether the client of this first request takes variants of resources.
pub type TakesVariants = fn(&DeltaDiscoveryRequest) -> bool;

/// Settings of a [`crate::Registry`].
#[derive(Clone, Default)]
pub struct Config {
    /// Bounds on what clients may cost.
    pub limits: Limits,
    /// Who may be in which fleet; without it anybody who can connect may claim any fleet, which is
    /// right for a Unix socket in a private directory and for nothing else.
    pub authorize: Option<Authorize>,
    /// Which clients get [variants](crate::Resource::with_variant) of resources that have some; without it none does.
    pub takes_variants: Option<TakesVariants>,
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("limits", &self.limits)
            .field("authorize", &self.authorize.is_some())
            .field("takes_variants", &self.takes_variants.is_some())
            .finish()
    }
}

/// Bounds on what clients may cost. A client that goes beyond one has its stream ended.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Streams at the same time, of all fleets.
    pub streams: usize,
    /// Streams at the same time whose fleet is not known yet.
    pub waiting_streams: usize,
    /// Names that one stream may be subscribed to, or claim to have, of one type.
    pub names: usize,
    /// Length of one name, in bytes.
    pub name_bytes: usize,
    /// Size of one request, in bytes. A reconnecting client lists all it has in one request, at
    /// some 40 bytes a resource beside the name.
    pub request_bytes: usize,
    /// Size of the node in a request, in bytes. Envoy's own lists its extensions: about 60 kB.
    pub node_bytes: usize,
    /// Size at which a response is split, in bytes. A single larger resource still goes out whole.
    pub response_bytes: usize,
    /// How long a client has to say who it is.
    pub first_request: Duration,
    /// How long listeners and routes wait for a client's acknowledgement of the clusters they came
    /// with. Envoy gives up on a cluster that doesn't get its endpoints after 15 s.
    pub warming: Duration,
    /// How long a cluster that nothing refers to any more is kept: for requests and retries that are
    /// still under way, and for a client that comes again to tell which routes it has.
    pub removal_grace: Duration,
    /// How long scopes stay that are to go. A client forgets one at once, and answers 404 on connections of a listener that still
    /// follows it: until another has taken its place, and until those connections are drained.
    pub scope_grace: Duration,
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
            first_request: Duration::from_secs(30),
            warming: Duration::from_secs(20),
            removal_grace: Duration::from_secs(1),
            // As long as Envoy drains unless told otherwise.
            scope_grace: Duration::from_secs(600),
        }
    }
}
