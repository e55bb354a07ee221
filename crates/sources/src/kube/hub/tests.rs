use serde_json::{Value, json};

use super::*;
use crate::change::Change;
use crate::kube::shelf::Shelf;

const GATEWAYS: usize = 0;
const ROUTES: usize = 1;
const SECRETS: usize = 2;

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn hub() -> Hub {
    let feed = |kind| Feed::new(kind, None);
    let kinds = [Kind::Gateway, Kind::HTTPRoute, Kind::Secret];
    Hub::new(kinds.map(feed).into())
}

fn gateway(name: &str, secret: &str) -> Value {
    json!({
        "metadata": {"name": name, "namespace": "a", "resourceVersion": "5"},
        "spec": {"gatewayClassName": "c", "listeners": [{
            "name": "l", "port": 443, "protocol": "HTTPS",
            "tls": {"certificateRefs": [{"name": secret}]},
        }]},
        "status": {"addresses": []},
    })
}

fn seen(hub: &mut Hub, feed: usize, kind: Kind, objects: &[Value]) {
    let mut steps = Vec::new();
    let mut shelf = Shelf::new(kind);
    for object in objects {
        shelf.exists(&object.to_string(), &mut steps);
    }
    let heard = steps.into_iter().map(Heard::Step).collect();
    hub.hear(Message::Feed(feed, Instant::now(), heard), now());
}

fn hear(hub: &mut Hub, feed: usize, heard: Heard) {
    hub.hear(Message::Feed(feed, Instant::now(), vec![heard]), now());
}

fn kind(hub: &mut Hub, kind: Kind, kinds: Kinds) {
    hub.hear(Message::Kind(kind, kinds), now());
}

/// What is told now, a line each.
fn told(hub: &mut Hub) -> Vec<String> {
    let mut lines = Vec::new();
    while hub.pending() {
        match hub.next_event().expect("it said so") {
            Event::Set(set) => {
                let line = |change: &Change| match change {
                    Change::Upsert(object) => object.key().to_string(),
                    Change::Remove(key) => format!("-{key}"),
                };
                let changes: Vec<_> = set.changes.iter().map(line).collect();
                lines.push(format!("set [{}]", changes.join(", ")));
            }
            Event::Live(live) => lines.extend(live.iter().map(|(key, live)| match live {
                Some(live) => format!("live {key} {}", live.resource_version),
                None => format!("live {key} gone"),
            })),
            Event::Release(release) => lines.push(format!("release {release:?}")),
            // Tests of its own look at it.
            Event::Complete => {}
            Event::Trouble(troubles) => {
                let line = |t: &crate::kube::Trouble| format!("{}: {}", t.place, t.reason);
                let troubles: Vec<_> = troubles.iter().map(line).collect();
                lines.push(format!("trouble [{}]", troubles.join(", ")));
            }
        }
    }
    assert!(hub.next_event().is_none());
    lines
}

fn fetched(hub: &mut Hub, result: Result<Fetched, Failure>) {
    let Some(Order::Fetch(key, ticket)) = hub.orders().pop() else {
        panic!("nothing is fetched")
    };
    hub.hear(
        Message::Fetch(key, ticket, Instant::now(), result, ATTEMPTS),
        now(),
    );
}

fn certificate() -> Fetched {
    let text =
        json!({"metadata": {"name": "s", "namespace": "a", "resourceVersion": "9"}}).to_string();
    let reading = crate::kube::reading::Reading::of(Kind::Secret, &text).unwrap();
    Fetched::Found(Found::Object {
        version: reading.version.clone(),
        fingerprint: reading.fingerprint,
        object: Box::new(reading.object().unwrap()),
    })
}

