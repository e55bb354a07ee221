//! HTTPS listeners: certificates by server name, misdirected requests, rotation.

use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Connection, Request};

use crate::harness::{
    Https, Sesame, Summary, at, backends, certificate, eventually, gateway, has_certificate, https,
    listening, route, to,
};

fn identity(names: &[&str]) -> Identity {
    Identity::self_signed(names).expect("a certificate")
}

/// Sends a request on each open connection.
///
/// # Panics
/// If a connection is closed, or a backend other than `a` responds.
async fn assert_open(open: &mut [Connection], request: &Request) {
    for connection in open {
        let response = connection
            .send(request)
            .await
            .expect("the connection stays open");
        assert_eq!(response.backend(), "a");
    }
}

fn listener<'a>(name: &'a str, hostname: &'a str, certificates: &'a [&'a str]) -> String {
    https(Https {
        name,
        port: 8443,
        hostname,
        certificates,
    })
}

#[tokio::test]
async fn the_server_name_selects_listener_and_certificate() {
    let (_backends, services) = backends(&["one", "wild"]).await;
    let listeners = [
        listener("one", "one.example.com", &["one"]),
        listener("wild", "*.example.com", &["wild"]),
    ];
    let objects = certificate("one", &identity(&["one.example.com"]))
        + &certificate("wild", &identity(&["*.example.com"]))
        + &route("one", &["web, sectionName: one"], &[], &[&to("one")])
        + &route("wild", &["web, sectionName: wild"], &[], &[&to("wild")])
        + &services;
    let sesame = Sesame::with_gateway(&listeners, &objects).await;
    let address = sesame.at(8443);
    listening(address).await;
    for (name, certificate, backend) in [
        ("one.example.com", "one.example.com", "one"),
        ("two.example.com", "*.example.com", "wild"),
        ("a.b.example.com", "*.example.com", "wild"),
    ] {
        for connect in [Connect::tls(name), Connect::tls(name).h2()] {
            let mut connection = connect.open(address).await.expect("a handshake");
            assert!(has_certificate(&connection, certificate), "{name}");
            let response = connection
                .send(&Request::get(name, "/"))
                .await
                .expect("a response");
            assert_eq!(
                (response.status.as_u16(), response.backend().as_str()),
                (200, backend),
                "{name}"
            );
            let with_port = format!("{name}:8443");
            assert_eq!(
                (&connect, &Request::get(&with_port, "/")).of(address).await,
                backend
            );
            // The port in the Host header doesn't matter, and the backend sees the scheme.
            let seen = response.json();
            assert_eq!(seen["headers"]["x-forwarded-proto"][0], "https", "{seen}");
        }
    }
    for unknown in ["example.com", "example.org", ""] {
        let refused = Connect::tls(unknown).open(address).await;
        assert!(refused.is_err(), "{unknown:?} is accepted");
    }
    let plain = Request::get("one.example.com", "/").of(address).await;
    assert_eq!(plain, "no response");
}

#[tokio::test]
async fn a_listener_with_several_certificates_sends_the_matching_one() {
    let (_backends, services) = backends(&["any"]).await;
    let names = ["a.example.com", "b.example.com"];
    let objects = certificate("wild", &identity(&["*.example.com"]))
        + &certificate("a", &identity(&["a.example.com"]))
        + &certificate("b", &identity(&["b.example.com"]))
        + &route("any", &["web"], &[], &[&to("any")])
        + &services;
    let sesame = Sesame::with_gateway(&[&listener("any", "", &["b", "wild", "a"])], &objects).await;
    let address = sesame.at(8443);
    listening(address).await;
    for name in names {
        let connection = Connect::tls(name).open(address).await.expect("a handshake");
        let shown = names.map(|name| has_certificate(&connection, name));
        assert_eq!(shown, names.map(|other| other == name), "{name}");
    }
    // If none matches, the first is used.
    for (name, shown) in [
        ("c.example.com", "*.example.com"),
        ("example.org", "b.example.com"),
        ("", "b.example.com"),
    ] {
        let connection = Connect::tls(name).open(address).await.expect("a handshake");
        assert!(has_certificate(&connection, shown), "{name}");
    }
}

