//! What a client that refused something goes on using isn't taken from it.

use super::*;

/// The route's new version is refused, and what only the old one uses is removed with it.
fn refused(fleet: &mut Fleet, client: &mut Client) {
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
        "what is kept is not waited for"
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
fn a_refused_routes_clusters_stay_until_it_is_mended() {
    let (mut fleet, mut client) = served();
    refused(&mut fleet, &mut client);
    // All else flows.
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
fn a_mended_routes_clusters_have_their_grace() {
    let (mut fleet, mut client) = served_within(Limits::default());
    refused(&mut fleet, &mut client);
    fleet.apply(update(3, &[(Route, "r0", "v5;c1")], &[]));
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["route +r0"]);
    client.now = client.session.deadline().unwrap();
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster -c0"]);
}

#[test]
fn a_refused_route_that_goes_or_comes_back_lets_its_clusters_go() {
    let (mut fleet, mut client) = served();
    refused(&mut fleet, &mut client);
    fleet.apply(update(3, &[], &[(Route, "r0")]));
    client.pump(&mut fleet);
    assert_eq!(client.take_log(), ["route -r0"], "first one");
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster -c0"], "then the other");

    // The table is again what the client has had all the time.
    let (mut fleet, mut client) = served();
    refused(&mut fleet, &mut client);
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
fn a_client_that_comes_again_with_the_old_version_keeps_its_clusters() {
    let (mut fleet, _) = served();
    let grace = Limits::default();
    let mut client = Client::connect(&mut fleet, 2, grace.clone());
    let mut other = Client::connect(&mut fleet, 3, grace);
    client.settle(&mut fleet);
    other.settle(&mut fleet);
    client.take_log();
    fleet.take_events();
    refused(&mut fleet, &mut client);
    // This one is never sent the bad version.
    for again in [false, true] {
        if again {
            other.reconnect(&mut fleet);
            client.reconnect(&mut fleet);
        }
        for client in [&mut other, &mut client] {
            client.settle(&mut fleet);
            client.now += Duration::from_secs(60);
            client.settle(&mut fleet);
            assert_eq!(client.body(Cluster, "c0"), Some("v0"), "{again}");
            assert_eq!(client.body(Route, "r0"), Some("v0;c0"), "{again}");
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
fn a_refused_listeners_clusters_and_secrets_stay_and_are_not_waited_for() {
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
    assert_eq!(events, ["rejected l0: is bad, or so", "acked 3"]);
    assert_eq!(client.take_log(), ["listener +l0", "route -r0"]);
    fleet.apply(update(4, &[(Listener, "l0", "v1")], &[]));
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(events, ["recovered l0", "acked 4"]);
    assert_eq!(
        client.take_log(),
        ["listener +l0", "cluster -c0", "secret -s0"]
    );
}
