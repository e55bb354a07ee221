//! Assigns loopback addresses to fleets.
//!
//! In: the fleets that exist. Out: an address for each. Must not do IO: [`super::ports`] checks whether an address can
//! be used.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::ops::Bound;

use sesame_model::FleetId;

/// Assigns 127.0.0.1, 127.0.0.2 … A fleet keeps its address as long as it exists. New fleets get the lowest free
/// addresses in order of their names, so the same fleets get the same addresses after a restart.
#[derive(Clone, Debug, Default)]
pub struct Allocator {
    by_fleet: BTreeMap<FleetId, Ipv4Addr>,
}

impl Allocator {
    /// No addresses assigned.
    pub fn new() -> Self {
        Self::default()
    }

    /// Releases the addresses of removed fleets and assigns one to each new fleet, except those in `avoid` (addresses
    /// that a Gateway requests explicitly). A fleet that has an address keeps it even if it is now in `avoid`.
    ///
    /// Returns all addresses by fleet. A fleet is missing only if all of 127.0.0.0/8 is taken.
    pub fn assign<'a>(
        &mut self,
        fleets: impl IntoIterator<Item = &'a FleetId>,
        avoid: &BTreeSet<Ipv4Addr>,
    ) -> &BTreeMap<FleetId, Ipv4Addr> {
        let fleets: BTreeSet<&FleetId> = fleets.into_iter().collect();
        self.by_fleet.retain(|id, _| fleets.contains(id));
        let mut taken = avoid.clone();
        taken.extend(self.by_fleet.values());
        let mut next = Some(Ipv4Addr::LOCALHOST);
        for id in fleets {
            if self.by_fleet.contains_key(id) {
                continue;
            }
            let Some(address) = next.and_then(|from| lowest_free(from, &taken)) else {
                break;
            };
            self.by_fleet.insert(id.clone(), address);
            next = successor(address);
        }
        &self.by_fleet
    }

    /// A fleet's address.
    pub fn get(&self, id: &FleetId) -> Option<Ipv4Addr> {
        self.by_fleet.get(id).copied()
    }
}

/// The lowest free address starting at `from`.
fn lowest_free(from: Ipv4Addr, taken: &BTreeSet<Ipv4Addr>) -> Option<Ipv4Addr> {
    let mut candidate = from;
    for &next_taken in taken.range((Bound::Included(from), Bound::Unbounded)) {
        if candidate < next_taken {
            break;
        }
        if candidate == next_taken {
            candidate = successor(candidate)?;
        }
    }
    Some(candidate)
}

/// The next address that can be assigned. Skips addresses that end in 0 or 255, which look like network or broadcast
/// addresses.
fn successor(address: Ipv4Addr) -> Option<Ipv4Addr> {
    let mut bits = u32::from(address) + 1;
    while matches!(bits & 0xff, 0 | 0xff) {
        bits += 1;
    }
    Some(Ipv4Addr::from(bits)).filter(Ipv4Addr::is_loopback)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn fleet(name: &str) -> FleetId {
        FleetId::of_gateway("ns", name)
    }

    fn last_octets(allocator: &mut Allocator, fleets: &[&str]) -> Vec<(FleetId, u8)> {
        let fleets: Vec<FleetId> = fleets.iter().map(|name| fleet(name)).collect();
        allocator
            .assign(&fleets, &BTreeSet::new())
            .iter()
            .map(|(id, address)| (id.clone(), address.octets()[3]))
            .collect()
    }

    #[test]
    fn new_fleets_get_the_lowest_free_address_by_name() {
        let mut allocator = Allocator::new();
        let named = |list: &[(&str, u8)]| -> Vec<(FleetId, u8)> {
            list.iter().map(|&(id, n)| (fleet(id), n)).collect()
        };
        assert_eq!(
            last_octets(&mut allocator, &["c", "a", "b"]),
            named(&[("a", 1), ("b", 2), ("c", 3)])
        );
        assert_eq!(
            last_octets(&mut allocator, &["c", "b", "0", "1"]),
            named(&[("0", 1), ("1", 4), ("b", 2), ("c", 3)])
        );
        assert_eq!(
            allocator.get(&fleet("b")),
            Some(Ipv4Addr::new(127, 0, 0, 2))
        );
        assert_eq!(allocator.get(&fleet("a")), None);
    }

    #[test]
    fn requested_addresses_are_avoided() {
        let avoid = BTreeSet::from([Ipv4Addr::new(127, 0, 0, 1), Ipv4Addr::new(127, 0, 0, 3)]);
        let mut allocator = Allocator::new();
        let octets = |allocator: &Allocator, id| allocator.get(&fleet(id)).map(|a| a.octets()[3]);
        let both = ["a", "b"].map(fleet);
        allocator.assign(&both, &avoid);
        assert_eq!(octets(&allocator, "a"), Some(2));
        assert_eq!(octets(&allocator, "b"), Some(4));
        allocator.assign(&both, &BTreeSet::from([Ipv4Addr::new(127, 0, 0, 2)]));
        assert_eq!(octets(&allocator, "a"), Some(2));
    }

    #[test]
    fn addresses_span_octets_within_the_loopback_network() {
        assert_eq!(
            successor(Ipv4Addr::new(127, 0, 0, 254)),
            Some(Ipv4Addr::new(127, 0, 1, 1))
        );
        assert_eq!(successor(Ipv4Addr::new(127, 255, 255, 254)), None);
    }

    proptest! {
        #[test]
        fn addresses_are_distinct_and_stable(steps in prop::collection::vec(prop::collection::btree_set("[a-f]", 0..6), 1..8)) {
            let mut allocator = Allocator::new();
            for fleets in steps {
                let before = allocator.clone();
                let fleets: BTreeSet<FleetId> = fleets.iter().map(|name| fleet(name)).collect();
                let after = allocator.assign(&fleets, &BTreeSet::new()).clone();
                prop_assert!(after.keys().eq(fleets.iter()));
                prop_assert_eq!(after.values().collect::<BTreeSet<_>>().len(), fleets.len());
                for (id, address) in &after {
                    prop_assert!(before.get(id).is_none_or(|had| had == *address));
                }
            }
        }
    }
}
