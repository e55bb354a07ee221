//! Rejected resources.

use super::*;
use crate::wire::ErrorDetail;

#[test]
fn a_rejected_version_is_not_sent_to_other_clients() {
    let (mut fleet, mut client) = served();
    let mut other = Client::connect(&mut fleet, 2, limits());
    fleet.take_events();
    fleet.apply(update(
        2,
        &[
            (Listener, "l0", "bad"),
            (Listener, "l1", "v0"),
            (Route, "r0", "v1;c0"),
        ],
        &[],
    ));
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(client.take_log(), ["listener +l0 +l1", "route +r0"]);
    assert_eq!(events, ["rejected l0: is bad", "acked 2"]);
    other.settle(&mut fleet);
    assert_eq!(other.body(Listener, "l0"), Some("v0;r0"));
    assert_eq!(kinds(&fleet.take_events()).join(" "), "acked 2");
    assert_eq!(fleet.status().rejections.len(), 1);

    fleet.apply(update(3, &[(Listener, "l0", "v3;r0")], &[]));
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(events, ["recovered l0", "acked 3"]);
    assert!(fleet.status().rejections.is_empty());
}

#[test]
fn a_rejected_route_among_others_is_found_by_bisection() {
    let (mut fleet, mut client) = served();
    let names: Vec<String> = (0..64).map(|i| format!("n{i:02}")).collect();
    let mut ask = request(Route);
    ask.resource_names_subscribe = names.clone();
    client.send(&mut fleet, ask);
    client.settle(&mut fleet);
    client.take_log();
    // The client ignores endpoints and routes that it hasn't subscribed to.
    let upserts: Vec<_> = names
        .iter()
        .map(|name| {
            (
                Route,
                name.as_str(),
                if name == "n37" { "bad" } else { "v0" },
            )
        })
        .collect();
    fleet.apply(update(2, &upserts, &[]));
    for name in &names {
        client.mark_subscribed(Route, name);
    }
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(events, ["rejected n37: something in it is bad", "acked 2"]);
    let responses = client.take_log().len();
    assert!(responses <= 1 + 2 * 6, "{responses} responses");
    assert_eq!(
        client
            .held(Route)
            .filter(|(name, _)| name.starts_with('n'))
            .count(),
        63
    );
}

#[test]
fn a_suspected_resource_is_resent_separately() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(
        2,
        &[(Cluster, "c1", "bad"), (Cluster, "c2", "v0")],
        &[],
    ));
    client.pump(&mut fleet);
    let nonce = client.inbox.pop_front().unwrap().nonce;
    let mut nack = request(Cluster);
    nack.response_nonce = nonce;
    nack.error_detail = Some(ErrorDetail {
        message: "Error adding/updating cluster(s) c1: cannot use, c2: because".to_owned(),
    });
    client.send(&mut fleet, nack);
    assert_eq!(client.take_log(), ["cluster +c1 +c2", "cluster +c2"]);
    let rejected: Vec<_> = fleet.status().rejections;
    assert_eq!(rejected.len(), 1);
    assert_eq!(&*rejected[0].name, "c1");
}

#[test]
fn a_rejected_version_that_is_restored_is_sent_again() {
    let (mut fleet, mut client) = served();
    for (revision, body) in [(2, "bad"), (3, "v0;r0"), (4, "bad")] {
        fleet.apply(update(revision, &[(Listener, "l0", body)], &[]));
        let events = settled_events(&mut fleet, &mut client);
        let expected = match body {
            "bad" => "rejected l0: is bad",
            _ => "recovered l0",
        };
        assert_eq!(events, [expected.to_owned(), format!("acked {revision}")]);
    }
    assert_eq!(client.log, ["listener +l0", "listener +l0"]);
    // The same, but the client doesn't see the version in between.
    fleet.apply(update(5, &[(Listener, "l0", "v0;r0")], &[]));
    fleet.apply(update(6, &[(Listener, "l0", "bad")], &[]));
    let events = settled_events(&mut fleet, &mut client);
    assert_eq!(events, ["recovered l0", "rejected l0: is bad", "acked 6"]);
}

#[test]
fn endpoints_are_sent_to_a_waiting_client_once_no_longer_rejected() {
    let (mut fleet, mut client) = served();
    let mut other = Client::connect(&mut fleet, 2, limits());
    other.settle(&mut fleet);
    fleet.apply(update(2, &[(Endpoint, "c0", "v1")], &[]));
    client.pump(&mut fleet);
    client.receive(&mut fleet);
    fleet.apply(update(
        3,
        &[(Cluster, "c1", "v0"), (Endpoint, "c1", "bad")],
        &[],
    ));
    other.settle(&mut fleet);
    client.take_log();
    // Subscribes to the endpoints of c1, which are withheld, while those of c0 are in flight.
    client.pump(&mut fleet);
    client.receive(&mut fleet);
    fleet.leave(other.id);
    client.settle(&mut fleet);
    assert_eq!(
        client.take_log(),
        ["cluster +c1", "endpoint +c1", "endpoint -c1"]
    );
    assert!(client.unacked.is_empty(), "c1 warms");
}

#[test]
fn endpoints_that_return_while_their_cluster_warms_are_sent_again() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(
        2,
        &[(Cluster, "c1", "v0"), (Endpoint, "c1", "v0")],
        &[],
    ));
    client.pump(&mut fleet);
    client.receive(&mut fleet);
    client.receive(&mut fleet);
    // The client has v0, which is replaced before it is acknowledged, so there is no last good version.
    fleet.apply(update(3, &[(Endpoint, "c1", "bad")], &[]));
    client.settle(&mut fleet);
    // The endpoints of c0 are in flight, so those of c1 can't be reported as missing yet.
    fleet.apply(update(4, &[(Endpoint, "c0", "v1")], &[]));
    client.pump(&mut fleet);
    fleet.apply(update(5, &[(Cluster, "c1", "v1")], &[]));
    client.pump(&mut fleet);
    fleet.apply(update(6, &[], &[(Cluster, "c1"), (Endpoint, "c1")]));
    client.pump(&mut fleet);
    fleet.apply(update(
        7,
        &[(Cluster, "c1", "v1"), (Endpoint, "c1", "v0")],
        &[],
    ));
    client.settle(&mut fleet);
    assert!(client.unacked.is_empty(), "c1 warms: {:#?}", client.log);
}

#[test]
fn a_client_that_has_a_version_rejected_by_another_gets_the_last_good_one() {
    let (mut fleet, mut client) = served();
    let mut ask = request(Route);
    ask.resource_names_subscribe = vec!["r1".to_owned()];
    client.send(&mut fleet, ask);
    client.mark_subscribed(Route, "r1");
    fleet.apply(update(2, &[(Route, "r1", "v0;c0")], &[]));
    client.settle(&mut fleet);
    fleet.apply(update(
        3,
        &[(Route, "r0", "v1;c0"), (Route, "r1", "bad")],
        &[],
    ));
    client.pump(&mut fleet);
    client.take_log();
    client.receive(&mut fleet);
    client.respond(&mut fleet, 0);
    assert_eq!(client.take_log(), ["route +r0"], "the response is bisected");
    let r1 = resource("r1", "bad");
    fleet.rejected(2, Route, r1.name(), r1.version(), "no");
    client.receive(&mut fleet);
    client.respond(&mut fleet, 0);
    assert_eq!(client.take_log(), ["route +r1"]);
    client.receive(&mut fleet);
    assert_eq!(client.body(Route, "r1"), Some("v0;c0"));
}
