//! Backends as the targets of routes.

use std::collections::BTreeSet;
use std::sync::Arc;

use sesame_model::{Cluster, ClusterKey, ClusterPolicy, Protocol, Session, TlsSettings};

/// A backend, and the settings that all routes to it share.
#[derive(Clone, Debug, PartialEq)]
pub struct RoutedBackend {
    /// The backend.
    pub backend: Backend,
    /// Session persistence, for routes without their own.
    pub session: Option<Arc<Session>>,
}

/// A port of a Service, or an XBackend, as the target of a route.
#[derive(Clone, Debug, PartialEq)]
pub enum Backend {
    /// A valid target whose cluster has the key that routes refer to.
    Serves(Cluster),
    /// A valid target with TLS settings in a policy, an XBackend or the Service: its cluster has its own key.
    Secured(Box<(ClusterKey, Cluster)>),
    /// A Service with an invalid TLS policy: Envoy must not connect to it, except for TLS passthrough, which uses this
    /// cluster.
    Refused(Cluster),
    /// An invalid XBackend; its status has the reason.
    Invalid,
    /// The Service, port or XBackend doesn't exist; the message says which.
    NotFound(String),
    /// A protocol that routes don't support; the message names it.
    UnsupportedProtocol(String),
}

impl Backend {
    /// With TLS of the Service itself as a part of the cluster's key, so that a fleet can add its client certificate.
    pub fn keyed_by_tls(self, key: &ClusterKey) -> Self {
        match self {
            Self::Serves(cluster) if cluster.tls.is_some() && key.tls().is_none() => {
                let key = key.with_tls(TlsSettings::Service);
                Self::Secured(Box::new((key, cluster)))
            }
            other => other,
        }
    }

    /// The clusters that reach it. `key` is the one without TLS settings, which TLS passthrough always uses.
    /// `presenting` returns the keys of a cluster with the client certificates in use.
    pub fn clusters(
        &self,
        key: &ClusterKey,
        presenting: impl FnOnce(&ClusterKey) -> BTreeSet<ClusterKey>,
    ) -> Vec<(ClusterKey, Cluster)> {
        let forwards = |policy: &ClusterPolicy| policy.protocol == Some(Protocol::Opaque);
        let forwards = key.policy.as_deref().is_some_and(forwards);
        let passthrough =
            |cluster: &Cluster| forwards.then(|| (key.clone(), cluster.passthrough()));
        let with_certificates = |key: &ClusterKey, cluster: &Cluster| {
            let mut clusters = vec![(key.clone(), cluster.clone())];
            if cluster.tls.is_some() {
                clusters.extend(presenting(key).into_iter().map(|key| {
                    let cluster = cluster.presenting(key.client_certificate());
                    (key, cluster)
                }));
            }
            clusters
        };
        match self {
            Self::Serves(cluster) => with_certificates(key, cluster),
            Self::Secured(secured) => {
                let (key, cluster) = &**secured;
                let mut clusters = with_certificates(key, cluster);
                clusters.extend(passthrough(cluster));
                clusters
            }
            Self::Refused(cluster) => passthrough(cluster).into_iter().collect(),
            Self::Invalid | Self::NotFound(_) | Self::UnsupportedProtocol(_) => Vec::new(),
        }
    }
}
