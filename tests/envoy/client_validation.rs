//! Client certificate validation: by port, in both modes, with invalid and rotated CAs.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime};

use serde_json::Value;
use sesame_testkit::certs::{Authority, Identity};
use sesame_testkit::client::{Connect, Connection, Request};

use crate::backend_tls::{authorities, authority, set_trusted, trust};
use crate::harness::{
    HTTP, Https, Sesame, Summary, backends, becomes, certificate, eventually, gateway, https,
    listening, route, to, turns,
};

const HOST: &str = "a.example.com";

/// The Gateway `web` with these client validation settings: the fields of the default, and those of ports.
fn validating(
    ip: IpAddr,
    default: &str,
    ports: &[(u16, &str)],
    listeners: &[impl AsRef<str>],
) -> String {
    let ports = ports
        .iter()
        .map(|(port, tls)| format!("{{port: {port}, tls: {{{tls}}}}}"))
        .collect::<Vec<_>>()
        .join(", ");
    let frontend = format!("  tls: {{frontend: {{default: {{{default}}}, perPort: [{ports}]}}}}\n");
    gateway("web", ip, listeners).replacen("  listeners:", &(frontend + "  listeners:"), 1)
}

/// The field for a validation with the CAs in this ConfigMap.
fn by(config_map: &str) -> String {
    format!("validation: {{{}}}", trust(config_map))
}

fn insecurely(config_map: &str) -> String {
    format!(
        "validation: {{mode: AllowInsecureFallback, {}}}",
        trust(config_map)
    )
}

/// An HTTPS listener named after its port, for all hosts.
fn any(port: u16) -> String {
    let name = format!("on-{port}");
    https(Https {
        name: &name,
        port,
        hostname: "",
        certificates: &["front"],
    })
}

/// The listeners' certificate and a route from all of them to the backend `a`.
fn front() -> String {
    let front = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    certificate("front", &front) + &route("a", &["web"], &[], &[&to("a")])
}

fn issued(authority: &Authority) -> Identity {
    authority.issue(&["client.test"]).expect("a certificate")
}

fn expired(authority: &Authority) -> Identity {
    let at = |days: u64| SystemTime::now() - Duration::from_secs(days * 24 * 60 * 60);
    let identity = authority.issue_client(&["spiffe://test/client"], at(2), at(1));
    identity.expect("a certificate")
}

fn client() -> Connect {
    Connect::tls(HOST)
}

/// Sends a request on a new connection and summarizes the response.
async fn response(connect: &Connect, address: SocketAddr) -> String {
    (connect, &Request::get(HOST, "/")).of(address).await
}

/// Waits until a request on a new connection gets this response.
async fn responds(connect: &Connect, address: SocketAddr, expected: &str) {
    eventually(&format!("{address} responds {expected}"), async || {
        let found = response(connect, address).await;
        anyhow::ensure!(found == expected, "got {found}");
        Ok(())
    })
    .await;
}

/// Opens a connection and checks that it serves a request.
async fn opened(connect: &Connect, address: SocketAddr) -> Connection {
    let mut connection = connect.open(address).await.expect("a handshake");
    assert_serves(&mut connection).await;
    connection
}

async fn assert_serves(connection: &mut Connection) {
    let response = connection.send(&Request::get(HOST, "/")).await;
    let response = response.expect("the connection stays open");
    assert_eq!(response.backend(), "a");
}

