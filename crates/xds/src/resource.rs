//! Resources and resource types.

use std::fmt;
use std::sync::Arc;

use prost::bytes::Bytes;

/// A resource type that the server supports, in sending order: cluster changes are sent first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// Cluster discovery (CDS).
    Cluster,
    /// Endpoint discovery (EDS). A cluster's endpoints are named after the service name in its `eds_cluster_config`, or
    /// else after the cluster.
    Endpoint,
    /// Secret discovery (SDS).
    Secret,
    /// Listener discovery (LDS).
    Listener,
    /// Scoped route discovery (SRDS).
    ScopedRoute,
    /// Route discovery (RDS).
    Route,
}

/// The rank of [`ResourceType::Cluster`] in the removal order.
pub(crate) const CLUSTER_REMOVAL_RANK: u8 = 2;

impl ResourceType {
    /// All types, in sending order.
    pub const ALL: [ResourceType; 6] = [
        ResourceType::Cluster,
        ResourceType::Endpoint,
        ResourceType::Secret,
        ResourceType::Listener,
        ResourceType::ScopedRoute,
        ResourceType::Route,
    ];

    /// The type URL, as in `google.protobuf.Any`.
    pub const fn type_url(self) -> &'static str {
        match self {
            ResourceType::Cluster => "type.googleapis.com/envoy.config.cluster.v3.Cluster",
            ResourceType::Endpoint => {
                "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
            }
            ResourceType::Secret => {
                "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret"
            }
            ResourceType::Listener => "type.googleapis.com/envoy.config.listener.v3.Listener",
            ResourceType::ScopedRoute => {
                "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration"
            }
            ResourceType::Route => "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
        }
    }

    /// The type with this URL, if the server supports it.
    pub fn from_type_url(url: &str) -> Option<ResourceType> {
        Self::ALL.into_iter().find(|ty| ty.type_url() == url)
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    /// Whether a first request without names is a wildcard subscription (the legacy wildcard of the xDS protocol).
    pub(crate) const fn legacy_wildcard(self) -> bool {
        matches!(
            self,
            ResourceType::Cluster | ResourceType::Listener | ResourceType::ScopedRoute
        )
    }

    /// Whether every Envoy subscribes to this type at startup, rather than when a resource refers to it.
    pub(crate) const fn is_root(self) -> bool {
        matches!(self, ResourceType::Cluster | ResourceType::Listener)
    }

    /// Whether new content may refer to clusters and therefore waits for their ACK. Secrets don't wait: without its
    /// secret, a cluster doesn't warm and isn't acknowledged.
    pub(crate) const fn waits_for_clusters(self) -> bool {
        matches!(
            self,
            ResourceType::Listener | ResourceType::ScopedRoute | ResourceType::Route
        )
    }

    /// Removals of a type wait for the removals of all lower-ranked types.
    pub(crate) const fn removal_rank(self) -> u8 {
        match self {
            ResourceType::Listener => 0,
            ResourceType::Route => 1,
            ResourceType::Cluster => CLUSTER_REMOVAL_RANK,
            // Scopes are last: nothing should wait for their removal delay.
            ResourceType::Endpoint | ResourceType::Secret | ResourceType::ScopedRoute => {
                CLUSTER_REMOVAL_RANK + 1
            }
        }
    }
}

/// A short name: `cluster`, `endpoint`, `route`…
impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ResourceType::Cluster => "cluster",
            ResourceType::Endpoint => "endpoint",
            ResourceType::Secret => "secret",
            ResourceType::Listener => "listener",
            ResourceType::ScopedRoute => "scoped route",
            ResourceType::Route => "route",
        })
    }
}

/// The version of a resource: the XXH3-128 hash of its bytes, 32 hex digits on the wire.
///
/// The same bytes have the same version in every process, so a client that reconnects to another replica is sent only
/// the differences.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u128);

impl Version {
    /// Represents a client's unknown version. Differs from every resource's version (a resource that hashes to zero
    /// would cost one superfluous response).
    pub(crate) const UNKNOWN: Version = Version(0);

    /// The version of these bytes.
    pub fn of(body: &[u8]) -> Version {
        Version(xxhash_rust::xxh3::xxh3_128(body))
    }

