//! Backends: weights, ReferenceGrants, and protocols.

use std::net::SocketAddr;

use futures::{SinkExt, StreamExt};
use sesame_testkit::backend::Backend;
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;

use crate::harness::{
    Sesame, assert_share, at, backend, backends, becomes, check, grant, namespace, service, shares,
    turns,
};

fn weighted(path: &str, backends: &[(&str, u32)]) -> String {
    let backends: Vec<_> = backends
        .iter()
        .map(|(name, weight)| format!("{{name: {name}, port: 80, weight: {weight}}}"))
        .collect();
    format!(
        "matches: [{{path: {{value: {path}}}}}], backendRefs: [{}]",
        backends.join(", ")
    )
}

#[tokio::test]
async fn weights_split_requests_and_missing_backends_keep_their_share() {
    const ASKED: u32 = 500;
    let (_backends, services) = backends(&["a", "b", "c"]).await;
    let rules = [
        weighted("/70-30-0", &[("a", 70), ("b", 30), ("c", 0)]),
        weighted("/all-zero", &[("a", 0), ("b", 0)]),
        weighted("/missing", &[("a", 3), ("missing", 1)]),
        weighted("/missing-zero", &[("a", 1), ("missing", 0)]),
        weighted("/both-missing", &[("missing", 1), ("gone", 1)]),
        weighted("/large", &[("a", 1_000_000), ("b", 1_000_000)]),
    ];
    let sesame = Sesame::with_rules(&services, &rules).await;
    for (path, expected) in [
        ("/70-30-0", vec![("a", 0.7), ("b", 0.3)]),
        ("/all-zero", vec![("500", 1.0)]),
        ("/missing", vec![("a", 0.75), ("500", 0.25)]),
        ("/missing-zero", vec![("a", 1.0)]),
        ("/both-missing", vec![("500", 1.0)]),
        ("/large", vec![("a", 0.5), ("b", 0.5)]),
    ] {
        let found = shares(sesame.at(8080), &Request::get("a.example.com", path), ASKED).await;
        assert_eq!(found.len(), expected.len(), "{path}: {found:?}");
        for (response, share) in expected {
            let count = found.get(response).copied().unwrap_or_default();
            assert_share(&format!("{path}: {response}"), count, ASKED, share);
        }
    }
}

#[tokio::test]
async fn backends_in_other_namespaces_need_a_grant() {
    let (_backend, text) = backend("a").await;
    let there = text.replace("metadata: {", "metadata: {namespace: other, ");
    let rule =
        "matches: [{path: {value: /there}}], backendRefs: [{name: a, namespace: other, port: 80}]";
    let (_here, here) = backend("here").await;
    let objects = namespace("other") + &there + &here;
    let sesame = Sesame::with_rules(&objects, &[rule, &at("/here", "here")]).await;
    let cases = |there| {
        [
            ("a.example.com", "/there", there),
            ("a.example.com", "/here", "here"),
        ]
    };
    check(sesame.at(8080), &cases("500")).await;
    sesame
        .assert_route("a", "ResolvedRefs", ("False", "RefNotPermitted"))
        .await;

    sesame.folder().write("grant.yaml", &grant("other"));
    becomes(sesame.at(8080), "a.example.com", "/there", "a").await;
    check(sesame.at(8080), &cases("a")).await;
    turns("the reference", "True", "ResolvedRefs", async || {
        sesame.of_route("a", "ResolvedRefs").await
    })
    .await;

    sesame.folder().remove("grant.yaml");
    becomes(sesame.at(8080), "a.example.com", "/there", "500").await;
    check(sesame.at(8080), &cases("500")).await;
}

#[tokio::test]
async fn the_services_app_protocol_is_used() {
    let (_backends, services) = backends(&["plain", "h2c", "ws"]).await;
    let identity = Identity::self_signed(&["backend.example.com"]).expect("a certificate");
    let any = ([127, 0, 0, 1], 0).into();
    let config = identity.server_config().expect("a server config");
    let tls = Backend::start_tls("tls", any, config)
        .await
        .expect("a backend");
    let speaks = |text: &str, name: &str, protocol: &str| {
        let plain = format!("metadata: {{name: {name}}}\nspec: {{ports: [{{port: 80}}]}}");
        assert!(text.contains(&plain), "{text}");
        let full = plain.replace("port: 80", &format!("port: 80, appProtocol: {protocol}"));
        text.replace(&plain, &full)
    };
    let services = speaks(&services, "h2c", "kubernetes.io/h2c");
    let services = speaks(&services, "ws", "kubernetes.io/ws");
    let encrypted = speaks(&service("tls", &[tls.address()]), "tls", "https");
    let rules = [
        at("/plain", "plain"),
        at("/h2c", "h2c"),
        at("/tls", "tls"),
        at("/ws", "ws"),
        at("/", "ws"),
    ];
    let sesame = Sesame::with_rules(&(services + &encrypted), &rules).await;
    let address = sesame.at(8080);
    // The client's protocol doesn't matter.
    for connect in [Connect::plain(), Connect::plain().h2()] {
        for (path, protocol) in [("/plain", "HTTP/1.1"), ("/h2c", "HTTP/2")] {
            let response = connect
                .send(address, &Request::get("a.example.com", path))
                .await
                .expect("a response");
            assert_eq!(
                response.json()["protocol"],
                protocol,
                "{path} by {connect:?}"
            );
        }
        let response = connect
            .send(address, &Request::get("a.example.com", "/tls"))
            .await
            .expect("a response");
        assert_eq!(
            (response.status.as_u16(), response.backend().as_str()),
            (200, "tls")
        );
        assert_eq!(
            response.json()["tls"]["sni"],
            "a.example.com",
            "{}",
            response.json()
        );
    }
    websocket(sesame.at(8080), "a.example.com").await;
}

/// Checks that the backend echoes messages over a WebSocket.
pub(crate) async fn websocket(address: SocketAddr, host: &str) {
    let stream = TcpStream::connect(address).await.expect("a connection");
    let opened = tokio_tungstenite::client_async(format!("ws://{host}/ws"), stream).await;
    let (mut socket, response) = opened.expect("a handshake");
    assert_eq!(response.status(), 101);
    for message in [Message::text("words"), Message::binary(vec![0, 1, 255])] {
        socket.send(message.clone()).await.expect("an open socket");
        let back = socket.next().await.expect("an echo").expect("a valid echo");
        assert_eq!(back, message);
    }
    socket.close(None).await.expect("a close");
}
