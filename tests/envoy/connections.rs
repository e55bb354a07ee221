//! TCPRoutes and TLSRoutes: connections forwarded by port, server name, precedence and weight.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sesame_testkit::backend::Backend;
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};

use crate::harness::{
    Https, Sesame, Summary, assert_share, at, backends, becomes, certificate, created, eventually,
    gateway, has_certificate, https, listening, route, service, tcp_route, tls_route, to,
};

const TCP: &str = "name: tcp, protocol: TCP, port: 9000";

/// A TLS listener on port 8443; passthrough without certificates.
pub(crate) fn tls(name: &str, hostname: &str, certificates: &[&str]) -> String {
    let fields = https(Https {
        name,
        port: 8443,
        hostname,
        certificates,
    });
    let fields = fields.replace("protocol: HTTPS", "protocol: TLS");
    match certificates {
        [] => fields.replace("certificateRefs: []", "mode: Passthrough"),
        _ => fields,
    }
}

/// Starts backends that terminate TLS, each with a certificate for its own name. Also returns their objects.
pub(crate) async fn tls_backends(names: &[&str]) -> (Vec<Backend>, String) {
    let mut all = (Vec::new(), String::new());
    for name in names {
        let identity = Identity::self_signed(&[&format!("{name}.test")]).expect("a certificate");
        let config = identity.server_config().expect("a configuration");
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let backend = Backend::start_tls(name, any, config).await;
        let backend = backend.expect("a backend");
        all.1 += &service(name, &[backend.address()]);
        all.0.push(backend);
    }
    all
}

/// Sends a request over TLS with this server name and returns the backend that responds.
pub(crate) async fn over_tls(address: SocketAddr, server_name: &str) -> String {
    let request = Request::get(server_name, "/");
    (&Connect::tls(server_name), &request).of(address).await
}

#[tokio::test]
async fn connections_are_shared_by_weight_and_those_for_invalid_backends_are_closed() {
    let (_backends, services) = backends(&["a", "b", "none"]).await;
    let rule = "backendRefs: [{name: a, port: 80, weight: 5}, {name: b, port: 80, weight: 3}, \
                {name: none, port: 80, weight: 0}, {name: missing, port: 80, weight: 2}]";
    let objects = tcp_route("shares", &["web"], &[rule]) + &services;
    let sesame = Sesame::with_gateway(&[TCP], &objects).await;
    let address = sesame.at(9000);
    listening(address).await;
    let mut found: BTreeMap<String, u32> = BTreeMap::new();
    for _ in 0..400 {
        let backend = Request::get("any", "/").of(address).await;
        *found.entry(backend).or_default() += 1;
    }
    for (backend, share) in [("a", 0.5), ("b", 0.3), ("no response", 0.2)] {
        assert_share(backend, found.remove(backend).unwrap_or(0), 400, share);
    }
    assert!(found.is_empty(), "{found:?}");
    let status = sesame.status("TCPRoute", "shares").await.expect("a status");
    assert_eq!(
        status.pointer("/parents/0/conditions/1/reason"),
        Some(&"BackendNotFound".into()),
        "{status}"
    );
}

