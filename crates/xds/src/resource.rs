//! Resources and the table of their types.
//!
//! In: names and encoded bytes. Out: versioned values that all streams share.
//! It must not know: streams, fleets' state, or what a resource's bytes mean.

use std::fmt;
use std::sync::Arc;

use prost::bytes::Bytes;

/// A type of resource that the server speaks.
///
/// The order of the variants is the order in which types that have something to send get their turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourceType {
    /// Cluster discovery (CDS).
    Cluster,
    /// Endpoint discovery (EDS). A cluster's endpoints bear the cluster's name.
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

/// What the protocol has to know of a type. The whole of it: one row a type.
struct Traits {
    type_url: &'static str,
    short: &'static str,
    /// A first request without names asks for all (the legacy wildcard of the xDS protocol).
    legacy_wildcard: bool,
    /// Every Envoy that takes part asks for this type by itself; others are asked for by reference.
    root: bool,
    /// New content may name clusters, so it waits until the client has acknowledged them.
    /// Secrets do not wait: a cluster that uses one is not warm, hence not acknowledged, without it.
    waits_for_clusters: bool,
    /// The rank of removals: a type's removals wait for those of all lower ranks.
    teardown: u8,
}

/// The rank of [`ResourceType::Cluster`] in the order of removals.
pub(crate) const CLUSTER_TEARDOWN: u8 = 2;

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

    const fn traits(self) -> &'static Traits {
        match self {
            ResourceType::Cluster => &Traits {
                type_url: "type.googleapis.com/envoy.config.cluster.v3.Cluster",
                short: "cluster",
                legacy_wildcard: true,
                root: true,
                waits_for_clusters: false,
                teardown: CLUSTER_TEARDOWN,
            },
            ResourceType::Endpoint => &Traits {
                type_url: "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment",
                short: "endpoint",
                legacy_wildcard: false,
                root: false,
                waits_for_clusters: false,
                teardown: CLUSTER_TEARDOWN + 1,
            },
            ResourceType::Secret => &Traits {
                type_url: "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
                short: "secret",
                legacy_wildcard: false,
                root: false,
                waits_for_clusters: false,
                teardown: CLUSTER_TEARDOWN + 1,
            },
            ResourceType::Listener => &Traits {
                type_url: "type.googleapis.com/envoy.config.listener.v3.Listener",
                short: "listener",
                legacy_wildcard: true,
                root: true,
                waits_for_clusters: true,
                teardown: 0,
            },
            ResourceType::ScopedRoute => &Traits {
                type_url: "type.googleapis.com/envoy.config.route.v3.ScopedRouteConfiguration",
                short: "scoped route",
                legacy_wildcard: true,
                root: false,
                waits_for_clusters: true,
                // Behind all else, so that nothing waits for its grace.
                teardown: CLUSTER_TEARDOWN + 1,
            },
            ResourceType::Route => &Traits {
                type_url: "type.googleapis.com/envoy.config.route.v3.RouteConfiguration",
                short: "route",
                legacy_wildcard: false,
                root: false,
                waits_for_clusters: true,
                teardown: 1,
            },
        }
    }

    /// The type url of the protocol, as in `google.protobuf.Any`.
    pub const fn type_url(self) -> &'static str {
        self.traits().type_url
    }

    /// The type of a url, if the server speaks it.
    pub fn from_type_url(url: &str) -> Option<ResourceType> {
        Self::ALL.into_iter().find(|ty| ty.type_url() == url)
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    pub(crate) const fn legacy_wildcard(self) -> bool {
        self.traits().legacy_wildcard
    }

    pub(crate) const fn root(self) -> bool {
        self.traits().root
    }

    pub(crate) const fn waits_for_clusters(self) -> bool {
        self.traits().waits_for_clusters
    }

    pub(crate) const fn teardown(self) -> u8 {
        self.traits().teardown
    }
}

/// A short name for people: `cluster`, `endpoint`, `route`…
impl fmt::Display for ResourceType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.traits().short)
    }
}

/// The version of a resource: the XXH3-128 hash of its bytes, 32 hex digits on the wire.
///
/// Being a function of the bytes alone, it is the same in every process, so that a client which
/// reconnects to another server is sent only what differs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(u128);

impl Version {
    /// What a client has when nobody knows which version it has: equal to no resource's version
    /// (except by a hash of zero, which costs one superfluous response at most).
    pub(crate) const UNKNOWN: Version = Version(0);

    /// The version of these bytes.
    pub fn of(body: &[u8]) -> Version {
        Version(xxhash_rust::xxh3::xxh3_128(body))
    }

    /// Reads what [`fmt::Display`] wrote; anything else (a client may send any text) is nobody's version.
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

/// One resource: its name, its version and its encoded bytes, which all streams share.
#[derive(Clone, PartialEq, Eq)]
pub struct Resource {
    name: Arc<str>,
    version: Version,
    body: Bytes,
    /// Boxed, since few have one.
    variant: Option<Box<Bytes>>,
}

impl Resource {
    /// A resource from its encoded message, that is the `value` of its `google.protobuf.Any`.
    pub fn new(name: impl Into<Arc<str>>, body: impl Into<Bytes>) -> Resource {
        let body = body.into();
        Resource {
            name: name.into(),
            version: Version::of(&body),
            body,
            variant: None,
        }
    }

    /// The same resource, which clients [that take variants](crate::Config::takes_variants) get as `variant`.
    pub fn with_variant(self, variant: impl Into<Bytes>) -> Resource {
        let variant = variant.into();
        let both = [self.version, Version::of(&variant)].map(|version| version.0.to_be_bytes());
        Resource {
            version: Version::of(both.as_flattened()),
            variant: Some(Box::new(variant)),
            ..self
        }
    }

    /// As a client gets it that takes variants.
    pub(crate) fn varied(self) -> Resource {
        Resource {
            body: self.variant.as_deref().cloned().unwrap_or(self.body),
            ..self
        }
    }

    /// The name, unique among the fleet's resources of the type.
    pub fn name(&self) -> &Arc<str> {
        &self.name
    }

    /// The version: a hash of the bytes, and of those of the variant.
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

/// A fleet: a set of Envoys with the same config, named by their `node.cluster`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FleetId(Arc<str>);

impl FleetId {
    /// The fleet of that `node.cluster`.
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

/// One step of a fleet's config: what belongs together goes into one update, and the order in which
/// clients see its parts is the server's business.
#[derive(Debug, Clone, Default)]
pub struct Update {
    /// New and changed resources. One whose bytes are those that the fleet has already costs nothing.
    pub upserts: Vec<(ResourceType, Resource)>,
    /// Names of resources that are gone. They are taken away before `upserts` are put in.
    pub removals: Vec<(ResourceType, Arc<str>)>,
    /// The caller's number for this state, handed back in [`crate::Event::Acked`]. It should not
    /// decrease from update to update; an update without resources just moves it.
    pub revision: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_found_by_their_urls() {
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
    fn a_version_is_read_back_and_anything_else_is_nobodys() {
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
    fn the_version_is_of_the_bytes_alone() {
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
    fn a_variant_is_part_of_the_version_and_replaces_the_bytes() {
        let plain = Resource::new("a", &b"x"[..]);
        let one = plain.clone().with_variant(&b"y"[..]);
        let other = plain.clone().with_variant(&b"z"[..]);
        assert_ne!(plain.version(), one.version());
        assert_ne!(one.version(), other.version());
        assert_eq!(one.varied().body(), &b"y"[..]);
        assert_eq!(plain.clone().varied(), plain);
    }
}