#[test]
fn the_first_set_is_everything_and_waits_for_everybody() {
    let mut hub = hub();
    seen(&mut hub, GATEWAYS, Kind::Gateway, &[gateway("g", "s")]);
    hear(&mut hub, GATEWAYS, Heard::Synced);
    // What stands is told before the object it stands in.
    assert_eq!(told(&mut hub), ["live Gateway/a/g 5"]);
    hear(&mut hub, ROUTES, Heard::Synced);
    assert!(told(&mut hub).is_empty());
    fetched(&mut hub, Ok(certificate()));
    assert_eq!(told(&mut hub), ["set [Gateway/a/g, Secret/a/s]"]);
    hear(&mut hub, SECRETS, Heard::Synced);
    assert!(told(&mut hub).is_empty());
}

#[test]
fn nothing_at_all_is_told_as_well() {
    let mut hub = hub();
    hear(&mut hub, GATEWAYS, Heard::Synced);
    kind(&mut hub, Kind::HTTPRoute, Kinds::NotInstalled);
    assert_eq!(
        told(&mut hub),
        ["trouble [HTTPRoute: NotInstalled]", "set []"]
    );
    kind(&mut hub, Kind::HTTPRoute, Kinds::Served);
    assert_eq!(told(&mut hub), ["trouble []"]);
}

#[test]
fn a_server_that_is_away_at_the_start_is_waited_for() {
    let mut hub = hub();
    let away = || Failure::Unreachable("connection refused".to_owned());
    for feed in [GATEWAYS, ROUTES] {
        hear(&mut hub, feed, Heard::Failed(away(), 99));
    }
    hub.hear(Message::Discovery(Err(away())), now());
    assert_eq!(told(&mut hub), ["trouble [API server: Unreachable]"]);
    hub.hear(Message::Discovery(Ok(())), now());
    hear(&mut hub, GATEWAYS, Heard::Synced);
    assert!(told(&mut hub).is_empty());
    hear(&mut hub, ROUTES, Heard::Connected);
    hear(&mut hub, ROUTES, Heard::Synced);
    assert_eq!(told(&mut hub), ["trouble []", "set []"]);
}

#[test]
fn a_kind_that_is_forbidden_counts_as_empty_after_some_attempts() {
    let mut hub = hub();
    hear(&mut hub, GATEWAYS, Heard::Synced);
    let forbidden = || Failure::Forbidden("no".to_owned());
    hear(&mut hub, ROUTES, Heard::Failed(forbidden(), 1));
    assert_eq!(told(&mut hub), ["trouble [HTTPRoute: Forbidden]"]);
    hear(&mut hub, ROUTES, Heard::Failed(forbidden(), ATTEMPTS));
    assert_eq!(told(&mut hub), ["set []"]);
    // What is there is served all the same if it is forbidden later.
    hear(&mut hub, ROUTES, Heard::Connected);
    let route = json!({"metadata": {"name": "r", "namespace": "a"}, "spec": {}});
    seen(&mut hub, ROUTES, Kind::HTTPRoute, &[route]);
    hear(&mut hub, ROUTES, Heard::Failed(forbidden(), ATTEMPTS));
    assert_eq!(
        told(&mut hub)[1..],
        ["live HTTPRoute/a/r ", "set [HTTPRoute/a/r]"]
    );
}

#[test]
fn a_server_that_refuses_is_waited_for_and_told_of() {
    let mut hub = hub();
    hear(&mut hub, GATEWAYS, Heard::Synced);
    let refused = Failure::Refused("busy".to_owned());
    hear(&mut hub, ROUTES, Heard::Failed(refused, 99));
    assert_eq!(told(&mut hub), ["trouble [HTTPRoute: Refused]"]);
    // Neither is told: the list that follows mends the one, and discovery decides on the other.
    hear(&mut hub, ROUTES, Heard::Failed(Failure::Gone, 1));
    hear(&mut hub, ROUTES, Heard::Failed(Failure::Missing, 1));
    assert!(told(&mut hub).is_empty());
    kind(
        &mut hub,
        Kind::HTTPRoute,
        Kinds::OtherVersion(vec!["v9".to_owned()]),
    );
    assert_eq!(
        told(&mut hub),
        ["trouble [HTTPRoute: OtherVersion]", "set []"]
    );
}

