//! XBackends: names, TLS, protocols, and failing closed.

use std::time::{Duration, Instant};

use anyhow::ensure;
use sesame_testkit::backend::Backend;
use sesame_testkit::certs::Clients;
use sesame_testkit::client::{Connect, Request};

use crate::backend_tls::{HOST, authorities, authority, by, secure};
use crate::client_certificates::mutual;
use crate::connections::tls;
use crate::harness::{
    HTTP, Names, Sesame, Summary, at, backend, becomes, certificate, eventually, gateway,
    grpc_route, has_certificate, listening, new_ip, route, tcp_route, tls_route, to,
};

/// An XBackend for a host, with further fields of its spec.
fn xbackend(name: &str, host: &str, port: u16, fields: &str) -> String {
    format!(
        "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackend\nmetadata: {{name: {name}}}\nspec: \
         {{type: ExternalHostname, externalHostname: {{hostname: {host}}}, port: {{number: {port}}}, {fields}}}\n---\n"
    )
}

/// The fields for server validation.
pub(crate) fn server_only(validation: &str) -> String {
    format!("tls: {{mode: ServerOnly, validation: {{{validation}}}}}")
}

/// A rule that refers to XBackends instead of Services.
pub(crate) fn external(rule: &str) -> String {
    rule.replace(
        ", port: 80",
        ", group: gateway.networking.x-k8s.io, kind: XBackend",
    )
}

/// Waits until an XBackend's Accepted has this reason for its first ancestor.
async fn has_reason(sesame: &Sesame, xbackend: &str, expected: &str) {
    eventually(&format!("{xbackend} is {expected}"), async || {
        let status = sesame.status("XBackend", xbackend).await?;
        let found = &status["ancestors"][0]["conditions"][0]["reason"];
        ensure!(found == expected, "{status}");
        Ok(())
    })
    .await;
}

/// Starts Sesame with a plain Gateway, these objects, and the HTTPRoute `a` with these rules for a.example.com.
async fn with_rules(names: &Names, objects: &str, rules: &[String]) -> Sesame {
    let ip = new_ip();
    let all = gateway("web", ip, &[HTTP]) + objects + &route("a", &["web"], &[HOST], rules);
    let sesame = names.serving(ip, &[("all.yaml", all)]).await;
    listening(sesame.at(8080)).await;
    sesame
}

#[tokio::test]
async fn connections_use_the_xbackends_tls() {
    let names = Names::new(&["plain.test", "s.test", "m.test"]).await;
    let (right, wrong, clients) = (authority(), authority(), authority());
    let (plain, _) = backend("plain").await;
    let server = secure("s", &right, &["s.test", "spiffe://test/s"]).await;
    let both = mutual("m", &right, Clients::Required(&clients.pem())).await;
    let client = clients.issue(&["client.test"]).expect("a certificate");
    let [plain_port, port, mutual_port] = [&plain, &server, &both].map(|b| b.address().port());
    let of = |validation: String| server_only(&validation);
    let mutually = |secret: &str| {
        format!(
            "tls: {{mode: ClientAndServer, clientCertificateRef: {{name: {secret}}}, validation: {{{}}}}}",
            by("right", "s.test")
        )
    };
    let uri = format!(
        "{}, subjectAltNames: [{{type: URI, uri: \"spiffe://test/s\"}}]",
        by("right", "elsewhere.test")
    );
    let cases = [
        (
            "plain",
            "plain.test",
            plain_port,
            String::new(),
            "plain",
            "Accepted",
        ),
        (
            "verified",
            "s.test",
            port,
            of(by("right", "s.test")),
            "s",
            "Accepted",
        ),
        ("uri", "s.test", port, of(uri), "s", "Accepted"),
        (
            "other-ca",
            "s.test",
            port,
            of(by("wrong", "s.test")),
            "503",
            "Accepted",
        ),
        (
            "other-name",
            "s.test",
            port,
            of(by("right", "o.test")),
            "503",
            "Accepted",
        ),
        ("no-tls", "s.test", port, String::new(), "502", "Accepted"),
        (
            "mutual",
            "m.test",
            mutual_port,
            mutually("client"),
            "m",
            "Accepted",
        ),
        (
            "no-client",
            "m.test",
            mutual_port,
            of(by("right", "s.test")),
            "503",
            "Accepted",
        ),
        (
            "missing-client",
            "m.test",
            mutual_port,
            mutually("missing"),
            "500",
            "InvalidClientCertificateRef",
        ),
        (
            "missing-ca",
            "s.test",
            port,
            of(by("missing", "s.test")),
            "500",
            "NoValidCACertificate",
        ),
        (
            "unknown-name",
            "unknown.test",
            plain_port,
            String::new(),
            "503",
            "Accepted",
        ),
        (
            "local",
            "localhost",
            plain_port,
            String::new(),
            "500",
            "Invalid",
        ),
        (
            "address",
            "127.0.0.1",
            plain_port,
            String::new(),
            "500",
            "Invalid",
        ),
    ];
    let mut objects = authorities("right", &[&right])
        + &authorities("wrong", &[&wrong])
        + &certificate("client", &client);
    let mut rules = Vec::new();
    for (name, host, port, fields, ..) in &cases {
        objects += &xbackend(name, host, *port, fields);
        rules.push(external(&at(&format!("/{name}"), name)));
    }
    rules.push(external(&format!(
        "matches: [{{path: {{value: /rewritten}}}}], filters: [{{type: URLRewrite, urlRewrite: {{hostname: \
         other.test}}}}], {}",
        to("plain")
    )));
    let sesame = with_rules(&names, &objects, &rules).await;
    for (name, .., expected, reason) in &cases {
        becomes(sesame.at(8080), HOST, &format!("/{name}"), expected).await;
        has_reason(&sesame, name, reason).await;
    }
    for (path, sni) in [("/verified", "s.test"), ("/uri", "elsewhere.test")] {
        let response = sesame.ask_well(&Request::get(HOST, path)).await;
        assert_eq!(response.json()["tls"]["sni"], sni);
        assert_eq!(response.json()["host"], HOST);
    }
    let response = sesame.ask_well(&Request::get(HOST, "/rewritten")).await;
    assert_eq!(response.json()["host"], "other.test");
    let response = sesame.ask_well(&Request::get(HOST, "/mutual")).await;
    assert_eq!(response.json()["tls"]["client"], client.leaf());
    // No search domain was added, and invalid names weren't resolved.
    let valid = ["plain.test", "s.test", "m.test", "unknown.test"];
    for name in names.dns.queried() {
        assert!(valid.contains(&&*name), "{name}");
    }
}

