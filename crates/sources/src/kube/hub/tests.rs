use serde_json::{Value, json};

use super::*;
use crate::change::Change;
use crate::kube::store::Store;

const GATEWAYS: usize = 0;
const ROUTES: usize = 1;
const SECRETS: usize = 2;

const LONG: Duration = Duration::from_secs(3600);

fn now() -> Timestamp {
    Timestamp::UNIX_EPOCH
}

fn hub() -> Hub {
    let kinds = [Kind::Gateway, Kind::HTTPRoute, Kind::Secret];
    Hub::new(kinds.map(|kind| (kind, None)))
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

fn apply(hub: &mut Hub, watcher: usize, kind: Kind, objects: &[Value]) {
    let mut updates = Vec::new();
    let mut store = Store::new(kind);
    for object in objects {
        store.apply(&object.to_string(), &mut updates);
    }
    hub.handle(Message::Watcher(watcher, Instant::now(), updates), now());
}

fn update(hub: &mut Hub, watcher: usize, update: Update) {
    let message = Message::Watcher(watcher, Instant::now(), vec![update]);
    hub.handle(message, now());
}

fn available(hub: &mut Hub, kind: Kind, availability: Availability) {
    hub.handle(Message::Kind(kind, availability), now());
}

/// The events available now, one per line.
fn events(hub: &mut Hub) -> Vec<String> {
    let mut lines = Vec::new();
    while hub.pending() {
        match hub.next_event().expect("an event is pending") {
            WatchEvent::Changes(set) => {
                let line = |change: &Change| match change {
                    Change::Upsert(object) => object.key().to_string(),
                    Change::Remove(key) => format!("-{key}"),
                };
                let changes: Vec<_> = set.changes.iter().map(line).collect();
                lines.push(format!("set [{}]", changes.join(", ")));
            }
            WatchEvent::Statuses(statuses) => {
                lines.extend(statuses.iter().map(|(key, status)| match status {
                    Some(status) => format!("status {key} {}", status.resource_version),
                    None => format!("status {key} gone"),
                }))
            }
            WatchEvent::Absent(kinds) => lines.push(format!("absent {kinds:?}")),
            WatchEvent::Release(release) => lines.push(format!("release {release:?}")),
            // Tested separately.
            WatchEvent::FleetOwnersKnown => {}
            WatchEvent::Failures(failures) => {
                let line = |f: &crate::kube::WatchFailure| format!("{}: {}", f.subject, f.reason);
                let failures: Vec<_> = failures.iter().map(line).collect();
                lines.push(format!("failures [{}]", failures.join(", ")));
            }
        }
    }
    assert!(hub.next_event().is_none());
    lines
}

/// The only fetch started now.
fn started(hub: &mut Hub) -> (ObjectKey, FetchId) {
    match hub.take_commands().pop() {
        Some(FetchCommand::Start(key, id)) => (key, id),
        other => panic!("{other:?}"),
    }
}

/// Delivers the result of a fetch that has been failing for this many seconds.
fn result(
    hub: &mut Hub,
    (key, id): (ObjectKey, FetchId),
    result: Result<Found, RequestError>,
    seconds: u64,
) -> Vec<String> {
    let at = Instant::now();
    let fetched = Fetched {
        key,
        id,
        at,
        result,
    };
    hub.handle(Message::Fetch(fetched, Duration::from_secs(seconds)), now());
    events(hub)
}

fn fetched(hub: &mut Hub, result: Result<Found, RequestError>) {
    let (key, id) = started(hub);
    let at = Instant::now();
    let fetched = Fetched {
        key,
        id,
        at,
        result,
    };
    hub.handle(Message::Fetch(fetched, Duration::ZERO), now());
}

fn certificate() -> Found {
    let text =
        json!({"metadata": {"name": "s", "namespace": "a", "resourceVersion": "9"}}).to_string();
    let parsed = crate::kube::parse::ParsedObject::parse(Kind::Secret, &text).unwrap();
    Found::Object {
        version: parsed.resource_version.clone(),
        fingerprint: parsed.fingerprint,
        object: Box::new(parsed.decode().unwrap()),
    }
}

#[test]
fn the_first_set_has_all_objects_of_all_kinds() {
    let mut hub = hub();
    apply(&mut hub, GATEWAYS, Kind::Gateway, &[gateway("g", "s")]);
    update(&mut hub, GATEWAYS, Update::ListEnds);
    // A status precedes its object.
    assert_eq!(events(&mut hub), ["status Gateway/a/g 5"]);
    update(&mut hub, ROUTES, Update::ListEnds);
    assert!(events(&mut hub).is_empty());
    fetched(&mut hub, Ok(certificate()));
    assert_eq!(events(&mut hub), ["set [Gateway/a/g, Secret/a/s]"]);
    update(&mut hub, SECRETS, Update::ListEnds);
    assert!(events(&mut hub).is_empty());
}

#[test]
fn an_empty_first_set_is_sent() {
    let mut hub = hub();
    update(&mut hub, GATEWAYS, Update::ListEnds);
    available(&mut hub, Kind::HTTPRoute, Availability::NotInstalled);
    assert_eq!(
        events(&mut hub),
        [
            "failures [HTTPRoute: NotInstalled]",
            "absent {HTTPRoute}",
            "set []"
        ]
    );
    available(&mut hub, Kind::HTTPRoute, Availability::Served("v1"));
    assert_eq!(events(&mut hub), ["failures []", "absent {}"]);
}

#[test]
fn a_kind_that_an_older_server_lacks_is_not_a_failure() {
    let mut hub = Hub::new([(Kind::ClusterTrustBundle, None)]);
    available(
        &mut hub,
        Kind::ClusterTrustBundle,
        Availability::NotInstalled,
    );
    assert_eq!(events(&mut hub), ["absent {ClusterTrustBundle}", "set []"]);
}

#[test]
fn the_first_set_waits_for_an_unreachable_server() {
    let mut hub = hub();
    let away = || RequestError::Unreachable("connection refused".to_owned());
    for feed in [GATEWAYS, ROUTES] {
        update(&mut hub, feed, Update::Failed(away(), LONG));
    }
    hub.handle(Message::Discovery(Err(away())), now());
    assert_eq!(events(&mut hub), ["failures [API server: Unreachable]"]);
    hub.handle(Message::Discovery(Ok(())), now());
    update(&mut hub, GATEWAYS, Update::ListEnds);
    assert!(events(&mut hub).is_empty());
    update(&mut hub, ROUTES, Update::Connected);
    update(&mut hub, ROUTES, Update::ListEnds);
    assert_eq!(events(&mut hub), ["failures []", "set []"]);
}

#[test]
fn a_forbidden_kind_counts_as_empty_after_a_while() {
    let mut hub = hub();
    update(&mut hub, GATEWAYS, Update::ListEnds);
    let forbidden = || RequestError::Forbidden("no".to_owned());
    update(
        &mut hub,
        ROUTES,
        Update::Failed(forbidden(), Duration::ZERO),
    );
    assert_eq!(events(&mut hub), ["failures [HTTPRoute: Forbidden]"]);
    update(
        &mut hub,
        ROUTES,
        Update::Failed(forbidden(), FORBIDDEN_GRACE),
    );
    assert_eq!(events(&mut hub), ["set []"]);
    // Objects stay if the kind is forbidden later.
    update(&mut hub, ROUTES, Update::Connected);
    let route = json!({"metadata": {"name": "r", "namespace": "a"}, "spec": {}});
    apply(&mut hub, ROUTES, Kind::HTTPRoute, &[route]);
    update(
        &mut hub,
        ROUTES,
        Update::Failed(forbidden(), FORBIDDEN_GRACE),
    );
    assert_eq!(
        events(&mut hub)[1..],
        ["status HTTPRoute/a/r ", "set [HTTPRoute/a/r]"]
    );
}

#[test]
fn the_first_set_waits_while_the_server_refuses() {
    let mut hub = hub();
    update(&mut hub, GATEWAYS, Update::ListEnds);
    let refused = RequestError::Refused("busy".to_owned(), None);
    update(&mut hub, ROUTES, Update::Failed(refused, LONG));
    assert_eq!(events(&mut hub), ["failures [HTTPRoute: Refused]"]);
    // A relist follows the first error; discovery resolves the second.
    update(&mut hub, ROUTES, Update::Failed(RequestError::Gone, LONG));
    update(
        &mut hub,
        ROUTES,
        Update::Failed(RequestError::Missing, LONG),
    );
    assert!(events(&mut hub).is_empty());
    available(
        &mut hub,
        Kind::HTTPRoute,
        Availability::OtherVersion(vec!["v9".to_owned()]),
    );
    assert_eq!(
        events(&mut hub),
        ["failures [HTTPRoute: OtherVersion]", "set []"]
    );
}

#[test]
fn a_secret_that_is_forbidden_or_undecodable_is_reported() {
    let mut hub = hub();
    update(&mut hub, GATEWAYS, Update::ListEnds);
    update(&mut hub, ROUTES, Update::ListEnds);
    events(&mut hub);
    apply(&mut hub, GATEWAYS, Kind::Gateway, &[gateway("g", "s")]);
    let fetch = started(&mut hub);
    let answer = |hub: &mut Hub, answer, seconds| result(hub, fetch.clone(), answer, seconds);
    let away = Err(RequestError::Unreachable("connection refused".to_owned()));
    assert_eq!(
        answer(&mut hub, away, 99),
        ["failures [API server: Unreachable]", "status Gateway/a/g 5"]
    );
    let forbidden = || Err(RequestError::Forbidden("no".to_owned()));
    assert_eq!(
        answer(&mut hub, forbidden(), 0),
        ["failures [Secret/a/s: Forbidden]"]
    );
    assert_eq!(answer(&mut hub, forbidden(), 3), ["set [Gateway/a/g]"]);
    let unreadable = Ok(Found::Unreadable("data: expected a mapping".to_owned()));
    assert_eq!(
        answer(&mut hub, unreadable, 0),
        ["failures [Secret/a/s: Unreadable]"]
    );
    // The failure ends with the last reference.
    apply(&mut hub, GATEWAYS, Kind::Gateway, &[gateway("g", "t")]);
    update(&mut hub, SECRETS, Update::ListEnds);
    fetched(&mut hub, Err(RequestError::Missing));
    hub.take_commands();
    assert_eq!(
        events(&mut hub),
        ["failures []", "status Gateway/a/g 5", "set [Gateway/a/g]"]
    );
}

#[test]
fn secrets_outside_the_watched_namespaces_are_not_fetched() {
    let namespace = |name: &str| Some(Arc::from(name));
    let mut hub = Hub::new([
        (Kind::Gateway, namespace("a")),
        (Kind::Secret, namespace("b")),
    ]);
    update(&mut hub, 0, Update::ListEnds);
    apply(&mut hub, 0, Kind::Gateway, &[gateway("g", "s")]);
    assert!(hub.take_commands().is_empty());
    assert_eq!(events(&mut hub)[1..], ["set [Gateway/a/g]"]);
}

#[test]
fn the_first_changes_wait_for_required_secrets() {
    let kinds = [Kind::HTTPProxy, Kind::Secret].map(|kind| (kind, None));
    let fallback = NamespacedName::new("edge", "fallback");
    let mut hub = Hub::new(kinds).with_secrets(vec![fallback]);
    update(&mut hub, 0, Update::ListEnds);
    assert_eq!(events(&mut hub), [""; 0]);
    fetched(&mut hub, Ok(Found::Nothing));
    assert_eq!(events(&mut hub)[..1], ["set []"]);
}

#[test]
fn an_undecodable_object_is_reported_until_it_decodes() {
    let mut hub = hub();
    update(&mut hub, GATEWAYS, Update::ListEnds);
    update(&mut hub, ROUTES, Update::ListEnds);
    events(&mut hub);
    let key = ObjectKey::new(Kind::HTTPRoute, "a", "r");
    let step = Update::Undecodable(key.clone(), "spec.hostnames: expected a list".to_owned());
    update(&mut hub, ROUTES, step);
    update(&mut hub, ROUTES, Update::Malformed("[]".to_owned()));
    let Some(WatchEvent::Failures(failures)) = hub.next_event() else {
        panic!("no failures")
    };
    assert_eq!(failures.len(), 2);
    assert!(
        failures[1]
            .message
            .starts_with("spec.hostnames: expected a list; fix")
    );
    update(&mut hub, ROUTES, Update::Decodable(key));
    // A list without malformed objects ends the failure.
    update(&mut hub, ROUTES, Update::ListEnds);
    assert_eq!(events(&mut hub), ["failures []"]);
}

#[test]
fn no_gateway_waits_forever_for_a_secret() {
    let mut hub = hub();
    apply(&mut hub, GATEWAYS, Kind::Gateway, &[gateway("g", "s")]);
    update(&mut hub, GATEWAYS, Update::ListEnds);
    update(&mut hub, ROUTES, Update::ListEnds);
    let fetch = started(&mut hub);
    let mut fails = |seconds| {
        let error = RequestError::Refused("unable to transform key".to_owned(), None);
        result(&mut hub, fetch.clone(), Err(error), seconds)
    };
    let expected = ["failures [Secret/a/s: Refused]", "status Gateway/a/g 5"];
    assert_eq!(fails(0), expected);
    assert!(fails(FETCH_GRACE.as_secs() - 1).is_empty());
    assert_eq!(fails(FETCH_GRACE.as_secs()), ["set [Gateway/a/g]"]);
    let sent = result(&mut hub, fetch, Ok(certificate()), 0);
    assert_eq!(sent, ["failures []", "set [Secret/a/s]"]);
}

/// Whether all fleet owners are now known.
fn owners_known(hub: &mut Hub) -> bool {
    let events: Vec<_> = std::iter::from_fn(|| hub.next_event()).collect();
    let completes = matches!(events.last(), Some(WatchEvent::FleetOwnersKnown));
    let all = events.iter();
    let number = all
        .filter(|event| matches!(event, WatchEvent::FleetOwnersKnown))
        .count();
    assert_eq!(number, usize::from(completes));
    completes
}

#[test]
fn fleet_owners_are_known_once_all_gateways_are_read() {
    let mut hub = hub();
    update(&mut hub, ROUTES, Update::ListEnds);
    assert!(!owners_known(&mut hub));
    update(&mut hub, GATEWAYS, Update::ListEnds);
    assert!(owners_known(&mut hub));
    update(&mut hub, GATEWAYS, Update::ListEnds);
    assert!(!owners_known(&mut hub));
}

#[test]
fn fleet_owners_are_unknown_while_gateways_are_forbidden_or_unsupported() {
    let forbidden = RequestError::Forbidden("no".to_owned());
    let mut hub = hub();
    update(&mut hub, ROUTES, Update::ListEnds);
    update(
        &mut hub,
        GATEWAYS,
        Update::Failed(forbidden, FORBIDDEN_GRACE),
    );
    // Other objects are sent nevertheless.
    assert!(!owners_known(&mut hub) && hub.outbox.synced());
    update(&mut hub, GATEWAYS, Update::Connected);
    assert!(!owners_known(&mut hub));
    available(
        &mut hub,
        Kind::Gateway,
        Availability::OtherVersion(Vec::new()),
    );
    assert!(!owners_known(&mut hub));
    apply(&mut hub, GATEWAYS, Kind::Gateway, &[gateway("g", "s")]);
    update(&mut hub, GATEWAYS, Update::ListEnds);
    // The Gateway waits for its Secret.
    assert!(!owners_known(&mut hub));
    fetched(&mut hub, Ok(certificate()));
    assert!(owners_known(&mut hub));
}

#[test]
fn fleet_owners_are_unknown_until_objects_without_a_gateway_are_read() {
    let of_default_fleet = [Kind::HTTPProxy, Kind::Ingress, Kind::IngressClass];
    for late in of_default_fleet {
        let kinds = [Kind::Gateway, late];
        let mut hub = Hub::new(kinds.map(|kind| (kind, None)));
        update(&mut hub, 0, Update::ListEnds);
        assert!(!owners_known(&mut hub), "{late}");
        update(&mut hub, 1, Update::ListEnds);
        assert!(owners_known(&mut hub), "{late}");
    }
    // If the CRD isn't installed, there are no such objects.
    let mut hub = Hub::new([Kind::Gateway, Kind::HTTPProxy].map(|kind| (kind, None)));
    update(&mut hub, 0, Update::ListEnds);
    available(&mut hub, Kind::HTTPProxy, Availability::NotInstalled);
    assert!(owners_known(&mut hub));
}

#[test]
fn fleet_owners_are_unknown_while_a_gateway_is_undecodable() {
    let mut hub = hub();
    update(&mut hub, ROUTES, Update::ListEnds);
    let key = ObjectKey::new(Kind::Gateway, "a", "g");
    let step = Update::Undecodable(key.clone(), "spec: expected a mapping".to_owned());
    update(&mut hub, GATEWAYS, step);
    update(&mut hub, GATEWAYS, Update::ListEnds);
    assert!(!owners_known(&mut hub) && hub.outbox.synced());
    update(&mut hub, GATEWAYS, Update::Decodable(key));
    assert!(owners_known(&mut hub));
}
