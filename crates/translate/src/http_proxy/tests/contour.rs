//! HTTPProxies and ExtensionServices of Contour's group.

use sesame_api::{Kind, ObjectKey};

use super::super::testing::World;

/// An HTTPProxy of Contour's group in namespace `shop`.
fn theirs(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: projectcontour.io/v1, kind: HTTPProxy, metadata: {{name: {name}, namespace: shop}}, spec: {spec}}}"
    )
}

fn root(service: &str) -> String {
    format!(
        "{{virtualhost: {{fqdn: a.com}}, routes: [{{services: [{{name: {service}, port: 80}}]}}]}}"
    )
}

fn leaf(service: &str) -> String {
    format!("{{routes: [{{services: [{{name: {service}, port: 80}}]}}]}}")
}

const INCLUDING: &str = "{virtualhost: {fqdn: a.com}, includes: [{name: leaf}]}";

fn status(world: &World, kind: Kind, name: &str) -> String {
    world.status_of(&ObjectKey::new(kind, "shop", name))
}

const SUPERSEDED: &str = "invalid\nerror SpecError Superseded: spec: not in effect: \
                          the projectsesame.io object with the same name takes precedence; \
                          delete one of the two objects\n";

#[test]
fn our_own_takes_the_place_of_one_with_the_same_name() {
    let mut world = World::new();
    world.put(&theirs("a", &root("one")));
    assert_eq!(world.routes(80, "a.com"), "/ / -> shop/one:80\n");
    assert_eq!(status(&world, Kind::ContourHTTPProxy, "a"), "valid\n");
    assert_eq!(status(&world, Kind::HTTPProxy, "a"), "none\n");

    world.proxy("a", &root("two"));
    assert_eq!(world.routes(80, "a.com"), "/ / -> shop/two:80\n");
    assert_eq!(status(&world, Kind::ContourHTTPProxy, "a"), SUPERSEDED);
    assert_eq!(status(&world, Kind::HTTPProxy, "a"), "valid\n");

    world.remove("a");
    assert_eq!(world.routes(80, "a.com"), "/ / -> shop/one:80\n");
    assert_eq!(status(&world, Kind::ContourHTTPProxy, "a"), "valid\n");
}

#[test]
fn inclusions_lead_from_one_group_to_the_other() {
    let mut world = World::new();
    world.put(&theirs("root", INCLUDING));
    world.put(&theirs("leaf", &leaf("one")));
    assert_eq!(world.routes(80, "a.com"), "/ / -> shop/one:80\n");
    assert_eq!(status(&world, Kind::ContourHTTPProxy, "leaf"), "valid\n");

    world.proxy("root", INCLUDING);
    assert_eq!(world.routes(80, "a.com"), "/ / -> shop/one:80\n");
    assert_eq!(status(&world, Kind::HTTPProxy, "root"), "valid\n");

    world.proxy("leaf", &leaf("two"));
    assert_eq!(world.routes(80, "a.com"), "/ / -> shop/two:80\n");
    assert_eq!(status(&world, Kind::ContourHTTPProxy, "leaf"), SUPERSEDED);
}

#[test]
fn forwarded_connections_lead_from_one_group_to_the_other() {
    let mut world = World::new();
    world.put(&theirs(
        "leaf",
        "{tcpproxy: {services: [{name: one, port: 80}]}}",
    ));
    world.proxy(
        "root",
        "{virtualhost: {fqdn: a.com, tls: {passthrough: true}}, tcpproxy: {include: {name: leaf}}}",
    );
    let chains = world.chains();
    assert!(chains.contains("443 a.com Some(Passthrough)"), "{chains}");
    assert_eq!(status(&world, Kind::HTTPProxy, "root"), "valid\n");
    assert_eq!(status(&world, Kind::ContourHTTPProxy, "leaf"), "valid\n");
}

#[test]
fn a_changed_group_changes_no_virtual_host() {
    let mut world = World::new();
    world.put(&theirs("a", &root("one")));
    let commit = world.proxy("a", &root("one"));
    assert_eq!(world.changed_hosts(&commit), 0);
}

