use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

/// A route to one backend. A negative weight can't be decoded.
fn route(name: &str, weight: i64, version: u64) -> String {
    json!({
        "metadata": {"name": name, "namespace": "a", "resourceVersion": version.to_string(), "uid": "u"},
        "spec": {"rules": [{"backendRefs": [{"name": "b", "port": 80, "weight": weight}]}]},
        "status": {"parents": [{"version": version}]},
    })
    .to_string()
}

fn lines(updates: &[Update]) -> Vec<String> {
    let line = |update: &Update| match update {
        Update::Applied(object) => format!("applied {}", object.key().name),
        Update::Deleted(key) => format!("deleted {}", key.name),
        Update::Status(key, Some(live)) => format!("status {} {}", key.name, live.resource_version),
        Update::Status(key, None) => format!("status {} gone", key.name),
        Update::Undecodable(key, message) => format!("undecodable {} {message}", key.name),
        Update::Decodable(key) => format!("decodable {}", key.name),
        Update::Malformed(message) => format!("malformed {message}"),
        other => panic!("{other:?}"),
    };
    updates.iter().map(line).collect()
}

fn apply(store: &mut Store, text: &str) -> Vec<String> {
    let mut updates = Vec::new();
    store.apply(text, &mut updates);
    lines(&updates)
}

fn delete(store: &mut Store, text: &str) -> Vec<String> {
    let mut updates = Vec::new();
    store.delete(text, &mut updates);
    lines(&updates)
}

fn list_ends(store: &mut Store) -> Vec<String> {
    let mut updates = Vec::new();
    store.list_ends(&mut updates);
    lines(&updates)
}

#[test]
fn a_changed_status_is_not_a_changed_object() {
    let mut store = Store::new(Kind::HTTPRoute);
    assert_eq!(
        apply(&mut store, &route("r", 1, 1)),
        ["status r 1", "applied r"]
    );
    assert_eq!(apply(&mut store, &route("r", 1, 2)), ["status r 2"]);
    assert_eq!(
        apply(&mut store, &route("r", 2, 3)),
        ["status r 3", "applied r"]
    );
}

#[test]
fn objects_missing_from_a_complete_list_are_deleted() {
    let mut store = Store::new(Kind::HTTPRoute);
    store.list_begins();
    for name in ["r", "s", "t"] {
        apply(&mut store, &route(name, 1, 1));
    }
    assert!(list_ends(&mut store).is_empty());
    // An incomplete list doesn't delete anything.
    store.list_begins();
    apply(&mut store, &route("s", 1, 1));
    store.list_begins();
    assert_eq!(apply(&mut store, &route("t", 1, 1)), ["status t 1"]);
    assert_eq!(
        list_ends(&mut store),
        ["status r gone", "deleted r", "status s gone", "deleted s"]
    );
    assert!(delete(&mut store, &route("r", 1, 1)).is_empty());
    assert_eq!(
        delete(&mut store, &route("t", 1, 1)),
        ["status t gone", "deleted t"]
    );
}

#[test]
fn an_undecodable_object_keeps_its_last_good_version() {
    let mut store = Store::new(Kind::HTTPRoute);
    store.list_begins();
    apply(&mut store, &route("r", 1, 1));
    let undecodable = apply(&mut store, &route("r", -1, 2));
    assert_eq!(undecodable.len(), 2);
    assert!(
        undecodable[1].starts_with("undecodable r spec.rules[0].backendRefs[0].weight: "),
        "{undecodable:?}"
    );
    assert!(list_ends(&mut store).is_empty());
    assert_eq!(
        apply(&mut store, &route("r", 1, 3)),
        ["status r 3", "decodable r"]
    );
    // An object that was never decoded is not applied; deleting it ends the failure.
    apply(&mut store, &route("s", -1, 4));
    assert_eq!(
        delete(&mut store, &route("s", -1, 5)),
        ["decodable s", "status s gone"]
    );
    apply(&mut store, &route("s", -1, 6));
    store.list_begins();
    apply(&mut store, &route("r", 1, 3));
    assert_eq!(list_ends(&mut store), ["decodable s", "status s gone"]);
}

#[test]
fn malformed_objects_are_reported() {
    let mut store = Store::new(Kind::Service);
    assert!(apply(&mut store, "{}")[0].starts_with("malformed "));
    assert!(delete(&mut store, "[")[0].starts_with("malformed "));
}

#[test]
fn an_uninstalled_kind_deletes_its_objects() {
    let mut store = Store::new(Kind::Service);
    let service = json!({"metadata": {"name": "s", "namespace": "a"}}).to_string();
    assert_eq!(apply(&mut store, &service), ["applied s"]);
    let mut updates = Vec::new();
    store.clear(&mut updates);
    assert_eq!(lines(&updates), ["deleted s"]);
    assert_eq!(apply(&mut store, &service), ["applied s"]);
}