#[tokio::test]
async fn clients_need_a_certificate_issued_by_the_cas_of_the_port() {
    let (_backends, services) = backends(&["a"]).await;
    let (one, two) = (authority(), authority());
    let objects = front() + &authorities("one", &[&one]) + &authorities("two", &[&two]) + &services;
    let sesame = Sesame::serving(|ip| {
        let listeners = [HTTP.to_owned(), any(8443), any(9443), any(9444)];
        // Settings for an HTTP listener's port have no effect.
        let ports = [
            (8080, &*by("missing")),
            (9443, &*by("two")),
            (9444, "validation: null"),
        ];
        let gateway = validating(ip, &by("one"), &ports, &listeners);
        vec![("all.yaml", gateway + &objects)]
    })
    .await;
    for port in [8080, 8443, 9443, 9444] {
        listening(sesame.at(port)).await;
    }
    becomes(sesame.at(8080), HOST, "/", "a").await;
    let refused = "no response";
    for (name, connect, expected) in [
        (
            "of one",
            client().presenting(&issued(&one)),
            ["a", refused, "a"],
        ),
        (
            "of two",
            client().presenting(&issued(&two)),
            [refused, "a", "a"],
        ),
        (
            "expired",
            client().presenting(&expired(&one)),
            [refused, refused, "a"],
        ),
        ("none", client(), [refused, refused, "a"]),
    ] {
        for (port, expected) in [8443, 9443, 9444].into_iter().zip(expected) {
            for connect in [connect.clone(), connect.clone().h2()] {
                let found = response(&connect, sesame.at(port)).await;
                assert_eq!(found, expected, "{name} on {port}: {connect:?}");
            }
        }
    }
    for (port, asked) in [(8443, true), (9444, false)] {
        let connect = client().presenting(&issued(&one));
        let connection = opened(&connect, sesame.at(port)).await;
        assert_eq!(connection.asked(), asked, "{port}");
    }
    let insecure = sesame.of_gateway("web", "InsecureFrontendValidationMode");
    assert!(insecure.await.is_err());
}

#[tokio::test]
async fn an_expired_ca_is_valid_but_verifies_no_client() {
    let (_backends, services) = backends(&["a"]).await;
    let (current, expired) = (authority(), Authority::expired().expect("a CA"));
    let objects = front()
        + &authorities("expired", &[&expired])
        + &authorities("both", &[&expired, &current])
        + &services;
    let sesame = Sesame::serving(|ip| {
        let ports = [(9443, &*by("both"))];
        let gateway = validating(ip, &by("expired"), &ports, &[any(8443), any(9443)]);
        vec![("all.yaml", gateway + &objects)]
    })
    .await;
    for port in [8443, 9443] {
        listening(sesame.at(port)).await;
    }
    let of_current = client().presenting(&issued(&current));
    assert_eq!(response(&of_current, sesame.at(9443)).await, "a");
    let of_expired = client().presenting(&issued(&expired));
    for port in [8443, 9443] {
        let found = response(&of_expired, sesame.at(port)).await;
        assert_eq!(found, "no response", "{port}");
    }
    for condition in ["Accepted", "Programmed", "ResolvedRefs"] {
        let found = sesame.of_listener("web", "on-8443", condition).await;
        assert_eq!(found.expect("a condition").status, "True", "{condition}");
    }
}

#[tokio::test]
async fn the_chain_of_a_client_has_at_most_32_kib() {
    let (_backends, services) = backends(&["a"]).await;
    let root = authority();
    let objects = front() + &authorities("root", &[&root]) + &services;
    let sesame = Sesame::serving(|ip| {
        let gateway = validating(ip, &by("root"), &[], &[any(8443)]);
        vec![("all.yaml", gateway + &objects)]
    })
    .await;
    let address = sesame.at(8443);
    listening(address).await;
    let mut last = root;
    for number in 1..=90 {
        let name = format!("Authority {number}");
        last = last.intermediate(&name).expect("a CA");
        if [1, 60, 90].contains(&number) {
            let identity = issued(&last);
            let encoded = identity.chain.lines().filter(|line| !line.starts_with('-'));
            let bytes: usize = encoded.map(|line| line.len() * 3 / 4).sum();
            let expected = match bytes > 32 << 10 {
                false => "a",
                true => "no response",
            };
            assert_eq!(expected == "a", number < 90, "{bytes} bytes");
            let found = response(&client().presenting(&identity), address).await;
            assert_eq!(found, expected, "{bytes} bytes");
        }
    }
}

