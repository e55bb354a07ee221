//! Every case, with invalid and odd values in every field: nothing panics, output is bounded, the order of objects
//! doesn't matter, a decoding error has a location, and neighbours are served unchanged.
//!
//! Each field of each object is mutated as in [`mutation`]: in a few ways by default, in all of them with
//! `SESAME_CASES=all`.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use sesame_api::{DecodeError, Kind, Object, ObjectKey};
use sesame_control::core::{Input, Step};
use sesame_control::{FleetId, Options, translate};
use sesame_envoy::Bytes;
use sesame_model::{FleetAddress, FleetState, RouteTableKey, VirtualHostKey};
use sesame_tests::cases::{self, Case};
use sesame_tests::mutation::{self, Mutation};
use sesame_tests::world::{ResourceKey, World, differences};

/// Mutations to try at each place by default.
const DEFAULT: usize = 2;

/// One in this many mutations is compared with a new world.
const COMPARED: usize = 32;

/// Maximum length of an error message, in bytes.
const MAX_MESSAGE: usize = 1_000;

/// Maximum number of keys that may run for a changed object.
const MAX_WORK: usize = 10_000;

/// Maximum growth of resources, in bytes per byte of the changed object: a hostname appears once in the object, but in
/// each of its Envoy routes.
const MAX_GROWTH: usize = 64;

/// Maximum number of failures to print.
const SHOWN: usize = 10;

#[test]
fn invalid_objects_do_not_affect_their_neighbours() {
    let per_place = match std::env::var("SESAME_CASES") {
        Ok(all) if all == "all" => usize::MAX,
        _ => DEFAULT,
    };
    let mut tried = 0;
    let mut failures = Vec::new();
    let mut last_area = String::new();
    for case in cases::all() {
        let area = case.name.split('/').next().unwrap_or_default().to_owned();
        // Shared objects are changed only in the first case of an area.
        let documents = match area == last_area {
            true => case.objects.clone(),
            false => case.all_objects(),
        };
        last_area = area;
        let mut subject = Subject::new(&case);
        for document in &documents {
            for path in mutation::paths(document) {
                for number in chosen(
                    &case.name,
                    &path,
                    mutation::count(document, &path),
                    per_place,
                ) {
                    let mutation = mutation::mutate(document, &path, number);
                    let compared = tried % COMPARED == 0;
                    tried += 1;
                    let attempt =
                        AssertUnwindSafe(|| subject.attempt(document, &mutation, compared));
                    let problem = match catch_unwind(attempt) {
                        Ok(Ok(())) => continue,
                        Ok(Err(problem)) => problem,
                        Err(panic) => format!("panic: {}", text(&*panic)),
                    };
                    let Mutation { path, what, .. } = mutation;
                    let name = &document["metadata"]["name"];
                    failures.push(format!(
                        "{}: {}/{name} {path} {what}: {problem}",
                        case.name, document["kind"]
                    ));
                    subject = Subject::new(&case);
                }
            }
        }
    }
    assert!(tried > 5_000, "only {tried} changes were tried");
    assert!(
        failures.is_empty(),
        "{} of {tried} failed:\n{}",
        failures.len(),
        failures[..failures.len().min(SHOWN)].join("\n\n")
    );
}

/// Checks that an error is short and has a location, unless the whole object is nested too deeply.
fn check_error(error: &DecodeError) -> Result<(), String> {
    let text = error.to_string();
    let located = error.key.is_some() || !error.path.is_empty() || text.contains("deep");
    if text.len() > MAX_MESSAGE {
        Err(format!("a message of {} bytes", text.len()))
    } else if !located {
        Err(format!("an error without a location: {text}"))
    } else {
        Ok(())
    }
}

/// Which of the `count` mutations at a place to try: evenly spaced, with a start that depends on the place.
fn chosen(case: &str, path: &str, count: usize, wanted: usize) -> Vec<usize> {
    let wanted = wanted.min(count);
    // FNV-1a: the same on every machine and in every release.
    let start = case
        .bytes()
        .chain(path.bytes())
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
    let start = usize::try_from(start >> 33).expect("31 bits fit") % count;
    (0..wanted)
        .map(|step| (start + step * count / wanted) % count)
        .collect()
}

fn text(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("(no text)")
}

