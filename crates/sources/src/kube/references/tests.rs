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

/// Whatever names Secrets: what it names is given beside it.
fn holder(name: &str) -> Object {
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
        out.start(at);
        let references = References::default();
        Self {
            references,
            out,
            at,
        }
    }

    fn names(&mut self, name: &str, names: &[&str]) {
        let names = names.iter().map(|name| secret(name)).collect();
        self.references
            .upsert(holder(name), names, self.at, &mut self.out);
    }

    fn gone(&mut self, name: &str) {
        let key = holder(name).key();
        self.references.remove(key, self.at, &mut self.out);
    }

    fn fetched(&mut self, name: &str, ticket: Ticket, found: Found) {
        self.references
            .fetched(&secret(name), ticket, found, self.at, &mut self.out);
    }

    fn noticed(&mut self, name: &str, version: u64) {
        self.references
            .noticed(0, secret(name), &version.to_string());
    }

    fn orders(&mut self) -> Vec<String> {
        let line = |order: &Order| match order {
            Order::Fetch(key, ticket) => format!("fetch {} {ticket}", key.name),
            Order::Drop(key) => format!("drop {}", key.name),
        };
        self.references.orders().iter().map(line).collect()
    }

    fn told(&mut self) -> Vec<String> {
        let changes = self.out.take_changes().map(|set| set.changes);
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
fn an_object_is_told_together_with_what_it_names() {
    let mut test = Test::new();
    test.names("h", &["s", "t"]);
    assert_eq!(test.orders(), ["fetch s 1", "fetch t 2"]);
    assert!(test.told().is_empty());
    assert!(test.references.waits());
    test.fetched("t", 2, Found::Nothing);
    assert!(test.told().is_empty());
    test.fetched("s", 1, found("s", 7));
    assert_eq!(test.told(), ["h", "s 7"]);
    assert!(!test.references.waits());
    // A second one that names the same costs nothing.
    test.names("i", &["s"]);
    assert_eq!(test.told(), ["i"]);
    assert!(test.orders().is_empty());
}

#[test]
fn what_nobody_names_any_more_leaves() {
    let mut test = Test::new();
    test.names("h", &["s"]);
    test.names("i", &["s"]);
    test.fetched("s", 1, found("s", 7));
    test.told();
    test.orders();
    test.names("h", &[]);
    assert_eq!(test.told(), ["h"]);
    test.gone("i");
    assert_eq!(test.told(), ["-i", "-s"]);
    assert_eq!(test.orders(), ["drop s"]);
    assert!(test.references.named.is_empty() && test.references.by_holder.is_empty());
    // A change of it is nobody's business now.
    test.noticed("s", 8);
    assert!(test.orders().is_empty());
}

#[test]
fn while_the_new_version_waits_the_old_one_keeps_what_it_names() {
    let mut test = Test::new();
    test.names("h", &["s"]);
    test.fetched("s", 1, found("s", 7));
    test.told();
    test.names("h", &["t"]);
    assert!(test.told().is_empty());
    test.fetched("t", 2, found("t", 9));
    assert_eq!(test.told(), ["h", "-s", "t 9"]);
    // One that stops to wait leaves nothing.
    test.names("h", &["u"]);
    test.names("h", &["t"]);
    assert_eq!(test.told(), ["h"]);
    test.names("h", &["u"]);
    test.gone("h");
    assert_eq!(test.told(), ["-h", "-t"]);
    assert!(test.references.named.is_empty() && !test.references.waits());
}

#[test]
fn a_change_is_fetched_and_a_stale_word_is_not() {
    let mut test = Test::new();
    test.names("h", &["s"]);
    test.orders();
    test.fetched("s", 1, found("s", 7));
    test.told();
    test.noticed("s", 7);
    test.noticed("s", 3);
    assert!(test.orders().is_empty());
    test.noticed("s", 8);
    assert_eq!(test.orders(), ["fetch s 2"]);
    // What happens meanwhile is looked at afterwards, unless the answer has it already.
    test.noticed("s", 9);
    assert!(test.orders().is_empty());
    test.fetched("s", 2, found("s", 8));
    assert_eq!(test.told(), ["s 8"]);
    assert_eq!(test.orders(), ["fetch s 3"]);
    test.noticed("s", 10);
    test.fetched("s", 3, found("s", 10));
    assert!(test.orders().is_empty());
    assert_eq!(test.told(), ["s 10"]);
}

#[test]
fn a_deleted_one_is_gone_when_the_server_says_so() {
    let mut test = Test::new();
    test.names("h", &["s"]);
    test.fetched("s", 1, found("s", 7));
    test.told();
    test.orders();
    test.noticed("s", 8);
    assert_eq!(test.orders(), ["fetch s 2"]);
    test.fetched("s", 2, Found::Nothing);
    assert_eq!(test.told(), ["-s"]);
    // It comes back.
    test.noticed("s", 12);
    assert_eq!(test.orders(), ["fetch s 3"]);
    test.fetched("s", 3, found("s", 12));
    assert_eq!(test.told(), ["s 12"]);
}

#[test]
fn what_a_list_does_not_show_is_looked_at() {
    let mut test = Test::new();
    test.names("h", &["s", "t"]);
    test.fetched("s", 1, found("s", 7));
    test.fetched("t", 2, found("t", 7));
    test.orders();
    test.references.list_begins(0);
    test.noticed("s", 7);
    test.references.list_ends(0, Kind::Secret, Some("b"));
    assert!(test.orders().is_empty());
    test.references.list_begins(0);
    test.noticed("s", 7);
    test.references.list_ends(0, Kind::Secret, Some("a"));
    assert_eq!(test.orders(), ["fetch t 3"]);
}

#[test]
fn what_a_list_does_not_show_is_looked_at_after_a_fetch_that_may_be_older() {
    let mut test = Test::new();
    test.names("h", &["s", "t"]);
    test.orders();
    test.references.list_begins(0);
    test.references.list_ends(0, Kind::Secret, None);
    test.fetched("s", 1, found("s", 7));
    test.fetched("t", 2, Found::Nothing);
    assert_eq!(test.orders(), ["fetch s 3"]);
    test.fetched("s", 3, Found::Nothing);
    assert_eq!(test.told(), ["h", "-s"]);
}

#[test]
fn nobody_waits_for_what_is_forbidden() {
    let mut test = Test::new();
    test.names("h", &["s"]);
    test.orders();
    test.fetched("s", 1, Found::Denied);
    assert_eq!(test.told(), ["h"]);
    // The same fetch goes on, and may succeed.
    test.noticed("s", 5);
    assert!(test.orders().is_empty());
    test.fetched("s", 1, found("s", 5));
    assert_eq!(test.told(), ["s 5"]);
    assert!(test.orders().is_empty());
}

#[test]
fn one_that_does_not_decode_keeps_its_last_good_version() {
    let mut test = Test::new();
    test.names("h", &["s"]);
    test.fetched("s", 1, found("s", 7));
    test.told();
    test.noticed("s", 8);
    test.fetched("s", 2, Found::Unreadable);
    assert!(test.told().is_empty());
    test.names("i", &["t"]);
    test.fetched("t", 3, Found::Unreadable);
    assert_eq!(test.told(), ["i"]);
}

#[test]
fn the_result_of_an_earlier_fetch_does_not_count() {
    let mut test = Test::new();
    test.names("h", &["s"]);
    test.gone("h");
    test.names("h", &["s"]);
    assert_eq!(test.orders(), ["fetch s 1", "drop s", "fetch s 2"]);
    test.told();
    test.fetched("s", 1, found("s", 7));
    assert!(test.told().is_empty());
    test.fetched("s", 2, found("s", 8));
    assert_eq!(test.told(), ["h", "s 8"]);
}

#[derive(Clone, Debug)]
enum Happens {
    Written(u8),
    Deleted(u8),
    Named(u8, std::collections::BTreeSet<u8>),
    Unnamed(u8),
    /// The server reads for the oldest fetch under way.
    ServerReads,
    /// The answer of the oldest fetch that was read for arrives.
    AnswerArrives,
    /// The watch tells the next thing.
    WatchTells,
    /// History is lost; the watch goes on with a list of what there is.
    Relist,
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        4 => (0..4u8).prop_map(Happens::Written),
        1 => (0..4u8).prop_map(Happens::Deleted),
        3 => (0..3u8, btree_set(0..4u8, 0..3)).prop_map(|(holder, names)| Happens::Named(holder, names)),
        1 => (0..3u8).prop_map(Happens::Unnamed),
        3 => Just(Happens::ServerReads),
        3 => Just(Happens::AnswerArrives),
        3 => Just(Happens::WatchTells),
        1 => Just(Happens::Relist),
    ]
}

