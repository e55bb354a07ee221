//! HTTPProxies that forward connections: TLS that is terminated, passed through or used for backends, and inclusions.

use std::net::SocketAddr;

use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};

use crate::backend_tls::{authority, secure};
use crate::connections::over_tls;
use crate::harness::{
    DefaultFleet, Summary, backends, becomes, certificate, check, eventually, has_certificate,
    listening, service,
};
use crate::proxy_clients::secret;

/// An HTTPProxy for the host `name`.test with these TLS settings and further fields.
fn proxy(name: &str, tls: &str, fields: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: {name}}}\nspec:\n  \
         virtualhost: {{fqdn: {name}.test, tls: {{{tls}}}}}\n{fields}\n---\n"
    )
}

/// An HTTPProxy for the host `name`.test that forwards connections to this Service.
fn forwarding(name: &str, tls: &str, service: &str) -> String {
    proxy(
        name,
        tls,
        &format!("  tcpproxy: {{services: [{{{service}}}]}}"),
    )
}

const TERMINATED: &str = "secretName: front";

/// The Secret with the certificate of hosts whose TLS is terminated.
fn front() -> String {
    let front = Identity::self_signed(&["*.test"]).expect("a certificate");
    certificate("front", &front)
}

/// Waits until a request over a TLS connection for this host gets this response.
async fn reaches(address: SocketAddr, host: &str, expected: &str) {
    eventually(&format!("{host} gets {expected}"), async || {
        let found = over_tls(address, host).await;
        anyhow::ensure!(found == expected, "{host} gets {found}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn decrypted_connections_are_forwarded_unchanged() {
    let (backends, services) = backends(&["a"]).await;
    let objects = services + &front() + &forwarding("web", TERMINATED, "name: a, port: 80");
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    listening(fleet.https).await;
    let connect = Connect::tls("web.test");
    let mut connection = connect.open(fleet.https).await.expect("a handshake");
    assert!(has_certificate(&connection, "*.test"));
    // Envoy doesn't read the requests, so their hosts have no effect.
    for host in ["web.test", "any"] {
        let response = connection.send(&Request::get(host, "/path")).await;
        assert_eq!(response.expect("a response").backend(), "a");
        let request = backends[0].requests().pop().expect("a request");
        assert_eq!((&*request.path, &*request.host), ("/path", host));
        assert_eq!(request.tls, None);
        let names: Vec<&String> = request.headers.keys().collect();
        assert_eq!(names, ["host"], "Envoy adds no headers");
    }
    for unknown in ["other.test", ""] {
        let found = over_tls(fleet.https, unknown).await;
        assert_eq!(found, "no response", "{unknown:?}");
    }
}

#[tokio::test]
async fn the_server_name_selects_the_backend_of_connections_that_are_passed_through() {
    let ca = authority();
    let one = secure("one", &ca, &["one.backend"]).await;
    let two = secure("two", &ca, &["two.backend"]).await;
    let passthrough = "passthrough: true";
    let objects = service("one", &[one.address()])
        + &service("two", &[two.address()])
        + &forwarding("web", passthrough, "name: one, port: 80")
        // Connections are encrypted already.
        + &forwarding("two", passthrough, "name: two, port: 80, protocol: tls");
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    listening(fleet.https).await;
    for (host, backend, certificate) in [
        ("web.test", "one", "one.backend"),
        ("two.test", "two", "two.backend"),
    ] {
        for connect in [Connect::tls(host), Connect::tls(host).h2()] {
            let mut connection = connect.open(fleet.https).await.expect("a handshake");
            assert!(has_certificate(&connection, certificate), "{host}");
            let response = connection.send(&Request::get(host, "/")).await;
            let response = response.expect("a response");
            assert_eq!(response.backend(), backend, "{host}");
            assert_eq!(response.json()["tls"]["sni"], host);
        }
    }
    assert_eq!(over_tls(fleet.https, "other.test").await, "no response");
}

#[tokio::test]
async fn forwarded_connections_are_encrypted_for_backends_that_can_be_verified() {
    let ca = authority();
    let backend = secure("s", &ca, &["s.backend"]).await;
    let to = |name: &str, fields: &str| {
        let service = format!("name: s, port: 80, protocol: tls{fields}");
        forwarding(name, TERMINATED, &service)
    };
    let verified = |name: &str, ca: &str, subject: &str| {
        let fields = format!(", validation: {{caSecret: {ca}, subjectName: {subject}}}");
        to(name, &fields)
    };
    let objects = service("s", &[backend.address()])
        + &front()
        + &secret("right", &[("ca.crt", &ca.pem())])
        + &secret("wrong", &[("ca.crt", &authority().pem())])
        + &verified("web", "right", "s.backend")
        + &verified("distrusted", "wrong", "s.backend")
        + &verified("named", "right", "other.backend")
        + &verified("missing", "none", "s.backend")
        + &to("unverified", "");
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    listening(fleet.https).await;
    reaches(fleet.https, "web.test", "s").await;
    let request = backend.requests().pop().expect("a request");
    let tls = request.tls.expect("TLS");
    assert_eq!(tls.sni.as_deref(), Some("s.backend"));
    let before = backend.count();
    for closed in ["distrusted.test", "named.test", "missing.test"] {
        reaches(fleet.https, closed, "no response").await;
    }
    assert_eq!(backend.count(), before);
    reaches(fleet.https, "unverified.test", "s").await;
    // With the right CA, connections are forwarded.
    let right = objects.replace("caSecret: wrong", "caSecret: right");
    fleet.sesame.folder().replace("all.yaml", &right);
    reaches(fleet.https, "distrusted.test", "s").await;
}

#[tokio::test]
async fn connections_are_forwarded_to_the_services_of_an_included_httpproxy() {
    let (_backends, services) = backends(&["a"]).await;
    let there = services.replace("metadata: {", "metadata: {namespace: shop, ");
    let include = "  tcpproxy: {include: {name: child, namespace: shop}}";
    let objects = there
        + &front()
        + &proxy("web", TERMINATED, include)
        + &proxy("other", TERMINATED, include);
    let child = "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {name: child, namespace: shop}\nspec: \
                 {tcpproxy: {services: [{name: a, port: 80}]}}\n";
    let fleet = DefaultFleet::serving("HTTPProxy", &(objects + child)).await;
    listening(fleet.https).await;
    reaches(fleet.https, "web.test", "a").await;
    reaches(fleet.https, "other.test", "a").await;
}

#[tokio::test]
async fn routes_beside_forwarded_connections_serve_requests_without_tls() {
    let (_backends, services) = backends(&["forwarded", "routed"]).await;
    let to_routed = "services: [{name: routed, port: 80}]";
    let fields = format!(
        "  tcpproxy: {{services: [{{name: forwarded, port: 80}}]}}\n  routes:\n  - {{{to_routed}}}\n  \
         - {{conditions: [{{prefix: /open}}], permitInsecure: true, {to_routed}}}"
    );
    let objects = services + &front() + &proxy("web", TERMINATED, &fields);
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    listening(fleet.https).await;
    becomes(fleet.http, "web.test", "/open", "routed").await;
    check(fleet.http, &[("web.test", "/", "301")]).await;
    let connect = Connect::tls("web.test");
    for path in ["/", "/open"] {
        let request = Request::get("web.test", path);
        let found = (&connect, &request).of(fleet.https).await;
        assert_eq!(found, "forwarded", "{path}");
    }
}
