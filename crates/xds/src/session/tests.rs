//! Single rules of the protocol, each by an example.

mod stale;
mod verdicts;

use std::collections::HashMap;
use std::time::Duration;

use super::sim::{
    Client, Cluster, Endpoint, Listener, Route, fleet, limits, request, resource, update,
};
use super::{Session, Violation};
use crate::config::Limits;
use crate::event::Event;
use crate::fleet::Fleet;
use crate::resource::ResourceType;

/// One route over one cluster.
const ONE: [(ResourceType, &str, &str); 4] = [
    (Cluster, "c0", "v0"),
    (Endpoint, "c0", "v0"),
    (Listener, "l0", "v0;r0"),
    (Route, "r0", "v0;c0"),
];

/// A fleet of one route over one cluster, and a client that has all of it.
fn served() -> (Fleet, Client) {
    served_within(limits())
}

fn served_within(limits: Limits) -> (Fleet, Client) {
    let mut fleet = fleet();
    fleet.apply(update(1, &ONE, &[]));
    let mut client = Client::connect(&mut fleet, 1, limits);
    client.settle(&mut fleet);
    client.take_log();
    fleet.take_events();
    (fleet, client)
}

fn kinds(events: &[Event]) -> Vec<String> {
    let kind = |event: &Event| match event {
        Event::Connected { .. } => "connected".to_owned(),
        Event::Disconnected { .. } => "disconnected".to_owned(),
        Event::Acked { revision, .. } => format!("acked {revision}"),
        Event::WarmingTimedOut { .. } => "warming timed out".to_owned(),
        Event::Rejected { name, message, .. } => format!("rejected {name}: {message}"),
        Event::Recovered { name, .. } => format!("recovered {name}"),
    };
    events.iter().map(kind).collect()
}

fn settled_events(fleet: &mut Fleet, client: &mut Client) -> Vec<String> {
    client.settle(fleet);
    kinds(&fleet.take_events())
}

#[test]
fn clusters_come_first_and_traffic_when_they_are_acknowledged() {
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
fn who_asks_for_all_is_told_that_there_is_nothing_once() {
    let mut fleet = fleet();
    fleet.apply(update(1, &[(Listener, "l0", "v0;r0")], &[]));
    let now = std::time::Instant::now();
    let mut session = Session::new(1, limits().into(), now);
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
    // Names are told one by one.
    ask(&mut session, &mut fleet, Route, "");
    assert!(session.poll(&mut fleet, now).is_none());
}

#[test]
fn a_changed_listener_is_followed_by_all_scopes() {
    use ResourceType::ScopedRoute;
    let (mut fleet, mut client) = served();
    let scopes = [(ScopedRoute, "s0", "v0"), (ScopedRoute, "s1", "v0")];
    fleet.apply(update(2, &scopes, &[]));
    client.settle(&mut fleet);
    assert!(client.take_log().is_empty(), "nobody asks for them");
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
fn a_changed_cluster_is_followed_by_its_endpoints() {
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
fn endpoints_that_go_while_their_cluster_warms_are_still_sent() {
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
fn changes_of_endpoints_wait_for_nothing() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(2, &[(Cluster, "c1", "v0")], &[]));
    client.pump(&mut fleet);
    fleet.apply(update(3, &[(Endpoint, "c0", "v1")], &[]));
    client.pump(&mut fleet);
    assert_eq!(client.take_log(), ["cluster +c1", "endpoint +c0"]);
}

#[test]
fn a_route_of_before_does_not_wait_for_clusters_of_after() {
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
    client.look(&mut fleet);
    client.speak(&mut fleet, 0);
    assert_eq!(
        client.take_log(),
        ["route +r0", "cluster +c1", "route +r0"],
        "c1 is not acknowledged yet"
    );
}

#[test]
fn what_changes_while_a_response_is_under_way_merges() {
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
fn removal_goes_the_other_way_round_and_after_a_grace() {
    let limits = Limits::default();
    let grace = limits.removal_grace;
    let (mut fleet, mut client) = served_within(limits);
    fleet.apply(update(
        2,
        &[(Listener, "l1", "v0")],
        &[
            (Cluster, "c0"),
            (Endpoint, "c0"),
            (Listener, "l0"),
            (Route, "r0"),
        ],
    ));
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(client.take_log(), ["listener +l1 -l0"]);
    assert_eq!(events, ["acked 2"], "the leftovers are not waited for");
    assert_eq!(client.session.deadline(), Some(client.now + grace));
    client.now += grace;
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster -c0"]);
    assert!(client.held(Endpoint).next().is_none());
    assert_eq!(client.session.deadline(), None);
}

#[test]
fn a_scope_goes_late_and_nobody_waits_for_that() {
    use ResourceType::ScopedRoute;
    let limits = Limits {
        removal_grace: Duration::ZERO,
        ..Limits::default()
    };
    let grace = limits.scope_grace;
    let (mut fleet, mut client) = served_within(limits);
    let first = request(ScopedRoute);
    client.session.request(&mut fleet, &first).unwrap();
    fleet.apply(update(2, &[(ScopedRoute, "s0", "v0")], &[]));
    client.settle(&mut fleet);
    client.take_log();
    fleet.take_events();
    // A listener takes the place of the one that follows scopes.
    let gone = [
        (ScopedRoute, "s0"),
        (Cluster, "c0"),
        (Endpoint, "c0"),
        (Route, "r0"),
    ];
    fleet.apply(update(3, &[(Listener, "l0", "v1")], &gone));
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(events, ["acked 3"]);
    let log = client.take_log();
    assert_eq!(log, ["listener +l0", "cluster -c0"]);
    client.now += grace;
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["scoped route -s0"]);
    assert_eq!(client.session.deadline(), None);
}

#[test]
fn a_cluster_that_comes_back_within_the_grace_was_never_gone() {
    let (mut fleet, mut client) = served_within(Limits::default());
    fleet.apply(update(2, &[], &[(Cluster, "c0"), (Endpoint, "c0")]));
    client.settle(&mut fleet);
    fleet.apply(update(
        3,
        &[(Cluster, "c0", "v0"), (Endpoint, "c0", "v0")],
        &[],
    ));
    client.settle(&mut fleet);
    client.now += Duration::from_secs(5);
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), Vec::<String>::new());
}

