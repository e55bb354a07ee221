//! Hosts and TLS.

use super::super::testing::World;
use crate::settings::IngressSettings;

const ROUTES: &str = "routes: [{services: [{name: one, port: 80}]}, {conditions: [{prefix: /open}], services: [{name: two, port: 80}], permitInsecure: true}]";

/// A Secret with a certificate.
pub(super) fn secret(namespace: &str) -> serde_json::Value {
    let key = rcgen::KeyPair::generate().expect("a key");
    let certificate = rcgen::CertificateParams::new(vec!["a.com".to_owned()]).expect("parameters");
    let certificate = certificate.self_signed(&key).expect("a certificate").pem();
    serde_json::json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "cert", "namespace": namespace},
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": certificate, "tls.key": key.serialize_pem()},
    })
}

pub(super) fn with_tls(tls: &str) -> String {
    format!("{{virtualhost: {{fqdn: a.com, tls: {tls}}}, {ROUTES}}}")
}

#[test]
fn the_oldest_root_serves_a_host() {
    let mut world = World::new();
    let put = |world: &mut World, name: &str, created: &str| {
        let value = serde_json::json!({
            "apiVersion": "projectsesame.io/v1",
            "kind": "HTTPProxy",
            "metadata": {"name": name, "namespace": "shop", "creationTimestamp": created},
            "spec": {
                "virtualhost": {"fqdn": "A.com"},
                "routes": [{"services": [{"name": name, "port": 80}]}],
            },
        });
        world.put_value(value);
    };
    put(&mut world, "one", "2024-01-02T00:00:00Z");
    assert_eq!(world.routes(80, "a.com"), "/ / -> shop/one:80\n");
    put(&mut world, "two", "2024-01-01T00:00:00Z");
    assert_eq!(world.routes(80, "a.com"), "/ / -> shop/two:80\n");
    assert_eq!(world.status("two"), "valid\n");
    assert_eq!(
        world.status("one"),
        "invalid\nerror VirtualHostError DuplicateHost: spec.virtualhost.fqdn: HTTPProxy shop/two is older and serves host \
         a.com; change the host, or remove one of the HTTPProxies\n"
    );
    world.remove("two");
    assert_eq!(world.status("one"), "valid\n");
}

#[test]
fn only_root_namespaces_may_have_roots() {
    let mut world = World::with(&[
        ("child", "{routes: [{services: [{name: one, port: 80}]}]}"),
        (
            "root",
            &with_tls("{secretName: cert}").replace("one", "two"),
        ),
        (
            "edge/root",
            "{virtualhost: {fqdn: a.com}, includes: [{name: child, namespace: shop}]}",
        ),
    ]);
    world.set(IngressSettings {
        root_namespaces: Some(["edge".into()].into()),
        ..IngressSettings::default()
    });
    assert_eq!(world.routes(80, "a.com"), "/ / -> shop/one:80\n");
    assert_eq!(world.status("child"), "valid\n");
    assert_eq!(
        world.status("root"),
        "invalid\nerror RootNamespaceError RootNotPermitted: spec.virtualhost: HTTPProxies in namespace shop may not have \
         a virtualhost (--root-namespaces); remove it, and include this HTTPProxy from one in a permitted namespace\n"
    );
    world.set(IngressSettings::default());
    assert!(!world.status("root").contains("RootNamespaceError"));
}

#[test]
fn a_wildcard_stands_for_one_label() {
    let world = World::with(&[(
        "a",
        "{virtualhost: {fqdn: '*.a.com'}, routes: [{services: [{name: one, port: 80}]}]}",
    )]);
    assert_eq!(
        world.routes(80, "*.a.com"),
        "/ / :authority:~(?i)[!-\\-/-9;-~]{1,63}\\.a\\.com(:[0-9]{1,5})? -> shop/one:80\n"
    );
}

