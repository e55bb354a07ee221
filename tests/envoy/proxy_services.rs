//! HTTPProxies: protocols of Services, and verification of their certificates.

use sesame_testkit::client::Request;

use crate::backend_tls::{authority, secure};
use crate::harness::{DefaultFleet, backend, becomes, check, service};
use crate::proxy_clients::secret;

/// The HTTPProxy `web` for the host web.test, with a route for each path to this Service.
fn proxy(routes: &[(&str, &str)]) -> String {
    let routes: String = routes
        .iter()
        .map(|(path, service)| {
            format!(
                "  - {{conditions: [{{prefix: {path}}}], services: [{{port: 80, {service}}}]}}\n"
            )
        })
        .collect();
    format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: web}}\nspec:\n  \
         virtualhost: {{fqdn: web.test}}\n  routes:\n{routes}---\n"
    )
}

#[tokio::test]
async fn the_certificate_of_a_backend_needs_one_of_the_names() {
    let ca = authority();
    let backend = secure("s", &ca, &["two.backend"]).await;
    let named = |names: &[&str]| {
        let (first, all) = (names[0], names.join(", "));
        format!(
            "name: s, protocol: tls, validation: {{caSecret: ca, subjectName: {first}, subjectNames: [{all}]}}"
        )
    };
    let objects = service("s", &[backend.address()])
        + &secret("ca", &[("ca.crt", &ca.pem())])
        + &proxy(&[
            ("/second", &named(&["one.backend", "two.backend"])),
            ("/first", &named(&["two.backend", "one.backend"])),
            ("/none", &named(&["one.backend", "three.backend"])),
        ]);
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    for (path, expected) in [("/second", "s"), ("/first", "s"), ("/none", "503")] {
        becomes(fleet.http, "web.test", path, expected).await;
    }
    // The first name is the server name, whether or not it is in the certificate.
    for (path, sni) in [("/second", "one.backend"), ("/first", "two.backend")] {
        let response = fleet.send(&Request::get("web.test", path)).await;
        assert_eq!(response.json()["tls"]["sni"], sni, "{path}");
    }
}

#[tokio::test]
async fn the_protocol_in_an_httpproxy_overrides_that_of_the_port() {
    let (_backend, services) = backend("a").await;
    let https = services.replace("port: 80}", "port: 80, appProtocol: https}");
    let routes = [("/h2c", "name: a, protocol: h2c"), ("/port", "name: a")];
    let fleet = DefaultFleet::serving("HTTPProxy", &(https + &proxy(&routes))).await;
    becomes(fleet.http, "web.test", "/h2c", "a").await;
    let response = fleet.send(&Request::get("web.test", "/h2c")).await;
    let seen = response.json();
    assert_eq!(
        (&seen["protocol"], &seen["tls"]),
        (&"HTTP/2".into(), &().into())
    );
    // The backend doesn't speak TLS.
    check(fleet.http, &[("web.test", "/port", "503")]).await;
}
