//! Health checks of new and changed clusters.

use super::*;

/// A cluster with a health check, encoded.
const CHECKED: &str = "B\0";
/// A `ClusterLoadAssignment` with an endpoint, encoded.
const ONE_ENDPOINT: &str = "\x12\x04\x12\x02\n\0";
/// The same, with `disable_active_health_check`.
const UNCHECKED: &str = "\x12\x08\x12\x06\n\x04\x12\x02\x20\x01";

#[test]
fn routes_wait_for_health_checks_until_their_timeout() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(
        2,
        &[
            (Cluster, "c1", CHECKED),
            (Endpoint, "c1", ONE_ENDPOINT),
            (Route, "r0", "v1;c1"),
        ],
        &[],
    ));
    client.pump(&mut fleet);
    // The client has the endpoints, but waits for the first check.
    client.receive(&mut fleet);
    client.receive(&mut fleet);
    client.respond(&mut fleet, 1);
    assert_eq!(client.take_log(), ["cluster +c1", "endpoint +c1"]);
    assert_eq!(client.body(Endpoint, "c1"), Some(ONE_ENDPOINT));

    let timeout = Limits::default().check_timeout;
    assert_eq!(client.session.deadline(), Some(client.now + timeout));
    client.now += timeout;
    client.pump(&mut fleet);
    client.receive(&mut fleet);
    client.respond(&mut fleet, 1);
    assert_eq!(client.take_log(), ["endpoint +c1"]);
    assert_eq!(client.body(Endpoint, "c1"), Some(UNCHECKED));

    // With the ACK, checks begin.
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["endpoint +c1", "route +r0"]);
    assert_eq!(client.body(Endpoint, "c1"), Some(ONE_ENDPOINT));
}

#[test]
fn endpoints_that_pass_their_checks_in_time_are_sent_once() {
    let (mut fleet, mut client) = served();
    fleet.apply(update(
        2,
        &[(Cluster, "c1", CHECKED), (Endpoint, "c1", ONE_ENDPOINT)],
        &[],
    ));
    client.settle(&mut fleet);
    client.now += Limits::default().check_timeout;
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster +c1", "endpoint +c1"]);
}

#[test]
fn a_client_that_starts_waits_for_checks_after_its_ack() {
    let mut fleet = fleet();
    fleet.apply(update(
        1,
        &[(Cluster, "c1", CHECKED), (Endpoint, "c1", ONE_ENDPOINT)],
        &[],
    ));
    let mut client = Client::starting(&mut fleet, 1, limits());
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster +c1", "endpoint +c1"]);
    client.now += Limits::default().check_timeout;
    client.settle(&mut fleet);
    assert_eq!(client.body(Endpoint, "c1"), Some(UNCHECKED));
    client.send(&mut fleet, request(Listener));
    client.settle(&mut fleet);
    assert_eq!(client.body(Endpoint, "c1"), Some(ONE_ENDPOINT));
}