/// An event in the cluster or on the connection to it.
#[derive(Clone, Debug)]
enum Step {
    /// The object gets this weight. A negative one can't be decoded.
    Written(u8, i64),
    StatusWritten(u8),
    Deleted(u8),
    /// The watch disconnects, its version is too old, and the list fails after this many objects.
    ListBreaks(usize),
    /// The watch disconnects, its version is too old, and a list follows.
    Relist,
    /// Events are lost until the next list.
    Silence,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..6u8, -1..4i64).prop_map(|(name, weight)| Step::Written(name, weight)),
        3 => (0..6u8).prop_map(Step::StatusWritten),
        2 => (0..6u8).prop_map(Step::Deleted),
        1 => (0..4usize).prop_map(Step::ListBreaks),
        1 => Just(Step::Relist),
        1 => Just(Step::Silence),
    ]
}

/// A cluster, and the state held by a reader of the store.
#[derive(Default)]
struct World {
    version: u64,
    /// Weight and version.
    cluster: BTreeMap<u8, (i64, u64)>,
    objects: BTreeMap<String, Value>,
    statuses: BTreeMap<String, String>,
    undecodable: BTreeMap<String, ()>,
}

impl World {
    fn read(&mut self, updates: Vec<Update>) {
        for update in updates {
            match update {
                Update::Applied(object) => {
                    let value = serde_json::to_value(&*object).unwrap();
                    let weight = value.pointer("/spec/rules/0/backendRefs/0/weight");
                    let weight = weight.cloned().unwrap_or(json!(1));
                    let before = self
                        .objects
                        .insert(object.key().name.to_string(), weight.clone());
                    assert_ne!(before, Some(weight), "applied without a change");
                }
                Update::Deleted(key) => {
                    self.objects.remove(&*key.name).expect("it was applied");
                }
                Update::Status(key, Some(live)) => {
                    let version = live.resource_version.to_string();
                    self.statuses.insert(key.name.to_string(), version);
                }
                Update::Status(key, None) => {
                    self.statuses.remove(&*key.name);
                }
                Update::Undecodable(key, _) => {
                    self.undecodable.insert(key.name.to_string(), ());
                }
                Update::Decodable(key) => {
                    self.undecodable
                        .remove(&*key.name)
                        .expect("it was undecodable");
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn list(&mut self, store: &mut Store, until: usize) {
        store.list_begins();
        let mut updates = Vec::new();
        for (name, (weight, version)) in self.cluster.iter().take(until) {
            store.apply(&route(&format!("r{name}"), *weight, *version), &mut updates);
        }
        self.read(updates);
    }

    fn relist(&mut self, store: &mut Store) {
        self.list(store, usize::MAX);
        let mut updates = Vec::new();
        store.list_ends(&mut updates);
        self.read(updates);
    }
}

proptest! {
    #[test]
    fn the_last_list_restores_the_state_of_the_cluster(events in vec(step(), 0..60)) {
        let (mut world, mut store, mut silent) = (World::default(), Store::new(Kind::HTTPRoute), false);
        world.relist(&mut store);
        for event in events {
            world.version += 1;
            let version = world.version;
            let mut updates = Vec::new();
            match event {
                Step::Written(name, weight) => {
                    world.cluster.insert(name, (weight, version));
                    if !silent {
                        store.apply(&route(&format!("r{name}"), weight, version), &mut updates);
                    }
                }
                Step::StatusWritten(name) => {
                    let Some((weight, at)) = world.cluster.get_mut(&name) else { continue };
                    *at = version;
                    let weight = *weight;
                    if !silent {
                        store.apply(&route(&format!("r{name}"), weight, version), &mut updates);
                    }
                }
                Step::Deleted(name) => {
                    let Some((weight, _)) = world.cluster.remove(&name) else { continue };
                    if !silent {
                        store.delete(&route(&format!("r{name}"), weight, version), &mut updates);
                    }
                }
                Step::ListBreaks(until) => {
                    world.list(&mut store, until);
                    silent = true;
                }
                Step::Relist => {
                    world.relist(&mut store);
                    silent = false;
                }
                Step::Silence => silent = true,
            }
            world.read(updates);
        }
        world.relist(&mut store);
        let name = |name: &u8| format!("r{name}");
        let statuses: BTreeMap<_, _> = world.cluster.iter().map(|(n, (_, v))| (name(n), v.to_string())).collect();
        prop_assert_eq!(&world.statuses, &statuses);
        for (n, (weight, _)) in &world.cluster {
            if *weight >= 0 {
                prop_assert_eq!(world.objects.get(&name(n)), Some(&json!(weight)));
            }
            prop_assert_eq!(world.undecodable.contains_key(&name(n)), *weight < 0);
        }
        prop_assert!(world.objects.keys().all(|name| statuses.contains_key(name)));
    }
}

#[test]
fn an_object_costs_its_name_and_32_bytes() {
    assert_eq!(size_of::<(Box<str>, Entry)>(), 32);
    let mut store = Store::new(Kind::HTTPRoute);
    apply(&mut store, &route("r", 1, 1));
    let names: Vec<_> = store.entries.keys().map(|name| &**name).collect();
    assert_eq!(names, ["a/r"]);
}