#[tokio::test]
async fn plain_text_never_goes_out_once_tls_is_set() {
    let names = Names::new(&["plain.test"]).await;
    let ca = authority();
    let (plain, _) = backend("plain").await;
    let port = plain.address().port();
    let sesame = with_rules(&names, &authorities("ca", &[&ca]), &[external(&to("x"))]).await;
    let address = sesame.at(8080);
    let set = |fields: &str| {
        let text = xbackend("x", "plain.test", port, fields);
        sesame.folder().replace("x.yaml", &text);
    };
    becomes(address, HOST, "/", "500").await;
    for (authorities, refused) in [("ca", "503"), ("missing", "500")] {
        set("");
        becomes(address, HOST, "/", "plain").await;
        set(&server_only(&by(authorities, "plain.test")));
        becomes(address, HOST, "/", refused).await;
        let before = plain.count();
        for other in [
            by("ca", "other.test"),
            by("missing", "plain.test"),
            by("ca", "plain.test"),
        ] {
            set(&server_only(&other));
            for _ in 0..50 {
                let found = Request::get(HOST, "/").of(address).await;
                assert!(found == "500" || found == "503", "{found}");
            }
        }
        assert_eq!(plain.count(), before);
    }
    sesame.folder().remove("x.yaml");
    becomes(address, HOST, "/", "500").await;
}

#[tokio::test]
async fn new_connections_use_the_latest_answer() {
    let names = Names::new(&["x.test"]).await;
    let first = Backend::start("first", ([127, 0, 0, 2], 0).into()).await;
    let first = first.expect("a backend");
    let port = first.address().port();
    let second = Backend::start("second", ([127, 0, 0, 3], port).into()).await;
    let second = second.expect("a backend");
    names.dns.set("x.test", &[first.address().ip()]);
    let objects = xbackend("x", "x.test", port, "");
    let sesame = with_rules(&names, &objects, &[external(&to("x"))]).await;
    // The backend closes the connection, so Envoy opens another.
    let path = "/?set-header=connection:close";
    becomes(sesame.at(8080), HOST, path, "first").await;
    names.dns.set("x.test", &[second.address().ip()]);
    becomes(sesame.at(8080), HOST, path, "second").await;
    // Of several addresses, one that accepts connections is used.
    let both = [[127, 0, 0, 4].into(), first.address().ip()];
    names.dns.set("x.test", &both);
    becomes(sesame.at(8080), HOST, path, "first").await;
}

