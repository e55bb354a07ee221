//! The fallback certificate.

use sesame_api::NamespacedName;

use super::super::testing::World;
use super::hosts::{secret, with_tls};
use crate::settings::IngressSettings;

const ENABLED: &str = "{secretName: cert, enableFallbackCertificate: true}";

/// The start of the line with the fallback certificate's chain.
const CHAIN: &str = "443 * ";

/// Creates a translation with a certificate in namespaces `shop` and `edge`; the one in `edge` is the fallback
/// certificate.
fn world() -> World {
    let mut world = World::new();
    world.put_value(secret("shop"));
    world.put_value(secret("edge"));
    world.set(settings());
    world
}

fn settings() -> IngressSettings {
    IngressSettings {
        fallback_certificate: Some(NamespacedName::new("edge", "cert")),
        ..IngressSettings::default()
    }
}

fn delegate(world: &mut World, to: &str) {
    world.put(&format!(
        "
        apiVersion: projectsesame.io/v1
        kind: TLSCertificateDelegation
        metadata: {{name: d, namespace: edge}}
        spec: {{delegations: [{{secretName: cert, targetNamespaces: [{to}]}}]}}
        "
    ));
}

fn host(fqdn: &str, tls: &str) -> String {
    with_tls(tls).replace("a.com", &format!("'{fqdn}'"))
}

#[test]
fn only_hosts_that_enable_it_are_served_with_the_fallback_certificate() {
    let mut world = world();
    delegate(&mut world, "shop");
    world.proxy("own", &host("own.com", "{secretName: cert}"));
    assert!(!world.chains().contains(CHAIN), "{}", world.chains());
    world.proxy("a", &with_tls(ENABLED));
    world.proxy("wide", &host("*.wide.com", ENABLED));
    world.proxy("narrow", &host("x.wide.com", "{secretName: cert}"));
    assert_eq!(world.status("a"), "valid\n");
    assert_eq!(world.with_fallback(), ["*.wide.com", "a.com"]);
    let chains = world.chains();
    let mut with_fallback = chains.lines().filter(|line| line.starts_with(CHAIN));
    let chain = with_fallback.next().expect("a chain");
    assert_eq!(with_fallback.next(), None);
    for part in [
        "namespace: \"edge\", name: \"cert\"",
        "clients: None, versions: None",
        "Http(",
    ] {
        assert!(chain.contains(part), "{part}: {chain}");
    }
    // The chain is removed with the last host that uses it.
    world.remove("a");
    assert_eq!(world.chains(), chains.replace(&own_chain(&chains), ""));
    world.remove("wide");
    assert!(!world.chains().contains(CHAIN), "{}", world.chains());
    assert_eq!(world.with_fallback(), [""; 0]);
}

/// The line with the chain of host `a.com`.
fn own_chain(chains: &str) -> String {
    let mut lines = chains.lines();
    let own = lines.find(|line| line.starts_with("443 a.com "));
    format!("{}\n", own.expect("a chain"))
}

#[test]
fn an_error_of_the_fallback_certificate_leaves_the_host_in_service() {
    let mut world = world();
    delegate(&mut world, "shop");
    let field = "error TLSError";
    let name = "spec.virtualhost.tls.enableFallbackCertificate";
    let check = |world: &World, error: &str| {
        let status = world.status("a");
        assert!(status.starts_with("invalid\n"), "{status}");
        assert!(status.contains(error), "{status}");
        assert!(status.contains(field) && status.contains(name), "{status}");
        assert!(!world.chains().contains(CHAIN), "{}", world.chains());
        assert_eq!(world.with_fallback(), [""; 0]);
        assert!(own_chain(&world.chains()).contains(" Http("));
        assert_ne!(world.routes(443, "a.com"), "");
    };
    world.proxy(
        "a",
        &with_tls(
            "{secretName: cert, enableFallbackCertificate: true, \
             clientValidation: {skipClientCertValidation: true, optionalClientCertificate: true}}",
        ),
    );
    check(&world, "has no effect in combination with clientValidation");
    world.proxy("a", &with_tls(ENABLED));
    assert_eq!(world.status("a"), "valid\n");
    world.set(IngressSettings::default());
    check(&world, "or start it with --fallback-certificate, or remove");
    world.set(settings());
    assert_eq!(world.status("a"), "valid\n");
    delegate(&mut world, "other");
    check(
        &world,
        "no TLSCertificateDelegation in namespace edge lets namespace shop use Secret cert",
    );
    delegate(&mut world, "shop");
    let mut invalid = secret("edge");
    invalid["stringData"]["tls.key"] = "".into();
    world.put_value(invalid);
    check(
        &world,
        "Secret edge/cert has no data in tls.key (the fallback certificate of Sesame)",
    );
    world.put_value(secret("edge"));
    assert_eq!(world.status("a"), "valid\n");
    world.set(IngressSettings {
        fallback_certificate: Some(NamespacedName::new("shop", "missing")),
        ..IngressSettings::default()
    });
    check(
        &world,
        "Secret shop/missing does not exist (the fallback certificate of Sesame)",
    );
}

