//! Every case with every field as nobody should write it: nothing panics, nothing grows without bound, the order of
//! objects means nothing, what can't be read is told with its place, and neighbours are served as if nothing had happened.
//!
//! Each place of each object is changed in several of the ways of [`mutation`]: of each place some by default,
//! all of them with `SESAME_CASES=all`.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::{Value, json};
use sesame_api::{DecodeError, Kind, NamespacedName, Object};
use sesame_control::core::{Input, Step};
use sesame_control::{FleetId, Options, translate};
use sesame_envoy::Bytes;
use sesame_model::{RouteTableKey, VirtualHostKey};
use sesame_tests::cases::{self, Case};
use sesame_tests::mutation::{self, Mutation};
use sesame_tests::world::{ResourceKey, World, differences};
use sesame_translate::fleet::{FleetAddress, FleetState};

/// How many changes to try at each place unless all are asked for.
const USUAL: usize = 2;

/// Of how many changes one is compared with a world that never knew anything else.
const COMPARED: usize = 32;

/// Longest message of an error, in bytes.
const MAX_MESSAGE: usize = 1_000;

/// Keys that one changed object may set in motion.
const MAX_WORK: usize = 10_000;

/// What resources may grow by for each byte of the changed object: a hostname that stands once in the object is in each
/// of its routes.
const MAX_GROWTH: usize = 64;

/// Failures to be shown.
const SHOWN: usize = 10;

#[test]
fn wrong_objects_harm_nobody() {
    let per_place = match std::env::var("SESAME_CASES") {
        Ok(all) if all == "all" => usize::MAX,
        _ => USUAL,
    };
    let mut tried = 0;
    let mut failures = Vec::new();
    let mut last_area = String::new();
    for case in cases::all() {
        let area = case.name.split('/').next().unwrap_or_default().to_owned();
        // What cases share is changed in the first of them.
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
                        Err(panic) => format!("panic: {}", words(&*panic)),
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

/// An error must say where, and not all that it found there. That the whole is too deep is told of the whole.
fn refusal(error: &DecodeError) -> Result<(), String> {
    let text = error.to_string();
    let placed = error.key.is_some() || !error.path.is_empty() || text.contains("deep");
    if text.len() > MAX_MESSAGE {
        Err(format!("a message of {} bytes", text.len()))
    } else if !placed {
        Err(format!("an error without a place: {text}"))
    } else {
        Ok(())
    }
}

/// Which of `count` changes at a place are tried: spread evenly, from a start that depends on the place.
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

fn words(panic: &(dyn std::any::Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied())
        .unwrap_or("(no words)")
}

/// A case with neighbours that have nothing to do with it.
struct Subject {
    objects: Vec<Object>,
    world: World,
    fleets: Vec<FleetId>,
    /// As it was before any change.
    resources: BTreeMap<ResourceKey, Bytes>,
    neighbours: Neighbours,
}

/// What must stay as it is.
#[derive(Debug, PartialEq)]
struct Neighbours {
    /// Of the Gateway that is not the case's.
    fleet: BTreeMap<ResourceKey, Bytes>,
    /// Statuses of the foreign Gateway and of the routes, and the host of the one on the case's own Gateway.
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
            "{}: neighbours are served: {neighbours:?}",
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

    /// Changes an object, looks, and changes it back.
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
                return refusal(&error);
            }
        };
        // Another object of the case may have the name that this one has got.
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
            false => Err("something stays when the object is mended".to_owned()),
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
                "{growth} bytes more of resources from an object of {size}"
            ));
        }
        let mut neighbours = Neighbours::of(&self.world);
        // Only its own Gateway may change what the route on it gets.
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

    /// Compares with worlds that never knew the object as it was, and were told of the others in another order.
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
        world.apply(states.map(|(number, fleet)| Input::Fleet(fleet.clone(), Some(well(number)))));
        if let Some(difference) = differences(&self.world, &world).first() {
            return Err(format!("depends on what was there before: {difference}"));
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
        let foreign = FleetId::of_gateway("neighbour", "gw");
        let (engine, outputs) = (world.core().engine(), world.core().outputs());
        let table = RouteTableKey {
            fleet: FleetId::of_gateway("default", "gw"),
            port: 80,
            listener: None,
        };
        let host = VirtualHostKey {
            table,
            domain: "neighbour.example.net".into(),
        };
        let named = |namespace: &str, name: &str| NamespacedName::new(namespace, name);
        Self {
            fleet: world
                .resources()
                .iter()
                .filter(|((fleet, ..), _)| *fleet == foreign)
                .map(|(key, body)| (key.clone(), body.clone()))
                .collect(),
            other: format!(
                "gateway: {:?}\nroute: {:?}\nroute: {:?}\nhost: {}",
                engine.get(outputs.gateway_status, &named("neighbour", "gw")),
                engine.get(outputs.http_route_status, &named("neighbour", "r")),
                engine.get(outputs.http_route_status, &named("default", "neighbour")),
                match engine.get(outputs.virtual_hosts, &host) {
                    Some(host) => format!("{host:?}"),
                    None => "none".to_owned(),
                },
            ),
        }
    }
}

/// Says of every fleet that is asked for and not known yet that it is well.
fn settle(world: &mut World, known: &mut Vec<FleetId>) {
    let requests = world.core().engine().iter(world.core().outputs().fleets);
    let new: Vec<FleetId> = requests
        .map(|(fleet, _)| fleet.clone())
        .filter(|fleet| !known.contains(fleet))
        .collect();
    let first = known.len();
    known.extend(new.iter().cloned());
    let states = new.into_iter().enumerate();
    world.apply(states.map(|(number, fleet)| Input::Fleet(fleet, Some(well(first + number)))));
}

fn well(number: usize) -> FleetState {
    let ip = std::net::Ipv4Addr::new(127, 0, 1, u8::try_from(number).expect("few fleets"));
    FleetState {
        addresses: vec![FleetAddress::Ip(ip.into())],
        ready: true,
        ..FleetState::default()
    }
}

/// A Gateway with a route in a namespace of their own, and a route on the Gateway that all cases have.
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
