//! A client that rejected a route or listener keeps what its older version uses.

use super::*;

/// The client rejects a new version of the route. The same update removes the cluster that only the old version uses.
fn reject_route(fleet: &mut Fleet, client: &mut Client) {
    fleet.apply(update(
        2,
        &[
            (Cluster, "c1", "v0"),
            (Endpoint, "c1", "v0"),
            (Route, "r0", "bad;c1"),
        ],
        &[(Cluster, "c0"), (Endpoint, "c0")],
    ));
    let events = settled_events(fleet, client);
    assert_eq!(
        events,
        ["rejected r0: something in it is bad", "acked 2"],
        "progress doesn't wait for the removal"
    );
    client.now += Duration::from_secs(60);
    client.settle(fleet);
    assert_eq!(
        client.take_log(),
        ["cluster +c1", "endpoint +c1", "route +r0"]
    );
    assert_eq!(client.body(Route, "r0"), Some("v0;c0"));
    assert_eq!(client.session.deadline(), None);
}

#[test]
fn the_clusters_of_a_rejected_route_stay_until_it_is_fixed() {
    let (mut fleet, mut client) = served();
    reject_route(&mut fleet, &mut client);
    // Everything else is sent.
    fleet.apply(update(
        3,
        &[(Cluster, "c2", "v0"), (Endpoint, "c1", "v1")],
        &[],
    ));
    assert_eq!(settled_events(&mut fleet, &mut client), ["acked 3"]);
    fleet.apply(update(
        4,
        &[(Listener, "l1", "v0"), (Route, "r0", "bad1;c1")],
        &[(Cluster, "c2")],
    ));
    settled_events(&mut fleet, &mut client);
    client.take_log();
    assert_eq!(client.held(Cluster).count(), 3);

    fleet.apply(update(5, &[(Route, "r0", "v5;c1")], &[]));
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(events, ["recovered r0", "acked 5"]);
    assert_eq!(client.take_log(), ["route +r0", "cluster -c0 -c2"]);
}

#[test]
fn old_clusters_of_a_fixed_route_are_removed_after_the_removal_delay() {
    let (mut fleet, mut client) = served_with(Limits::default());
    reject_route(&mut fleet, &mut client);
    fleet.apply(update(3, &[(Route, "r0", "v5;c1")], &[]));
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["route +r0"]);
    client.now = client.session.deadline().unwrap();
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster -c0"]);
}

#[test]
fn clusters_are_removed_when_a_rejected_route_is_removed_or_reverted() {
    let (mut fleet, mut client) = served();
    reject_route(&mut fleet, &mut client);
    fleet.apply(update(3, &[], &[(Route, "r0")]));
    client.pump(&mut fleet);
    assert_eq!(client.take_log(), ["route -r0"], "routes first");
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster -c0"], "then clusters");

    // Restores the version that the client has had all along.
    let (mut fleet, mut client) = served();
    reject_route(&mut fleet, &mut client);
    fleet.apply(update(
        3,
        &[
            (Cluster, "c0", "v0"),
            (Endpoint, "c0", "v0"),
            (Route, "r0", "v0;c0"),
        ],
        &[(Cluster, "c1"), (Endpoint, "c1")],
    ));
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster -c1"]);
}

#[test]
fn a_client_that_reconnects_with_the_older_version_keeps_its_clusters() {
    let (mut fleet, _) = served();
    let limits = Limits::default();
    let mut client = Client::connect(&mut fleet, 2, limits.clone());
    let mut other = Client::connect(&mut fleet, 3, limits);
    client.settle(&mut fleet);
    other.settle(&mut fleet);
    client.take_log();
    fleet.take_events();
    reject_route(&mut fleet, &mut client);
    // `other` is never sent the invalid version.
    for reconnected in [false, true] {
        if reconnected {
            other.reconnect(&mut fleet);
            client.reconnect(&mut fleet);
        }
        for client in [&mut other, &mut client] {
            client.settle(&mut fleet);
            client.now += Duration::from_secs(60);
            client.settle(&mut fleet);
            assert_eq!(client.body(Cluster, "c0"), Some("v0"), "{reconnected}");
            assert_eq!(client.body(Route, "r0"), Some("v0;c0"), "{reconnected}");
        }
    }
    fleet.apply(update(3, &[(Route, "r0", "v5;c1")], &[]));
    for client in [&mut other, &mut client] {
        client.settle(&mut fleet);
        client.now += Duration::from_secs(60);
        client.settle(&mut fleet);
        assert_eq!(client.body(Cluster, "c0"), None);
    }
}

#[test]
fn the_clusters_and_secrets_of_a_rejected_listener_stay() {
    let (mut fleet, mut client) = served();
    let secret = ResourceType::Secret;
    fleet.apply(update(2, &[(secret, "s0", "v0")], &[]));
    let mut ask = request(secret);
    ask.resource_names_subscribe = vec!["s0".to_owned()];
    client.send(&mut fleet, ask);
    client.settle(&mut fleet);
    client.take_log();
    fleet.take_events();
    fleet.apply(update(
        3,
        &[(Listener, "l0", "bad")],
        &[
            (secret, "s0"),
            (Route, "r0"),
            (Cluster, "c0"),
            (Endpoint, "c0"),
        ],
    ));
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(events, ["rejected l0: is bad", "acked 3"]);
    assert_eq!(client.take_log(), ["listener +l0", "route -r0"]);
    fleet.apply(update(4, &[(Listener, "l0", "v1")], &[]));
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(events, ["recovered l0", "acked 4"]);
    assert_eq!(
        client.take_log(),
        ["listener +l0", "cluster -c0", "secret -s0"]
    );
}