/// Otherwise, one XBackend could delay all changes to its fleet.
#[tokio::test]
async fn a_name_without_an_answer_delays_nothing_else() {
    let names = Names::new(&["x.test"]).await;
    names.dns.silence("silent.test");
    let (plain, service) = backend("plain").await;
    let port = plain.address().port();
    let sesame = with_rules(&names, &service, &[at("/plain", "plain")]).await;
    becomes(sesame.at(8080), HOST, "/plain", "plain").await;
    let start = Instant::now();
    let objects = xbackend("silent", "silent.test", port, "")
        + &xbackend("x", "x.test", port, "")
        + &route(
            "b",
            &["web"],
            &["b.example.com"],
            &[external(&at("/silent", "silent")), external(&at("/x", "x"))],
        );
    sesame.folder().replace("b.yaml", &objects);
    becomes(sesame.at(8080), "b.example.com", "/x", "plain").await;
    let silent = Request::get("b.example.com", "/silent")
        .of(sesame.at(8080))
        .await;
    assert_eq!(silent, "503");
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "{:?}",
        start.elapsed()
    );
}

#[tokio::test]
async fn protocols_are_used_as_written() {
    let names = Names::new(&["plain.test", "s.test"]).await;
    let ca = authority();
    let (plain, _) = backend("plain").await;
    let server = secure("s", &ca, &["s.test"]).await;
    let [plain_port, port] = [&plain, &server].map(|backend| backend.address().port());
    let encrypted = server_only(&by("ca", "s.test"));
    let cases = [
        ("none", false, "", "HTTP/1.1"),
        ("h2c", false, "H2C", "HTTP/2"),
        ("grpc", false, "GRPC", "HTTP/2"),
        ("mcp", false, "MCP", "HTTP/1.1"),
        ("http", true, "HTTP", "HTTP/2"),
        ("http11", true, "HTTP11", "HTTP/1.1"),
        ("http2", true, "HTTP2", "HTTP/2"),
        ("wss", true, "WSS", "HTTP/1.1"),
    ];
    let mut objects = authorities("ca", &[&ca]);
    let mut rules = Vec::new();
    for (name, tls, protocol, _) in cases {
        let protocol = match protocol {
            "" => String::new(),
            protocol => format!("protocol: {protocol}, "),
        };
        objects += &match tls {
            true => xbackend(name, "s.test", port, &(protocol + &encrypted)),
            false => xbackend(name, "plain.test", plain_port, &protocol),
        };
        rules.push(external(&at(&format!("/{name}"), name)));
    }
    objects += &grpc_route("g", &["web"], &["grpc.test"], &[external(&to("http"))]);
    let sesame = with_rules(&names, &objects, &rules).await;
    for (name, _, _, version) in cases {
        let path = format!("/{name}");
        eventually(name, async || {
            let response = sesame.send(&Request::get(HOST, &path)).await;
            ensure!(response.status == 200, "{response:?}");
            let found = &response.json()["protocol"];
            ensure!(found == version, "{found}");
            Ok(())
        })
        .await;
    }
    let call =
        Request::get("grpc.test", "/shop.Users/Get").header("content-type", "application/grpc");
    let response = sesame.ask_well(&call).await;
    assert_eq!(response.json()["protocol"], "HTTP/2");
}

#[tokio::test]
async fn connections_are_encrypted_unless_they_already_are() {
    let names = Names::new(&["s.test"]).await;
    let ca = authority();
    let server = secure("s", &ca, &["s.test"]).await;
    let front = ca.issue(&["*.example.com"]).expect("a certificate");
    let listeners = [
        tls("end", "end.example.com", &["front"]),
        tls("pass", "pass.example.com", &[]),
        "name: tcp, protocol: TCP, port: 9000".to_owned(),
    ];
    let rule = external(&to("x"));
    let encrypted = server_only(&by("ca", "s.test"));
    let ip = new_ip();
    let all = gateway("web", ip, &listeners)
        + &certificate("front", &front)
        + &authorities("ca", &[&ca])
        + &xbackend("x", "s.test", server.address().port(), &encrypted)
        + &tls_route("both", &["web"], &["*.example.com"], &[&rule])
        + &tcp_route("tcp", &["web, sectionName: tcp"], &[&rule]);
    let sesame = names.serving(ip, &[("all.yaml", all)]).await;
    listening(sesame.at(9000)).await;
    listening(sesame.at(8443)).await;
    becomes(sesame.at(9000), "any", "/", "s").await;
    for (host, shown, sni) in [
        ("end.example.com", "*.example.com", "s.test"),
        ("pass.example.com", "s.test", "pass.example.com"),
    ] {
        let mut connection = eventually(host, async || {
            Connect::tls(host).open(sesame.at(8443)).await
        })
        .await;
        assert!(has_certificate(&connection, shown), "{host}");
        let response = connection.send(&Request::get(host, "/")).await;
        assert_eq!(response.expect("a response").json()["tls"]["sni"], sni);
    }
    let response = sesame_testkit::client::send(sesame.at(9000), &Request::get("any", "/")).await;
    assert_eq!(response.expect("a response").json()["tls"]["sni"], "s.test");
}
