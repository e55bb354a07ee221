//! BackendTLSPolicies: encryption, verification, CA rotation, and failing closed.

use std::cell::Cell;
use std::net::SocketAddr;

use anyhow::ensure;
use sesame_testkit::backend::Backend;
use sesame_testkit::certs::{Authority, Identity};
use sesame_testkit::client::{Connect, Connection, Request};

use crate::connections::tls;
use crate::harness::{
    HTTP, Sesame, Summary, at, backend, becomes, certificate, eventually, gateway, grpc_route,
    has_certificate, listening, route, service, tcp_route, tls_route, to,
};

pub(crate) const HOST: &str = "a.example.com";

pub(crate) fn authority() -> Authority {
    Authority::new().expect("a CA")
}

/// Starts a TLS backend whose certificate has these names.
pub(crate) async fn secure(name: &str, authority: &Authority, names: &[&str]) -> Backend {
    let identity = authority.issue(names).expect("a certificate");
    let config = identity.server_config().expect("a configuration");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let backend = Backend::start_tls(name, any, config).await;
    backend.expect("a backend")
}

/// A ConfigMap with CA certificates.
pub(crate) fn authorities(name: &str, of: &[&Authority]) -> String {
    let pem: String = of.iter().map(|authority| authority.pem()).collect();
    let pem = pem.trim_end().replace('\n', "\n    ");
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}}}\ndata:\n  ca.crt: |\n    {pem}\n---\n"
    )
}

