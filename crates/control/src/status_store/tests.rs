use proptest::prelude::*;
use serde_json::{Value, json};
use sesame_api::Kind;
use sesame_envoy::Options;

use super::*;
use crate::translate::translate;

fn object(value: Value) -> Object {
    Object::decode(value).unwrap().unwrap()
}

fn time(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).unwrap()
}

fn gateway() -> Object {
    object(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "edge", "namespace": "shop"},
        "spec": {"gatewayClassName": "sesame", "listeners": [
            {"name": "web", "port": 80, "protocol": "HTTP"},
            {"name": "odd", "port": 81, "protocol": "HTTP", "hostname": "a.example"},
        ]},
    }))
}

fn route(name: &str, backend: &str) -> Object {
    object(json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute",
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"parentRefs": [{"name": "edge", "sectionName": "web"}], "hostnames": ["x.example"],
            "rules": [{"backendRefs": [{"name": backend, "port": 80}]}]},
    }))
}

fn service() -> Object {
    object(json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "good", "namespace": "shop"},
        "spec": {"ports": [{"port": 80}]},
    }))
}

/// Translates the objects and stores their statuses.
fn update(status_store: &StatusStore, objects: Vec<Object>, now: Timestamp) -> Vec<StatusChange> {
    for object in &objects {
        status_store.upsert(object);
    }
    let mut changes = Vec::new();
    for status in translate(objects, Options::default()).statuses {
        let read = match status.key.kind {
            Kind::Gateway => ObjectStatus::Gateway(serde_json::from_value(status.status).unwrap()),
            Kind::HTTPRoute => ObjectStatus::Route(serde_json::from_value(status.status).unwrap()),
            kind => panic!("{kind}"),
        };
        changes.extend(status_store.set(&status.key, Some(read), now));
    }
    changes
}

fn condition<'a>(status: &'a Value, type_: &str) -> &'a Value {
    let all = status["parents"][0]["conditions"].as_array().unwrap();
    all.iter().find(|c| c["type"] == type_).unwrap()
}

#[test]
fn a_transition_time_changes_with_the_status_of_its_condition() {
    let status_store = StatusStore::default();
    let objects = |backend: &str| vec![gateway(), route("r", backend), service()];
    assert_eq!(
        update(&status_store, objects("good"), time(10)),
        [],
        "new conditions without problems are not reported"
    );
    let changes = update(&status_store, objects("bad"), time(20));
    let [change] = &changes[..] else {
        panic!("{changes:?}");
    };
    assert_eq!(change.object.to_string(), "HTTPRoute/shop/r");
    assert_eq!(change.part.as_deref(), Some("parent shop/edge web"));
    assert_eq!(change.condition, "ResolvedRefs");
    assert_eq!(change.severity, Severity::Error);
    let text = change.to_string();
    assert!(
        text.starts_with("HTTPRoute/shop/r, parent shop/edge web: ResolvedRefs is False"),
        "{text}"
    );

    assert_eq!(update(&status_store, objects("bad"), time(30)), []);
    let statuses = status_store.statuses();
    assert_eq!(statuses[0].key.kind, Kind::Gateway);
    let status = &statuses[1].status;
    let at = |type_| condition(status, type_)["lastTransitionTime"].clone();
    assert_eq!(at("Accepted"), json!("1970-01-01T00:00:10Z"));
    assert_eq!(at("ResolvedRefs"), json!("1970-01-01T00:00:20Z"));
    for condition in statuses[0].status["listeners"][1]["conditions"]
        .as_array()
        .unwrap()
    {
        assert_eq!(condition["lastTransitionTime"], "1970-01-01T00:00:10Z");
    }
}

#[test]
fn an_overview_starts_with_the_worst() {
    let status_store = StatusStore::default();
    update(
        &status_store,
        vec![gateway(), route("a", "good"), route("b", "bad"), service()],
        time(1),
    );
    let overview = status_store.overview(1, 8000);
    assert_eq!(overview.more_routes, 1);
    assert_eq!(&*overview.routes[0].key.name, "b");
    assert_eq!(overview.routes[0].hostnames, ["x.example"]);
    assert_eq!(overview.routes[0].severity, Severity::Error);
    assert_eq!(overview.routes[0].parents[0].name, "shop/edge web");
    let gateway = &overview.gateways[0];
    assert_eq!(gateway.addresses, ["127.0.0.1"]);
    assert_eq!((gateway.severity, &gateway.message), (Severity::Ok, &None));
    let listener = &gateway.listeners[0];
    assert_eq!(listener.url.as_deref(), Some("http://127.0.0.1:8080"));
    assert_eq!(listener.attached_routes, Some(2));
    assert_eq!(gateway.listeners[1].hostname.as_deref(), Some("a.example"));
    assert_eq!(
        status_store.overview(5, 0).gateways[0].listeners[0]
            .url
            .as_deref(),
        Some("http://127.0.0.1")
    );
}

