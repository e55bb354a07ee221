//! Forwarding of connections.

use super::super::testing::World;

fn passthrough(tcp: &str) -> String {
    format!("{{virtualhost: {{fqdn: a.com, tls: {{passthrough: true}}}}, tcpproxy: {tcp}}}")
}

#[test]
fn connections_are_passed_through() {
    let world = World::with(&[("a", &passthrough("{services: [{name: one, port: 443}]}"))]);
    assert_eq!(world.status("a"), "valid\n");
    let chains = world.chains();
    assert!(chains.contains("443 a.com Some(Passthrough)"), "{chains}");
}

#[test]
fn connections_are_shared_by_weight() {
    let world = World::with(&[(
        "a",
        &passthrough(
            "{services: [{name: one, port: 443, weight: 2}, {name: two, port: 443, weight: 1}, {name: missing, port: 1, weight: 5}]}",
        ),
    )]);
    let chains = world.chains();
    assert!(
        chains.contains("weight: 2") && !chains.contains("weight: 5"),
        "{chains}"
    );
    assert!(
        world
            .status("a")
            .contains("spec.tcpproxy.services[2]: Service shop/missing does not exist")
    );
    assert_eq!(world.clusters().len(), 2, "{:?}", world.clusters());
}

#[test]
fn connections_are_not_mirrored() {
    let services = "{services: [{name: one, port: 443}, {name: two, port: 443, mirror: true}]}";
    let world = World::with(&[("a", &passthrough(services))]);
    let status = world.status("a");
    assert!(
        status.contains("TCPProxyError") && status.contains("spec.tcpproxy.services[1].mirror"),
        "{status}"
    );
    assert_eq!(world.clusters(), [""; 0]);
}

#[test]
fn filters_of_addresses_close_forwarded_connections() {
    let spec = passthrough("{services: [{name: one, port: 443}]}");
    for part in ["ipAllowPolicy", "ipDenyPolicy"] {
        let filter = format!("fqdn: a.com, {part}: [{{source: Peer, cidr: 10.0.0.0/8}}]");
        let world = World::with(&[("a", &spec.replace("fqdn: a.com", &filter))]);
        let status = world.status("a");
        let error = format!("spec.virtualhost.{part}: can't be applied to forwarded connections");
        assert!(status.contains(&error), "{status}");
        assert_eq!(world.clusters(), [""; 0]);
    }
}

#[test]
fn the_tcpproxy_of_another_is_included() {
    let child = "tcpproxy: {services: [{name: one, port: 443, weight: 1}, {name: two, port: 443, weight: 1}]}";
    for part in ["include", "includes"] {
        let mut world =
            World::with(&[("a", &passthrough(&format!("{{{part}: {{name: child}}}}")))]);
        assert!(world.status("a").contains(&format!(
            "TCPProxyIncludeError InvalidInclude: spec.tcpproxy.{part}: HTTPProxy shop/child does not exist"
        )));
        world.proxy("child", child);
        assert_eq!(world.status("a"), "valid\n");
        assert_eq!(world.status("child"), "valid\n");
        assert_eq!(world.clusters().len(), 2);
    }
}

#[test]
fn inclusions_of_a_tcpproxy_end() {
    let world = World::with(&[
        ("a", &passthrough("{include: {name: b}}")),
        ("b", "tcpproxy: {include: {name: c}}"),
        ("c", "tcpproxy: {include: {name: b}}"),
        ("d", "{}"),
        (
            "e",
            &passthrough("{include: {name: d}}").replace("a.com", "b.com"),
        ),
        (
            "f",
            &passthrough("{include: {name: a}}").replace("a.com", "c.com"),
        ),
    ]);
    assert!(
        world
            .status("c")
            .contains("spec.tcpproxy.include: the chain of inclusions"),
        "{}",
        world.status("c")
    );
    assert!(
        world
            .status("e")
            .contains("HTTPProxy shop/d has no tcpproxy")
    );
    assert!(
        world
            .status("f")
            .contains("HTTPProxy shop/a has a virtualhost")
    );
    assert_eq!(world.clusters(), [""; 0]);
}

#[test]
fn a_tcpproxy_needs_tls_and_a_target() {
    let world = World::with(&[
        (
            "a",
            "{virtualhost: {fqdn: a.com}, tcpproxy: {services: [{name: one, port: 80}]}}",
        ),
        ("b", &passthrough("{}").replace("a.com", "b.com")),
        (
            "c",
            &passthrough("{services: [{name: one, port: 443}], include: {name: x}}")
                .replace("a.com", "c.com"),
        ),
    ]);
    assert!(
        world
            .status("a")
            .contains("TCPProxyError InvalidTCPProxy: spec.tcpproxy: needs TLS")
    );
    assert!(
        world
            .status("b")
            .contains("one of include and services is required")
    );
    assert!(
        world
            .status("c")
            .contains("include and services are mutually exclusive")
    );
    assert_eq!(world.clusters(), [""; 0]);
}

#[test]
fn routes_beside_a_tcpproxy_serve_requests_without_tls() {
    let spec = "
        virtualhost: {fqdn: a.com, tls: {passthrough: true}}
        tcpproxy: {services: [{name: one, port: 443}]}
        routes:
        - {services: [{name: one, port: 80}]}
        - {conditions: [{prefix: /open}], services: [{name: two, port: 80}], permitInsecure: true}
    ";
    let world = World::with(&[("a", spec)]);
    assert_eq!(world.status("a"), "valid\n");
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /open -> shop/two:80\n/ / -> 301 https://same:443\n"
    );
    assert_eq!(world.routes(443, "a.com"), "");
}
