//! A port with hundreds of HTTPS listeners, whose certificates Envoy requests on demand.

use std::net::SocketAddr;

use anyhow::ensure;
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Connection, Request};

use crate::harness::{
    Https, Sesame, Summary, at, backends, certificate, eventually, has_certificate, https,
    listening, route,
};
use crate::listener_sets::{listener_set, open_gateway};

/// Above the threshold for on-demand certificates.
const LISTENERS: usize = 300;
/// At most 64 listeners fit into a set.
const PER_SET: usize = 60;
const PORT: u16 = 8443;

fn host(number: usize) -> String {
    format!("h{number}.example.com")
}

fn identity(names: &[&str]) -> Identity {
    Identity::self_signed(names).expect("a certificate")
}

/// A listener in a set.
fn listener(name: &str, hostname: &str, certificate: &str) -> String {
    https(Https {
        name,
        port: PORT,
        hostname,
        certificates: &[certificate],
    })
}

/// A set with listeners for these hosts. `h0` has its own certificate.
fn hosts(name: &str, numbers: std::ops::Range<usize>) -> String {
    let listeners: Vec<String> = numbers
        .map(|number| {
            let certificate = if number == 0 { "first" } else { "rest" };
            listener(&format!("h{number}"), &host(number), certificate)
        })
        .collect();
    let listeners: Vec<&str> = listeners.iter().map(String::as_str).collect();
    listener_set(name, &listeners)
}

fn route_of(set: &str, backend: &str) -> String {
    let parent = format!("{set}, kind: ListenerSet");
    route(set, &[&parent], &[], &[at("/", backend)])
}

/// Sesame with [`LISTENERS`] hosts and some other listeners.
async fn sesame(services: String) -> Sesame {
    let mut sets = String::new();
    for first in (0..LISTENERS).step_by(PER_SET) {
        let name = format!("set-{first}");
        sets += &hosts(&name, first..first + PER_SET);
        sets += &route_of(&name, "a");
    }
    let others = [
        listener("wildcard", "*.wild.example.org", "wildcard"),
        listener("below", "below.wild.example.org", "below"),
    ];
    let others = others.each_ref().map(String::as_str);
    let others = listener_set("others", &others) + &route_of("others", "b");
    let certificates = certificate("rest", &identity(&["*.example.com", "rest.test"]))
        + &certificate("wildcard", &identity(&["*.wild.example.org"]))
        + &certificate("below", &identity(&["below.wild.example.org"]));
    Sesame::serving(|ip| {
        vec![
            ("all.yaml", open_gateway(ip) + &others + &services),
            ("sets.yaml", sets),
            ("certificates.yaml", certificates),
            ("first.yaml", certificate("first", &identity(&["one.test"]))),
        ]
    })
    .await
}

/// Sends a request to a host. Returns the backend that responds, and whether the server presented the certificate for
/// this name.
async fn answer(address: SocketAddr, host: &str, name: &str) -> anyhow::Result<(String, bool)> {
    let mut connection = Connect::tls(host).open(address).await?;
    let shown = has_certificate(&connection, name);
    let response = connection.send(&Request::get(host, "/")).await?;
    ensure!(response.status == 200, "{response:?}");
    Ok((response.backend(), shown))
}

async fn open(address: SocketAddr, numbers: &[usize]) -> Vec<(Connection, Request)> {
    let mut out = Vec::new();
    for &number in numbers {
        let connection = Connect::tls(&host(number)).h2().open(address).await;
        let request = Request::get(&host(number), "/");
        out.push((connection.expect("a handshake"), request));
    }
    out
}

async fn assert_open(open: &mut [(Connection, Request)]) {
    for (connection, request) in open {
        let response = connection.send(request).await;
        let response = response.expect("the connection stays open");
        assert_eq!(response.status, 200);
    }
}

#[tokio::test]
async fn the_server_name_selects_the_certificate() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let sesame = sesame(services).await;
    let address = sesame.at(PORT);
    listening(address).await;
    for (host, certificate, backend) in [
        (&*host(0), "one.test", "a"),
        (&host(1), "rest.test", "a"),
        (&host(LISTENERS - 1), "rest.test", "a"),
        ("any.wild.example.org", "*.wild.example.org", "b"),
        ("below.wild.example.org", "below.wild.example.org", "b"),
    ] {
        let found = answer(address, host, certificate).await;
        assert_eq!(found.expect(host), (backend.to_owned(), true), "{host}");
    }
    for unknown in [&*host(LISTENERS), "wild.example.org", "example.com", ""] {
        let connection = Connect::tls(unknown).open(address).await;
        assert!(connection.is_err(), "{unknown:?} has no listener");
    }
    // 421 if another listener has the host, 404 if none does.
    for (asked, expected) in [(host(0), "a"), (host(1), "421"), (host(LISTENERS), "404")] {
        let request = Request::get(&asked, "/");
        let found = (&Connect::tls(&host(0)), &request).of(address).await;
        assert_eq!(found, expected, "{asked} on a connection for {}", host(0));
    }
}

#[tokio::test]
async fn changes_of_listeners_and_certificates_keep_all_connections_open() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let sesame = sesame(services).await;
    let address = sesame.at(PORT);
    listening(address).await;
    let mut open = open(address, &[0, 1, LISTENERS - 1]).await;
    assert_open(&mut open).await;

    // A new listener provides a certificate for a name that had none.
    let new = host(LISTENERS);
    assert!(Connect::tls(&new).open(address).await.is_err());
    let set = hosts("new", LISTENERS..LISTENERS + 1) + &route_of("new", "b");
    sesame.folder().write("new.yaml", &set);
    eventually("the new host responds", async || {
        let (backend, shown) = answer(address, &new, "rest.test").await?;
        ensure!((backend.as_str(), shown) == ("b", true), "{backend}");
        Ok(())
    })
    .await;
    assert_open(&mut open).await;

    let rotated = certificate("first", &identity(&["two.test"]));
    sesame.folder().replace("first.yaml", &rotated);
    eventually("the new certificate is used", async || {
        let (_, shown) = answer(address, &host(0), "two.test").await?;
        ensure!(shown, "it is still the old one");
        Ok(())
    })
    .await;
    assert_open(&mut open).await;

    sesame.folder().remove("new.yaml");
    eventually("the host has no listener any more", async || {
        let connection = Connect::tls(&new).open(address).await;
        ensure!(connection.is_err(), "the handshake succeeds");
        Ok(())
    })
    .await;
    assert_open(&mut open).await;
}
