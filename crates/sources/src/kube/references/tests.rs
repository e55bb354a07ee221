use std::collections::{BTreeMap, VecDeque};

use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::change::Change;

fn secret(name: &str) -> ObjectKey {
    ObjectKey::new(Kind::Secret, "a", name)
}

fn secret_object(name: &str, content: u64) -> Object {
    let value = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": name, "namespace": "a", "labels": {"content": content.to_string()}},
    });
    Object::decode(value).unwrap().unwrap()
}

/// An object that references Secrets.
fn referrer(name: &str) -> Object {
    let value = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name, "namespace": "a"}});
    Object::decode(value).unwrap().unwrap()
}

fn found(name: &str, version: u64) -> Found {
    Found::Object {
        object: Box::new(secret_object(name, version)),
        version: version.to_string().into(),
        fingerprint: version,
    }
}

struct Test {
    references: References,
    out: Outbox,
    at: Instant,
}

impl Test {
    fn new() -> Self {
        let mut out = Outbox::default();
        let at = Instant::now();
        out.take_changes(true);
        let references = References::default();
        Self {
            references,
            out,
            at,
        }
    }

    fn reference(&mut self, name: &str, names: &[&str]) {
        let names = names.iter().map(|name| secret(name)).collect();
        self.references
            .upsert(referrer(name), names, self.at, &mut self.out);
    }

    fn delete(&mut self, name: &str) {
        let key = referrer(name).key();
        self.references.remove(key, self.at, &mut self.out);
    }

    fn fetched(&mut self, name: &str, id: FetchId, found: Found) {
        self.references
            .fetched(&secret(name), id, found, self.at, &mut self.out);
    }

    fn seen(&mut self, name: &str, version: u64) {
        self.references.seen(0, secret(name), &version.to_string());
    }

    fn commands(&mut self) -> Vec<String> {
        let line = |command: &FetchCommand| match command {
            FetchCommand::Start(key, id) => format!("fetch {} {id}", key.name),
            FetchCommand::Cancel(key) => format!("cancel {}", key.name),
        };
        self.references.take_commands().iter().map(line).collect()
    }

    fn changes(&mut self) -> Vec<String> {
        let changes = self.out.take_changes(true).map(|set| set.changes);
        let line = |change: &Change| match change {
            Change::Upsert(object) => match object.labels().get("content") {
                Some(content) => format!("{} {content}", object.key().name),
                None => object.key().name.to_string(),
            },
            Change::Remove(key) => format!("-{}", key.name),
        };
        changes.unwrap_or_default().iter().map(line).collect()
    }
}

#[test]
fn an_object_is_passed_on_together_with_its_references() {
    let mut test = Test::new();
    test.reference("h", &["s", "t"]);
    assert_eq!(test.commands(), ["fetch s 1", "fetch t 2"]);
    assert!(test.changes().is_empty());
    assert!(test.references.any_waiting());
    test.fetched("t", 2, Found::Nothing);
    assert!(test.changes().is_empty());
    test.fetched("s", 1, found("s", 7));
    assert_eq!(test.changes(), ["h", "s 7"]);
    assert!(!test.references.any_waiting());
    // A second reference doesn't need a fetch.
    test.reference("i", &["s"]);
    assert_eq!(test.changes(), ["i"]);
    assert!(test.commands().is_empty());
}

#[test]
fn unreferenced_objects_are_removed() {
    let mut test = Test::new();
    test.reference("h", &["s"]);
    test.reference("i", &["s"]);
    test.fetched("s", 1, found("s", 7));
    test.changes();
    test.commands();
    test.reference("h", &[]);
    assert_eq!(test.changes(), ["h"]);
    test.delete("i");
    assert_eq!(test.changes(), ["-i", "-s"]);
    assert_eq!(test.commands(), ["cancel s"]);
    assert!(test.references.referenced.is_empty() && test.references.by_referrer.is_empty());
    // Its changes are ignored.
    test.seen("s", 8);
    assert!(test.commands().is_empty());
}

#[test]
fn while_a_new_version_waits_the_old_one_keeps_its_references() {
    let mut test = Test::new();
    test.reference("h", &["s"]);
    test.fetched("s", 1, found("s", 7));
    test.changes();
    test.reference("h", &["t"]);
    assert!(test.changes().is_empty());
    test.fetched("t", 2, found("t", 9));
    assert_eq!(test.changes(), ["h", "-s", "t 9"]);
    // A version replaced while waiting leaves nothing behind.
    test.reference("h", &["u"]);
    test.reference("h", &["t"]);
    assert_eq!(test.changes(), ["h"]);
    test.reference("h", &["u"]);
    test.delete("h");
    assert_eq!(test.changes(), ["-h", "-t"]);
    assert!(test.references.referenced.is_empty() && !test.references.any_waiting());
}

