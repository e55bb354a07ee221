//! Protocol rules, by example.

mod checks;
mod rejections;
mod removals;
mod stale;

use std::collections::HashMap;
use std::time::Duration;

use super::sim::{
    Client, Cluster, Endpoint, Listener, Route, fleet, limits, request, resource, update,
};
use super::{LimitExceeded, Session};
use crate::config::Limits;
use crate::event::XdsEvent;
use crate::fleet::Fleet;
use crate::resource::ResourceType;

/// One route to one cluster.
const ONE: [(ResourceType, &str, &str); 4] = [
    (Cluster, "c0", "v0"),
    (Endpoint, "c0", "v0"),
    (Listener, "l0", "v0;r0"),
    (Route, "r0", "v0;c0"),
];

/// A fleet with one route to one cluster, and a client that has acknowledged all of it.
fn served() -> (Fleet, Client) {
    served_with(limits())
}

fn served_with(limits: Limits) -> (Fleet, Client) {
    let mut fleet = fleet();
    fleet.apply(update(1, &ONE, &[]));
    let mut client = Client::connect(&mut fleet, 1, limits);
    client.settle(&mut fleet);
    client.take_log();
    fleet.take_events();
    (fleet, client)
}

fn kinds(events: &[XdsEvent]) -> Vec<String> {
    let kind = |event: &XdsEvent| match event {
        XdsEvent::Connected(_) => "connected".to_owned(),
        XdsEvent::Disconnected(_) => "disconnected".to_owned(),
        XdsEvent::Acked { revision, .. } => format!("acked {revision}"),
        XdsEvent::WarmingTimedOut(_) => "warming timed out".to_owned(),
        XdsEvent::Rejected { rejection, .. } => {
            format!("rejected {}: {}", rejection.name, rejection.message)
        }
        XdsEvent::Recovered { name, .. } => format!("recovered {name}"),
    };
    events.iter().map(kind).collect()
}

fn settled_events(fleet: &mut Fleet, client: &mut Client) -> Vec<String> {
    client.settle(fleet);
    kinds(&fleet.take_events())
}

#[test]
fn listeners_and_routes_are_sent_once_clusters_are_acknowledged() {
    let mut fleet = fleet();
    let mut client = Client::connect(&mut fleet, 1, limits());
    assert!(client.log.is_empty(), "nothing before the first update");
    fleet.apply(update(
        7,
        &[
            (Route, "r0", "v0;c0"),
            (Listener, "l0", "v0;r0"),
            (Endpoint, "c0", "v0"),
            (Cluster, "c0", "v0"),
        ],
        &[],
    ));
    client.settle(&mut fleet);
    assert_eq!(
        client.take_log(),
        ["cluster +c0", "endpoint +c0", "listener +l0", "route +r0"]
    );
    assert_eq!(kinds(&fleet.take_events()), ["connected", "acked 7"]);
}

#[test]
fn a_wildcard_subscription_without_resources_gets_one_empty_response() {
    let mut fleet = fleet();
    fleet.apply(update(1, &[(Listener, "l0", "v0;r0")], &[]));
    let now = std::time::Instant::now();
    let mut session = Session::new(1, limits(), now);
    let ask = |session: &mut Session, fleet: &mut Fleet, ty, nonce: &str| {
        let mut request = request(ty);
        request.response_nonce = nonce.to_owned();
        session.request(fleet, &request).unwrap();
    };
    ask(&mut session, &mut fleet, Cluster, "");
    let response = session.poll(&mut fleet, now).unwrap();
    assert_eq!(response.ty, Cluster);
    assert!(response.upserts.is_empty() && response.removals.is_empty());
    ask(&mut session, &mut fleet, Cluster, &response.nonce);
    assert!(session.poll(&mut fleet, now).is_none(), "once");
    ask(&mut session, &mut fleet, Listener, "");
    let response = session.poll(&mut fleet, now).unwrap();
    assert_eq!((response.ty, response.upserts.len()), (Listener, 1));
    ask(&mut session, &mut fleet, Route, "");
    assert!(session.poll(&mut fleet, now).is_none());
}