#[test]
fn a_secret_that_can_not_be_had_is_told_of_and_missing() {
    let mut hub = hub();
    hear(&mut hub, GATEWAYS, Heard::Synced);
    hear(&mut hub, ROUTES, Heard::Synced);
    told(&mut hub);
    seen(&mut hub, GATEWAYS, Kind::Gateway, &[gateway("g", "s")]);
    let orders = hub.orders();
    let Some(Order::Fetch(key, ticket)) = orders.first().cloned() else {
        panic!("nothing is fetched")
    };
    let answer = |hub: &mut Hub, result, attempts| {
        let message = Message::Fetch(key.clone(), ticket, Instant::now(), result, attempts);
        hub.hear(message, now());
        told(hub)
    };
    let away = Err(Failure::Unreachable("connection refused".to_owned()));
    assert_eq!(
        answer(&mut hub, away, 99),
        ["trouble [API server: Unreachable]", "live Gateway/a/g 5"]
    );
    let forbidden = || Err(Failure::Forbidden("no".to_owned()));
    assert_eq!(
        answer(&mut hub, forbidden(), 1),
        ["trouble [Secret/a/s: Forbidden]"]
    );
    assert_eq!(
        answer(&mut hub, forbidden(), ATTEMPTS),
        ["set [Gateway/a/g]"]
    );
    let unreadable = Ok(Fetched::Unreadable("data: expected a mapping".to_owned()));
    assert_eq!(
        answer(&mut hub, unreadable, 0),
        ["trouble [Secret/a/s: Unreadable]"]
    );
    // Nobody names it any more: what is wrong with it is nobody's business.
    seen(&mut hub, GATEWAYS, Kind::Gateway, &[gateway("g", "t")]);
    hear(&mut hub, SECRETS, Heard::Synced);
    fetched(&mut hub, Err(Failure::Missing));
    hub.orders();
    assert_eq!(
        told(&mut hub),
        ["trouble []", "live Gateway/a/g 5", "set [Gateway/a/g]"]
    );
}

#[test]
fn what_is_outside_of_our_namespaces_is_never_asked_for() {
    let namespace = |name: &str| Some(Arc::from(name));
    let mut hub = Hub::new(vec![
        Feed::new(Kind::Gateway, namespace("a")),
        Feed::new(Kind::Secret, namespace("b")),
    ]);
    hear(&mut hub, 0, Heard::Synced);
    seen(&mut hub, 0, Kind::Gateway, &[gateway("g", "s")]);
    assert!(hub.orders().is_empty());
    assert_eq!(told(&mut hub)[1..], ["set [Gateway/a/g]"]);
}

#[test]
fn an_object_that_does_not_decode_is_told_of_until_it_does() {
    let mut hub = hub();
    hear(&mut hub, GATEWAYS, Heard::Synced);
    hear(&mut hub, ROUTES, Heard::Synced);
    told(&mut hub);
    let key = ObjectKey::new(Kind::HTTPRoute, "a", "r");
    let step = Step::Unreadable(key.clone(), "spec.hostnames: expected a list".to_owned());
    hear(&mut hub, ROUTES, Heard::Step(step));
    hear(
        &mut hub,
        ROUTES,
        Heard::Step(Step::Nonsense("[]".to_owned())),
    );
    let Some(Event::Trouble(troubles)) = hub.next_event() else {
        panic!("no trouble")
    };
    assert_eq!(troubles.len(), 2);
    assert!(
        troubles[1]
            .message
            .starts_with("spec.hostnames: expected a list; mend")
    );
    hear(&mut hub, ROUTES, Heard::Step(Step::Readable(key)));
    // A list without nonsense ends it.
    hear(&mut hub, ROUTES, Heard::Synced);
    assert_eq!(told(&mut hub), ["trouble []"]);
}

