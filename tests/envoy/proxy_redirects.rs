//! HTTPProxies whose backends' redirects Envoy follows.

use std::net::SocketAddr;
use std::time::Duration;

use sesame_testkit::client::{Connect, Request};

use crate::backend_tls::authority;
use crate::harness::{
    DefaultFleet, HTTP, Sesame, backends, eventually, gateway, listening, route, service, to,
};
use crate::proxy_clients::{front, secret, validated};

/// Requests a redirect to this URL, and returns the path at the backend or, if the client gets the redirect, its target.
async fn redirected(connect: &Connect, address: SocketAddr, to: &str) -> anyhow::Result<String> {
    let path = format!("/status/302?set-header=location:{to}");
    let request = Request::get("web.example.com", &path);
    let response = connect.send(address, &request).await?;
    Ok(match response.status.as_u16() {
        200 => response.json()["path"].to_string(),
        302 => response.header("location").to_owned(),
        other => other.to_string(),
    })
}

/// A backend whose endpoint is the Gateway itself, with a mirror that is too.
#[tokio::test]
async fn a_request_that_goes_round_in_a_circle_ends() {
    let (backends, services) = backends(&["a"]).await;
    let mirror = |to: &str| {
        format!("{{type: RequestMirror, requestMirror: {{backendRef: {{name: {to}, port: 80}}}}}}")
    };
    let circle = format!(
        "filters: [{}, {}], {}",
        mirror("circle"),
        mirror("a"),
        to("circle")
    );
    let sesame = Sesame::serving(|ip| {
        let objects = gateway("web", ip, &[HTTP])
            + &services
            + &service("circle", &[SocketAddr::new(ip, 8080)])
            + &route("circle", &["web"], &["a.example.com"], &[circle]);
        vec![("all.yaml", objects)]
    })
    .await;
    let response = sesame.send(&Request::get("a.example.com", "/")).await;
    assert_eq!(response.status.as_u16(), 502);
    let copies = backends[0]
        .wait_for(Duration::from_secs(20), |copies| copies.len() == 7)
        .await
        .expect("all copies");
    assert!(copies.iter().all(|copy| copy.header("cdn-loop").is_some()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(backends[0].count(), 7);
}

#[tokio::test]
async fn redirects_are_followed_within_their_host() {
    let (_backends, services) = backends(&["a"]).await;
    let ca = authority();
    let objects = services
        + &front()
        + &secret("ca", &[("ca.crt", &ca.pem())])
        + &validated("bank", "caSecret: ca")
        + "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {name: web}\nspec:\n  \
           virtualhost: {fqdn: web.example.com, tls: {secretName: front}}\n  \
           routes: [{services: [{name: a, port: 80}], permitInsecure: true, internalRedirectPolicy: {}}]\n";
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    listening(fleet.https).await;
    for (connect, address, scheme) in [
        (Connect::plain(), fleet.http, "http"),
        (Connect::tls("web.example.com"), fleet.https, "https"),
    ] {
        let own = format!("{scheme}://web.example.com/next");
        eventually("the redirect is followed", async || {
            let found = redirected(&connect, address, &own).await?;
            anyhow::ensure!(found == "\"/next\"", "{found}");
            Ok(())
        })
        .await;
        // On the TLS port, this host requires a client certificate.
        let other = format!("{scheme}://bank.example.com/open");
        let found = redirected(&connect, address, &other).await;
        assert_eq!(found.expect("a response"), other);
    }
}