#[test]
fn all_scopes_are_resent_with_a_changed_listener() {
    use ResourceType::ScopedRoute;
    let (mut fleet, mut client) = served();
    let scopes = [(ScopedRoute, "s0", "v0"), (ScopedRoute, "s1", "v0")];
    fleet.apply(update(2, &scopes, &[]));
    client.settle(&mut fleet);
    assert!(
        client.take_log().is_empty(),
        "no client has subscribed to them"
    );
    let first = request(ScopedRoute);
    client.session.request(&mut fleet, &first).unwrap();
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["scoped route +s0 +s1"]);
    fleet.apply(update(3, &[(Listener, "l0", "v1;r0")], &[]));
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["listener +l0", "scoped route +s0 +s1"]);
    fleet.apply(update(
        4,
        &[(Listener, "l1", "v0;r0")],
        &[(ScopedRoute, "s0")],
    ));
    client.settle(&mut fleet);
    assert_eq!(
        client.take_log(),
        ["listener +l1", "scoped route +s1", "scoped route -s0"]
    );
    let events = kinds(&fleet.take_events());
    assert_eq!(events, ["acked 2", "acked 3", "acked 4"]);
}

#[test]
fn endpoints_are_resent_with_their_changed_cluster() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(
        2,
        &[(Cluster, "c0", "v1"), (Route, "r0", "v1;c0")],
        &[],
    ));
    client.pump(&mut fleet);
    assert_eq!(client.take_log(), ["cluster +c0", "endpoint +c0"]);
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["route +r0"]);
}

#[test]
fn endpoints_removed_while_their_cluster_warms_are_still_sent() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(2, &[(Endpoint, "c0", "v1")], &[]));
    client.pump(&mut fleet);
    fleet.apply(update(3, &[(Cluster, "c0", "v1")], &[]));
    client.pump(&mut fleet);
    fleet.apply(update(
        4,
        &[],
        &[(Endpoint, "c0"), (Cluster, "c0"), (Route, "r0")],
    ));
    client.settle(&mut fleet);
    assert_eq!(
        client.take_log(),
        [
            "endpoint +c0",
            "cluster +c0",
            "endpoint +c0",
            "route -r0",
            "cluster -c0",
        ]
    );
}

#[test]
fn endpoints_do_not_wait_for_clusters() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(2, &[(Cluster, "c1", "v0")], &[]));
    client.pump(&mut fleet);
    fleet.apply(update(3, &[(Endpoint, "c0", "v1")], &[]));
    client.pump(&mut fleet);
    assert_eq!(client.take_log(), ["cluster +c1", "endpoint +c0"]);
}

#[test]
fn a_route_does_not_wait_for_clusters_of_later_updates() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(2, &[(Route, "r0", "v1;c0")], &[]));
    client.pump(&mut fleet);
    fleet.apply(update(3, &[(Route, "r0", "v2;c0")], &[]));
    fleet.apply(update(
        4,
        &[(Cluster, "c1", "v0"), (Endpoint, "c1", "v0")],
        &[],
    ));
    client.pump(&mut fleet);
    client.receive(&mut fleet);
    client.respond(&mut fleet, 0);
    assert_eq!(
        client.take_log(),
        ["route +r0", "cluster +c1", "route +r0"],
        "c1 is not acknowledged yet"
    );
}

#[test]
fn changes_merge_while_a_response_is_in_flight() {
    let (mut fleet, mut client) = served();
    for (revision, body) in [(2, "v1;c0"), (3, "v2;c0"), (4, "v3;c0")] {
        fleet.apply(update(revision, &[(Route, "r0", body)], &[]));
        client.pump(&mut fleet);
    }
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(client.take_log(), ["route +r0", "route +r0"]);
    assert_eq!(client.body(Route, "r0"), Some("v3;c0"));
    assert_eq!(events, ["acked 2", "acked 4"]);
}

