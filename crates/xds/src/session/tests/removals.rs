//! When resources are removed from a client.

use super::*;

#[test]
fn removals_go_in_reverse_order_with_clusters_after_the_removal_delay() {
    let limits = Limits::default();
    let delay = limits.removal_delay;
    let (mut fleet, mut client) = served_with(limits);
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
    assert_eq!(events, ["acked 2"], "progress doesn't wait for the removal");
    assert_eq!(client.session.deadline(), Some(client.now + delay));
    client.now += delay;
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster -c0"]);
    assert!(client.held(Endpoint).next().is_none());
    assert_eq!(client.session.deadline(), None);
}

#[test]
fn clusters_that_no_route_refers_to_are_removed_without_the_delay() {
    let limits = Limits {
        clusters_removed_immediately: |name| name == "443/a.test",
        ..Limits::default()
    };
    let (mut fleet, mut client) = served_with(limits);
    fleet.apply(update(2, &[(Cluster, "443/a.test", "v0")], &[]));
    client.settle(&mut fleet);
    client.take_log();
    let gone = [(Cluster, "443/a.test"), (Cluster, "c0"), (Route, "r0")];
    fleet.apply(update(3, &[], &gone));
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["route -r0", "cluster -443/a.test"]);
    client.now += Limits::default().removal_delay;
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["cluster -c0"]);
}

#[test]
fn scopes_are_removed_last_and_nothing_waits_for_them() {
    use ResourceType::ScopedRoute;
    let limits = Limits {
        removal_delay: Duration::ZERO,
        clusters_removed_immediately: |_| true,
        ..Limits::default()
    };
    let grace = limits.scope_removal_delay;
    let (mut fleet, mut client) = served_with(limits);
    let first = request(ScopedRoute);
    client.session.request(&mut fleet, &first).unwrap();
    fleet.apply(update(2, &[(ScopedRoute, "s0", "v0")], &[]));
    client.settle(&mut fleet);
    client.take_log();
    fleet.take_events();
    // Replaces the listener that uses scopes.
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

/// Another version of Sesame names its scopes differently.
#[test]
fn scopes_of_another_server_are_removed_after_the_delay() {
    use ResourceType::ScopedRoute;
    let limits = Limits {
        clusters_removed_immediately: |_| true,
        ..Limits::default()
    };
    let (mut fleet, mut client) = served_with(limits.clone());
    let mut first = request(ScopedRoute);
    first.initial_resource_versions = HashMap::from([("s0".to_owned(), "7".to_owned())]);
    client.session.request(&mut fleet, &first).unwrap();
    let own = [(Listener, "l0", "v1"), (ScopedRoute, "s1", "v0")];
    fleet.apply(update(2, &own, &[]));
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["listener +l0", "scoped route +s1"]);
    client.now += limits.scope_removal_delay;
    client.settle(&mut fleet);
    assert_eq!(client.take_log(), ["scoped route -s0"]);
}

#[test]
fn a_cluster_restored_within_the_removal_delay_is_not_removed() {
    let (mut fleet, mut client) = served_with(Limits::default());
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