#[test]
fn requests_without_a_route_do_not_go_to_a_wider_host() {
    let route = |prefix: &str, service: &str| {
        format!(
            "routes: [{{conditions: [{{prefix: {prefix}}}], services: [{{name: {service}, port: 80}}]}}]"
        )
    };
    let mut world = World::with(&[
        (
            "other/wide",
            &format!(
                "{{virtualhost: {{fqdn: '*.a.com'}}, {}}}",
                route("/", "one")
            ),
        ),
        (
            "a",
            &format!("{{virtualhost: {{fqdn: x.a.com}}, {}}}", route("/x", "two")),
        ),
        ("none", "virtualhost: {fqdn: y.a.com}"),
    ]);
    assert_eq!(world.routes(80, "x.a.com"), "^ /x -> shop/two:80\n");
    assert_eq!(world.routes(80, "y.a.com"), "/ / -> 404\n");
    let ingress = |world: &mut World, host: &str, path: &str| {
        world.put(&format!(
            "
            apiVersion: networking.k8s.io/v1
            kind: Ingress
            metadata: {{name: {}, namespace: shop}}
            spec:
              ingressClassName: sesame
              rules:
              - {{host: '{host}', http: {{paths: [{{path: {path}, pathType: Prefix, backend: {{service: {{name: three, port: {{number: 80}}}}}}}}]}}}}
            ",
            &path[1..]
        ));
    };
    ingress(&mut world, "y.a.com", "/i");
    ingress(&mut world, "*.a.com", "/wide");
    assert_eq!(
        world.routes(80, "y.a.com"),
        "/ /i -> shop/three:80\n/ /wide :authority:~(?i)[!-\\-/-9;-~]{1,63}\\.a\\.com(:[0-9]{1,5})? -> shop/three:80\n"
    );
}

#[test]
fn a_gateway_serves_a_host_by_the_httpproxy_with_the_most_specific_one() {
    let mut world = World::beside_gateway(
        "name: http, port: 8080, protocol: HTTP, hostname: x.a.com, \
         allowedRoutes: {kinds: [{group: projectsesame.io, kind: HTTPProxy}]}",
    );
    let spec = |host: &str, prefix: &str| {
        format!(
            "{{virtualhost: {{fqdn: '{host}'}}, routes: [{{conditions: [{{prefix: {prefix}}}], \
             services: [{{name: one, port: 80}}]}}]}}"
        )
    };
    world.proxy("wide", &spec("*.a.com", "/wide"));
    assert!(world.routes(8080, "x.a.com").starts_with("^ /wide"));
    world.proxy("own", &spec("x.a.com", "/own"));
    assert_eq!(world.routes(8080, "x.a.com"), "^ /own -> shop/one:80\n");
}

#[test]
fn invalid_hosts_are_reported() {
    for fqdn in ["'*'", "a.com:80", "a_b.com", "''"] {
        let world = World::with(&[("a", &format!("{{virtualhost: {{fqdn: {fqdn}}}, {ROUTES}}}"))]);
        let status = world.status("a");
        assert!(
            status
                .starts_with("invalid\nerror VirtualHostError InvalidHost: spec.virtualhost.fqdn"),
            "{status}"
        );
        assert_eq!(world.routes(80, fqdn.trim_matches('\'')), "");
    }
}

#[test]
fn requests_without_tls_are_redirected() {
    let mut world = World::new();
    world.put_value(secret("shop"));
    world.proxy(
        "a",
        &with_tls("{secretName: cert, minimumProtocolVersion: '1.3'}"),
    );
    assert_eq!(world.status("a"), "valid\n");
    assert_eq!(
        world.routes(443, "a.com"),
        "^ /open -> shop/two:80\n/ / -> shop/one:80\n"
    );
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /open -> shop/two:80\n/ / -> 301 https://same:443\n"
    );
    let chains = world.chains();
    assert!(chains.contains("443 a.com"), "{chains}");
    assert!(chains.contains("min: V1_3, max: V1_3"), "{chains}");
}

#[test]
fn permit_insecure_can_be_disabled() {
    let mut world = World::new();
    world.set(IngressSettings {
        disable_permit_insecure: true,
        ..IngressSettings::default()
    });
    world.put_value(secret("shop"));
    world.proxy("a", &with_tls("{secretName: cert}"));
    assert_eq!(world.status("a"), "valid\n");
    let redirected = "^ /open -> 301 https://same:443\n/ / -> 301 https://same:443\n";
    assert_eq!(world.routes(80, "a.com"), redirected);
}

