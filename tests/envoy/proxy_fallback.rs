//! The fallback certificate for HTTPProxies: connections whose server name is missing or unknown.

use std::net::SocketAddr;

use anyhow::Result;
use sesame_testkit::auth::Decision;
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Connection, Request};
use sesame_testkit::jwt::Issuer;

use crate::auth::auth_server;
use crate::harness::{DefaultFleet, backends, certificate, eventually, has_certificate, listening};
use crate::proxy_clients::secret;
use crate::proxy_defaults::extension;

const OLD: &str = "old.fallback.test";
const NEW: &str = "new.fallback.test";

fn of(name: &str, names: &[&str]) -> String {
    let identity = Identity::self_signed(names).expect("a certificate");
    certificate(name, &identity)
}

/// An HTTPProxy that routes to the backend `a`.
fn proxy(name: &str, host: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: {name}}}\nspec:\n  \
         virtualhost: {{{host}}}\n  routes: [{{services: [{{name: a, port: 80}}]}}]\n---\n"
    )
}

fn with_tls(name: &str, fqdn: &str, fields: &str) -> String {
    proxy(
        name,
        &format!("fqdn: '{fqdn}', tls: {{secretName: front{fields}}}"),
    )
}

/// Sends a request on a connection and returns the status. Only the backend may respond with 200.
async fn status(connection: &mut Connection, host: &str) -> u16 {
    status_at(connection, host, "/").await
}

/// [`status`] for this path.
async fn status_at(connection: &mut Connection, host: &str, path: &str) -> u16 {
    // A client can't choose the listener.
    let request = Request::get(host, path).header("x-sesame-listener", "*");
    let response = connection.send(&request).await.expect("a response");
    assert_eq!(response.status == 200, response.backend() == "a");
    response.status.as_u16()
}

/// Waits until connections without a server name get a certificate for this name and are served.
async fn has_fallback(address: SocketAddr, name: &str) {
    eventually(&format!("the certificate is {name}"), async || {
        let mut connection = Connect::tls("").open(address).await?;
        anyhow::ensure!(has_certificate(&connection, name), "it is another one");
        let found = status(&mut connection, "web.example.com").await;
        anyhow::ensure!(found == 200, "{found}");
        Ok(())
    })
    .await;
}

async fn open(server_name: &str, address: SocketAddr) -> Result<Connection> {
    Connect::tls(server_name).h2().open(address).await
}