#[test]
fn a_change_does_not_wait_for_all_earlier_ones() {
    let names: Vec<String> = (0..9).map(|number| format!("s{number}")).collect();
    let mut fleet = fleet();
    // A response has one resource.
    let limits = Limits {
        response_bytes: 1,
        ..limits()
    };
    let mut client = Client::connect(&mut fleet, 1, limits);
    let upserts: Vec<_> = names.iter().map(|name| (Cluster, &**name, "v0")).collect();
    fleet.apply(update(1, &upserts, &[]));
    client.pump(&mut fleet);
    fleet.apply(update(2, &[(Cluster, "s4", "v1")], &[]));
    client.settle(&mut fleet);
    let mut log = client.take_log();
    log.retain(|line| line.starts_with("cluster"));
    assert_eq!(log[..3], ["cluster +s0", "cluster +s4", "cluster +s1"]);
}

#[test]
fn routes_wait_for_clusters_until_the_warming_timeout() {
    let (mut fleet, mut client) = served();
    // c1 can't warm without a response for its endpoints.
    fleet.apply(update(
        2,
        &[(Cluster, "c1", "v0"), (Route, "r0", "v1;c1")],
        &[],
    ));
    client.pump(&mut fleet);
    assert_eq!(client.take_log(), ["cluster +c1"]);
    let warming = Limits::default().warming_timeout;
    assert_eq!(client.session.deadline(), Some(client.now + warming));
    client.now += warming;
    client.pump(&mut fleet);
    assert_eq!(client.take_log(), ["route +r0"]);
    assert_eq!(kinds(&fleet.take_events()), ["warming timed out"]);
    assert_eq!(client.session.deadline(), Some(client.now + warming));
}

#[test]
fn a_missing_resource_is_reported_immediately_and_once() {
    let (mut fleet, mut client) = served();
    let mut ask = request(Route);
    ask.resource_names_subscribe = vec!["later".to_owned()];
    client.send(&mut fleet, ask.clone());
    assert_eq!(client.take_log(), ["route -later"]);
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), Vec::<String>::new());
    client.send(&mut fleet, ask);
    assert_eq!(
        client.take_log(),
        ["route -later"],
        "a repeated subscription is answered again"
    );
    fleet.apply(update(2, &[(Route, "later", "v0")], &[]));
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["route +later"]);
}

#[test]
fn a_reconnecting_client_is_sent_only_the_differences() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(
        2,
        &[(Route, "r0", "v1;c0"), (Listener, "l1", "v0")],
        &[(Listener, "l0")],
    ));
    client.reconnect(&mut fleet);
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["listener +l1 -l0", "route +r0"]);
}

#[test]
fn a_reconnecting_client_is_resent_the_endpoints_of_a_changed_cluster() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(2, &[(Cluster, "c0", "v1")], &[]));
    client.reconnect(&mut fleet);
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster +c0", "endpoint +c0"]);
}

#[test]
fn versions_from_another_server_are_unknown() {
    let (mut fleet, _) = served();
    let mut session = Session::new(9, limits(), std::time::Instant::now());
    let mut ask = request(Cluster);
    ask.initial_resource_versions = HashMap::from([("c0".to_owned(), "7".to_owned())]);
    session.request(&mut fleet, &ask).unwrap();
    let response = session.poll(&mut fleet, std::time::Instant::now()).unwrap();
    assert_eq!(response.upserts, [resource("c0", "v0")]);
}

#[test]
fn a_stale_nonce_is_ignored_but_its_subscription_is_not() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(
        2,
        &[(Route, "r0", "v1;c0"), (Route, "r1", "v0")],
        &[],
    ));
    client.pump(&mut fleet);
    let mut stale = request(Route);
    stale.response_nonce = "old".to_owned();
    stale.error_detail = Some(Default::default());
    stale.resource_names_subscribe = vec!["r1".to_owned()];
    client.send(&mut fleet, stale);
    assert_eq!(client.take_log(), ["route +r0"], "r0 is still in flight");
    assert_eq!(kinds(&fleet.take_events()), Vec::<String>::new());
    client.receive(&mut fleet);
    client.respond(&mut fleet, 0);
    assert_eq!(client.take_log(), ["route +r1"]);
}

