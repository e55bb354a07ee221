//! Requests to an Ingress and to HTTPProxies, and checks of their responses.

use std::net::SocketAddr;

use anyhow::{Result, ensure};
use sesame_testkit::client::{Connect, Request, Response};

use crate::checks::{expect, report, summarise};
use crate::gateway::{Gateway, INGRESS};

/// Sends all requests and prints them with their responses. Returns whether all are correct.
pub(crate) async fn run(gateway: &Gateway) -> bool {
    let (plain, secure) = (gateway.plain(), gateway.secure());
    let checks = [
        report(
            "Ingress",
            "GET http://docs.example.com/",
            served(plain, "docs.example.com", "/", "shop").await,
        ),
        report(
            "Ingress, TLS",
            "GET https://docs.example.com/",
            served(secure, "docs.example.com", "/", "shop").await,
        ),
        report(
            "redirect to HTTPS",
            "GET http://www.example.com/blog",
            redirect(plain).await,
        ),
        report(
            "included HTTPProxy",
            "GET https://www.example.com/blog",
            served(secure, "www.example.com", "/blog", "audit").await,
        ),
        report(
            "direct response",
            "GET https://www.example.com/blog/drafts",
            status(secure, "/blog/drafts", 403).await,
        ),
        report(
            "path without a team",
            "GET https://www.example.com/other",
            status(secure, "/other", 404).await,
        ),
        report(
            "tcpproxy",
            "GET https://tcp.example.com/",
            served(secure, "tcp.example.com", "/", "shop").await,
        ),
    ];
    summarise(&checks)
}

/// Prints what to try next.
pub(crate) fn what_next(gateway: &Gateway) {
    let (plain, secure) = (gateway.plain(), gateway.secure());
    let address = gateway.address();
    println!(
        "
It keeps running. In another terminal, try:
  curl -i -H 'Host: docs.example.com' http://{plain}/
  curl -ik --resolve www.example.com:{}:{address} https://www.example.com:{}/shop
and edit examples/ingress; this terminal shows each change and when Envoy has applied it:
  proxies.yaml   change the weights 90 and 10, or include a proxy that doesn't exist
  ingress.yaml   change the name of the Service
Ctrl-C stops everything.
",
        secure.port(),
        secure.port(),
    );
}

/// Sends a request, over TLS if the port requires it.
async fn send(address: SocketAddr, host: &str, path: &str) -> Result<Response> {
    let connect = match address.port() == INGRESS.ports.1 {
        true => Connect::tls(host),
        false => Connect::plain(),
    };
    connect.send(address, &Request::get(host, path)).await
}

async fn served(address: SocketAddr, host: &str, path: &str, backend: &str) -> Result<String> {
    let response = send(address, host, path).await?;
    expect(&response, 200)?;
    ensure!(
        response.backend() == backend,
        "answered by {:?}",
        response.backend()
    );
    Ok(format!("200 from {backend}"))
}

async fn status(address: SocketAddr, path: &str, status: u16) -> Result<String> {
    let response = send(address, "www.example.com", path).await?;
    expect(&response, status)?;
    Ok(status.to_string())
}

async fn redirect(address: SocketAddr) -> Result<String> {
    let response = send(address, "www.example.com", "/blog").await?;
    expect(&response, 301)?;
    let location = response.header("location").to_owned();
    ensure!(
        location.starts_with("https://www.example.com"),
        "redirected to {location}"
    );
    Ok(format!("301 to {location}"))
}