/// Clients also can't forge the header in which proxies forward certificates.
#[tokio::test]
async fn insecure_fallback_asks_for_certificates_and_accepts_all_clients() {
    let (_backends, services) = backends(&["a"]).await;
    let (one, two) = (authority(), authority());
    let objects = front() + &authorities("one", &[&one]) + &services;
    let sesame = Sesame::serving(|ip| {
        let ports = [(9443, &*by("one"))];
        let gateway = validating(ip, &insecurely("one"), &ports, &[any(8443), any(9443)]);
        vec![("all.yaml", gateway + &objects)]
    })
    .await;
    let (insecure, strict) = (sesame.at(8443), sesame.at(9443));
    listening(insecure).await;
    listening(strict).await;
    let alone = Identity::self_signed(&["client.test"]).expect("a certificate");
    let forged = Request::get(HOST, "/").header("x-forwarded-client-cert", "Subject=\"CN=root\"");
    for (connect, valid) in [
        (client().presenting(&issued(&one)), true),
        (client().presenting(&issued(&two)), false),
        (client().presenting(&expired(&one)), false),
        (client().presenting(&alone), false),
        (client(), false),
    ] {
        for connect in [connect.clone(), connect.h2()] {
            let mut connection = opened(&connect, insecure).await;
            assert!(connection.asked(), "{connect:?}");
            let response = connection.send(&forged).await.expect("a response");
            let headers = &response.json()["headers"];
            assert_eq!(headers["x-forwarded-client-cert"], Value::Null, "{headers}");
            let expected = if valid { "a" } else { "no response" };
            assert_eq!(
                self::response(&connect, strict).await,
                expected,
                "{connect:?}"
            );
        }
    }
    let condition = sesame.of_gateway("web", "InsecureFrontendValidationMode");
    let condition = condition.await.expect("a condition");
    assert_eq!(condition.status, "True", "{condition:?}");
    assert_eq!(condition.reason, "ConfigurationChanged", "{condition:?}");
}