#[test]
fn unsubscribed_names_are_not_sent() {
    let (mut fleet, mut client) = served();
    let mut drop = request(Route);
    drop.resource_names_unsubscribe = vec!["r0".to_owned()];
    client.send(&mut fleet, drop);
    fleet.apply(update(2, &[(Route, "r0", "v1;c0")], &[]));
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), Vec::<String>::new());
    let mut drop_all = request(Listener);
    drop_all.resource_names_unsubscribe = vec!["*".to_owned()];
    client.send(&mut fleet, drop_all);
    fleet.apply(update(3, &[(Listener, "l0", "v1;r0")], &[]));
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), Vec::<String>::new());
}

#[test]
fn a_large_response_is_split() {
    let mut fleet = fleet();
    let body = "v".repeat(1000);
    let names: Vec<String> = (0..20).map(|i| format!("l{i:02}")).collect();
    let upserts: Vec<_> = names
        .iter()
        .map(|n| (Listener, n.as_str(), body.as_str()))
        .collect();
    fleet.apply(update(1, &upserts, &[]));
    let limits = Limits {
        response_bytes: 6000,
        ..limits()
    };
    let mut client = Client::connect(&mut fleet, 1, limits);
    client.settle(&mut fleet);
    let log = client.take_log();
    assert_eq!(log.len(), 4, "{log:#?}");
    assert_eq!(client.held(Listener).count(), 20);
}

#[test]
fn a_client_that_exceeds_a_limit_gets_an_error() {
    let mut fleet = fleet();
    let names = |names: &[&str]| {
        let mut ask = request(Route);
        ask.resource_names_subscribe = names.iter().map(|name| (*name).to_owned()).collect();
        ask
    };
    let begun = || {
        let small = Limits {
            names: 2,
            name_bytes: 8,
            ..limits()
        };
        Session::new(1, small, std::time::Instant::now())
    };
    let mut session = begun();
    session.request(&mut fleet, &names(&["a", "b"])).unwrap();
    assert_eq!(
        session.request(&mut fleet, &names(&["c"])),
        Err(LimitExceeded::TooManyNames {
            ty: Route,
            limit: 2
        })
    );
    let mut session = begun();
    assert_eq!(
        session.request(&mut fleet, &names(&["123456789"])),
        Err(LimitExceeded::NameTooLong {
            ty: Route,
            limit: 8
        })
    );
    let mut brought = request(Cluster);
    brought.initial_resource_versions = (0..3).map(|i| (i.to_string(), String::new())).collect();
    assert!(session.request(&mut fleet, &brought).is_err());
    let mut unknown = request(Cluster);
    unknown.type_url = "type.googleapis.com/other".to_owned();
    unknown.resource_names_subscribe = vec!["x".repeat(100)];
    session.request(&mut fleet, &unknown).unwrap();
}

#[test]
fn the_streams_of_a_fleet_share_a_limit_on_names() {
    let limits = Limits {
        fleet_streams: 1,
        fleet_names: 4,
        ..limits()
    };
    let mut fleet = fleet();
    let names = |names: &[&str]| {
        let mut ask = request(Route);
        ask.resource_names_subscribe = names.iter().map(|name| (*name).to_owned()).collect();
        ask
    };
    let open = |fleet: &mut Fleet, id| {
        fleet.join(id, "node".into());
        Session::new(id, limits.clone(), std::time::Instant::now())
    };
    let mut first = open(&mut fleet, 1);
    let mut second = open(&mut fleet, 2);
    first.request(&mut fleet, &names(&["a", "b", "c"])).unwrap();
    second.request(&mut fleet, &names(&["a"])).unwrap();
    let refused = Err(LimitExceeded::TooManyNamesOfFleet { limit: 4 });
    assert_eq!(second.request(&mut fleet, &names(&["d"])), refused);
    // A long name counts several times.
    fleet.leave(2);
    let mut third = open(&mut fleet, 3);
    let long = "x".repeat(128);
    assert_eq!(third.request(&mut fleet, &names(&[&long])), refused);
    // Unsubscribing makes room, and so does a resource.
    let mut less = request(Route);
    less.resource_names_unsubscribe = vec!["a".to_owned()];
    first.request(&mut fleet, &less).unwrap();
    third.request(&mut fleet, &names(&[&long])).unwrap();
    fleet.apply(update(1, &[(Route, "r", "v0")], &[]));
    third.request(&mut fleet, &names(&["r", "s"])).unwrap();
    let refused = Err(LimitExceeded::TooManyNamesOfFleet { limit: 6 });
    assert_eq!(third.request(&mut fleet, &names(&["t"])), refused);
    // A stream's names stop counting when it ends.
    fleet.leave(3);
    first.request(&mut fleet, &names(&["t"])).unwrap();
}