/// A cluster whose watch is behind and whose answers take their time.
struct World {
    test: Test,
    version: u64,
    cluster: BTreeMap<u8, u64>,
    names: BTreeMap<u8, std::collections::BTreeSet<u8>>,
    watch: VecDeque<(u8, u64)>,
    asked: VecDeque<(String, Ticket)>,
    answers: VecDeque<(String, Ticket, Option<u64>)>,
    heard: BTreeMap<String, Option<u64>>,
    /// The newest content of each that was ever told.
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
            asked: VecDeque::new(),
            answers: VecDeque::new(),
            heard: BTreeMap::new(),
            newest: BTreeMap::new(),
        }
    }

    fn run(&mut self, event: Happens) {
        self.version += 1;
        match event {
            Happens::Written(name) => {
                self.cluster.insert(name, self.version);
                self.watch.push_back((name, self.version));
            }
            Happens::Deleted(name) => {
                if self.cluster.remove(&name).is_some() {
                    self.watch.push_back((name, self.version));
                }
            }
            Happens::Named(holder, names) => {
                let texts: Vec<_> = names.iter().map(|name| format!("s{name}")).collect();
                let texts: Vec<_> = texts.iter().map(String::as_str).collect();
                self.test.names(&format!("h{holder}"), &texts);
                self.names.insert(holder, names);
            }
            Happens::Unnamed(holder) => {
                self.test.gone(&format!("h{holder}"));
                self.names.remove(&holder);
            }
            Happens::ServerReads => {
                if let Some((name, ticket)) = self.asked.pop_front() {
                    let number: u8 = name[1..].parse().unwrap();
                    let content = self.cluster.get(&number).copied();
                    self.answers.push_back((name, ticket, content));
                }
            }
            Happens::AnswerArrives => {
                if let Some((name, ticket, content)) = self.answers.pop_front() {
                    let found = content.map_or(Found::Nothing, |content| found(&name, content));
                    self.test.fetched(&name, ticket, found);
                }
            }
            Happens::WatchTells => {
                if let Some((name, version)) = self.watch.pop_front() {
                    self.test.noticed(&format!("s{name}"), version);
                }
            }
            Happens::Relist => {
                self.watch.clear();
                self.test.references.list_begins(0);
                for (name, version) in self.cluster.clone() {
                    self.test.noticed(&format!("s{name}"), version);
                }
                let references = &mut self.test.references;
                references.list_ends(0, Kind::Secret, None);
            }
        }
        for order in self.test.references.orders() {
            match order {
                Order::Fetch(key, ticket) => self.asked.push_back((key.name.to_string(), ticket)),
                // Whether or not it can still be stopped, its result must not count.
                Order::Drop(_) => {}
            }
        }
        self.hear();
    }

    fn hear(&mut self) {
        for line in self.test.told() {
            if let Some(name) = line.strip_prefix('-') {
                self.heard.remove(name);
                continue;
            }
            match line.split_once(' ') {
                Some((name, content)) => {
                    let content = content.parse().unwrap();
                    let newest = self.newest.insert(name.to_owned(), content);
                    assert!(newest <= Some(content), "stale data of {name} won");
                    self.heard.insert(name.to_owned(), Some(content));
                }
                None => {
                    self.heard.insert(line, None);
                }
            }
        }
    }

    fn settle(&mut self) {
        while !(self.watch.is_empty() && self.asked.is_empty() && self.answers.is_empty()) {
            for event in [
                Happens::WatchTells,
                Happens::ServerReads,
                Happens::AnswerArrives,
            ] {
                self.run(event);
            }
        }
    }
}

proptest! {
    #[test]
    fn in_the_end_exactly_what_is_named_is_held_as_it_is(events in vec(happens(), 0..120)) {
        let mut world = World::new();
        for event in events {
            world.run(event);
        }
        world.settle();
        let holders = world.names.keys().map(|holder| (format!("h{holder}"), None));
        let named = world.names.values().flatten();
        let held = named.filter_map(|name| Some((format!("s{name}"), Some(*world.cluster.get(name)?))));
        let expected: BTreeMap<_, _> = holders.chain(held).collect();
        prop_assert_eq!(&world.heard, &expected);
        prop_assert!(!world.test.references.waits());
        let kept = world.test.references.named.len();
        let named: std::collections::BTreeSet<_> = world.names.values().flatten().collect();
        prop_assert_eq!(kept, named.len());
    }
}
