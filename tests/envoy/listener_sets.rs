//! ListenerSets and XListenerSets: more listeners for a Gateway.

use std::net::IpAddr;

use anyhow::{Context as _, ensure};
use sesame_testkit::certs::Identity;
use sesame_testkit::client::{Connect, Request};

use crate::harness::{
    HTTP, Https, Sesame, Summary, at, backends, becomes, certificate, check, eventually, gateway,
    has_certificate, https, listening, route,
};

/// The `apiVersion` of XListenerSets.
const EARLY: &str = "gateway.networking.x-k8s.io/v1alpha1";

/// A ListenerSet for the Gateway `web`. Each listener is given as its fields.
pub(crate) fn listener_set(name: &str, listeners: &[&str]) -> String {
    let listeners = listeners.iter().map(|fields| format!("  - {{{fields}}}\n"));
    format!(
        "apiVersion: gateway.networking.k8s.io/v1\nkind: ListenerSet\nmetadata: {{name: {name}}}\nspec:\n  parentRef: \
         {{name: web}}\n  listeners:\n{}---\n",
        String::from_iter(listeners)
    )
}

/// The Gateway `web`, which allows ListenerSets.
pub(crate) fn open_gateway(ip: IpAddr) -> String {
    let spec = "spec:\n  allowedListeners: {namespaces: {from: Same}}\n";
    gateway("web", ip, &[HTTP]).replacen("spec:\n", spec, 1)
}

#[tokio::test]
async fn routes_of_a_set_are_served_only_on_its_listeners() {
    let (_backends, services) = backends(&["own", "set"]).await;
    let set = listener_set(
        "set",
        &[
            "name: http, protocol: HTTP, port: 8080, hostname: set.example.com",
            "name: more, protocol: HTTP, port: 8081",
        ],
    );
    let routes = route("own", &["web"], &[], &[at("/", "own")])
        + &route(
            "set",
            &["set, kind: ListenerSet"],
            &[],
            &[at("/set", "set")],
        );
    let sesame =
        Sesame::serving(|ip| vec![("all.yaml", open_gateway(ip) + &set + &routes + &services)])
            .await;
    becomes(sesame.at(8081), "any.example.com", "/set", "set").await;
    check(
        sesame.at(8080),
        &[
            ("any.example.com", "/set", "own"),
            ("set.example.com", "/set", "set"),
            ("set.example.com", "/", "404"),
        ],
    )
    .await;
    check(sesame.at(8081), &[("any.example.com", "/", "404")]).await;
}

#[tokio::test]
async fn assigned_ports_serve_and_are_kept() {
    let names = ["a", "b"];
    let (_backends, services) = backends(&names).await;
    let objects = |name: &str| {
        let set = listener_set(name, &["name: http, protocol: HTTP"])
            .replace("gateway.networking.k8s.io/v1", EARLY)
            .replace("kind: ", "kind: X");
        let parent = format!("{name}, group: gateway.networking.x-k8s.io, kind: XListenerSet");
        set + &route(name, &[&parent], &[], &[at("/", name)])
    };
    let sesame = Sesame::serving(|ip| {
        vec![
            ("all.yaml", open_gateway(ip) + &services),
            ("a.yaml", objects("a")),
            ("b.yaml", objects("b")),
        ]
    })
    .await;
    let port = async |name: &str| {
        let what = format!("{name} has a port");
        let port = eventually(&what, async || {
            let status = sesame.status("XListenerSet", name).await?;
            let port = status["listeners"][0]["port"].as_u64();
            port.with_context(|| format!("no port: {status}"))
        });
        u16::try_from(port.await).expect("a port")
    };
    let (of_a, of_b) = (port("a").await, port("b").await);
    assert_ne!(of_a, of_b);
    becomes(sesame.at(of_a), "any.example.com", "/", "a").await;
    becomes(sesame.at(of_b), "any.example.com", "/", "b").await;
    sesame.folder().remove("a.yaml");
    becomes(sesame.at(of_a), "any.example.com", "/", "no response").await;
    assert_eq!(port("b").await, of_b);
    check(sesame.at(of_b), &[("any.example.com", "/", "b")]).await;
}

#[tokio::test]
async fn adding_or_removing_a_set_keeps_connections_of_other_sets_open() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let objects = |name: &str| {
        let host = format!("{name}.example.com");
        let identity = Identity::self_signed(&[&host]).expect("a certificate");
        let listener = https(Https {
            name: "https",
            port: 8443,
            hostname: &host,
            certificates: &[name],
        });
        let parent = format!("{name}, kind: ListenerSet");
        listener_set(name, &[&listener])
            + &certificate(name, &identity)
            + &route(name, &[&parent], &[], &[at("/", name)])
    };
    let sesame = Sesame::serving(|ip| {
        vec![
            ("all.yaml", open_gateway(ip) + &services),
            ("a.yaml", objects("a")),
        ]
    })
    .await;
    let address = sesame.at(8443);
    listening(address).await;
    let response = async |name: &str| {
        let host = format!("{name}.example.com");
        (&Connect::tls(&host), &Request::get(&host, "/"))
            .of(address)
            .await
    };
    let becomes = async |name: &str, expected: &str| {
        eventually(expected, async || {
            ensure!(response(name).await == expected);
            Ok(())
        })
        .await;
    };
    becomes("a", "a").await;
    let mut kept = Connect::tls("a.example.com")
        .open(address)
        .await
        .expect("a handshake");
    assert!(has_certificate(&kept, "a.example.com"));
    let request = Request::get("a.example.com", "/");
    sesame.folder().write("b.yaml", &objects("b"));
    becomes("b", "b").await;
    assert_eq!(kept.send(&request).await.expect("a response").status, 200);
    // This host belongs to another listener.
    let misdirected = kept.send(&Request::get("b.example.com", "/")).await;
    assert_eq!(misdirected.expect("a response").status, 421);
    sesame.folder().remove("b.yaml");
    becomes("b", "no response").await;
    assert_eq!(kept.send(&request).await.expect("a response").status, 200);
}