/// A case with unrelated neighbours.
struct Subject {
    objects: Vec<Object>,
    world: World,
    fleets: Vec<FleetId>,
    /// The resources before any change.
    resources: BTreeMap<ResourceKey, Bytes>,
    neighbours: Neighbours,
}

/// State that must not change.
#[derive(Debug, PartialEq)]
struct Neighbours {
    /// Resources of the neighbour's Gateway.
    fleet: BTreeMap<ResourceKey, Bytes>,
    /// Statuses of the neighbour's Gateway and of the routes, and the virtual host of the route on the case's Gateway.
    other: String,
}

impl Subject {
    fn new(case: &Case) -> Self {
        let objects: Vec<Object> = case
            .all_objects()
            .into_iter()
            .chain(neighbours())
            .filter_map(|value| Object::decode(value).ok().flatten())
            .collect();
        let mut world = World::new(Options::default());
        let mut fleets = Vec::new();
        world.apply(objects.iter().cloned().map(Input::Upsert));
        settle(&mut world, &mut fleets);
        let resources = world.resources().clone();
        let neighbours = Neighbours::of(&world);
        assert!(
            neighbours.fleet.len() == 4 && neighbours.other.contains("host: VirtualHost"),
            "{}: neighbours must be served: {neighbours:?}",
            case.name
        );
        Self {
            objects,
            world,
            fleets,
            resources,
            neighbours,
        }
    }

    /// Changes an object, checks the world, and reverts the change.
    fn attempt(
        &mut self,
        document: &Value,
        mutation: &Mutation,
        compared: bool,
    ) -> Result<(), String> {
        let original = Object::decode(document.clone()).ok().flatten();
        let size = mutation.value.to_string().len();
        let changed = match Object::decode(mutation.value.clone()) {
            Ok(changed) => changed,
            Err(error) => {
                check_error(&error)?;
                // A later release of the API may admit it.
                match Object::decode_admitted(mutation.value.clone()) {
                    Ok(changed) => changed,
                    Err(error) => return check_error(&error),
                }
            }
        };
        // The new name may belong to another object in the case.
        if let Some(changed) = &changed
            && original.as_ref().map(Object::key) != Some(changed.key())
            && self
                .objects
                .iter()
                .any(|object| object.key() == changed.key())
        {
            return Ok(());
        }
        let removal = original.as_ref().map(|object| Input::Remove(object.key()));
        let step = self.world.apply(
            removal
                .into_iter()
                .chain(changed.clone().map(Input::Upsert)),
        );
        let mut fleets = self.fleets.clone();
        settle(&mut self.world, &mut fleets);
        self.check(&step, size, document)?;
        if compared {
            self.compare(original.as_ref(), changed.as_ref(), &fleets)?;
        }

        let removal = changed.as_ref().map(|object| Input::Remove(object.key()));
        let gone = fleets.iter().filter(|fleet| !self.fleets.contains(fleet));
        let gone = gone.map(|fleet| Input::Fleet(fleet.clone(), None));
        self.world.apply(
            removal
                .into_iter()
                .chain(gone)
                .chain(original.map(Input::Upsert)),
        );
        match *self.world.resources() == self.resources {
            true => Ok(()),
            false => Err("the resources differ after the change is reverted".to_owned()),
        }
    }

    fn check(&self, step: &Step, size: usize, document: &Value) -> Result<(), String> {
        let work: usize = step.commit.work().iter().map(|(_, keys)| keys).sum();
        if work > MAX_WORK {
            return Err(format!("{work} keys ran"));
        }
        let bytes = |resources: &BTreeMap<ResourceKey, Bytes>| {
            resources.values().map(Bytes::len).sum::<usize>()
        };
        let growth = bytes(self.world.resources()).saturating_sub(bytes(&self.resources));
        if growth > MAX_GROWTH * size {
            return Err(format!(
                "resources grow by {growth} bytes for an object of {size}"
            ));
        }
        let mut neighbours = Neighbours::of(&self.world);
        // Only changes to its own Gateway may affect the neighbouring route.
        if document["kind"] == "Gateway" && document["metadata"]["name"] == "gw" {
            neighbours.other.clone_from(&self.neighbours.other);
        }
        match neighbours == self.neighbours {
            true => Ok(()),
            false => Err(format!(
                "neighbours changed:\n{:?}\n{neighbours:?}",
                self.neighbours
            )),
        }
    }

