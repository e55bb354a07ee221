use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A route to one backend; a negative weight does not decode.
fn route(name: &str, weight: i64, version: u64) -> String {
    json!({
        "metadata": {"name": name, "namespace": "a", "resourceVersion": version.to_string(), "uid": "u"},
        "spec": {"rules": [{"backendRefs": [{"name": "b", "port": 80, "weight": weight}]}]},
        "status": {"parents": [{"version": version}]},
    })
    .to_string()
}

fn told(steps: &[Step]) -> Vec<String> {
    let line = |step: &Step| match step {
        Step::Upsert(object) => format!("upsert {}", object.key().name),
        Step::Remove(key) => format!("remove {}", key.name),
        Step::Live(key, Some(live)) => format!("live {} {}", key.name, live.resource_version),
        Step::Live(key, None) => format!("live {} gone", key.name),
        Step::Unreadable(key, message) => format!("unreadable {} {message}", key.name),
        Step::Readable(key) => format!("readable {}", key.name),
        Step::Nonsense(message) => format!("nonsense {message}"),
    };
    steps.iter().map(line).collect()
}

fn exists(shelf: &mut Shelf, text: &str) -> Vec<String> {
    let mut steps = Vec::new();
    shelf.exists(text, &mut steps);
    told(&steps)
}

fn gone(shelf: &mut Shelf, text: &str) -> Vec<String> {
    let mut steps = Vec::new();
    shelf.gone(text, &mut steps);
    told(&steps)
}

fn done(shelf: &mut Shelf) -> Vec<String> {
    let mut steps = Vec::new();
    shelf.done(&mut steps);
    told(&steps)
}

#[test]
fn a_changed_status_is_told_without_the_object() {
    let mut shelf = Shelf::new(Kind::HTTPRoute);
    assert_eq!(
        exists(&mut shelf, &route("r", 1, 1)),
        ["live r 1", "upsert r"]
    );
    assert_eq!(exists(&mut shelf, &route("r", 1, 2)), ["live r 2"]);
    assert_eq!(
        exists(&mut shelf, &route("r", 2, 3)),
        ["live r 3", "upsert r"]
    );
}

#[test]
fn what_a_new_list_does_not_show_is_gone() {
    let mut shelf = Shelf::new(Kind::HTTPRoute);
    shelf.begin();
    for name in ["r", "s", "t"] {
        exists(&mut shelf, &route(name, 1, 1));
    }
    assert!(done(&mut shelf).is_empty());
    // A list that breaks off says nothing about what it has not shown.
    shelf.begin();
    exists(&mut shelf, &route("s", 1, 1));
    shelf.begin();
    assert_eq!(exists(&mut shelf, &route("t", 1, 1)), ["live t 1"]);
    assert_eq!(
        done(&mut shelf),
        ["live r gone", "remove r", "live s gone", "remove s"]
    );
    assert!(gone(&mut shelf, &route("r", 1, 1)).is_empty());
    assert_eq!(
        gone(&mut shelf, &route("t", 1, 1)),
        ["live t gone", "remove t"]
    );
}

#[test]
fn the_last_good_version_of_an_object_counts() {
    let mut shelf = Shelf::new(Kind::HTTPRoute);
    shelf.begin();
    exists(&mut shelf, &route("r", 1, 1));
    let unreadable = exists(&mut shelf, &route("r", -1, 2));
    assert_eq!(unreadable.len(), 2);
    assert!(
        unreadable[1].starts_with("unreadable r spec.rules[0].backendRefs[0].weight: "),
        "{unreadable:?}"
    );
    assert!(done(&mut shelf).is_empty());
    assert_eq!(
        exists(&mut shelf, &route("r", 1, 3)),
        ["live r 3", "readable r"]
    );
    // One that never was readable was never told of, but its trouble ends with it.
    exists(&mut shelf, &route("s", -1, 4));
    assert_eq!(
        gone(&mut shelf, &route("s", -1, 5)),
        ["readable s", "live s gone"]
    );
    exists(&mut shelf, &route("s", -1, 6));
    shelf.begin();
    exists(&mut shelf, &route("r", 1, 3));
    assert_eq!(done(&mut shelf), ["readable s", "live s gone"]);
}

#[test]
fn what_is_no_object_hurts_nobody() {
    let mut shelf = Shelf::new(Kind::Service);
    assert!(exists(&mut shelf, "{}")[0].starts_with("nonsense "));
    assert!(gone(&mut shelf, "[")[0].starts_with("nonsense "));
}

#[test]
fn a_kind_that_goes_takes_its_objects_along() {
    let mut shelf = Shelf::new(Kind::Service);
    let service = json!({"metadata": {"name": "s", "namespace": "a"}}).to_string();
    assert_eq!(exists(&mut shelf, &service), ["upsert s"]);
    let mut steps = Vec::new();
    shelf.clear(&mut steps);
    assert_eq!(told(&steps), ["remove s"]);
    assert_eq!(exists(&mut shelf, &service), ["upsert s"]);
}