#[test]
fn the_cost_of_a_change_does_not_depend_on_the_number_of_resources() {
    let cost = |size: usize| {
        let mut fleet = fleet();
        let names: Vec<String> = (0..size).map(|i| format!("c{i}")).collect();
        let mut upserts = Vec::new();
        for name in &names {
            upserts.push((Cluster, name.as_str(), "v0"));
            upserts.push((Endpoint, name.as_str(), "v0"));
        }
        fleet.apply(update(1, &upserts, &[]));
        let mut client = Client::connect(&mut fleet, 1, limits());
        client.settle(&mut fleet);
        let before = client.session.examined();
        fleet.apply(update(2, &[(Endpoint, "c3", "v1")], &[]));
        client.settle(&mut fleet);
        fleet.apply(update(3, &[(Cluster, "c4", "v1")], &[]));
        client.settle(&mut fleet);
        assert_eq!(client.body(Endpoint, "c3"), Some("v1"));
        assert_eq!(client.body(Cluster, "c4"), Some("v1"));
        client.session.examined() - before
    };
    let (small, large) = (cost(10), cost(10_000));
    assert_eq!(small, large);
    assert!(small < 12, "{small} names were examined for two changes");
}

#[test]
fn a_client_that_lags_behind_the_log_catches_up() {
    let (mut fleet, mut client) = served();
    let lag = |fleet: &mut Fleet| {
        for revision in 0..5000u64 {
            let body = format!("v{revision};c0");
            fleet.apply(update(revision + 2, &[(Route, "r0", &body)], &[]));
        }
        fleet.apply(update(6000, &[(Cluster, "c9", "v0")], &[]));
    };
    lag(&mut fleet);
    let before = client.session.examined();
    client.settle(&mut fleet);
    assert!(client.session.examined() - before < 30);
    assert_eq!(client.body(Route, "r0"), Some("v4999;c0"));
    assert_eq!(client.body(Cluster, "c9"), Some("v0"));
    assert_eq!(fleet.status().clients[0].acked_revision, Some(6000));
}

#[test]
fn an_update_without_resources_advances_the_revision() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(5, &[], &[]));
    assert_eq!(settled_events(&mut fleet, &mut client), ["acked 5"]);
    fleet.apply(update(6, &[(Route, "r0", "v0;c0")], &[(Route, "none")]));
    assert_eq!(settled_events(&mut fleet, &mut client), ["acked 6"]);
    assert_eq!(client.take_log(), Vec::<String>::new());
}

#[test]
fn status_counts_resources_by_state() {
    let (mut fleet, client) = served();
    let mut none = client;
    none.settle(&mut fleet);
    let status = fleet.status();
    let types: Vec<_> = status.clients[0]
        .types
        .iter()
        .map(|ty| {
            (
                ty.resource_type,
                ty.wildcard,
                ty.subscribed,
                ty.sent,
                ty.acked,
                ty.pending,
            )
        })
        .collect();
    assert_eq!(
        types,
        [
            (Cluster, true, 0, 1, 1, 0),
            (Endpoint, false, 1, 1, 1, 0),
            (Listener, true, 0, 1, 1, 0),
            (Route, false, 1, 1, 1, 0),
        ]
    );
    assert_eq!(status.resources.len(), ResourceType::ALL.len());
}

#[test]
fn a_client_that_waits_for_its_fleet_has_no_deadline() {
    let mut fleet = fleet();
    let mut client = Client::connect(&mut fleet, 1, limits());
    client.now += Limits::default().warming_timeout * 2;
    client.pump(&mut fleet);
    assert_eq!(client.session.deadline(), None);
    fleet.apply(update(1, &[(Listener, "l0", "v0")], &[]));
    client.settle(&mut fleet);
    assert_eq!(client.session.deadline(), None);
    assert_eq!(client.body(Listener, "l0"), Some("v0"));
}
