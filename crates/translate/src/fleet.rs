//! Resources that Envoys have rejected.

use std::fmt;
use std::sync::Arc;

use sesame_model::{ClusterKey, FleetId, ListenerKey, Port};

/// A resource that an Envoy has rejected.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rejected {
    /// The Envoy's fleet.
    pub fleet: FleetId,
    /// The resource's type.
    pub what: RejectedKind,
    /// The resource's name. For a shard: the name of its route table, followed by `#` and the shard's version and
    /// number.
    pub name: Arc<str>,
}

impl Rejected {
    /// The listener of a port.
    pub fn listener(fleet: FleetId, port: Port) -> Self {
        let key = ListenerKey { fleet, port };
        Self {
            name: key.name().into(),
            fleet: key.fleet,
            what: RejectedKind::Listener,
        }
    }

    /// The filter chain of a listener with this name: a server name, or `*`.
    pub fn chain(fleet: FleetId, port: Port, name: &str) -> Self {
        let key = ListenerKey { fleet, port };
        Self {
            name: format!("{}/{name}", key.name()).into(),
            fleet: key.fleet,
            what: RejectedKind::Chain,
        }
    }

    /// The resources of a cluster: itself, its endpoints, and the certificates for its connections.
    pub(crate) fn of_cluster(fleet: &FleetId, cluster: &ClusterKey) -> impl Iterator<Item = Self> {
        let own = [RejectedKind::Cluster, RejectedKind::Endpoints].map(|what| Self {
            fleet: fleet.clone(),
            what,
            name: cluster.to_string().into(),
        });
        own.into_iter().chain(Self::secrets_of(fleet, cluster))
    }

    /// The certificates for a cluster's connections.
    pub(crate) fn secrets_of(fleet: &FleetId, cluster: &ClusterKey) -> impl Iterator<Item = Self> {
        let bundle = cluster.trust_bundle().map(|key| key.to_string());
        let certificate = cluster.client_certificate().map(ToString::to_string);
        bundle.into_iter().chain(certificate).map(|name| Self {
            fleet: fleet.clone(),
            what: RejectedKind::Secret,
            name: name.into(),
        })
    }

    /// The name of the route table, or of the table that the shard belongs to.
    pub(crate) fn table(&self) -> Option<&str> {
        let table = self.name.split('#').next();
        table.filter(|_| self.what == RejectedKind::Routes)
    }
}

/// Types of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RejectedKind {
    /// A listener.
    Listener,
    /// A filter chain of a listener. Not a resource of its own.
    Chain,
    /// A route table or a shard of one.
    Routes,
    /// A cluster.
    Cluster,
    /// The endpoints of a cluster.
    Endpoints,
    /// A certificate or a trust bundle.
    Secret,
}

impl fmt::Display for RejectedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Listener => "listener",
            Self::Chain => "filter chain",
            Self::Routes => "route table",
            Self::Cluster => "cluster",
            Self::Endpoints => "the endpoints of cluster",
            Self::Secret => "certificate",
        })
    }
}