/// What happens in a cluster, and between it and us.
#[derive(Clone, Debug)]
enum Happens {
    /// The object gets this weight; a negative one does not decode.
    Written(u8, i64),
    StatusWritten(u8),
    Deleted(u8),
    /// The watch breaks, history is lost, and a list shows so many objects before it breaks as well.
    ListBreaks(usize),
    /// The watch breaks, history is lost, and a list follows.
    Relist,
    /// From here on the watch tells nothing until a list.
    Silence,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..6u8, -1..4i64).prop_map(|(name, weight)| Happens::Written(name, weight)),
        3 => (0..6u8).prop_map(Happens::StatusWritten),
        2 => (0..6u8).prop_map(Happens::Deleted),
        1 => (0..4usize).prop_map(Happens::ListBreaks),
        1 => Just(Happens::Relist),
        1 => Just(Happens::Silence),
    ]
}

/// A cluster, a shelf that watches it, and who listens to the shelf.
#[derive(Default)]
struct World {
    version: u64,
    /// Weight and version.
    cluster: BTreeMap<u8, (i64, u64)>,
    heard: BTreeMap<String, Value>,
    statuses: BTreeMap<String, String>,
    unreadable: BTreeMap<String, ()>,
}

impl World {
    fn hear(&mut self, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Upsert(object) => {
                    let value = serde_json::to_value(&*object).unwrap();
                    let weight = value.pointer("/spec/rules/0/backendRefs/0/weight");
                    let weight = weight.cloned().unwrap_or(json!(1));
                    let before = self
                        .heard
                        .insert(object.key().name.to_string(), weight.clone());
                    assert_ne!(before, Some(weight), "told though nothing changed");
                }
                Step::Remove(key) => {
                    self.heard
                        .remove(&*key.name)
                        .expect("removed what was told");
                }
                Step::Live(key, Some(live)) => {
                    let version = live.resource_version.to_string();
                    self.statuses.insert(key.name.to_string(), version);
                }
                Step::Live(key, None) => {
                    self.statuses.remove(&*key.name);
                }
                Step::Unreadable(key, _) => {
                    self.unreadable.insert(key.name.to_string(), ());
                }
                Step::Readable(key) => {
                    self.unreadable.remove(&*key.name).expect("was told");
                }
                Step::Nonsense(message) => panic!("{message}"),
            }
        }
    }

    fn list(&mut self, shelf: &mut Shelf, until: usize) {
        shelf.begin();
        let mut steps = Vec::new();
        for (name, (weight, version)) in self.cluster.iter().take(until) {
            shelf.exists(&route(&format!("r{name}"), *weight, *version), &mut steps);
        }
        self.hear(steps);
    }

    fn relist(&mut self, shelf: &mut Shelf) {
        self.list(shelf, usize::MAX);
        let mut steps = Vec::new();
        shelf.done(&mut steps);
        self.hear(steps);
    }
}

proptest! {
    #[test]
    fn whatever_happens_the_last_list_tells_what_there_is(events in vec(happens(), 0..60)) {
        let (mut world, mut shelf, mut silent) = (World::default(), Shelf::new(Kind::HTTPRoute), false);
        world.relist(&mut shelf);
        for event in events {
            world.version += 1;
            let version = world.version;
            let mut steps = Vec::new();
            match event {
                Happens::Written(name, weight) => {
                    world.cluster.insert(name, (weight, version));
                    if !silent {
                        shelf.exists(&route(&format!("r{name}"), weight, version), &mut steps);
                    }
                }
                Happens::StatusWritten(name) => {
                    let Some((weight, at)) = world.cluster.get_mut(&name) else { continue };
                    *at = version;
                    let weight = *weight;
                    if !silent {
                        shelf.exists(&route(&format!("r{name}"), weight, version), &mut steps);
                    }
                }
                Happens::Deleted(name) => {
                    let Some((weight, _)) = world.cluster.remove(&name) else { continue };
                    if !silent {
                        shelf.gone(&route(&format!("r{name}"), weight, version), &mut steps);
                    }
                }
                Happens::ListBreaks(until) => {
                    world.list(&mut shelf, until);
                    silent = true;
                }
                Happens::Relist => {
                    world.relist(&mut shelf);
                    silent = false;
                }
                Happens::Silence => silent = true,
            }
            world.hear(steps);
        }
        world.relist(&mut shelf);
        let name = |name: &u8| format!("r{name}");
        let statuses: BTreeMap<_, _> = world.cluster.iter().map(|(n, (_, v))| (name(n), v.to_string())).collect();
        prop_assert_eq!(&world.statuses, &statuses);
        for (n, (weight, _)) in &world.cluster {
            if *weight >= 0 {
                prop_assert_eq!(world.heard.get(&name(n)), Some(&json!(weight)));
            }
            prop_assert_eq!(world.unreadable.contains_key(&name(n)), *weight < 0);
        }
        prop_assert!(world.heard.keys().all(|heard| statuses.contains_key(heard)));
    }
}

#[test]
fn an_object_costs_its_name_and_32_bytes() {
    assert_eq!(size_of::<(Box<str>, Entry)>(), 32);
    let mut shelf = Shelf::new(Kind::HTTPRoute);
    exists(&mut shelf, &route("r", 1, 1));
    let names: Vec<_> = shelf.held.keys().map(|name| &**name).collect();
    assert_eq!(names, ["a/r"]);
}