#[test]
fn only_newer_versions_are_fetched() {
    let mut test = Test::new();
    test.reference("h", &["s"]);
    test.commands();
    test.fetched("s", 1, found("s", 7));
    test.changes();
    test.seen("s", 7);
    test.seen("s", 3);
    assert!(test.commands().is_empty());
    test.seen("s", 8);
    assert_eq!(test.commands(), ["fetch s 2"]);
    // A version seen during a fetch is fetched afterwards, unless the result is at least as new.
    test.seen("s", 9);
    assert!(test.commands().is_empty());
    test.fetched("s", 2, found("s", 8));
    assert_eq!(test.changes(), ["s 8"]);
    assert_eq!(test.commands(), ["fetch s 3"]);
    test.seen("s", 10);
    test.fetched("s", 3, found("s", 10));
    assert!(test.commands().is_empty());
    assert_eq!(test.changes(), ["s 10"]);
}

#[test]
fn a_deletion_is_confirmed_by_a_get() {
    let mut test = Test::new();
    test.reference("h", &["s"]);
    test.fetched("s", 1, found("s", 7));
    test.changes();
    test.commands();
    test.seen("s", 8);
    assert_eq!(test.commands(), ["fetch s 2"]);
    test.fetched("s", 2, Found::Nothing);
    assert_eq!(test.changes(), ["-s"]);
    // Recreated.
    test.seen("s", 12);
    assert_eq!(test.commands(), ["fetch s 3"]);
    test.fetched("s", 3, found("s", 12));
    assert_eq!(test.changes(), ["s 12"]);
}

#[test]
fn an_object_missing_from_a_list_is_fetched() {
    let mut test = Test::new();
    test.reference("h", &["s", "t"]);
    test.fetched("s", 1, found("s", 7));
    test.fetched("t", 2, found("t", 7));
    test.commands();
    test.references.list_begins(0);
    test.seen("s", 7);
    test.references.list_ends(0, Kind::Secret, Some("b"));
    assert!(test.commands().is_empty());
    test.references.list_begins(0);
    test.seen("s", 7);
    test.references.list_ends(0, Kind::Secret, Some("a"));
    assert_eq!(test.commands(), ["fetch t 3"]);
}

#[test]
fn an_object_missing_from_a_list_is_fetched_again_after_the_current_fetch() {
    let mut test = Test::new();
    test.reference("h", &["s", "t"]);
    test.commands();
    test.references.list_begins(0);
    test.references.list_ends(0, Kind::Secret, None);
    test.fetched("s", 1, found("s", 7));
    test.fetched("t", 2, Found::Nothing);
    assert_eq!(test.commands(), ["fetch s 3"]);
    test.fetched("s", 3, Found::Nothing);
    assert_eq!(test.changes(), ["h", "-s"]);
}

#[test]
fn objects_do_not_wait_for_a_forbidden_one() {
    let mut test = Test::new();
    test.reference("h", &["s"]);
    test.commands();
    test.fetched("s", 1, Found::Denied);
    assert_eq!(test.changes(), ["h"]);
    // The same fetch continues and may still succeed.
    test.seen("s", 5);
    assert!(test.commands().is_empty());
    test.fetched("s", 1, found("s", 5));
    assert_eq!(test.changes(), ["s 5"]);
    assert!(test.commands().is_empty());
}

#[test]
fn an_undecodable_object_keeps_its_last_good_version() {
    let mut test = Test::new();
    test.reference("h", &["s"]);
    test.fetched("s", 1, found("s", 7));
    test.changes();
    test.seen("s", 8);
    test.fetched("s", 2, Found::Unreadable(String::new()));
    assert!(test.changes().is_empty());
    test.reference("i", &["t"]);
    test.fetched("t", 3, Found::Unreadable(String::new()));
    assert_eq!(test.changes(), ["i"]);
}

#[test]
fn the_result_of_a_replaced_fetch_is_ignored() {
    let mut test = Test::new();
    test.reference("h", &["s"]);
    test.delete("h");
    test.reference("h", &["s"]);
    assert_eq!(test.commands(), ["fetch s 1", "cancel s", "fetch s 2"]);
    test.changes();
    test.fetched("s", 1, found("s", 7));
    assert!(test.changes().is_empty());
    test.fetched("s", 2, found("s", 8));
    assert_eq!(test.changes(), ["h", "s 8"]);
}

#[derive(Clone, Debug)]
enum Step {
    Written(u8),
    Deleted(u8),
    Referenced(u8, std::collections::BTreeSet<u8>),
    Unreferenced(u8),
    /// The server reads the object for the oldest fetch.
    ServerReads,
    /// The response to the oldest fetch arrives.
    AnswerArrives,
    /// The next watch event arrives.
    EventArrives,
    /// The version is too old; the watch continues with a list.
    Relist,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..4u8).prop_map(Step::Written),
        1 => (0..4u8).prop_map(Step::Deleted),
        3 => (0..3u8, btree_set(0..4u8, 0..3)).prop_map(|(referrer, names)| Step::Referenced(referrer, names)),
        1 => (0..3u8).prop_map(Step::Unreferenced),
        3 => Just(Step::ServerReads),
        3 => Just(Step::AnswerArrives),
        3 => Just(Step::EventArrives),
        1 => Just(Step::Relist),
    ]
}

