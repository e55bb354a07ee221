use std::sync::Arc;
use std::time::Duration;

use crate::{ClusterKey, HeaderMatch};

/// Rate limits that a service enforces across all Envoys. Only forwarded requests are limited.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalRate {
    /// The service.
    pub service: Arc<RateService>,
    /// The descriptors sent to the service; never empty. A request passes if none of them applies to it.
    pub descriptors: Vec<Arc<RateDescriptor>>,
}

/// A service that implements `envoy.service.ratelimit.v3.RateLimitService`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateService {
    /// Its cluster.
    pub cluster: ClusterKey,
    /// The domain of all descriptors; never empty.
    pub domain: Arc<str>,
    /// The timeout for a call; zero for no timeout.
    pub timeout: Duration,
    /// Whether requests are allowed if the service fails. If false, they get 503.
    pub fail_open: bool,
    /// Whether responses have `X-RateLimit-*` headers.
    pub headers: bool,
    /// Whether rejected gRPC calls get `RESOURCE_EXHAUSTED` instead of `UNAVAILABLE`.
    pub resource_exhausted: bool,
}

/// The entries of a descriptor, in order; never empty. A descriptor applies to requests that have a value for every
/// entry.
pub type RateDescriptor = Vec<RateEntry>;

/// An entry of a descriptor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RateEntry {
    /// A fixed key and value.
    Fixed {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// The value of a header, if the request has it.
    Header {
        /// Its name.
        name: String,
        /// The key.
        key: String,
    },
    /// The key `header_match` and a fixed value, for some requests.
    Matching {
        /// The conditions.
        headers: Vec<HeaderMatch>,
        /// Whether the entry applies to requests that satisfy all conditions; if false, it applies to all other
        /// requests.
        expected: bool,
        /// The value.
        value: String,
    },
    /// The key `remote_address` and the IP address of the client.
    ClientAddress,
}
