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

/// The maximum number of endpoints of a UDP port or an ExtensionService, of all its backends.
const MAX_ENDPOINTS: usize = 4_096;

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
    limit(&mut shares);
    Some(Datagrams { shares, dropped })
}

/// Limits the endpoints of shares, each in proportion to its own: those of a UDP port or an ExtensionService are copies.
pub(crate) fn limit(shares: &mut [EndpointShare]) {
    let all: usize = shares.iter().map(|share| share.endpoints.len()).sum();
    if all > MAX_ENDPOINTS {
        for share in shares {
            let kept = share.endpoints.len() * MAX_ENDPOINTS / all;
            share.endpoints.truncate(kept.max(1));
            share.endpoints.shrink_to_fit();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use sesame_model::{BackendName, Endpoint};

    use super::*;

    #[test]
    fn shares_of_many_endpoints_are_limited() {
        let share = |count: u16| EndpointShare {
            cluster: ClusterKey {
                namespace: "shop".into(),
                backend: BackendName::ServicePort {
                    service: "a".into(),
                    port: 53,
                },
                policy: None,
            },
            weight: 1,
            endpoints: (0..count)
                .map(|port| Endpoint {
                    address: IpAddr::V4(Ipv4Addr::LOCALHOST),
                    port,
                    health_port: None,
                })
                .collect(),
        };
        let limited = |counts: &[u16]| {
            let mut shares: Vec<_> = counts.iter().map(|count| share(*count)).collect();
            limit(&mut shares);
            Vec::from_iter(shares.iter().map(|share| share.endpoints.len()))
        };
        assert_eq!(limited(&[4_000, 96]), [4_000, 96]);
        assert_eq!(limited(&[6_144, 2_048, 1]), [3_071, 1_023, 1]);
    }
}
