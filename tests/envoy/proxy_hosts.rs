//! HTTPProxies: the hosts that a connection serves.

use sesame_testkit::backend::Backend;
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};

use crate::harness::{DefaultFleet, Summary, backends, certificate, listening};

/// An HTTPProxy that routes to the Service of the same name, with these fields of its host.
fn proxy(name: &str, host: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: {name}}}\nspec:\n  \
         virtualhost: {{{host}}}\n  routes: [{{services: [{{name: {name}, port: 80}}]}}]\n---\n"
    )
}

/// A fleet with hosts with TLS and one without.
async fn hosts() -> (Vec<Backend>, DefaultFleet) {
    let (backends, services) = backends(&["web", "other", "wild", "plain"]).await;
    let names = ["a.example.com", "b.example.com", "*.wild.example.com"];
    let identity = Identity::self_signed(&names).expect("a certificate");
    let tls = "tls: {secretName: all}";
    let objects = services
        + &certificate("all", &identity)
        + &proxy("web", &format!("fqdn: a.example.com, {tls}"))
        + &proxy("other", &format!("fqdn: b.example.com, {tls}"))
        + &proxy("wild", &format!("fqdn: '*.wild.example.com', {tls}"))
        + &proxy("plain", "fqdn: plain.example.com");
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    listening(fleet.https).await;
    (backends, fleet)
}

/// Browsers reuse a connection for all names in its certificate.
#[tokio::test]
async fn requests_for_another_host_with_tls_are_misdirected() {
    let (_backends, fleet) = hosts().await;
    for (sni, cases) in [
        (
            "a.example.com",
            [
                ("a.example.com", "web"),
                ("b.example.com", "421"),
                ("x.wild.example.com", "421"),
                ("plain.example.com", "404"),
                ("unknown.example.com", "404"),
                // The connection stays open.
                ("a.example.com", "web"),
            ],
        ),
        (
            "x.wild.example.com",
            [
                ("x.wild.example.com", "wild"),
                ("y.wild.example.com", "wild"),
                ("x.y.wild.example.com", "404"),
                ("a.example.com", "421"),
                ("plain.example.com", "404"),
                ("x.wild.example.com", "wild"),
            ],
        ),
    ] {
        for connect in [Connect::tls(sni), Connect::tls(sni).h2()] {
            let mut connection = connect.open(fleet.https).await.expect("a handshake");
            for (host, expected) in cases {
                let response = connection.send(&Request::get(host, "/")).await;
                let response = response.expect("a response");
                let found = match response.status.as_u16() {
                    200 => response.backend(),
                    status => status.to_string(),
                };
                assert_eq!(found, expected, "{host} on the connection for {sni}");
            }
        }
    }
}

#[tokio::test]
async fn the_case_and_the_port_of_a_host_have_no_effect() {
    let (_backends, fleet) = hosts().await;
    for host in ["A.Example.COM", "a.example.com:443", "A.EXAMPLE.COM:8443"] {
        for sni in ["a.example.com", "A.Example.com"] {
            for connect in [Connect::tls(sni), Connect::tls(sni).h2()] {
                let found = (&connect, &Request::get(host, "/")).of(fleet.https).await;
                assert_eq!(found, "web", "{host} by {connect:?}");
            }
        }
    }
    for host in [
        "Plain.Example.COM",
        "plain.example.com:80",
        "PLAIN.EXAMPLE.COM:8080",
    ] {
        for connect in [Connect::plain(), Connect::plain().h2()] {
            let found = (&connect, &Request::get(host, "/")).of(fleet.http).await;
            assert_eq!(found, "plain", "{host} by {connect:?}");
        }
    }
}