#[tokio::test]
async fn the_oldest_tcp_route_gets_the_connections_and_the_other_reports_it() {
    let (_backends, services) = backends(&["old", "new"]).await;
    let old = created(&tcp_route("old", &["web"], &[&to("old")]), "2026-01-01");
    let new = created(&tcp_route("a-new", &["web"], &[&to("new")]), "2026-01-02");
    let sesame = Sesame::serving(|ip| {
        vec![
            ("all.yaml", gateway("web", ip, &[TCP]) + &new + &services),
            ("old.yaml", old),
        ]
    })
    .await;
    let address = sesame.at(9000);
    listening(address).await;
    let message = async || {
        let status = sesame.status("TCPRoute", "a-new").await?;
        let message = status.pointer("/parents/0/conditions/0/message");
        anyhow::Ok(message.cloned().unwrap_or_default())
    };
    becomes(address, "any", "/", "old").await;
    assert_eq!(
        message().await.expect("a status"),
        "the route is attached, but TCPRoute default/old takes precedence on listener tcp"
    );
    let listener = sesame.listener("web", "tcp").await.expect("a listener");
    assert_eq!(listener["attachedRoutes"], 2, "{listener}");
    sesame.folder().remove("old.yaml");
    becomes(address, "any", "/", "new").await;
    eventually("the other route reports no conflict", async || {
        let message = message().await?;
        anyhow::ensure!(message == "the route is attached", "{message}");
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_tcp_listener_without_routes_closes_connections() {
    let sesame = Sesame::with_gateway(&[TCP], "").await;
    listening(sesame.at(9000)).await;
    let response = Request::get("any", "/").of(sesame.at(9000)).await;
    assert_eq!(response, "no response");
}

#[tokio::test]
async fn passthrough_termination_and_https_share_a_port() {
    let (_plain, services) = backends(&["plain", "web"]).await;
    let (_secure, secure_services) = tls_backends(&["secure"]).await;
    let listeners = [
        tls("pass", "pass.example.com", &[]),
        tls("end", "end.example.com", &["cert"]),
        https(Https {
            name: "https",
            port: 8443,
            hostname: "web.example.com",
            certificates: &["cert"],
        }),
    ];
    let identity = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    let objects = certificate("cert", &identity)
        + &tls_route("pass", &["web"], &["pass.example.com"], &[&to("secure")])
        + &tls_route("end", &["web"], &["end.example.com"], &[&to("plain")])
        + &route("web", &["web"], &[], &[&at("/", "web")])
        + &services
        + &secure_services;
    let sesame = Sesame::with_gateway(&listeners, &objects).await;
    let address = sesame.at(8443);
    listening(address).await;
    for (name, backend, certificate) in [
        ("pass.example.com", "secure", "secure.test"),
        ("end.example.com", "plain", "*.example.com"),
        ("web.example.com", "web", "*.example.com"),
    ] {
        let connect = Connect::tls(name);
        let mut connection = connect.open(address).await.expect("a handshake");
        assert!(has_certificate(&connection, certificate), "{name}");
        let response = connection.send(&Request::get(name, "/")).await;
        assert_eq!(response.expect("a response").backend(), backend, "{name}");
    }
    // A request for another listener's host, over a connection to an HTTPS listener, is misdirected.
    let misdirected = (
        &Connect::tls("web.example.com"),
        &Request::get("pass.example.com", "/"),
    );
    assert_eq!(misdirected.of(address).await, "421");
    for closed in ["other.example.com", "example.com", ""] {
        assert_eq!(over_tls(address, closed).await, "no response", "{closed}");
    }
    let plain = Request::get("pass.example.com", "/").of(address).await;
    assert_eq!(plain, "no response");
}

#[tokio::test]
async fn the_most_specific_listener_then_hostname_then_oldest_route_wins() {
    let names = ["any", "wild", "exact", "deep", "narrow", "late"];
    let (_backends, services) = tls_backends(&names).await;
    let listeners = [
        tls("any", "", &[]),
        tls("deep", "*.deep.example.com", &[]),
        tls("empty", "empty.example.com", &[]),
    ];
    let on = |section: &str| format!("web, sectionName: {section}");
    let tls_route = |name: &str, section: &str, hostname: &str, day: &str| {
        created(
            &tls_route(name, &[&on(section)], &[hostname], &[&to(name)]),
            day,
        )
    };
    let objects = tls_route("wild", "any", "*.example.com", "2026-01-01")
        + &tls_route("exact", "any", "a.example.com", "2026-01-03")
        + &tls_route("late", "any", "a.example.com", "2026-01-04")
        + &tls_route("any", "any", "x.deep.example.com", "2026-01-01")
        // Both have the same intersection with the listener: the more specific hostname wins, although it is younger.
        + &tls_route("deep", "deep", "*.example.com", "2026-01-01")
        + &tls_route("narrow", "deep", "*.deep.example.com", "2026-01-02")
        + &services;
    let sesame = Sesame::with_gateway(&listeners, &objects).await;
    let address = sesame.at(8443);
    listening(address).await;
    for (name, backend) in [
        ("a.example.com", "exact"),
        ("b.example.com", "wild"),
        ("b.a.example.com", "wild"),
        ("x.deep.example.com", "narrow"),
        // The most specific listener for this host has no route.
        ("empty.example.com", "no response"),
        ("example.com", "no response"),
        ("example.org", "no response"),
        ("", "no response"),
    ] {
        assert_eq!(over_tls(address, name).await, backend, "{name}");
    }
    let plain = Request::get("a.example.com", "/").of(address).await;
    assert_eq!(plain, "no response");
    for (route, message) in [
        ("exact", "the route is attached"),
        (
            "late",
            "the route is attached, but TLSRoute default/exact takes precedence on listener any for server name \
             a.example.com",
        ),
    ] {
        let status = sesame.status("TLSRoute", route).await.expect("a status");
        let found = status.pointer("/parents/0/conditions/0/message");
        assert_eq!(found, Some(&message.into()), "{status}");
    }
}

#[tokio::test]
async fn connections_stay_open_while_other_routes_change() {
    let (_backends, services) = tls_backends(&["a", "b"]).await;
    let host = |number: usize| format!("h{number}.example.com");
    let routes = |numbers: std::ops::Range<usize>, backend: &str| -> String {
        let each =
            numbers.map(|n| tls_route(&format!("h{n}"), &["web"], &[&host(n)], &[&to(backend)]));
        each.collect()
    };
    let sesame = Sesame::serving(|ip| {
        let fixed = gateway("web", ip, &[tls("pass", "", &[]), TCP.to_owned()])
            + &routes(0..1, "a")
            + &tcp_route("tcp", &["web, sectionName: tcp"], &[&to("a")])
            + &services;
        vec![("all.yaml", fixed), ("routes.yaml", routes(1..5, "a"))]
    })
    .await;
    let address = sesame.at(8443);
    listening(address).await;
    listening(sesame.at(9000)).await;
    let request = Request::get(&host(0), "/");
    let mut open = Vec::new();
    for address in [address, sesame.at(9000)] {
        for connect in [Connect::tls(&host(0)), Connect::tls(&host(0)).h2()] {
            let mut connection = connect.open(address).await.expect("a handshake");
            connection.send(&request).await.expect("a response");
            open.push(connection);
        }
    }
    for (numbers, backend, gone) in [(1..40, "a", 40), (1..40, "b", 40), (1..3, "b", 3)] {
        let served = host(numbers.end - 1);
        sesame
            .folder()
            .replace("routes.yaml", &routes(numbers, backend));
        eventually("the change is effective", async || {
            let found = over_tls(address, &served).await;
            anyhow::ensure!(found == backend, "{served} gets {found}");
            let closed = over_tls(address, &host(gone)).await;
            anyhow::ensure!(closed == "no response", "{} gets {closed}", host(gone));
            Ok(())
        })
        .await;
        for connection in &mut open {
            let response = connection.send(&request).await;
            let response = response.expect("the connection stays open");
            assert_eq!(response.backend(), "a");
        }
    }
}

/// The destination is a separate resource, so changing a route's backend doesn't close the route's connections either.
#[tokio::test]
async fn connections_stay_open_while_their_own_route_changes() {
    let (_plain, services) = backends(&["a", "b"]).await;
    let (_secure, secure_services) = tls_backends(&["c", "d"]).await;
    let identity = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    let routes = |plain: &str, secure: &str| {
        tcp_route("tcp", &["web, sectionName: tcp"], &[&to(plain)])
            + &tls_route("end", &["web"], &["end.example.com"], &[&to(plain)])
            + &tls_route("pass", &["web"], &["x.pass.example.com"], &[&to(secure)])
    };
    let listeners = [
        TCP.to_owned(),
        tls("end", "*.example.com", &["cert"]),
        tls("pass", "*.pass.example.com", &[]),
    ];
    let sesame = Sesame::serving(|ip| {
        let fixed = gateway("web", ip, &listeners)
            + &certificate("cert", &identity)
            + &services
            + &secure_services;
        vec![("all.yaml", fixed), ("routes.yaml", routes("a", "c"))]
    })
    .await;
    let ports = [
        (sesame.at(9000), Connect::plain(), "any", ["a", "b"]),
        (
            sesame.at(8443),
            Connect::tls("End.Example.com"),
            "end.example.com",
            ["a", "b"],
        ),
        (
            sesame.at(8443),
            Connect::tls("x.pass.example.com"),
            "x.pass.example.com",
            ["c", "d"],
        ),
    ];
    let mut open = Vec::new();
    for (address, connect, host, [first, _]) in &ports {
        listening(*address).await;
        let mut connection = connect.open(*address).await.expect("a connection");
        let response = connection.send(&Request::get(host, "/")).await;
        assert_eq!(response.expect("a response").backend(), *first);
        open.push(connection);
    }
    sesame.folder().replace("routes.yaml", &routes("b", "d"));
    for (connection, (address, connect, host, [first, second])) in open.iter_mut().zip(&ports) {
        let request = Request::get(host, "/");
        eventually("new connections get the new backend", async || {
            let found = (connect, &request).of(*address).await;
            anyhow::ensure!(found == *second, "{host} gets {found}");
            Ok(())
        })
        .await;
        let response = connection.send(&request).await;
        assert_eq!(response.expect("it stays open").backend(), *first);
    }
    sesame.folder().remove("routes.yaml");
    for (address, connect, host, _) in &ports {
        let request = Request::get(host, "/");
        eventually("new connections are closed", async || {
            let found = (connect, &request).of(*address).await;
            anyhow::ensure!(found == "no response", "{host} gets {found}");
            Ok(())
        })
        .await;
    }
}