#[tokio::test]
async fn without_a_valid_ca_connections_are_refused_and_other_ports_serve() {
    let (_backends, services) = backends(&["a"]).await;
    let (one, two) = (authority(), authority());
    let objects = front() + &authorities("two", &[&two]) + &services;
    let sesame = Sesame::serving(|ip| {
        let listeners = [HTTP.to_owned(), any(8443), any(9443)];
        let gateway = validating(ip, &by("one"), &[(9443, &by("two"))], &listeners);
        vec![("all.yaml", gateway + &objects)]
    })
    .await;
    let address = sesame.at(8443);
    listening(sesame.at(8080)).await;
    listening(sesame.at(9443)).await;
    let (with_one, with_two) = (
        client().presenting(&issued(&one)),
        client().presenting(&issued(&two)),
    );
    let mut others = vec![
        opened(&Connect::plain(), sesame.at(8080)).await,
        opened(&with_two, sesame.at(9443)).await,
    ];
    let empty = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {ca.crt: \"\"}\n";
    for (text, reasons) in [
        (None, ["NoValidCACertificate", "InvalidCACertificateRef"]),
        (
            Some(authorities("one", &[&one])),
            ["Accepted", "ResolvedRefs"],
        ),
        (
            Some(empty.to_owned()),
            ["NoValidCACertificate", "InvalidCACertificateRef"],
        ),
        (
            Some(authorities("one", &[&one])),
            ["Accepted", "ResolvedRefs"],
        ),
    ] {
        if let Some(text) = text {
            sesame.folder().replace("one.yaml", &text);
        }
        let valid = reasons[0] == "Accepted";
        let expected = if valid { "a" } else { "no response" };
        responds(&with_one, address, expected).await;
        for other in [&with_two, &client()] {
            assert_eq!(response(other, address).await, "no response");
        }
        if !valid {
            assert!(
                with_one.open(address).await.is_err(),
                "a handshake succeeds"
            );
        }
        let status = if valid { "True" } else { "False" };
        for (condition, reason) in ["Accepted", "ResolvedRefs"].into_iter().zip(reasons) {
            let get = async || sesame.of_listener("web", "on-8443", condition).await;
            turns(condition, status, reason, get).await;
        }
        for other in &mut others {
            assert_serves(other).await;
        }
    }
    let accepted = sesame.of_listener("web", "on-9443", "Accepted").await;
    assert_eq!(accepted.expect("a condition").status, "True");
}

/// A CA rotation applies to new handshakes, even if a client offers a session, and doesn't close connections.
#[tokio::test]
async fn rotated_cas_apply_to_new_connections_and_keep_open_ones() {
    let (_backends, services) = backends(&["a"]).await;
    let (one, two) = (authority(), authority());
    let sesame = Sesame::serving(|ip| {
        let gateway = validating(ip, &by("ca"), &[], &[any(8443), any(9443)]);
        vec![
            ("all.yaml", gateway + &front() + &services),
            ("ca.yaml", authorities("ca", &[&one])),
        ]
    })
    .await;
    let address = sesame.at(8443);
    listening(address).await;
    let resuming = |authority| {
        let client = client().presenting(&issued(authority)).resuming();
        client.expect("a client")
    };
    let (of_one, of_two) = (resuming(&one), resuming(&two));
    let mut open = vec![opened(&of_one, address).await];
    for (trusted, expected) in [
        (vec![&one, &two], ["a", "a"]),
        (vec![&two, &one], ["a", "a"]),
        (vec![&two], ["no response", "a"]),
        (vec![&one, &two], ["a", "a"]),
        (vec![&one], ["a", "no response"]),
    ] {
        set_trusted(&sesame, &trusted).await;
        for (connect, expected) in [&of_one, &of_two].into_iter().zip(expected) {
            for port in [8443, 9443] {
                responds(connect, sesame.at(port), expected).await;
            }
            if expected == "a" {
                // The session to resume.
                opened(connect, address).await;
                let resumed = opened(connect, address).await;
                assert!(resumed.resumed(), "sessions are not resumed");
                open.push(resumed);
            }
        }
        for connection in &mut open {
            assert_serves(connection).await;
        }
    }
}

/// Clients store sessions by server name, so they may offer a session from another port.
#[tokio::test]
async fn sessions_are_not_resumed_on_other_ports() {
    let (_backends, services) = backends(&["a"]).await;
    let (one, two) = (authority(), authority());
    let objects = front() + &authorities("one", &[&one]) + &authorities("two", &[&two]) + &services;
    let sesame = Sesame::serving(|ip| {
        let listeners = [any(8443), any(9443), any(9444), any(9445)];
        let ports = [
            (9443, &*by("two")),
            (9444, "validation: null"),
            (9445, &*insecurely("one")),
        ];
        let gateway = validating(ip, &by("one"), &ports, &listeners);
        vec![("all.yaml", gateway + &objects)]
    })
    .await;
    for port in [8443, 9443, 9444, 9445] {
        listening(sesame.at(port)).await;
    }
    let resuming = |connect: Connect| connect.resuming().expect("a client");
    for (connect, from, not_on) in [
        (client().presenting(&issued(&one)), 8443, 9443),
        (client().presenting(&issued(&two)), 9443, 8443),
        (client(), 9444, 8443),
        (client(), 9445, 8443),
        (client().presenting(&issued(&two)), 9445, 8443),
    ] {
        for connect in [connect.clone(), connect.h2()].map(resuming) {
            opened(&connect, sesame.at(from)).await;
            let again = opened(&connect, sesame.at(from)).await;
            assert!(again.resumed(), "sessions of {from} are not resumed");
            let found = response(&connect, sesame.at(not_on)).await;
            assert_eq!(found, "no response", "from {from} on {not_on}");
        }
    }
}