#[test]
fn forwarded_connections_have_no_fallback_certificate() {
    let mut world = world();
    delegate(&mut world, "shop");
    for (tls, other) in [
        (
            "{passthrough: true, enableFallbackCertificate: true}",
            "passthrough",
        ),
        (ENABLED, "spec.tcpproxy"),
    ] {
        world.proxy(
            "a",
            &format!(
                "{{virtualhost: {{fqdn: a.com, tls: {tls}}}, tcpproxy: {{services: [{{name: one, port: 80}}]}}}}"
            ),
        );
        let status = world.status("a");
        assert!(
            status.contains(&format!("has no effect in combination with {other}: ")),
            "{status}"
        );
        assert!(!world.chains().contains(CHAIN), "{}", world.chains());
        assert!(own_chain(&world.chains()).ends_with(" Destination\n"));
    }
}

#[test]
fn a_host_that_serves_no_tls_has_no_fallback_certificate() {
    let mut world = world();
    delegate(&mut world, "shop");
    for (tls, error) in [
        (
            "{secretName: missing, enableFallbackCertificate: true}",
            "Secret shop/missing does not exist",
        ),
        (
            "{enableFallbackCertificate: true}",
            "spec.virtualhost.tls.secretName: expected",
        ),
    ] {
        world.proxy("a", &with_tls(tls));
        let status = world.status("a");
        assert!(
            status.contains(error) && !status.contains("enableFallback"),
            "{status}"
        );
        assert!(!world.chains().contains(CHAIN), "{}", world.chains());
    }
}

#[test]
fn versions_of_tls_do_not_apply_to_the_fallback_certificate() {
    let mut world = world();
    delegate(&mut world, "shop");
    world.proxy(
        "a",
        &with_tls(
            "{secretName: cert, enableFallbackCertificate: true, minimumProtocolVersion: '1.3'}",
        ),
    );
    let status = world.status("a");
    assert!(
        status.starts_with(
            "valid\nwarning TLSError InvalidTLS: spec.virtualhost.tls.enableFallbackCertificate: connections with"
        ),
        "{status}"
    );
    assert_eq!(world.with_fallback(), ["a.com"]);
}

#[test]
fn a_listener_of_a_gateway_takes_the_connections_of_the_fallback_certificate() {
    for (hostname, with_fallback) in [
        ("", &[][..]),
        (", hostname: a.com", &["b.com"]),
        (", hostname: c.com", &["a.com", "b.com"]),
    ] {
        let mut world = World::beside_gateway(&format!(
            "name: tls, port: 443, protocol: HTTPS, tls: {{certificateRefs: [{{name: cert}}]}}{hostname}"
        ));
        world.put_value(secret("shop"));
        world.put_value(secret("edge"));
        delegate(&mut world, "shop");
        world.set(settings());
        world.proxy("a", &with_tls(ENABLED));
        world.proxy("b", &host("b.com", ENABLED));
        assert_eq!(world.with_fallback(), with_fallback, "{hostname}");
        let chains = world.chains();
        let mut any_host = chains.lines().filter(|line| line.starts_with(CHAIN));
        let chain = any_host.next().expect("a chain");
        assert_eq!(chain.contains("edge"), !hostname.is_empty(), "{chain}");
    }
}
