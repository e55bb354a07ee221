//! Client certificate validation.

use serde_json::json;

use super::super::testing::World;
use super::hosts::{secret, with_tls};

/// Creates a translation with a certificate, and with a Secret `ca` in `namespace` that contains a CA bundle and CRLs.
fn world(namespace: &str) -> World {
    let mut world = World::new();
    world.put_value(secret("shop"));
    world.put_value(authorities(namespace, &list()));
    world
}

fn issuer() -> rcgen::CertifiedIssuer<'static, rcgen::KeyPair> {
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let key = rcgen::KeyPair::generate().expect("a key");
    rcgen::CertifiedIssuer::self_signed(params, key).expect("a CA")
}

fn list() -> String {
    let list = rcgen::CertificateRevocationListParams {
        this_update: rcgen::date_time_ymd(2020, 1, 1),
        next_update: rcgen::date_time_ymd(2030, 1, 1),
        crl_number: 1.into(),
        issuing_distribution_point: None,
        revoked_certs: Vec::new(),
        key_identifier_method: rcgen::KeyIdMethod::Sha256,
    };
    let list = list.signed_by(&issuer()).expect("a list");
    list.pem().expect("PEM")
}

fn authorities(namespace: &str, list: &str) -> serde_json::Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "ca", "namespace": namespace},
        "stringData": {"ca.crt": issuer().pem(), "crl.pem": list},
    })
}

fn validated(fields: &str) -> String {
    with_tls(&format!(
        "{{secretName: cert, clientValidation: {{{fields}}}}}"
    ))
}

#[test]
fn certificates_of_clients_are_verified_per_host() {
    let mut world = world("shop");
    for (fields, expected) in [
        (
            "caSecret: ca",
            "authorities: ca:secret:shop/ca, optional: false, untrusted: false, revocable_leaf: false, forwarded: None",
        ),
        (
            "caSecret: ca, crlSecret: ca, optionalClientCertificate: true",
            "authorities: ca:secret:shop/ca,crl:shop/ca, optional: true, untrusted: false, revocable_leaf: false",
        ),
        (
            "caSecret: ca, crlSecret: ca, crlOnlyVerifyLeafCert: true",
            "untrusted: false, revocable_leaf: true",
        ),
        (
            "skipClientCertValidation: true, optionalClientCertificate: true",
            "authorities: none, optional: true, untrusted: true",
        ),
        (
            "skipClientCertValidation: true, caSecret: ca",
            "authorities: ca:secret:shop/ca, optional: false, untrusted: true",
        ),
        (
            "caSecret: ca, forwardClientCertificate: {uri: true}",
            "chain: false, dns: false, uri: true",
        ),
    ] {
        world.proxy("a", &validated(fields));
        assert_eq!(world.status("a"), "valid\n", "{fields}");
        let chains = world.clients();
        assert!(chains.contains(expected), "{fields}: {chains}");
    }
}

#[test]
fn clients_that_cannot_be_verified_are_refused() {
    let mut world = world("pki");
    world.put_value(authorities("shop", "junk"));
    for (fields, error) in [
        ("", ": needs caSecret"),
        ("caSecret: ''", ".caSecret: expected the name of a Secret"),
        (
            "caSecret: gone",
            ".caSecret: Secret shop/gone does not exist",
        ),
        (
            "caSecret: cert",
            ".caSecret: Secret shop/cert has no data in ca.crt",
        ),
        (
            "caSecret: pki/ca",
            ".caSecret: no TLSCertificateDelegation in namespace pki",
        ),
        (
            "caSecret: ca, crlSecret: ca",
            ".crlSecret: Secret shop/ca has no PEM CRL in crl.pem",
        ),
        (
            "caSecret: ca, crlSecret: pki/ca",
            ".crlSecret: no TLSCertificateDelegation",
        ),
    ] {
        world.proxy("a", &validated(fields));
        let status = world.status("a");
        let error = format!(
            "invalid\nerror TLSError InvalidClientValidation: spec.virtualhost.tls.clientValidation{error}"
        );
        assert!(status.starts_with(&error), "{fields}: {status}");
        let closed = "443 a.com Some(Passthrough) Destination";
        assert!(world.chains().contains(closed), "{}", world.chains());
    }
    world.put(
        "
        apiVersion: projectsesame.io/v1
        kind: TLSCertificateDelegation
        metadata: {name: d, namespace: pki}
        spec: {delegations: [{secretName: ca, targetNamespaces: [shop]}]}
        ",
    );
    world.proxy("a", &validated("caSecret: pki/ca, crlSecret: pki/ca"));
    assert_eq!(world.status("a"), "valid\n");
}

#[test]
fn settings_without_effect_are_warnings() {
    let mut world = world("shop");
    world.proxy(
        "a",
        &validated("skipClientCertValidation: true, caSecret: ca, crlSecret: ca"),
    );
    let status = world.status("a");
    let warning = "valid\nwarning TLSError InvalidClientValidation: spec.virtualhost.tls.clientValidation.crlSecret: has no effect";
    assert!(status.starts_with(warning), "{status}");
    world.proxy("a", &validated("skipClientCertValidation: true"));
    let status = world.status("a");
    assert!(
        status.contains(
            "clientValidation: without caSecret, clients without a certificate are also accepted"
        ),
        "{status}"
    );
    assert!(world.clients().contains("optional: true, untrusted: true"));
    let spec = validated("caSecret: ca, forwardClientCertificate: {uri: true}");
    let spec = spec.replace(
        "routes:",
        "tcpproxy: {services: [{name: one, port: 80}]}, routes:",
    );
    world.proxy("a", &spec);
    let status = world.status("a");
    assert!(
        status.contains("clientValidation.forwardClientCertificate: has no effect"),
        "{status}"
    );
    assert!(
        world.clients().contains("ca:secret:shop/ca"),
        "{}",
        world.clients()
    );
}
