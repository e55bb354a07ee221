//! Make before break: which changes may be sent now.
//!
//! Clusters go first. Envoy acknowledges clusters once they are warm, so listeners and routes of an epoch wait until
//! the clusters of that and all earlier epochs are acknowledged. Endpoints and secrets never wait: clusters can't warm
//! without them.
//!
//! Removals go in the reverse order: listeners together with new listeners (which may take over their addresses), then
//! routes, then clusters once all earlier epochs are acknowledged, and finally scopes and anything that only clusters
//! refer to. Upserts never wait for removals, so there is no deadlock.

use crate::resource::{CLUSTER_REMOVAL_RANK, ResourceType};

/// A client's oldest incomplete epochs (not sent or not acknowledged) for one type. `None` if all are complete.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Watermark {
    pub(crate) upserts: Option<u64>,
    pub(crate) removals: Option<u64>,
}

/// The watermarks of all types.
pub(crate) type Watermarks = [Watermark; ResourceType::ALL.len()];

const UNLIMITED: u64 = u64::MAX;

/// The limit for upserts of this type: they may be sent if their latest change is older than the returned epoch.
///
/// Epochs up to `warming_bypass` no longer wait for clusters.
pub(crate) fn upsert_limit(ty: ResourceType, watermarks: &Watermarks, warming_bypass: u64) -> u64 {
    match watermarks[ResourceType::Cluster.index()].upserts {
        Some(oldest) if ty.waits_for_clusters() => oldest.max(warming_bypass + 1),
        _ => UNLIMITED,
    }
}

/// The limit for removals of this type: they may be sent if they are older than the returned epoch.
pub(crate) fn removal_limit(ty: ResourceType, watermarks: &Watermarks, warming_bypass: u64) -> u64 {
    if ty.removal_rank() == 0 {
        return upsert_limit(ty, watermarks, warming_bypass);
    }
    let waits_for = ResourceType::ALL.into_iter().flat_map(|other| {
        let oldest = watermarks[other.index()];
        let traffic = other == ResourceType::Cluster || other.waits_for_clusters();
        let earlier = other.removal_rank() < ty.removal_rank();
        [
            oldest.upserts.filter(|_| traffic),
            oldest.removals.filter(|_| earlier),
        ]
    });
    waits_for.flatten().min().unwrap_or(UNLIMITED)
}

/// The client has completed all epochs before the returned one. Pending removals of unreferenced resources don't count:
/// they don't affect traffic.
pub(crate) fn complete_before(watermarks: &Watermarks) -> u64 {
    let incomplete = ResourceType::ALL.into_iter().flat_map(|ty| {
        let oldest = watermarks[ty.index()];
        let affects_traffic = ty.removal_rank() < CLUSTER_REMOVAL_RANK;
        [oldest.upserts, oldest.removals.filter(|_| affects_traffic)]
    });
    incomplete.flatten().min().unwrap_or(UNLIMITED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ResourceType::{Cluster, Endpoint, Listener, Route, ScopedRoute, Secret};

    fn with(set: &[(ResourceType, Option<u64>, Option<u64>)]) -> Watermarks {
        let mut watermarks = Watermarks::default();
        for &(ty, upserts, removals) in set {
            watermarks[ty.index()] = Watermark { upserts, removals };
        }
        watermarks
    }

    #[test]
    fn nothing_waits_when_everything_is_complete() {
        let watermarks = Watermarks::default();
        for ty in ResourceType::ALL {
            assert_eq!(upsert_limit(ty, &watermarks, 0), UNLIMITED);
            assert_eq!(removal_limit(ty, &watermarks, 0), UNLIMITED);
        }
        assert_eq!(complete_before(&watermarks), UNLIMITED);
    }

    #[test]
    fn traffic_waits_for_clusters_until_the_warming_timeout() {
        let watermarks = with(&[(Cluster, Some(5), None)]);
        for ty in [Listener, ScopedRoute, Route] {
            assert_eq!(upsert_limit(ty, &watermarks, 0), 5);
            assert_eq!(upsert_limit(ty, &watermarks, 7), 8);
            assert_eq!(upsert_limit(ty, &watermarks, 2), 5);
        }
        for ty in [Cluster, Endpoint, Secret] {
            assert_eq!(upsert_limit(ty, &watermarks, 0), UNLIMITED);
        }
    }

    #[test]
    fn removals_go_in_reverse_order() {
        let watermarks = with(&[(Listener, Some(9), Some(4))]);
        assert_eq!(removal_limit(Listener, &watermarks, 0), UNLIMITED);
        assert_eq!(removal_limit(Route, &watermarks, 0), 4);
        assert_eq!(removal_limit(Cluster, &watermarks, 0), 4);
        let watermarks = with(&[(Route, Some(6), Some(8))]);
        assert_eq!(removal_limit(Route, &watermarks, 0), 6);
        assert_eq!(removal_limit(Cluster, &watermarks, 0), 6);
        let watermarks = with(&[(Cluster, None, Some(3))]);
        assert_eq!(removal_limit(Cluster, &watermarks, 0), UNLIMITED);
        assert_eq!(removal_limit(Endpoint, &watermarks, 0), 3);
        assert_eq!(removal_limit(Secret, &watermarks, 0), 3);
    }

    #[test]
    fn pending_endpoints_do_not_block_removals() {
        let watermarks = with(&[(Endpoint, Some(1), Some(1)), (Secret, Some(1), None)]);
        assert_eq!(removal_limit(Cluster, &watermarks, 0), UNLIMITED);
    }

    #[test]
    fn an_epoch_is_complete_before_its_unreferenced_resources_are_removed() {
        let watermarks = with(&[(Cluster, None, Some(2)), (Endpoint, Some(9), Some(1))]);
        assert_eq!(complete_before(&watermarks), 9);
        let watermarks = with(&[(Listener, None, Some(4)), (Route, Some(6), None)]);
        assert_eq!(complete_before(&watermarks), 4);
    }

    /// For any two types, at most one waits for the other.
    #[test]
    fn there_is_no_deadlock() {
        for a in ResourceType::ALL {
            for b in ResourceType::ALL {
                let waits = |ty: ResourceType, other: ResourceType| {
                    let watermarks = with(&[(other, None, Some(1))]);
                    ty != other && removal_limit(ty, &watermarks, 0) == 1
                };
                assert!(!(waits(a, b) && waits(b, a)), "{a} and {b}");
                let watermarks = with(&[(b, None, Some(1))]);
                assert_eq!(upsert_limit(a, &watermarks, 0), UNLIMITED);
            }
        }
    }
}