/// A cluster with delayed events and responses.
struct World {
    test: Test,
    version: u64,
    cluster: BTreeMap<u8, u64>,
    names: BTreeMap<u8, std::collections::BTreeSet<u8>>,
    watch: VecDeque<(u8, u64)>,
    requests: VecDeque<(String, FetchId)>,
    responses: VecDeque<(String, FetchId, Option<u64>)>,
    objects: BTreeMap<String, Option<u64>>,
    /// The newest content ever sent for each object.
    newest: BTreeMap<String, u64>,
}

impl World {
    fn new() -> Self {
        Self {
            test: Test::new(),
            version: 0,
            cluster: BTreeMap::new(),
            names: BTreeMap::new(),
            watch: VecDeque::new(),
            requests: VecDeque::new(),
            responses: VecDeque::new(),
            objects: BTreeMap::new(),
            newest: BTreeMap::new(),
        }
    }

    fn run(&mut self, event: Step) {
        self.version += 1;
        match event {
            Step::Written(name) => {
                self.cluster.insert(name, self.version);
                self.watch.push_back((name, self.version));
            }
            Step::Deleted(name) => {
                if self.cluster.remove(&name).is_some() {
                    self.watch.push_back((name, self.version));
                }
            }
            Step::Referenced(referrer, names) => {
                let texts: Vec<_> = names.iter().map(|name| format!("s{name}")).collect();
                let texts: Vec<_> = texts.iter().map(String::as_str).collect();
                self.test.reference(&format!("h{referrer}"), &texts);
                self.names.insert(referrer, names);
            }
            Step::Unreferenced(referrer) => {
                self.test.delete(&format!("h{referrer}"));
                self.names.remove(&referrer);
            }
            Step::ServerReads => {
                if let Some((name, id)) = self.requests.pop_front() {
                    let number: u8 = name[1..].parse().unwrap();
                    let content = self.cluster.get(&number).copied();
                    self.responses.push_back((name, id, content));
                }
            }
            Step::AnswerArrives => {
                if let Some((name, id, content)) = self.responses.pop_front() {
                    let found = content.map_or(Found::Nothing, |content| found(&name, content));
                    self.test.fetched(&name, id, found);
                }
            }
            Step::EventArrives => {
                if let Some((name, version)) = self.watch.pop_front() {
                    self.test.seen(&format!("s{name}"), version);
                }
            }
            Step::Relist => {
                self.watch.clear();
                self.test.references.list_begins(0);
                for (name, version) in self.cluster.clone() {
                    self.test.seen(&format!("s{name}"), version);
                }
                let references = &mut self.test.references;
                references.list_ends(0, Kind::Secret, None);
            }
        }
        for command in self.test.references.take_commands() {
            match command {
                FetchCommand::Start(key, id) => self.requests.push_back((key.name.to_string(), id)),
                // Its result may still arrive, and must be ignored.
                FetchCommand::Cancel(_) => {}
            }
        }
        self.read();
    }

    fn read(&mut self) {
        for line in self.test.changes() {
            if let Some(name) = line.strip_prefix('-') {
                self.objects.remove(name);
                continue;
            }
            match line.split_once(' ') {
                Some((name, content)) => {
                    let content = content.parse().unwrap();
                    let newest = self.newest.insert(name.to_owned(), content);
                    assert!(newest <= Some(content), "stale data for {name}");
                    self.objects.insert(name.to_owned(), Some(content));
                }
                None => {
                    self.objects.insert(line, None);
                }
            }
        }
    }

    fn settle(&mut self) {
        while !(self.watch.is_empty() && self.requests.is_empty() && self.responses.is_empty()) {
            for event in [Step::EventArrives, Step::ServerReads, Step::AnswerArrives] {
                self.run(event);
            }
        }
    }
}

proptest! {
    #[test]
    fn exactly_the_referenced_objects_are_held_in_the_end(events in vec(step(), 0..120)) {
        let mut world = World::new();
        for event in events {
            world.run(event);
        }
        world.settle();
        let referrers = world.names.keys().map(|referrer| (format!("h{referrer}"), None));
        let named = world.names.values().flatten();
        let held = named.filter_map(|name| Some((format!("s{name}"), Some(*world.cluster.get(name)?))));
        let expected: BTreeMap<_, _> = referrers.chain(held).collect();
        prop_assert_eq!(&world.objects, &expected);
        prop_assert!(!world.test.references.any_waiting());
        let kept = world.test.references.referenced.len();
        let named: std::collections::BTreeSet<_> = world.names.values().flatten().collect();
        prop_assert_eq!(kept, named.len());
    }
}