#[test]
fn invalid_tls_serves_no_requests_with_tls() {
    let mut world = World::new();
    world.put_value(secret("shop"));
    for (tls, error) in [
        (
            "{}",
            "TLSError InvalidTLS: spec.virtualhost.tls.secretName: expected",
        ),
        (
            "{secretName: other}",
            "TLSError InvalidCertificate: spec.virtualhost.tls.secretName: Secret shop/other does not",
        ),
        (
            "{secretName: pki/cert}",
            "no TLSCertificateDelegation in namespace pki lets namespace shop use Secret cert",
        ),
        (
            "{secretName: cert, passthrough: true}",
            "spec.virtualhost.tls: passthrough and secretName",
        ),
        (
            "{clientValidation: {caSecret: cert}, passthrough: true}",
            "spec.virtualhost.tls: passthrough and clientValidation",
        ),
        (
            "{passthrough: true}",
            "spec.virtualhost.tls.passthrough: needs spec.tcpproxy",
        ),
        (
            "{secretName: cert, minimumProtocolVersion: '1.3', maximumProtocolVersion: '1.2'}",
            "spec.virtualhost.tls: minimumProtocolVersion is newer",
        ),
    ] {
        world.proxy("a", &with_tls(tls));
        let status = world.status("a");
        assert!(
            status.starts_with("invalid\n") && status.contains(error),
            "{tls}: {status}"
        );
        assert_eq!(world.routes(443, "a.com"), "");
        assert_eq!(
            world.routes(80, "a.com"),
            "^ /open -> shop/two:80\n/ / -> 301 https://same:443\n"
        );
        let closed = "443 a.com Some(Passthrough) Destination";
        assert!(world.chains().contains(closed), "{}", world.chains());
    }
}

#[test]
fn invalid_tls_is_not_replaced_by_that_of_a_wildcard_host() {
    let mut world = World::new();
    world.put_value(secret("shop"));
    world.proxy(
        "wide",
        &with_tls("{secretName: cert}").replace("a.com", "'*.a.com'"),
    );
    let served = with_tls("{secretName: cert}").replace("a.com", "b.a.com");
    for (tls, target) in [
        ("cert", "Http"),
        ("missing", "Destination"),
        ("cert", "Http"),
    ] {
        world.proxy("a", &served.replace("cert", tls));
        let chains = world.chains();
        let mut of_host = chains
            .lines()
            .filter(|line| line.starts_with("443 b.a.com"));
        let chain = of_host.next().expect("a chain");
        assert!(chain.contains(&format!(" {target}")), "{tls}: {chain}");
        assert_eq!(world.routes(443, "b.a.com").is_empty(), target != "Http");
    }
}

#[test]
fn a_certificate_of_another_namespace_needs_a_delegation() {
    let mut world = World::new();
    world.put_value(secret("pki"));
    world.proxy("a", &with_tls("{secretName: pki/cert}"));
    assert_eq!(world.routes(443, "a.com"), "");
    world.put(
        "
        apiVersion: projectsesame.io/v1
        kind: TLSCertificateDelegation
        metadata: {name: d, namespace: pki}
        spec: {delegations: [{secretName: cert, targetNamespaces: ['*']}]}
        ",
    );
    assert_eq!(world.status("a"), "valid\n");
    assert_ne!(world.routes(443, "a.com"), "");
}

#[test]
fn matches_that_another_object_takes_are_warnings() {
    // Gateway API routes and HTTPProxies share a fleet only if it is the only fleet.
    let mut world = World::beside_gateway("name: http, port: 80, protocol: HTTP");
    world.put(
        "
        apiVersion: gateway.networking.k8s.io/v1
        kind: HTTPRoute
        metadata: {name: r, namespace: shop}
        spec:
          parentRefs: [{name: web}]
          hostnames: [a.com]
          rules: [{backendRefs: [{name: three, port: 80}]}]
        ",
    );
    world.proxy("a", &format!("{{virtualhost: {{fqdn: a.com}}, {ROUTES}}}"));
    assert_eq!(
        world.routes(80, "a.com"),
        "^ /open -> shop/two:80\n/ / -> shop/three:80\n"
    );
    assert_eq!(
        world.status("a"),
        "valid\nwarning RouteError Overlap: spec: prefix / on host a.com goes to HTTPRoute shop/r, which has the same match \
         and takes precedence\n"
    );
}
