use std::collections::BTreeSet;

use proptest::prelude::*;
use sesame_model::{Port, RouteTableKey, VirtualHostKey};
use sesame_translate::fleet::RejectedKind;

use super::*;

/// A table whose hosts are numbers, and an Envoy that rejects it if it contains a bad host.
struct Table {
    bad: BTreeSet<usize>,
    /// Hosts that differ from the last accepted version.
    changed: BTreeSet<usize>,
    held: BTreeSet<usize>,
    /// Held hosts that are known to be the cause.
    found: BTreeSet<usize>,
}

fn fleet() -> FleetId {
    FleetId::Default
}

fn part(host: usize) -> Part {
    Part::Host(VirtualHostKey {
        table: RouteTableKey {
            fleet: fleet(),
            port: 80,
        },
        domain: host.to_string().into(),
    })
}

fn number(part: &Part) -> usize {
    let Part::Host(host) = part else {
        panic!("{part:?}");
    };
    host.domain.parse().expect("a number")
}

impl Table {
    fn new(hosts: usize, bad: BTreeSet<usize>) -> Self {
        Self {
            bad,
            changed: (0..hosts).collect(),
            held: BTreeSet::new(),
            found: BTreeSet::new(),
        }
    }

    fn apply(&mut self, inputs: Vec<Input>) {
        for input in inputs {
            match input {
                Input::Hold(suspect, message) => {
                    let host = number(&suspect.part);
                    assert!(self.held.insert(host), "{host} is held twice");
                    if message.is_some() {
                        self.found.insert(host);
                    }
                }
                Input::ReleasePart(key) => {
                    let host = number(&key);
                    assert!(self.held.remove(&host), "{host} isn't held");
                    self.changed.insert(host);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    /// The hosts that may be the cause if Envoy rejects the table.
    fn suspects(&self) -> Option<Vec<Suspect>> {
        let suspects: Vec<usize> = self.changed.difference(&self.held).copied().collect();
        let rejected = suspects.iter().any(|host| self.bad.contains(host));
        let suspect = |host| Suspect {
            part: part(host),
            last_good: None,
        };
        rejected.then(|| suspects.into_iter().map(suspect).collect())
    }

    /// Lets Envoy respond until nothing changes. Returns the number of responses.
    fn settle(&mut self, containment: &mut Containment) -> u64 {
        let resource = Rejected {
            fleet: fleet(),
            what: RejectedKind::Routes,
            name: "80".into(),
        };
        for revision in 1.. {
            containment.sent(revision);
            let inputs = match self.suspects() {
                Some(suspects) => {
                    let inputs = containment.rejected(&resource, suspects, "no");
                    assert!(containment.acked(&fleet(), revision).is_empty());
                    inputs
                }
                None => {
                    self.changed.retain(|host| self.held.contains(host));
                    containment.acked(&fleet(), revision)
                }
            };
            if inputs.is_empty() && containment.searches.is_empty() {
                return revision;
            }
            self.apply(inputs);
        }
        unreachable!()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn exactly_the_bad_hosts_are_held(hosts in 1..300_usize, bad in prop::collection::btree_set(0..300_usize, 1..5)) {
        let bad: BTreeSet<usize> = bad.into_iter().filter(|&host| host < hosts).collect();
        let count = u64::try_from(bad.len()).expect("a small number");
        let mut table = Table::new(hosts, bad.clone());
        let responses = table.settle(&mut Containment::default());
        prop_assert_eq!(&table.held, &bad);
        prop_assert_eq!(&table.found, &bad);
        // Three for each halving: the good half, the bad one, and the table without it.
        prop_assert!(responses <= 4 + count * 30, "{}", responses);
    }
}

#[test]
fn a_single_suspect_is_held_at_once() {
    let mut table = Table::new(1, BTreeSet::from([0]));
    assert_eq!(table.settle(&mut Containment::default()), 2);
    assert_eq!(table.found, BTreeSet::from([0]));
}

#[test]
fn searches_end_with_their_fleet() {
    let mut containment = Containment::default();
    let table = Table::new(8, BTreeSet::from([3]));
    let resource = Rejected {
        fleet: fleet(),
        what: RejectedKind::Routes,
        name: "80".into(),
    };
    let suspects = table.suspects().expect("suspects");
    assert_eq!(containment.rejected(&resource, suspects, "no").len(), 8);
    containment.forget(&fleet());
    assert!(containment.searches.is_empty());
}

#[test]
fn a_rejection_without_suspects_ends_the_search() {
    let mut containment = Containment::default();
    let resource = Rejected::listener(fleet(), Port::tcp(443));
    let suspect = |host| Suspect {
        part: part(host),
        last_good: None,
    };
    containment.rejected(&resource, vec![suspect(0), suspect(1)], "no");
    containment.sent(1);
    assert!(containment.rejected(&resource, Vec::new(), "no").is_empty());
    assert!(containment.acked(&fleet(), 1).is_empty());
}
