//! Connections and datagrams that Sesame forwards without reading them: the route for each listener and server name.
//!
//! Unlike the routes of a virtual host, the routes of a chain don't have matches: the first route in order of
//! precedence gets all connections (TLSRouteSpec.hostnames, TCPRouteSpec, UDPRouteSpec).

use std::sync::Arc;

use sesame_api::ObjectKey;
use sesame_engine::{Index, Reader, Table};
use sesame_model::{ClusterKey, DestinationKey, WeightedBackend};

use crate::problem::Problem;
use crate::shared::covering::{Covering, PointsByDomain};
use crate::shared::hostname;
use crate::shared::hosts::Attachments;
use crate::shared::listeners::{ListenerId, ListenerPoint};
use crate::shared::precedence::Seniority;

/// Identifies the connections to a listener with a server name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChainKey {
    /// The listener.
    pub listener: ListenerId,
    /// The server name: exact, with a `*.` prefix, or `*` for all connections.
    pub domain: Arc<str>,
}

/// The backends of an object that routes connections.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Backends {
    /// The order among objects that get the same connections.
    pub seniority: Seniority,
    /// Never empty.
    pub targets: Vec<WeightedBackend>,
    /// The same backends for TLS passthrough.
    pub passthrough: Vec<WeightedBackend>,
    /// The object's unresolved references.
    pub unresolved: Option<Problem>,
}

/// The object that gets the connections of a chain.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ServedChain {
    /// The object.
    pub route: ObjectKey,
    /// Its backends.
    pub targets: Vec<WeightedBackend>,
    /// The same backends for TLS passthrough.
    pub passthrough: Vec<WeightedBackend>,
}

impl ServedChain {
    /// The backends for the connections of a listener.
    pub(crate) fn targets(&self, point: &ListenerPoint) -> &[WeightedBackend] {
        match point.passthrough {
            true => &self.passthrough,
            false => &self.targets,
        }
    }

    /// Whether the connections of every listener have a destination.
    pub(crate) fn has_destination(&self) -> bool {
        has_destination(&self.targets) && has_destination(&self.passthrough)
    }
}

/// Whether connections for these backends have a destination: they do if there is exactly one backend, and it has no
/// TLS settings. A destination is changed in place, so if Envoy rejected new TLS settings, it would keep sending
/// plaintext.
pub(crate) fn has_destination(targets: &[WeightedBackend]) -> bool {
    let plain = |backend: &WeightedBackend| {
        let cluster = backend.target.cluster();
        cluster.is_none_or(|cluster| cluster.tls().is_none())
    };
    targets.len() == 1 && targets.iter().all(plain)
}

/// The tables needed to choose the object of a chain.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    /// Objects by chain.
    pub(crate) by_chain: Index<ObjectKey, Attachments, ChainKey>,
    /// Their backends.
    pub(crate) backends: Table<ObjectKey, Backends>,
}

/// Chooses the object for a chain: the one with the most specific hostname, then the oldest, then the first by name.
pub(crate) fn chain(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &ChainKey,
) -> Option<ServedChain> {
    let mut candidates = Vec::new();
    for (route, attachments) in reader.by(sources.by_chain, key) {
        if let Some(backends) = reader.get(sources.backends, &route) {
            candidates.push((attachments, backends, route));
        }
    }
    let (_, backends, route) = candidates.iter().min_by(|(a, a_own, _), (b, b_own, _)| {
        hostname::by_specificity(original(a, key), original(b, key))
            .then_with(|| a_own.seniority.cmp(&b_own.seniority))
    })?;
    Some(ServedChain {
        route: route.clone(),
        targets: backends.targets.clone(),
        passthrough: backends.passthrough.clone(),
    })
}

/// The tables needed to find the cluster of a destination.
#[derive(Clone, Copy)]
pub(crate) struct Destinations {
    /// Listeners by port and hostname.
    pub(crate) points_by_domain: PointsByDomain,
    /// The objects of chains.
    pub(crate) chains: Table<ChainKey, ServedChain>,
}

/// The cluster of a destination; `None` if there is no route, if its only backend is invalid, or if the backends are in
/// the listener's chain.
pub(crate) fn destination(
    reader: &mut Reader<'_>,
    sources: Destinations,
    key: &DestinationKey,
) -> Option<ClusterKey> {
    let points = sources.points_by_domain;
    let covering = Covering::read(reader, points, &key.listener, &key.domain);
    let listener = covering.serving().next()?;
    let chain = ChainKey {
        listener: listener.listener.id.clone(),
        domain: Arc::clone(&key.domain),
    };
    let chain = reader.get(sources.chains, &chain)?;
    let targets = chain.targets(listener);
    let only = targets.first().filter(|_| has_destination(targets))?;
    only.target.cluster().cloned()
}

/// The object's most specific hostname for a chain.
fn original<'a>(attachments: &'a Attachments, key: &ChainKey) -> &'a str {
    let hosts = attachments.hosts.iter();
    hosts
        .filter(|host| host.domain == key.domain && host.listener.id == key.listener)
        .map(|host| &*host.original)
        .min_by(|a, b| hostname::by_specificity(a, b))
        .unwrap_or(hostname::ANY)
}