#[tokio::test]
async fn connections_without_a_known_host_reach_the_hosts_that_enable_the_fallback_certificate() {
    let (_backends, services) = backends(&["a"]).await;
    let issuer = Issuer::new().expect("a key");
    let enabled = ", enableFallbackCertificate: true";
    let web = with_tls("web", "web.example.com", enabled);
    let old = of("fallback", &[OLD]);
    let objects = services
        + &of("front", &["*.example.com"])
        + &old
        + &secret("keys", &[("keys", &issuer.jwks())])
        + &web
        + &with_tls("wide", "*.wide.example.com", enabled)
        + &with_tls("narrow", "narrow.wide.example.com", "")
        + &with_tls("other", "other.example.com", "")
        + &with_tls("covering", "*.covering.example.com", "")
        + &proxy("plain", "fqdn: plain.example.com")
        + &proxy(
            "tokens",
            "fqdn: tokens.example.com, tls: {secretName: front, enableFallbackCertificate: true}, jwtProviders: \
             [{name: one, default: true, localJWKS: {secretName: keys, key: keys}}]",
        );
    let arguments = ["--fallback-certificate", "default/fallback"];
    let started = DefaultFleet::start("HTTPProxy", &objects, &arguments).await;
    let address = started.https;
    listening(address).await;
    has_fallback(address, OLD).await;
    for (server_name, fallback, expected) in [
        (
            "",
            true,
            &[
                ("web.example.com", 200),
                ("web.example.com:443", 200),
                ("x.wide.example.com", 200),
                ("x.y.wide.example.com", 404),
                ("narrow.wide.example.com", 421),
                ("other.example.com", 421),
                ("x.covering.example.com", 421),
                ("plain.example.com", 404),
                ("unknown.example.com", 404),
                ("tokens.example.com", 401),
            ][..],
        ),
        (
            "unknown.example.com",
            true,
            &[
                ("web.example.com", 200),
                ("other.example.com", 421),
                ("unknown.example.com", 404),
            ],
        ),
        (
            "web.example.com",
            false,
            &[
                ("web.example.com", 200),
                ("x.wide.example.com", 421),
                ("unknown.example.com", 421),
            ],
        ),
        (
            "other.example.com",
            false,
            &[("other.example.com", 200), ("web.example.com", 421)],
        ),
        (
            "x.covering.example.com",
            false,
            &[("x.covering.example.com", 200), ("web.example.com", 421)],
        ),
    ] {
        let mut connection = open(server_name, address).await.expect("a handshake");
        let found = has_certificate(&connection, OLD);
        assert_eq!(found, fallback, "certificate for {server_name:?}");
        for (host, expected) in expected {
            let found = status(&mut connection, host).await;
            assert_eq!(
                found, *expected,
                "{host} on a connection for {server_name:?}"
            );
        }
    }

    // A new certificate doesn't close connections.
    let mut other = open("other.example.com", address)
        .await
        .expect("a handshake");
    let mut unnamed = open("", address).await.expect("a handshake");
    let objects = objects.replace(&old, &of("fallback", &[NEW]));
    started.sesame.folder().replace("all.yaml", &objects);
    has_fallback(address, NEW).await;
    assert_eq!(status(&mut unnamed, "web.example.com").await, 200);

    // A host that no longer enables the fallback isn't reachable, even on open connections.
    let without = objects.replace(&web, &with_tls("web", "web.example.com", ""));
    started.sesame.folder().replace("all.yaml", &without);
    eventually("the host is not reachable", async || {
        let found = status(&mut unnamed, "web.example.com").await;
        anyhow::ensure!(found == 421, "{found}");
        Ok(())
    })
    .await;
    assert_eq!(status(&mut unnamed, "x.wide.example.com").await, 200);

    // If no host enables it, connections without a server name are closed. Others stay open.
    let none = without.replace(enabled, "");
    started.sesame.folder().replace("all.yaml", &none);
    eventually("connections without a server name are closed", async || {
        let opened = open("", address).await;
        anyhow::ensure!(opened.is_err(), "a handshake");
        Ok(())
    })
    .await;
    assert_eq!(status(&mut other, "other.example.com").await, 200);
    // Routes arrive after listeners.
    eventually("no other connection serves an unknown host", async || {
        let found = status(&mut other, "unknown.example.com").await;
        anyhow::ensure!(found == 404, "{found}");
        Ok(())
    })
    .await;
    started.sesame.folder().replace("all.yaml", &objects);
    has_fallback(address, NEW).await;
    assert_eq!(status(&mut other, "other.example.com").await, 200);
}

#[tokio::test]
async fn authorization_and_address_filters_apply_to_connections_with_the_fallback_certificate() {
    let (_backends, services) = backends(&["a"]).await;
    let (server, auth) = auth_server("auth", |path| Decision {
        denied: path.contains("denied").then_some(403),
        ..Decision::default()
    })
    .await;
    let enabled = "tls: {secretName: front, enableFallbackCertificate: true}";
    let authorized = format!(
        "fqdn: authorized.example.com, {enabled}, authorization: {{extensionRef: {{name: auth}}}}"
    );
    let filter = "routes: [{conditions: [{prefix: /denied}], ipDenyPolicy: [{source: Peer, cidr: 127.0.0.0/8}], \
                  services: [{name: a, port: 80}]}, ";
    let objects = services
        + &auth
        + &extension("auth")
        + &of("front", &["*.example.com"])
        + &of("fallback", &[OLD])
        + &with_tls(
            "web",
            "web.example.com",
            ", enableFallbackCertificate: true",
        )
        + &proxy("authorized", &authorized)
        + &proxy(
            "filtered",
            &format!("fqdn: filtered.example.com, {enabled}"),
        )
        .replace("routes: [", filter);
    let arguments = ["--fallback-certificate", "default/fallback"];
    let started = DefaultFleet::start("HTTPProxy", &objects, &arguments).await;
    listening(started.https).await;
    has_fallback(started.https, OLD).await;
    let mut connection = open("", started.https).await.expect("a handshake");
    assert!(has_certificate(&connection, OLD));
    for (host, path, expected) in [
        ("authorized.example.com", "/", 200),
        ("authorized.example.com", "/denied", 403),
        ("filtered.example.com", "/", 200),
        ("filtered.example.com", "/denied", 403),
        ("web.example.com", "/denied", 200),
    ] {
        let found = status_at(&mut connection, host, path).await;
        assert_eq!(found, expected, "{host}{path}");
    }
    let checked = server.checked();
    let checked: Vec<_> = checked.iter().map(|request| &*request.path).collect();
    assert_eq!(checked, ["/", "/denied"]);
}
