//! The backends of a UDP port: those of the route that gets its datagrams.

use std::collections::BTreeMap;

use sesame_api::ObjectKey;
use sesame_engine::{Index, Reader, Table};
use sesame_model::{
    ClusterKey, Datagrams, EndpointShare, Endpoints, ListenerKey, Target, Transport,
};

use crate::shared::connections::{ChainKey, ServedChain};
use crate::shared::hostname;
use crate::shared::listeners::AttachPoints;
use crate::shared::shares;

/// The tables needed to find the backends.
#[derive(Clone, Copy)]
pub(crate) struct Sources {
    /// Listeners by port.
    pub(crate) points_by_port: Index<ObjectKey, AttachPoints, ListenerKey>,
    /// The routes of listeners.
    pub(crate) chains: Table<ChainKey, ServedChain>,
    /// The endpoints of their backends.
    pub(crate) endpoints: Table<ClusterKey, Endpoints>,
}

/// The backends of a port; `None` if it isn't a served UDP port.
pub(crate) fn datagrams(
    reader: &mut Reader<'_>,
    sources: Sources,
    key: &ListenerKey,
) -> Option<Datagrams> {
    if key.port.transport != Transport::Udp {
        return None;
    }
    let owners = reader.by(sources.points_by_port, key);
    // Listeners of a UDP port conflict, so at most one serves it.
    let point = owners
        .iter()
        .find_map(|(_, points)| points.serving_on(key.port).next())?;
    let chain = ChainKey {
        listener: point.listener.id.clone(),
        domain: hostname::ANY.into(),
    };
    let Some(route) = reader.get(sources.chains, &chain) else {
        return Some(Datagrams::default());
    };
    let mut weights: BTreeMap<&ClusterKey, u32> = BTreeMap::new();
    let mut dropped = 0;
    for backend in &route.targets {
        match &backend.target {
            Target::Cluster(cluster) => *weights.entry(cluster).or_default() += backend.weight,
            Target::Refused => dropped += backend.weight,
        }
    }
    let mut shares = Vec::new();
    for (cluster, weight) in weights {
        match reader.get(sources.endpoints, cluster) {
            Some(found) if !found.endpoints.is_empty() => shares.push(EndpointShare {
                cluster: cluster.clone(),
                weight,
                endpoints: found.endpoints.clone(),
            }),
            _ => dropped += weight,
        }
    }
    shares::limit(&mut shares);
    Some(Datagrams { shares, dropped })
}
