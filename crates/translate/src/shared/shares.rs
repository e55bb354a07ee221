//! Endpoints of several backends in one cluster: that of a UDP port or an ExtensionService.

use sesame_model::EndpointShare;

/// The maximum number of endpoints of a UDP port or an ExtensionService, of all its backends.
const MAX_ENDPOINTS: usize = 4_096;

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

    use sesame_model::{BackendName, ClusterKey, Endpoint};

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
