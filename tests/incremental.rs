//! The output doesn't depend on history: after any sequence of changes, in any batches, it equals, byte for byte, the
//! output of a new core with the final objects, and the emitted changes add up to it. A core whose objects are all
//! removed retains nothing.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use sesame_api::NamespacedName;
use sesame_control::core::{Core, Input};
use sesame_control::{FleetId, Options, Port, Sharding};
use sesame_engine::Footprint;
use sesame_model::{FleetAddress, FleetProblem, FleetState};
use sesame_testkit::generate::{self, Edit, GATEWAYS, POD_SERVICES, PORTS, Set, XBACKENDS};
use sesame_tests::world::{World, cases, differences, input};
use sesame_translate::fleet::{Rejected, RejectedKind};
use sesame_translate::settings::{IngressSettings, Mode, Settings};
use sesame_translate::shared::pod_services;

/// A change to a world.
#[derive(Clone, Debug)]
enum Event {
    Object(Edit),
    Fleet(FleetId, Option<FleetState>),
    Rejection(Rejected, Option<String>),
}

fn events() -> impl Strategy<Value = Event> {
    prop_oneof![
        8 => generate::edits().prop_map(Event::Object),
        2 => (fleet_ids(), prop::option::weighted(0.8, fleet_states()))
            .prop_map(|(fleet, state)| Event::Fleet(fleet, state)),
        1 => (rejected(), prop::option::of("[a-z]{1,9}"))
            .prop_map(|(rejected, message)| Event::Rejection(rejected, message)),
    ]
}

fn fleet_ids() -> impl Strategy<Value = FleetId> {
    let of_gateways = prop::sample::select(GATEWAYS.to_vec())
        .prop_map(|(namespace, name)| FleetId::of_gateway(namespace, name));
    prop_oneof![6 => of_gateways, 1 => Just(FleetId::Unmanaged)]
}

fn modes() -> impl Strategy<Value = Mode> {
    let named = prop::option::of(prop::sample::select(GATEWAYS.to_vec())).prop_map(|gateway| {
        let gateway = gateway.map(|(namespace, name)| NamespacedName::new(namespace, name));
        Mode::Unmanaged { gateway }
    });
    prop_oneof![2 => Just(Mode::Local), 1 => Just(Mode::Managed), 2 => named]
}

/// A world in a mode; some modes use shards.
fn new_world(mode: &Mode) -> World {
    let settings = Settings {
        ingress: IngressSettings {
            fallback_certificate: Some(NamespacedName::new("one", "c1")),
            ..IngressSettings::default()
        },
        ..Settings::new(mode.clone())
    };
    let sharding = match mode {
        Mode::Local => return World::of(Core::local(settings, Options::default())),
        Mode::Managed => Sharding::Always,
        Mode::Unmanaged { .. } => Sharding::Never,
    };
    World::of(Core::in_cluster(settings, sharding))
}

/// An empty world that always uses shards.
fn in_shards() -> World {
    World::new(Options {
        sharding: Sharding::Always,
        ..Options::default()
    })
}

fn fleet_states() -> impl Strategy<Value = FleetState> {
    let ips = [
        Some(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        Some(IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2))),
        Some(IpAddr::V6(Ipv6Addr::LOCALHOST)),
        None,
    ];
    let address = prop::sample::select(ips.to_vec()).prop_map(|ip| match ip {
        Some(ip) => FleetAddress::Ip(ip),
        None => FleetAddress::Hostname("gateway.example.com".to_owned()),
    });
    let problem = prop_oneof![
        6 => Just(None),
        1 => Just(Some(FleetProblem::UnsupportedAddress("u".into()))),
        1 => Just(Some(FleetProblem::AddressNotUsable("n".into()))),
        1 => Just(Some(FleetProblem::AddressNotAssigned("a".into()))),
        1 => Just(Some(FleetProblem::NoResources("r".into()))),
    ];
    (
        prop::collection::vec(address, 0..3),
        problem,
        prop::collection::btree_map(
            prop::sample::select(PORTS.map(Port::tcp).to_vec()),
            "in use by [a-z]",
            0..2,
        ),
        prop::sample::select(vec![0, 10_000, 60_000]),
        any::<bool>(),
    )
        .prop_map(
            |(addresses, problem, ports, port_offset, ready)| FleetState {
                addresses,
                problem,
                ports,
                port_offset,
                ready,
                ..FleetState::default()
            },
        )
}

fn rejected() -> impl Strategy<Value = Rejected> {
    let named = prop::sample::select(vec![
        (RejectedKind::Listener, "80"),
        (RejectedKind::Listener, "443"),
        (RejectedKind::Routes, "80"),
        (RejectedKind::Routes, "443/a"),
        (RejectedKind::Cluster, "one/s1:80"),
        (RejectedKind::Cluster, "one/s1:80?tls=one/p1&client=one/c1"),
        (RejectedKind::Endpoints, "one/s1:80"),
        (RejectedKind::Secret, "one/c1"),
        (RejectedKind::Secret, "ca:one/p1"),
        (RejectedKind::Secret, "clients:one/web"),
    ]);
    (fleet_ids(), named).prop_map(|(fleet, (what, name))| Rejected {
        fleet,
        what,
        name: name.into(),
    })
}

/// The final state after all events.
#[derive(Clone, Default)]
struct Final {
    objects: Set,
    fleets: BTreeMap<FleetId, FleetState>,
    rejections: BTreeMap<Rejected, String>,
}