/// A policy for the Service of the same name, with these fields of `validation`.
pub(crate) fn policy(service: &str, validation: &str) -> String {
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: BackendTLSPolicy\nmetadata: {{name: {service}}}\nspec:\n  \
         targetRefs: [{{group: \"\", kind: Service, name: {service}}}]\n  validation: {{{validation}}}\n---\n"
    )
}

/// The `caCertificateRefs` of a validation that trusts the CAs in a ConfigMap.
pub(crate) fn trust(config_map: &str) -> String {
    format!("caCertificateRefs: [{{group: \"\", kind: ConfigMap, name: {config_map}}}]")
}

/// The fields of a validation with the CAs in a ConfigMap.
pub(crate) fn by(config_map: &str, hostname: &str) -> String {
    format!("{}, hostname: {hostname}", trust(config_map))
}

/// Waits until a policy's condition has this reason for its first ancestor.
async fn has_reason(sesame: &Sesame, policy: &str, condition: usize, expected: &str) {
    eventually(&format!("{policy} is {expected}"), async || {
        let status = sesame.status("BackendTLSPolicy", policy).await?;
        let found = &status["ancestors"][0]["conditions"][condition]["reason"];
        ensure!(found == expected, "{status}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn certificates_are_verified() {
    let (right, wrong) = (authority(), authority());
    let names = ["s.test", "*.wild.test", "spiffe://test/s"];
    let backend = secure("s", &right, &names).await;
    let alternatives = |names: &str| {
        format!(
            "{}, subjectAltNames: [{names}]",
            by("right", "elsewhere.test")
        )
    };
    let cases = [
        ("verified", by("right", "s.test"), "s"),
        ("by-wildcard", by("right", "a.wild.test"), "s"),
        ("other-ca", by("wrong", "s.test"), "503"),
        ("other-name", by("right", "other.test"), "503"),
        (
            "system",
            "wellKnownCACertificates: System, hostname: s.test".to_owned(),
            "503",
        ),
        (
            "dns",
            alternatives("{type: Hostname, hostname: s.test}"),
            "s",
        ),
        (
            "uri",
            alternatives("{type: URI, uri: \"spiffe://test/s\"}"),
            "s",
        ),
        (
            "one-of-two",
            alternatives(
                "{type: Hostname, hostname: no.test}, {type: URI, uri: \"spiffe://test/s\"}",
            ),
            "s",
        ),
        (
            "other-dns",
            alternatives("{type: Hostname, hostname: no.test}"),
            "503",
        ),
        (
            "other-uri",
            alternatives("{type: URI, uri: \"spiffe://test/other\"}"),
            "503",
        ),
        // The hostname is in the certificate, but isn't one of the names.
        (
            "only-hostname",
            format!(
                "{}, subjectAltNames: [{{type: Hostname, hostname: no.test}}]",
                by("right", "s.test")
            ),
            "503",
        ),
        ("missing-ca", by("missing", "s.test"), "500"),
    ];
    let mut objects = authorities("right", &[&right]) + &authorities("wrong", &[&wrong]);
    let mut rules = Vec::new();
    for (name, validation, _) in &cases {
        objects += &service(name, &[backend.address()]);
        objects += &policy(name, validation);
        rules.push(at(&format!("/{name}"), name));
    }
    let sesame = Sesame::with_rules(&objects, &rules).await;
    for (name, _, expected) in &cases {
        becomes(sesame.at(8080), HOST, &format!("/{name}"), expected).await;
    }
    for (path, sni) in [("/verified", "s.test"), ("/uri", "elsewhere.test")] {
        let response = sesame.ask_well(&Request::get(HOST, path)).await;
        let tls = &response.json()["tls"];
        assert_eq!(
            (&tls["sni"], &tls["alpn"]),
            (&sni.into(), &"http/1.1".into())
        );
    }
    for (name, accepted, resolved) in [
        ("verified", "Accepted", "ResolvedRefs"),
        ("other-ca", "Accepted", "ResolvedRefs"),
        (
            "missing-ca",
            "NoValidCACertificate",
            "InvalidCACertificateRef",
        ),
    ] {
        has_reason(&sesame, name, 0, accepted).await;
        has_reason(&sesame, name, 1, resolved).await;
    }
    let resolved = ("True", "ResolvedRefs");
    sesame.assert_route("a", "ResolvedRefs", resolved).await;
}

#[tokio::test]
async fn plain_text_never_goes_out_while_a_policy_exists() {
    let ca = authority();
    let (plain, text) = backend("plain").await;
    let objects = text + &authorities("ca", &[&ca]);
    let sesame = Sesame::with_rules(&objects, &[to("plain")]).await;
    let address = sesame.at(8080);
    for (change, validation) in [
        ("none", by("none", "s.test")),
        ("valid", by("ca", "s.test")),
    ] {
        becomes(address, HOST, "/", "plain").await;
        sesame
            .folder()
            .replace("policy.yaml", &policy("plain", &validation));
        let refused = if change == "none" { "500" } else { "503" };
        becomes(address, HOST, "/", refused).await;
        let before = plain.count();
        // From one kind of failure to the other and back.
        for other in [by("ca", "other.test"), by("none", "s.test"), validation] {
            sesame
                .folder()
                .replace("policy.yaml", &policy("plain", &other));
            for _ in 0..50 {
                let found = Request::get(HOST, "/").of(address).await;
                assert!(found == "500" || found == "503", "{found}");
            }
        }
        assert_eq!(plain.count(), before, "{change}");
        sesame.folder().remove("policy.yaml");
    }
    becomes(address, HOST, "/", "plain").await;
}

#[tokio::test]
async fn a_missing_ca_is_used_once_it_exists() {
    let ca = authority();
    let backend = secure("s", &ca, &["s.test"]).await;
    let objects = service("s", &[backend.address()]) + &policy("s", &by("ca", "s.test"));
    let sesame = Sesame::with_rules(&objects, &[to("s")]).await;
    let address = sesame.at(8080);
    let empty = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: ca}\ndata: {ca.crt: \"\"}\n";
    becomes(address, HOST, "/", "500").await;
    for (text, expected, accepted) in [
        (authorities("ca", &[&ca]), "s", "Accepted"),
        (empty.to_owned(), "500", "NoValidCACertificate"),
        (authorities("ca", &[&ca]), "s", "Accepted"),
    ] {
        sesame.folder().replace("ca.yaml", &text);
        becomes(address, HOST, "/", expected).await;
        has_reason(&sesame, "s", 0, accepted).await;
    }
}

/// GEP-5075.
#[tokio::test]
async fn a_cluster_trust_bundle_is_used_while_it_exists() {
    let ca = authority();
    let backend = secure("s", &ca, &["s.test"]).await;
    let name = "example.com:shop:v1";
    let trust = format!(
        "caCertificateRefs: [{{group: certificates.k8s.io, kind: ClusterTrustBundle, name: \"{name}\"}}], hostname: s.test"
    );
    let objects = service("s", &[backend.address()]) + &policy("s", &trust);
    let sesame = Sesame::with_rules(&objects, &[to("s")]).await;
    let address = sesame.at(8080);
    becomes(address, HOST, "/", "500").await;
    let pem = ca.pem().trim_end().replace('\n', "\n    ");
    let bundle = format!(
        "apiVersion: certificates.k8s.io/v1\nkind: ClusterTrustBundle\nmetadata: {{name: \"{name}\"}}\nspec:\n  \
         signerName: example.com/shop\n  trustBundle: |\n    {pem}\n"
    );
    for (text, expected, resolved) in [
        (&*bundle, "s", "ResolvedRefs"),
        ("", "500", "InvalidCACertificateRef"),
        (&*bundle, "s", "ResolvedRefs"),
    ] {
        sesame.folder().replace("ca.yaml", text);
        becomes(address, HOST, "/", expected).await;
        has_reason(&sesame, "s", 1, resolved).await;
    }
}

/// Changes the CAs in the ConfigMap `ca`, which changes one resource, and waits for Envoy's ACK.
pub(crate) async fn set_trusted(sesame: &Sesame, of: &[&Authority]) {
    let from = sesame.events();
    sesame.folder().replace("ca.yaml", &authorities("ca", of));
    let change = sesame.changed("ConfigMap/default/ca", from).await;
    assert_eq!(change["resources"], 1, "{change}");
    let served = sesame.event("an ACK", from, |event| {
        event["type"] == "served" && event["revision"] == change["revision"]
    });
    served.await;
}

/// The minimum number of requests during changes.
const REQUESTS: usize = 100;

/// Sends requests over one connection and over new ones while `changes` runs; none may fail.
pub(crate) async fn load(
    address: SocketAddr,
    mut kept: Connection,
    changes: impl Future<Output = ()>,
) {
    let request = Request::get(HOST, "/");
    let done = Cell::new(false);
    let requests = async {
        let mut sent = 0;
        // On a busy machine, the changes may finish first.
        while !done.get() || sent < REQUESTS {
            let response = kept.send(&request).await.expect("a response");
            assert_eq!(response.status, 200, "{response:?}");
            let response = Connect::plain().send(address, &request).await;
            let response = response.expect("a response");
            assert_eq!(response.status, 200, "{response:?} {sent}");
            sent += 2;
        }
    };
    let changes = async {
        changes.await;
        done.set(true);
    };
    tokio::join!(requests, changes);
}

#[tokio::test]
async fn a_ca_is_rotated_without_a_failed_request() {
    let (first, second) = (authority(), authority());
    let old = secure("old", &first, &["s.test"]).await;
    let new = secure("new", &second, &["s.test"]).await;
    let endpoints = |backend: &Backend| service("s", &[backend.address()]);
    let sesame = Sesame::serving(|ip| {
        let all = gateway("web", ip, &[HTTP])
            + &route("a", &["web"], &[HOST], &[to("s")])
            + &policy("s", &by("ca", "s.test"));
        vec![
            ("all.yaml", all),
            ("ca.yaml", authorities("ca", &[&first])),
            ("service.yaml", endpoints(&old)),
        ]
    })
    .await;
    let address = sesame.at(8080);
    listening(address).await;
    becomes(address, HOST, "/", "old").await;
    let trust = async |of: &[&Authority]| set_trusted(&sesame, of).await;
    let moved = async |to: &Backend| {
        sesame.folder().replace("service.yaml", &endpoints(to));
        becomes(address, HOST, "/", to.name()).await;
    };
    let changes = async {
        for _ in 0..5 {
            trust(&[&first, &second]).await;
            moved(&new).await;
            trust(&[&second]).await;
            becomes(address, HOST, "/", "new").await;
            trust(&[&second, &first]).await;
            moved(&old).await;
            trust(&[&first]).await;
            becomes(address, HOST, "/", "old").await;
        }
    };
    load(address, sesame.open().await, changes).await;
    // Only the old backend's CA is trusted: the new backend is rejected.
    sesame.folder().replace("service.yaml", &endpoints(&new));
    becomes(address, HOST, "/", "503").await;
}

/// A changed policy updates the cluster in place; a port's policy replaces the Service's and creates another cluster.
#[tokio::test]
async fn policies_change_without_a_failed_request() {
    let ca = authority();
    let backend = secure("s", &ca, &["one.test", "two.test"]).await;
    let named = service("s", &[backend.address()]).replace("{port: 80}", "{name: web, port: 80}");
    let slice = format!("ports: [{{port: {}}}]", backend.address().port());
    let named = named.replace(&slice, &slice.replace("{port", "{name: web, port"));
    let of_port = |hostname: &str| {
        let text = policy("s", &by("ca", hostname)).replace("{name: s}", "{name: of-port}");
        text.replace("name: s}]", "name: s, sectionName: web}]")
    };
    let sesame = Sesame::serving(|ip| {
        let all = gateway("web", ip, &[HTTP])
            + &route("a", &["web"], &[HOST], &[to("s")])
            + &authorities("ca", &[&ca])
            + &named;
        vec![
            ("all.yaml", all),
            ("policy.yaml", policy("s", &by("ca", "one.test"))),
        ]
    })
    .await;
    let address = sesame.at(8080);
    listening(address).await;
    let serves = async |sni: &str| {
        eventually(sni, async || {
            let response = sesame.send(&Request::get(HOST, "/")).await;
            anyhow::ensure!(response.json()["tls"]["sni"] == sni, "{response:?}");
            Ok(())
        })
        .await;
    };
    serves("one.test").await;
    let changes = async {
        let folder = sesame.folder();
        for _ in 0..5 {
            folder.replace("policy.yaml", &policy("s", &by("ca", "two.test")));
            serves("two.test").await;
            folder.replace("of-port.yaml", &of_port("one.test"));
            serves("one.test").await;
            folder.replace("policy.yaml", &policy("s", &by("ca", "one.test")));
            folder.replace("of-port.yaml", &of_port("two.test"));
            serves("two.test").await;
            folder.remove("of-port.yaml");
            serves("one.test").await;
        }
    };
    load(address, sesame.open().await, changes).await;
}

#[tokio::test]
async fn grpc_calls_use_http2_over_tls() {
    let ca = authority();
    let backend = secure("s", &ca, &["s.test"]).await;
    let objects = service("right", &[backend.address()])
        + &service("wrong", &[backend.address()])
        + &authorities("ca", &[&ca])
        + &policy("right", &by("ca", "s.test"))
        + &policy("wrong", &by("ca", "other.test"))
        + &grpc_route("right", &["web"], &["right.test"], &[to("right")])
        + &grpc_route("wrong", &["web"], &["wrong.test"], &[to("wrong")]);
    let sesame = Sesame::with_gateway(&[HTTP], &objects).await;
    listening(sesame.at(8080)).await;
    let call = async |host: &str| {
        let request = Request::get(host, "/shop.Users/Get")
            .method("POST")
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        let response = Connect::plain().h2().send(sesame.at(8080), &request).await;
        response.expect("a response")
    };
    eventually("the call succeeds", async || {
        let response = call("right.test").await;
        anyhow::ensure!(response.backend() == "s", "{response:?}");
        let json = response.json();
        assert_eq!(json["protocol"], "HTTP/2", "{json}");
        assert_eq!(json["tls"]["alpn"], "h2", "{json}");
        assert_eq!(json["tls"]["sni"], "s.test", "{json}");
        Ok(())
    })
    .await;
    let response = call("wrong.test").await;
    assert_eq!(response.headers["grpc-status"], "14", "{response:?}");
}

#[tokio::test]
async fn terminated_and_plain_connections_are_encrypted_again() {
    let ca = authority();
    let backend = secure("s", &ca, &["s.test"]).await;
    let front = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    let listeners = [
        tls("end", "end.example.com", &["front"]),
        tls("pass", "pass.example.com", &[]),
        "name: tcp, protocol: TCP, port: 9000".to_owned(),
        "name: wrong, protocol: TCP, port: 9001".to_owned(),
    ];
    let objects = certificate("front", &front)
        + &authorities("ca", &[&ca])
        + &service("s", &[backend.address()])
        + &service("wrong", &[backend.address()])
        + &policy("s", &by("ca", "s.test"))
        + &policy("wrong", &by("ca", "other.test"))
        + &tls_route("both", &["web"], &["*.example.com"], &[to("s")])
        + &tcp_route("tcp", &["web, sectionName: tcp"], &[to("s")])
        + &tcp_route("wrong", &["web, sectionName: wrong"], &[to("wrong")]);
    let sesame = Sesame::with_gateway(&listeners, &objects).await;
    listening(sesame.at(9000)).await;
    listening(sesame.at(8443)).await;
    for (host, shown, sni) in [
        ("end.example.com", "*.example.com", "s.test"),
        ("pass.example.com", "s.test", "pass.example.com"),
    ] {
        let connect = Connect::tls(host);
        let connection = connect.open(sesame.at(8443)).await;
        let mut connection = connection.expect("a handshake");
        assert!(has_certificate(&connection, shown), "{host}");
        let response = connection.send(&Request::get(host, "/")).await;
        let response = response.expect("a response");
        assert_eq!(response.json()["tls"]["sni"], sni, "{host}");
    }
    let response = sesame_testkit::client::send(sesame.at(9000), &Request::get("any", "/")).await;
    let response = response.expect("a response");
    assert_eq!(response.json()["tls"]["sni"], "s.test");
    let wrong = Request::get("any", "/").of(sesame.at(9001)).await;
    assert_eq!(wrong, "no response");
}