    /// Parses the output of [`fmt::Display`]; any other text gives [`Version::UNKNOWN`].
    pub(crate) fn parse(text: &str) -> Version {
        let ours = text.len() == 32 && text.bytes().all(|b| b.is_ascii_hexdigit());
        match u128::from_str_radix(text, 16) {
            Ok(hash) if ours => Version(hash),
            _ => Version::UNKNOWN,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

/// A resource: its name, version and encoded bytes. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    name: Arc<str>,
    version: Version,
    body: Bytes,
    /// Boxed because few resources have one.
    variant: Option<Box<Bytes>>,
}

impl Resource {
    /// A resource from its encoded message, the `value` of its `google.protobuf.Any`.
    pub fn new(name: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Resource {
        let body = body.into();
        Resource {
            name: name.into(),
            version: Version::of(&body),
            body,
            variant: None,
        }
    }

    /// Adds a body for clients that [support variants](crate::ServerConfig::supports_variants).
    pub fn with_variant(self, variant: impl Into<Bytes>) -> Resource {
        let variant = variant.into();
        let both = [self.version, Version::of(&variant)].map(|version| version.0.to_be_bytes());
        Resource {
            version: Version::of(both.as_flattened()),
            variant: Some(Box::new(variant)),
            ..self
        }
    }

    /// The same version with another encoding of its content, without a variant.
    pub(crate) fn with_body(&self, body: impl Into<Bytes>) -> Resource {
        Resource {
            name: Arc::clone(&self.name),
            version: self.version,
            body: body.into(),
            variant: None,
        }
    }

    /// The body to send: the variant, if there is one and `variants` is set.
    pub(crate) fn body_for(&self, variants: bool) -> &Bytes {
        let variant = self.variant.as_deref().filter(|_| variants);
        variant.unwrap_or(&self.body)
    }

    /// The name, unique among the fleet's resources of its type.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The version: a hash of the body and the variant.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The encoded message.
    pub fn body(&self) -> &Bytes {
        &self.body
    }
}

impl fmt::Debug for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Resource({}, {}, {} bytes)",
            self.name,
            self.version,
            self.body.len()
        )
    }
}

/// A fleet: Envoys that share a configuration, identified by their `node.cluster`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetId(Arc<str>);

impl FleetId {
    /// The fleet with this `node.cluster`.
    pub fn new(id: impl Into<Arc<str>>) -> FleetId {
        FleetId(id.into())
    }

    /// The name, as in `node.cluster`.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for FleetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FleetId({})", self.0)
    }
}

/// A consistent change to a fleet's configuration. The server chooses the order in which clients see its parts.
#[derive(Debug, Clone, Default)]
pub struct Update {
    /// New and changed resources. Unchanged resources cost nothing.
    pub upserts: Vec<(ResourceType, Resource)>,
    /// Names of removed resources. Removals are applied before `upserts`.
    pub removals: Vec<(ResourceType, Arc<str>)>,
    /// The caller's number for the resulting state, reported in [`crate::XdsEvent::Acked`]. It should not decrease. An
    /// update without resources only advances the revision.
    pub revision: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_url_identifies_its_type() {
        for (index, ty) in ResourceType::ALL.into_iter().enumerate() {
            assert_eq!(ty.index(), index);
            assert_eq!(ResourceType::from_type_url(ty.type_url()), Some(ty));
        }
        assert_eq!(
            ResourceType::from_type_url("type.googleapis.com/other"),
            None
        );
    }

    #[test]
    fn a_version_round_trips_and_other_text_is_unknown() {
        let version = Version::of(b"some bytes");
        assert_eq!(Version::parse(&version.to_string()), version);
        for text in [
            "",
            "1",
            "v1",
            "+0000000000000000000000000000000",
            &"f".repeat(33),
        ] {
            assert_eq!(Version::parse(text), Version::UNKNOWN, "{text:?}");
        }
    }

    #[test]
    fn the_version_depends_on_the_bytes_alone() {
        assert_eq!(
            Resource::new("a", &b"x"[..]).version(),
            Resource::new("b", &b"x"[..]).version()
        );
        assert_ne!(
            Resource::new("a", &b"x"[..]).version(),
            Resource::new("a", &b"y"[..]).version()
        );
    }

    #[test]
    fn a_variant_changes_the_version_and_replaces_the_body() {
        let plain = Resource::new("a", &b"x"[..]);
        let one = plain.clone().with_variant(&b"y"[..]);
        let other = plain.clone().with_variant(&b"z"[..]);
        assert_ne!(plain.version(), one.version());
        assert_ne!(one.version(), other.version());
        assert_eq!(one.body_for(true), &b"y"[..]);
        assert_eq!(one.body_for(false), &b"x"[..]);
        assert_eq!(plain.body_for(true), &b"x"[..]);
    }
}