impl Final {
    fn apply(&mut self, event: &Event) -> Option<Input> {
        match event {
            Event::Object(edit) => self.objects.apply(edit).map(input),
            Event::Fleet(fleet, state) => {
                match state {
                    Some(state) => self.fleets.insert(fleet.clone(), state.clone()),
                    None => self.fleets.remove(fleet),
                };
                Some(Input::Fleet(fleet.clone(), state.clone()))
            }
            Event::Rejection(rejected, message) => {
                match message {
                    Some(message) => self.rejections.insert(rejected.clone(), message.clone()),
                    None => self.rejections.remove(rejected),
                };
                Some(Input::Rejection(rejected.clone(), message.clone()))
            }
        }
    }

    /// Inputs that create this state, in reverse order.
    fn reversed(&self) -> Vec<Input> {
        let rejections =
            self.rejections.iter().rev().map(|(rejected, message)| {
                Input::Rejection(rejected.clone(), Some(message.clone()))
            });
        let fleets = self
            .fleets
            .iter()
            .rev()
            .map(|(fleet, state)| Input::Fleet(fleet.clone(), Some(state.clone())));
        let objects = self.objects.decoded().rev().map(Input::Upsert);
        rejections.chain(fleets).chain(objects).collect()
    }

    /// Inputs that remove everything.
    fn removals(&self) -> Vec<Input> {
        let objects = self
            .objects
            .iter()
            .map(|(key, _)| Input::Remove(key.clone()));
        let fleets = self
            .fleets
            .keys()
            .map(|fleet| Input::Fleet(fleet.clone(), None));
        let rejections = self
            .rejections
            .keys()
            .map(|rejected| Input::Rejection(rejected.clone(), None));
        objects.chain(fleets).chain(rejections).collect()
    }
}

fn config() -> ProptestConfig {
    ProptestConfig {
        cases: cases(120),
        failure_persistence: None,
        max_shrink_iters: 4_000,
        ..ProptestConfig::default()
    }
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn the_output_does_not_depend_on_history(
        first in generate::sets(),
        fleets in prop::collection::btree_map(fleet_ids(), fleet_states(), 0..4),
        batches in prop::collection::vec(prop::collection::vec(events(), 1..6), 1..7),
        pieces in 1..5usize,
        mode in modes(),
    ) {
        let mut finals = Final { objects: first, fleets, ..Final::default() };
        let mut world = new_world(&mode);
        world.apply(finals.reversed());
        for batch in &batches {
            let inputs: Vec<Input> = batch.iter().filter_map(|event| finals.apply(event)).collect();
            world.apply(inputs);
            let mut fresh = new_world(&mode);
            fresh.apply(finals.reversed());
            let different = differences(&world, &fresh);
            prop_assert!(different.is_empty(), "after {batch:?}:\n{}", different.join("\n"));
            prop_assert_eq!(footprint(&world), footprint(&fresh));
        }

        // In batches of a different size.
        let mut slow = new_world(&mode);
        let inputs = finals.reversed();
        for piece in inputs.chunks(inputs.len().div_ceil(pieces).max(1)) {
            slow.apply(piece.to_vec());
        }
        let different = differences(&world, &slow);
        prop_assert!(different.is_empty(), "in {pieces} pieces:\n{}", different.join("\n"));
        prop_assert_eq!(footprint(&world), footprint(&slow));

        let inputs = finals.removals();
        for piece in inputs.chunks(inputs.len().div_ceil(pieces).max(1)) {
            world.apply(piece.to_vec());
        }
        let empty = new_world(&mode);
        prop_assert!(world.resources().is_empty());
        prop_assert_eq!(footprint(&world), footprint(&empty));
        prop_assert_eq!(assembler(&world), assembler(&empty));
    }
}

/// The size of the engine's data, without free slots.
fn footprint(world: &World) -> Footprint {
    Footprint {
        slots: 0,
        ..world.core().engine().footprint()
    }
}

/// The assembler's state as text, without the engine's table handles.
fn assembler(world: &World) -> String {
    let text = format!("{:#?}", world.core().assembler());
    let from = text.find("script:").expect("a field after the handles");
    text[from..].to_owned()
}

/// The property above would hold trivially if worlds had no output.
#[test]
fn random_sets_yield_every_type_of_resource() {
    const SETS: usize = 100;
    let mut runner = TestRunner::deterministic();
    let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
    for _ in 0..SETS {
        let tree = generate::sets().new_tree(&mut runner);
        let objects = tree.expect("a set").current();
        let state = FleetState {
            addresses: vec![FleetAddress::Ip(Ipv4Addr::LOCALHOST.into())],
            ..FleetState::default()
        };
        let fleets = GATEWAYS.map(|(namespace, name)| {
            let fleet = FleetId::of_gateway(namespace, name);
            Input::Fleet(fleet, Some(state.clone()))
        });
        let mut world = in_shards();
        world.apply(objects.decoded().map(Input::Upsert).chain(fleets));
        assert!(!differences(&world, &in_shards()).is_empty());
        for (_, type_url, _) in world.resources().keys() {
            *kinds.entry(type_url).or_default() += 1;
        }
    }
    for type_url in sesame_envoy::names::TYPES {
        let count = kinds.get(type_url).copied().unwrap_or(0);
        assert!(count > SETS, "{kinds:?}");
    }
}

#[test]
fn the_generator_names_the_services_of_xbackends() {
    let names: Vec<_> = XBACKENDS
        .iter()
        .map(|name| pod_services::name(name))
        .collect();
    let names: Vec<&str> = names.iter().map(|name| &**name).collect();
    assert_eq!(names, POD_SERVICES);
}