#[test]
fn extension_services_of_both_groups_are_called() {
    let extension = |group: &str, service: &str| {
        format!(
            "{{apiVersion: {group}/v1alpha1, kind: ExtensionService, metadata: {{name: check, namespace: shop}}, \
             spec: {{protocol: h2c, services: [{{name: {service}, port: 80}}]}}}}"
        )
    };
    let mut world = World::new();
    for name in ["two", "three"] {
        world.put(&format!(
            "{{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {{name: {name}, namespace: shop, labels: \
             {{kubernetes.io/service-name: {name}}}}}, addressType: IPv4, ports: [{{port: 8080}}], endpoints: \
             [{{addresses: [10.0.0.1]}}]}}"
        ));
    }
    world.put(&extension("projectcontour.io", "two"));
    world.proxy(
        "a",
        "{virtualhost: {fqdn: a.com, authorization: {extensionRef: {name: check}}}, routes: [{services: [{name: one, port: 80}]}]}",
    );
    assert_eq!(world.status("a"), "valid\n");
    assert_eq!(world.shares("check"), "shop/two:80*1");

    world.put(&extension("projectsesame.io", "three"));
    assert_eq!(world.shares("check"), "shop/three:80*1");
    let of_contour = ObjectKey::new(Kind::ContourExtensionService, "shop", "check");
    assert!(
        world
            .extension_of(&of_contour)
            .starts_with("False\nerror SpecError Superseded")
    );
}

/// Contour's CRDs admit these, so an API server sends them.
#[test]
fn numbers_that_contour_does_not_bound_are_reported() {
    let service = "name: one, port: 80";
    for (proxy, field) in [
        (
            format!("routes: [{{services: [{{{service}, weight: 9223372036854775807}}]}}]"),
            "spec.routes[0].services[0].weight",
        ),
        (
            format!("tcpproxy: {{services: [{{{service}, weight: 4294967296}}]}}"),
            "spec.tcpproxy.services[0].weight",
        ),
        (
            format!(
                "routes: [{{services: [{{{service}}}], internalRedirectPolicy: {{maxInternalRedirects: -1}}}}]"
            ),
            "spec.routes[0].internalRedirectPolicy.maxInternalRedirects",
        ),
        (
            format!(
                "routes: [{{services: [{{{service}}}], retryPolicy: {{retriableStatusCodes: [-1]}}}}]"
            ),
            "spec.routes[0].retryPolicy.retriableStatusCodes[0]",
        ),
        (
            format!(
                "routes: [{{services: [{{{service}}}], rateLimitPolicy: {{local: {{requests: 1, unit: second, burst: -1}}}}}}]"
            ),
            "spec.routes[0].rateLimitPolicy.local.burst",
        ),
    ] {
        let mut world = World::new();
        world.put(&theirs(
            "a",
            &format!("{{virtualhost: {{fqdn: a.com}}, {proxy}}}"),
        ));
        let status = status(&world, Kind::ContourHTTPProxy, "a");
        assert!(status.contains(&format!("{field}: ")), "{field}: {status}");
    }
    for (part, field) in [
        (
            "services: [{name: one, port: 80, weight: -1}]",
            "spec.services[0].weight",
        ),
        (
            "services: [{name: one, port: 80}], circuitBreakerPolicy: {maxConnections: -1, maxPendingRequests: -1, \
             maxRequests: -1, maxRetries: -1, perHostMaxConnections: -1}",
            "spec.circuitBreakerPolicy.perHostMaxConnections",
        ),
    ] {
        let mut world = World::new();
        world.put(&format!(
            "{{apiVersion: projectcontour.io/v1alpha1, kind: ExtensionService, \
             metadata: {{name: a, namespace: shop}}, spec: {{{part}}}}}"
        ));
        let status =
            world.extension_of(&ObjectKey::new(Kind::ContourExtensionService, "shop", "a"));
        assert!(
            status.contains(&format!("{field}: -1 is not valid")),
            "{field}: {status}"
        );
    }
}