/// Browsers reuse a connection for all names in its certificate, whichever listener it was opened for.
/// A client can't choose the listener, and a backend doesn't see it.
#[tokio::test]
async fn requests_for_another_listener_are_misdirected() {
    let (_backends, services) = backends(&["any", "second", "wild", "fourth"]).await;
    let listeners = [
        listener("any", "", &["all"]),
        listener("second", "second.org", &["all"]),
        listener("wild", "*.wildcard.org", &["all"]),
        listener("fourth", "fourth.wildcard.org", &["all"]),
    ];
    let section = |name: &str| format!("web, sectionName: {name}");
    let objects = certificate(
        "all",
        &identity(&["example.org", "second.org", "*.wildcard.org"]),
    ) + &route(
        "any",
        &[&section("any")],
        &["example.org"],
        &[&at("/", "any")],
    ) + &route("second", &[&section("second")], &[], &[&at("/", "second")])
        + &route("wild", &[&section("wild")], &[], &[&at("/", "wild")])
        + &route("fourth", &[&section("fourth")], &[], &[&at("/", "fourth")])
        + &services;
    let sesame = Sesame::with_gateway(&listeners, &objects).await;
    let address = sesame.at(8443);
    listening(address).await;
    let mut wrong = Vec::new();
    for (sni, cases) in [
        (
            "example.org",
            [
                ("example.org", "any"),
                ("unknown.org", "404"),
                ("second.org", "421"),
                ("x.wildcard.org", "421"),
                ("fourth.wildcard.org", "421"),
            ],
        ),
        (
            "second.org",
            [
                ("second.org", "second"),
                ("example.org", "421"),
                ("unknown.org", "421"),
                ("x.wildcard.org", "421"),
                ("fourth.wildcard.org", "421"),
            ],
        ),
        (
            "x.wildcard.org",
            [
                ("x.wildcard.org", "wild"),
                ("y.z.wildcard.org", "wild"),
                ("fourth.wildcard.org", "421"),
                ("second.org", "421"),
                ("unknown.org", "421"),
            ],
        ),
        (
            "fourth.wildcard.org",
            [
                ("fourth.wildcard.org", "fourth"),
                ("x.wildcard.org", "421"),
                ("example.org", "421"),
                ("second.org", "421"),
                ("unknown.org", "421"),
            ],
        ),
    ] {
        let mut connection = Connect::tls(sni)
            .h2()
            .open(address)
            .await
            .expect("a handshake");
        for (host, expected) in cases {
            let response = connection
                .send(&Request::get(host, "/").header("x-sesame-listener", host))
                .await
                .expect("a response");
            let found = match response.status.as_u16() {
                200 if response.json().to_string().contains("x-sesame") => "a header".to_owned(),
                200 => response.backend(),
                status => status.to_string(),
            };
            if found != expected {
                wrong.push(format!(
                    "{host} on the connection for {sni}: got {found}, expected {expected}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Without a catch-all listener, an unknown hostname doesn't belong to another listener.
#[tokio::test]
async fn a_hostname_without_a_listener_gets_404_not_421() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let listeners = [
        listener("a", "a.org", &["both"]),
        listener("b", "b.org", &["both"]),
    ];
    let objects = certificate("both", &identity(&["a.org", "b.org"]))
        + &route("a", &["web, sectionName: a"], &[], &[&to("a")])
        + &route("b", &["web, sectionName: b"], &[], &[&to("b")])
        + &services;
    let sesame = Sesame::with_gateway(&listeners, &objects).await;
    let address = sesame.at(8443);
    listening(address).await;
    let connect = Connect::tls("a.org");
    for (host, expected) in [("a.org", "a"), ("b.org", "421"), ("c.org", "404")] {
        assert_eq!(
            (&connect, &Request::get(host, "/")).of(address).await,
            expected,
            "{host}"
        );
    }
}

#[tokio::test]
async fn a_new_certificate_is_used_for_new_connections_and_keeps_open_ones() {
    let (_backends, services) = backends(&["a"]).await;
    let sesame = Sesame::serving(|ip| {
        let text = gateway("web", ip, &[&listener("a", "a.example.com", &["a"])])
            + &route("a", &["web"], &[], &[&to("a")]);
        vec![
            ("all.yaml", text + &services),
            (
                "certificate.yaml",
                certificate("a", &identity(&["a.example.com", "old.example.com"])),
            ),
        ]
    })
    .await;
    let address = sesame.at(8443);
    listening(address).await;
    let request = Request::get("a.example.com", "/");
    let mut open = Vec::new();
    for connect in [
        Connect::tls("a.example.com"),
        Connect::tls("a.example.com").h2(),
    ] {
        let mut connection = connect.open(address).await.expect("a handshake");
        assert!(has_certificate(&connection, "old.example.com"));
        connection.send(&request).await.expect("a response");
        open.push(connection);
    }
    let new = certificate("a", &identity(&["a.example.com", "new.example.com"]));
    sesame.folder().replace("certificate.yaml", &new);
    eventually("the new certificate is used", async || {
        let mut connection = Connect::tls("a.example.com").open(address).await?;
        // No request fails in the meantime.
        let response = connection.send(&request).await.expect("a response");
        assert_eq!(response.status, 200);
        anyhow::ensure!(
            has_certificate(&connection, "new.example.com"),
            "it is still the old one"
        );
        Ok(())
    })
    .await;
    assert_open(&mut open, &request).await;
}

/// Each host has a filter chain. Adding, changing or removing one only affects its own connections.
#[tokio::test]
async fn connections_stay_open_while_other_listeners_change() {
    let (_backends, services) = backends(&["a"]).await;
    let host = |number: usize| format!("h{number}.example.com");
    let name = |number: usize| format!("h{number}");
    let of =
        |number: usize, certificate: &str| listener(&name(number), &host(number), &[certificate]);
    let some = |numbers: std::ops::Range<usize>| numbers.map(|number| of(number, "one")).collect();
    let sesame = Sesame::serving(|ip| {
        let listeners: Vec<String> = some(0..10);
        let fixed = certificate("one", &identity(&["*.example.com", "one.test"]))
            + &certificate("other", &identity(&["*.example.com", "other.test"]))
            + &route("a", &["web"], &[], &[&to("a")])
            + &services;
        vec![
            ("all.yaml", fixed),
            ("gateway.yaml", gateway("web", ip, &listeners)),
        ]
    })
    .await;
    let address = sesame.at(8443);
    listening(address).await;
    let request = Request::get(&host(0), "/");
    let mut open = Vec::new();
    for connect in [Connect::tls(&host(0)), Connect::tls(&host(0)).h2()] {
        let mut connection = connect.open(address).await.expect("a handshake");
        connection.send(&request).await.expect("a response");
        open.push(connection);
    }
    let more: Vec<String> = some(0..40);
    let mut another = some(0..40);
    another[1] = of(1, "other");
    let fewer: Vec<String> = some(0..5);
    for (listeners, served, shown, gone) in [
        (more, 39, "one.test", 40),
        (another, 1, "other.test", 40),
        (fewer, 4, "one.test", 39),
    ] {
        let text = gateway("web", sesame.ip, &listeners);
        sesame.folder().replace("gateway.yaml", &text);
        eventually("the change is effective", async || {
            let mut connection = Connect::tls(&host(served)).open(address).await?;
            anyhow::ensure!(
                has_certificate(&connection, shown),
                "it shows another certificate"
            );
            let response = connection.send(&Request::get(&host(served), "/")).await?;
            anyhow::ensure!(response.status == 200, "{response:?}");
            let closed = Connect::tls(&host(gone)).open(address).await.is_err();
            anyhow::ensure!(closed, "{} is open", host(gone));
            Ok(())
        })
        .await;
        assert_open(&mut open, &request).await;
    }
}

#[tokio::test]
async fn a_listener_without_a_valid_certificate_is_closed_and_others_serve() {
    let (_backends, services) = backends(&["a"]).await;
    let (one, other) = (identity(&["a.example.com"]), identity(&["b.example.com"]));
    let mismatched = Identity {
        chain: one.chain.clone(),
        private_key: other.private_key,
    };
    let listeners = [
        listener("good", "a.example.com", &["good"]),
        listener("missing", "b.example.com", &["missing"]),
        listener("mismatched", "c.example.com", &["mismatched"]),
    ];
    let objects = certificate("good", &one)
        + &certificate("mismatched", &mismatched)
        + &route("a", &["web"], &[], &[&to("a")])
        + &services;
    let sesame = Sesame::with_gateway(&listeners, &objects).await;
    let address = sesame.at(8443);
    listening(address).await;
    let good = Connect::tls("a.example.com");
    assert_eq!(
        (&good, &Request::get("a.example.com", "/"))
            .of(address)
            .await,
        "a"
    );
    for closed in ["b.example.com", "c.example.com"] {
        assert!(
            Connect::tls(closed).open(address).await.is_err(),
            "{closed} is open"
        );
    }
    for (listener, status) in [
        ("good", "True"),
        ("missing", "False"),
        ("mismatched", "False"),
    ] {
        let resolved = sesame.of_listener("web", listener, "ResolvedRefs").await;
        let resolved = resolved.expect("a condition");
        assert_eq!(resolved.status, status, "{listener}: {resolved:?}");
        if status == "False" {
            assert_eq!(
                resolved.reason, "InvalidCertificateRef",
                "{listener}: {resolved:?}"
            );
        }
    }
}