#[test]
fn removed_objects_leave_no_entries() {
    let status_store = StatusStore::default();
    update(
        &status_store,
        vec![gateway(), route("a", "good"), service()],
        time(1),
    );
    let keys: Vec<ObjectKey> = status_store.statuses().into_iter().map(|s| s.key).collect();
    for key in &keys {
        status_store.forget(key);
        assert_eq!(status_store.set(key, None, time(2)), []);
    }
    assert!(status_store.read(|inner| inner.entries.is_empty()));
}

#[test]
fn new_and_fixed_problems_are_returned() {
    let problem = |line| FileError {
        file: "a.yaml".into(),
        line: Some(line),
        column: Some(1),
        object: None,
        message: "invalid".to_owned(),
        hint: None,
    };
    let status_store = StatusStore::default();
    let changes = status_store.set_problems(vec![problem(1), problem(2)]);
    assert_eq!(changes, (vec![problem(1), problem(2)], vec![]));
    let changes = status_store.set_problems(vec![problem(2), problem(3)]);
    assert_eq!(changes, (vec![problem(3)], vec![problem(1)]));
    assert_eq!(status_store.problems(), [problem(2), problem(3)]);
}

proptest! {
    #[test]
    fn a_difference_contains_the_items_found_in_only_one_list(
        mut new in prop::collection::vec(0..8_u8, 0..8),
        mut old in prop::collection::vec(0..8_u8, 0..8),
    ) {
        new.sort();
        old.sort();
        let only = |list: &[u8], other: &[u8]| -> Vec<u8> {
            list.iter().copied().filter(|item| !other.contains(item)).collect()
        };
        let expected = (only(&new, &old), only(&old, &new));
        prop_assert_eq!(difference(new, old), expected);
    }
}

#[test]
fn a_difference_takes_one_pass() {
    use std::cell::Cell;
    thread_local!(static COMPARED: Cell<usize> = const { Cell::new(0) });
    #[derive(Eq)]
    struct Counted(u32);
    impl PartialEq for Counted {
        fn eq(&self, other: &Self) -> bool {
            self.cmp(other).is_eq()
        }
    }
    impl PartialOrd for Counted {
        fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
            Some(self.cmp(other))
        }
    }
    impl Ord for Counted {
        fn cmp(&self, other: &Self) -> std::cmp::Ordering {
            COMPARED.set(COMPARED.get() + 1);
            self.0.cmp(&other.0)
        }
    }
    let list = |from: u32| (from..from + 1000).map(Counted).collect::<Vec<_>>();
    let (added, removed) = difference(list(1), list(0));
    assert_eq!((added.len(), removed.len()), (1, 1));
    assert!(COMPARED.get() <= 8000, "{}", COMPARED.get());
}

#[test]
fn an_ingress_with_many_hosts_is_summarized() {
    let status_store = StatusStore::default();
    let hosts = (0..5_000).map(|number| json!({"host": format!("{number}.example")}));
    let hosts: Vec<Value> = hosts.chain([json!({"host": "0.example"})]).collect();
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
        "metadata": {"name": "a", "namespace": "shop"}, "spec": {"rules": hosts},
    });
    let ingress = Object::decode_admitted(ingress).unwrap().unwrap();
    status_store.upsert(&ingress);
    let status = ObjectStatus::Ingress(Arc::default());
    status_store.set(&ingress.key(), Some(status), time(1));
    let overview = status_store.overview(10, 8000);
    let shown = &overview.ingresses[0];
    assert_eq!(shown.hosts, ["0.example", "1.example"]);
    assert_eq!(shown.more_hosts, 4_998);
}

fn notices(messages: &[&str]) -> Option<Arc<Notices>> {
    let mut notices = Notices::default();
    for message in messages {
        notices.warning("spec", *message);
    }
    notices.non_empty().map(Arc::new)
}

#[test]
fn every_current_notice_is_reported_once() {
    let status_store = StatusStore::default();
    let key = |name: &str| ObjectKey::new(Kind::Ingress, "shop", name);
    let taken = |last: Option<&ObjectKey>| {
        let taken = status_store.take_unreported(last).into_iter();
        let taken = taken.map(|notice| format!("{} {}", notice.object.name, notice.message));
        taken.collect::<Vec<_>>().join(", ")
    };
    status_store.set_notices(&key("a"), notices(&["1", "2"]));
    status_store.set_notices(&key("a"), notices(&["2", "3"]));
    status_store.set_notices(&key("b"), notices(&["1"]));
    status_store.set_notices(&key("c"), notices(&["1"]));
    status_store.set_notices(&key("c"), None);
    status_store.set_notices(&key("d"), notices(&["1"]));
    status_store.forget(&key("d"));
    assert_eq!(taken(None), "a 2, a 3");
    status_store.set_notices(&key("a"), notices(&["3", "4"]));
    assert_eq!(taken(Some(&key("a"))), "b 1");
    assert_eq!(taken(Some(&key("b"))), "a 4");
    assert_eq!(taken(Some(&key("a"))), "");
}