    /// Compares with new worlds that get the objects in a different order.
    fn compare(
        &self,
        original: Option<&Object>,
        changed: Option<&Object>,
        fleets: &[FleetId],
    ) -> Result<(), String> {
        let key = original.map(Object::key);
        let others = self
            .objects
            .iter()
            .filter(|object| Some(object.key()) != key);
        let mut objects: Vec<Object> = others.chain(changed).cloned().collect();
        objects.reverse();
        let mut world = World::new(Options::default());
        world.apply(objects.iter().cloned().map(Input::Upsert));
        let states = fleets.iter().enumerate();
        world.apply(states.map(|(number, fleet)| Input::Fleet(fleet.clone(), Some(ready(number)))));
        if let Some(difference) = differences(&self.world, &world).first() {
            return Err(format!("depends on history: {difference}"));
        }
        let once = translate(objects.clone(), Options::default());
        objects.reverse();
        match translate(objects, Options::default()) == once {
            true => Ok(()),
            false => Err("depends on the order of objects".to_owned()),
        }
    }
}

impl Neighbours {
    fn of(world: &World) -> Self {
        let theirs = FleetId::of_gateway("neighbour", "gw");
        let (engine, outputs) = (world.core().engine(), world.core().outputs());
        let table = RouteTableKey {
            fleet: FleetId::of_gateway("default", "gw"),
            port: 80,
        };
        let host = VirtualHostKey {
            table,
            domain: "neighbour.example.net".into(),
        };
        let status = |kind, namespace: &str, name: &str| {
            engine.get(outputs.statuses, &ObjectKey::new(kind, namespace, name))
        };
        Self {
            fleet: world
                .resources()
                .iter()
                .filter(|((fleet, ..), _)| *fleet == theirs)
                .map(|(key, body)| (key.clone(), body.clone()))
                .collect(),
            other: format!(
                "gateway: {:?}\nroute: {:?}\nroute: {:?}\nhost: {}",
                status(Kind::Gateway, "neighbour", "gw"),
                status(Kind::HTTPRoute, "neighbour", "r"),
                status(Kind::HTTPRoute, "default", "neighbour"),
                match engine.get(outputs.virtual_hosts, &host) {
                    Some(host) => format!("{host:?}"),
                    None => "none".to_owned(),
                },
            ),
        }
    }
}

/// Reports every new fleet as ready.
fn settle(world: &mut World, known: &mut Vec<FleetId>) {
    let requests = world.core().engine().iter(world.core().outputs().fleets);
    let new: Vec<FleetId> = requests
        .map(|(fleet, _)| fleet.clone())
        .filter(|fleet| !known.contains(fleet))
        .collect();
    let first = known.len();
    known.extend(new.iter().cloned());
    let states = new.into_iter().enumerate();
    world.apply(states.map(|(number, fleet)| Input::Fleet(fleet, Some(ready(first + number)))));
}

fn ready(number: usize) -> FleetState {
    let ip = std::net::Ipv4Addr::new(127, 0, 1, u8::try_from(number).expect("few fleets"));
    FleetState {
        addresses: vec![FleetAddress::Ip(ip.into())],
        ready: true,
        ..FleetState::default()
    }
}

/// A Gateway and a route in another namespace, and a route on the Gateway shared by all cases.
fn neighbours() -> Vec<Value> {
    let route = |namespace: &str, name: &str, host: &str, service: &str| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": Kind::HTTPRoute.as_str(),
            "metadata": {"namespace": namespace, "name": name},
            "spec": {
                "parentRefs": [{"name": "gw"}],
                "hostnames": [host],
                "rules": [{"backendRefs": [{"name": service, "port": 80}]}],
            },
        })
    };
    let service = |namespace: &str, name: &str| {
        json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": namespace, "name": name},
            "spec": {"ports": [{"port": 80}]},
        })
    };
    vec![
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"namespace": "neighbour", "name": "gw"},
            "spec": {
                "gatewayClassName": "sesame",
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
            },
        }),
        route("neighbour", "r", "r.example.net", "s"),
        service("neighbour", "s"),
        route("default", "neighbour", "neighbour.example.net", "neighbour"),
        service("default", "neighbour"),
    ]
}
