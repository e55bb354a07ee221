//! Which changes may go out now: make before break.
//!
//! In: for each type, the oldest epoch that is still incomplete at the client. Out: for each type,
//! the epochs before which additions and removals may go.
//! It must not know: names, or what is sent.
//!
//! Clusters go first. Envoy acknowledges clusters when they are warm, so listeners and routes of an
//! epoch wait for the acknowledgement of its clusters, and of all clusters before them. Endpoints and
//! secrets never wait: clusters can't get warm without them. Removals go the other way round:
//! listeners together with the new ones (which may take over their addresses), routes when the
//! listeners are gone, clusters when nothing that came until then is unacknowledged, and at last
//! what only clusters refer to, and scopes, for which nothing waits. Additions never wait for
//! removals, so nothing waits in a circle.

use crate::resource::{CLUSTER_TEARDOWN, ResourceType};

/// For one type, the oldest epochs that a client hasn't got completely; `None` where it lacks none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Floor {
    /// By additions and changes, waiting or unacknowledged.
    pub(crate) make: Option<u64>,
    /// By removals, waiting or unacknowledged.
    pub(crate) unmake: Option<u64>,
}

/// The floors of all types.
pub(crate) type Floors = [Floor; ResourceType::ALL.len()];

/// Everything may go.
const OPEN: u64 = u64::MAX;

/// Additions of this type may go if their latest change was before this epoch.
///
/// Epochs up to `bypass` have waited too long for clusters, and go.
pub(crate) fn make_limit(ty: ResourceType, floors: &Floors, bypass: u64) -> u64 {
    if !ty.waits_for_clusters() {
        return OPEN;
    }
    match floors[ResourceType::Cluster.index()].make {
        None => OPEN,
        Some(floor) => floor.max(bypass + 1),
    }
}

/// Removals of this type may go if they were before this epoch.
pub(crate) fn unmake_limit(ty: ResourceType, floors: &Floors, bypass: u64) -> u64 {
    if ty.teardown() == 0 {
        return make_limit(ty, floors, bypass);
    }
    ResourceType::ALL
        .into_iter()
        .flat_map(|other| {
            let floor = floors[other.index()];
            let traffic = other == ResourceType::Cluster || other.waits_for_clusters();
            [
                floor.make.filter(|_| traffic),
                floor.unmake.filter(|_| other.teardown() < ty.teardown()),
            ]
        })
        .flatten()
        .min()
        .unwrap_or(OPEN)
}

/// All epochs before this are complete at the client as far as its traffic goes: what is still to be
/// removed when nothing refers to it any more doesn't count.
pub(crate) fn complete_before(floors: &Floors) -> u64 {
    ResourceType::ALL
        .into_iter()
        .flat_map(|ty| {
            let floor = floors[ty.index()];
            let counts = ty.teardown() < CLUSTER_TEARDOWN;
            [floor.make, floor.unmake.filter(|_| counts)]
        })
        .flatten()
        .min()
        .unwrap_or(OPEN)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ResourceType::{Cluster, Endpoint, Listener, Route, ScopedRoute, Secret};

    fn with(set: &[(ResourceType, Option<u64>, Option<u64>)]) -> Floors {
        let mut floors = Floors::default();
        for &(ty, make, unmake) in set {
            floors[ty.index()] = Floor { make, unmake };
        }
        floors
    }

    #[test]
    fn nothing_waits_for_nothing() {
        let floors = Floors::default();
        for ty in ResourceType::ALL {
            assert_eq!(make_limit(ty, &floors, 0), OPEN);
            assert_eq!(unmake_limit(ty, &floors, 0), OPEN);
        }
        assert_eq!(complete_before(&floors), OPEN);
    }

    #[test]
    fn traffic_waits_for_clusters_until_that_takes_too_long() {
        let floors = with(&[(Cluster, Some(5), None)]);
        for ty in [Listener, ScopedRoute, Route] {
            assert_eq!(make_limit(ty, &floors, 0), 5);
            assert_eq!(make_limit(ty, &floors, 7), 8);
            assert_eq!(make_limit(ty, &floors, 2), 5);
        }
        for ty in [Cluster, Endpoint, Secret] {
            assert_eq!(make_limit(ty, &floors, 0), OPEN);
        }
    }

    #[test]
    fn removals_go_the_other_way_round() {
        let floors = with(&[(Listener, Some(9), Some(4))]);
        assert_eq!(unmake_limit(Listener, &floors, 0), OPEN);
        assert_eq!(unmake_limit(Route, &floors, 0), 4);
        assert_eq!(unmake_limit(Cluster, &floors, 0), 4);
        let floors = with(&[(Route, Some(6), Some(8))]);
        assert_eq!(unmake_limit(Route, &floors, 0), 6);
        assert_eq!(unmake_limit(Cluster, &floors, 0), 6);
        let floors = with(&[(Cluster, None, Some(3))]);
        assert_eq!(unmake_limit(Cluster, &floors, 0), OPEN);
        assert_eq!(unmake_limit(Endpoint, &floors, 0), 3);
        assert_eq!(unmake_limit(Secret, &floors, 0), 3);
    }

    #[test]
    fn endpoints_that_are_on_their_way_hold_up_no_removal() {
        let floors = with(&[(Endpoint, Some(1), Some(1)), (Secret, Some(1), None)]);
        assert_eq!(unmake_limit(Cluster, &floors, 0), OPEN);
    }

    #[test]
    fn an_epoch_is_complete_before_its_leftovers_are_removed() {
        let floors = with(&[(Cluster, None, Some(2)), (Endpoint, Some(9), Some(1))]);
        assert_eq!(complete_before(&floors), 9);
        let floors = with(&[(Listener, None, Some(4)), (Route, Some(6), None)]);
        assert_eq!(complete_before(&floors), 4);
    }

    /// Of any two types, at most one waits for the other.
    #[test]
    fn nothing_waits_in_a_circle() {
        for a in ResourceType::ALL {
            for b in ResourceType::ALL {
                let waits = |ty: ResourceType, other: ResourceType| {
                    let floors = with(&[(other, None, Some(1))]);
                    ty != other && unmake_limit(ty, &floors, 0) == 1
                };
                assert!(!(waits(a, b) && waits(b, a)), "{a} and {b}");
                let floors = with(&[(b, None, Some(1))]);
                assert_eq!(make_limit(a, &floors, 0), OPEN);
            }
        }
    }
}