#[test]
fn routes_wait_for_clusters_only_so_long() {
    let (mut fleet, mut client) = served();
    // Without endpoints, nor the word that there are none, c1 doesn't get warm.
    fleet.apply(update(
        2,
        &[(Cluster, "c1", "v0"), (Route, "r0", "v1;c1")],
        &[],
    ));
    client.pump(&mut fleet);
    assert_eq!(client.take_log(), ["cluster +c1"]);
    let warming = Limits::default().warming;
    assert_eq!(client.session.deadline(), Some(client.now + warming));
    client.now += warming;
    client.pump(&mut fleet);
    assert_eq!(client.take_log(), ["route +r0"]);
    assert_eq!(kinds(&fleet.take_events()), ["warming timed out"]);
    assert_eq!(client.session.deadline(), Some(client.now + warming));
}

#[test]
fn a_name_that_is_not_there_is_said_to_be_absent_at_once_and_once() {
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
        "asked again, told again"
    );
    fleet.apply(update(2, &[(Route, "later", "v0")], &[]));
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["route +later"]);
}

#[test]
fn a_client_that_comes_again_is_sent_what_differs() {
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
fn a_changed_clusters_endpoints_are_sent_to_a_client_that_brought_them() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(2, &[(Cluster, "c0", "v1")], &[]));
    client.reconnect(&mut fleet);
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster +c0", "endpoint +c0"]);
}

#[test]
fn versions_of_another_server_are_nobodys() {
    let (mut fleet, _) = served();
    let mut session = Session::new(9, limits().into(), std::time::Instant::now());
    let mut ask = request(Cluster);
    ask.initial_resource_versions = HashMap::from([("c0".to_owned(), "7".to_owned())]);
    session.request(&mut fleet, &ask).unwrap();
    let response = session.poll(&mut fleet, std::time::Instant::now()).unwrap();
    assert_eq!(response.upserts, [resource("c0", "v0")]);
}

#[test]
fn a_stale_nonce_says_nothing_but_its_names_count() {
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
    assert_eq!(client.take_log(), ["route +r0"], "r0 is still under way");
    assert_eq!(kinds(&fleet.take_events()), Vec::<String>::new());
    client.look(&mut fleet);
    client.speak(&mut fleet, 0);
    assert_eq!(client.take_log(), ["route +r1"]);
}

#[test]
fn what_is_no_longer_asked_for_is_no_longer_sent() {
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
        response_bytes: 5000,
        ..limits()
    };
    let mut client = Client::connect(&mut fleet, 1, limits);
    client.settle(&mut fleet);
    let log = client.take_log();
    assert_eq!(log.len(), 4, "{log:#?}");
    assert_eq!(client.held(Listener).count(), 20);
}

#[test]
fn a_client_may_cost_only_so_much() {
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
        Session::new(1, small.into(), std::time::Instant::now())
    };
    let mut session = begun();
    session.request(&mut fleet, &names(&["a", "b"])).unwrap();
    assert_eq!(
        session.request(&mut fleet, &names(&["c"])),
        Err(Violation::TooManyNames {
            ty: Route,
            limit: 2
        })
    );
    let mut session = begun();
    assert_eq!(
        session.request(&mut fleet, &names(&["123456789"])),
        Err(Violation::NameTooLong {
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

/// The work of a stream follows what changed, whatever there is.
#[test]
fn one_change_among_ten_thousand_costs_as_much_as_among_ten() {
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
    assert!(small < 12, "{small} names were looked at for two changes");
}

/// A client that lags behind the log compares everything, once, and then follows again.
#[test]
fn a_client_that_lags_catches_up() {
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
fn an_update_without_resources_moves_the_revision() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(5, &[], &[]));
    assert_eq!(settled_events(&mut fleet, &mut client), ["acked 5"]);
    fleet.apply(update(6, &[(Route, "r0", "v0;c0")], &[(Route, "none")]));
    assert_eq!(settled_events(&mut fleet, &mut client), ["acked 6"]);
    assert_eq!(client.take_log(), Vec::<String>::new());
}

#[test]
fn status_counts_what_is_where() {
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
fn a_client_that_waits_for_its_fleet_sets_no_alarm() {
    let mut fleet = fleet();
    let mut client = Client::connect(&mut fleet, 1, limits());
    client.now += Limits::default().warming * 2;
    client.pump(&mut fleet);
    assert_eq!(client.session.deadline(), None);
    fleet.apply(update(1, &[(Listener, "l0", "v0")], &[]));
    client.settle(&mut fleet);
    assert_eq!(client.session.deadline(), None);
    assert_eq!(client.body(Listener, "l0"), Some("v0"));
}