#[test]
fn a_secret_that_the_server_fails_to_give_keeps_nobody_waiting_for_ever() {
    let mut hub = hub();
    seen(&mut hub, GATEWAYS, Kind::Gateway, &[gateway("g", "s")]);
    hear(&mut hub, GATEWAYS, Heard::Synced);
    hear(&mut hub, ROUTES, Heard::Synced);
    let orders = hub.orders();
    let Some(Order::Fetch(key, ticket)) = orders.first().cloned() else {
        panic!("nothing is fetched")
    };
    let mut fails = |attempts| {
        let failure = Failure::Refused("unable to transform key".to_owned());
        let message = Message::Fetch(key.clone(), ticket, Instant::now(), Err(failure), attempts);
        hub.hear(message, now());
        told(&mut hub)
    };
    let expected = ["trouble [Secret/a/s: Refused]", "live Gateway/a/g 5"];
    assert_eq!(fails(1), expected);
    assert!(fails(HOPELESS - 1).is_empty());
    assert_eq!(fails(HOPELESS), ["set [Gateway/a/g]"]);
    let message = Message::Fetch(key, ticket, Instant::now(), Ok(certificate()), 0);
    hub.hear(message, now());
    assert_eq!(told(&mut hub), ["trouble []", "set [Secret/a/s]"]);
}

/// Whether it is told now that all Gateways were told.
fn completes(hub: &mut Hub) -> bool {
    let events: Vec<_> = std::iter::from_fn(|| hub.next_event()).collect();
    let completes = matches!(events.last(), Some(Event::Complete));
    let all = events.iter();
    let number = all.filter(|event| matches!(event, Event::Complete)).count();
    assert_eq!(number, usize::from(completes));
    completes
}

#[test]
fn all_gateways_are_told_once_none_can_be_missing() {
    let mut hub = hub();
    hear(&mut hub, ROUTES, Heard::Synced);
    assert!(!completes(&mut hub));
    hear(&mut hub, GATEWAYS, Heard::Synced);
    assert!(completes(&mut hub));
    hear(&mut hub, GATEWAYS, Heard::Synced);
    assert!(!completes(&mut hub));
}

#[test]
fn gateways_that_are_forbidden_or_of_another_version_are_missing() {
    let forbidden = Failure::Forbidden("no".to_owned());
    let mut hub = hub();
    hear(&mut hub, ROUTES, Heard::Synced);
    hear(&mut hub, GATEWAYS, Heard::Failed(forbidden, ATTEMPTS));
    // Everything else is served.
    assert!(!completes(&mut hub) && hub.outbox.started());
    hear(&mut hub, GATEWAYS, Heard::Connected);
    assert!(!completes(&mut hub));
    kind(&mut hub, Kind::Gateway, Kinds::OtherVersion(Vec::new()));
    assert!(!completes(&mut hub));
    seen(&mut hub, GATEWAYS, Kind::Gateway, &[gateway("g", "s")]);
    hear(&mut hub, GATEWAYS, Heard::Synced);
    // It waits for its Secret.
    assert!(!completes(&mut hub));
    fetched(&mut hub, Ok(certificate()));
    assert!(completes(&mut hub));
}

#[test]
fn a_gateway_that_can_not_be_decoded_is_missing() {
    let mut hub = hub();
    hear(&mut hub, ROUTES, Heard::Synced);
    let key = ObjectKey::new(Kind::Gateway, "a", "g");
    let step = Step::Unreadable(key.clone(), "spec: expected a mapping".to_owned());
    hear(&mut hub, GATEWAYS, Heard::Step(step));
    hear(&mut hub, GATEWAYS, Heard::Synced);
    assert!(!completes(&mut hub) && hub.outbox.started());
    hear(&mut hub, GATEWAYS, Heard::Step(Step::Readable(key)));
    assert!(completes(&mut hub));
}
