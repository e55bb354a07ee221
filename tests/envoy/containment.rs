//! Hosts, backends, listeners and certificates that Envoy rejects although Sesame accepts them don't affect others.

use std::fmt::Write as _;

use anyhow::ensure;
use nix::sys::signal::Signal;
use serde_json::json;
use sesame_testkit::certs::Identity;

use crate::backend_tls::policy;
use crate::connections::{over_tls, tls, tls_backends};
use crate::harness::{
    Folder, HTTP, Https, Sesame, Wrapper, backends, becomes, certificate, check, ended, eventually,
    gateway, https, new_ip, on, route, send_signal, tls_route, to, turns,
};

/// An expression whose program has more instructions than [`strict`] permits.
const LONG: &str = "/(?:[a-c]d){200}";

/// An Envoy with a lower limit on regular expressions than Sesame's.
fn strict() -> Wrapper {
    Wrapper::new(&json!({"layered_runtime": {"layers": [
        {"name": "strict", "static_layer": {"re2.max_program_size.error_level": 300}},
    ]}}))
}

/// A route for the host `NAME.test` that Envoy accepts.
fn good(name: &str) -> String {
    route(
        name,
        &["web"],
        &[format!("{name}.test").as_str()],
        &[to("a")],
    )
}

/// A route for the host `NAME.test` that Envoy rejects.
fn bad(name: &str) -> String {
    let matches =
        format!("{{path: {{type: RegularExpression, value: \"{LONG}\"}}}}, {{path: {{value: /}}}}");
    route(
        name,
        &["web"],
        &[format!("{name}.test").as_str()],
        &[on(&matches, "a")],
    )
}

/// Waits until the status of an HTTPRoute has a rejection, or none.
async fn is_reported(sesame: &Sesame, name: &str, reported: bool) {
    eventually("the status reports the rejection", async || {
        let found = sesame.of_route(name, "PartiallyInvalid").await;
        let Ok(condition) = found else {
            ensure!(!reported, "no condition");
            return Ok(());
        };
        ensure!(reported, "{condition:?}");
        ensure!(condition.reason == "RejectedByEnvoy", "{condition:?}");
        let host = format!("{name}.test");
        let message = &condition.message;
        ensure!(
            message.contains(&host) && message.contains("RE2"),
            "{message}"
        );
        Ok(())
    })
    .await;
}

#[tokio::test]
async fn a_rejected_host_is_held_until_it_changes() {
    let (_backends, services) = backends(&["a"]).await;
    let (envoy, ip) = (strict(), new_ip());
    let common = gateway("web", ip, &[HTTP]) + &services;
    let folder = Folder::new(&[("all.yaml", common.clone() + &good("one"))]);
    let sesame = Sesame::start(ip, folder, &["--envoy", &envoy.path()]).await;
    let at = sesame.at(8080);
    let change = |routes: String| {
        sesame
            .folder()
            .replace("all.yaml", &(common.clone() + &routes))
    };
    becomes(at, "one.test", "/", "a").await;

    change(good("one") + &bad("two") + &good("three"));
    becomes(at, "three.test", "/", "a").await;
    becomes(at, "two.test", "/", "503").await;
    is_reported(&sesame, "two", true).await;
    is_reported(&sesame, "three", false).await;
    let programmed = sesame.of_listener("web", "http", "Programmed").await;
    assert_eq!(programmed.expect("a condition").status, "True");

    // Changes to other hosts take effect.
    change(bad("two") + &good("four"));
    becomes(at, "four.test", "/", "a").await;
    becomes(at, "one.test", "/", "404").await;

    change(good("two") + &good("four"));
    becomes(at, "two.test", "/", "a").await;
    is_reported(&sesame, "two", false).await;

    // The last accepted version stays in effect.
    change(bad("two") + &good("five"));
    becomes(at, "five.test", "/", "a").await;
    is_reported(&sesame, "two", true).await;
    check(at, &[("two.test", "/", "a"), ("four.test", "/", "404")]).await;
}

#[tokio::test]
async fn rejected_hosts_are_found_among_many_new_ones() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let (envoy, ip) = (strict(), new_ip());
    let wider = route("wider", &["web"], &["*.test"], &[to("b")]);
    let mut objects = gateway("web", ip, &[HTTP]) + &services + &wider;
    let name = |number: usize| format!("host-{number}");
    for number in 0..60 {
        let one = if number % 25 == 7 { bad } else { good };
        let _ = write!(objects, "{}", one(&name(number)));
    }
    let folder = Folder::new(&[("all.yaml", objects)]);
    let sesame = Sesame::start(ip, folder, &["--envoy", &envoy.path()]).await;
    sesame.programmed().await;
    let at = sesame.at(8080);
    let are_served = async || {
        for number in 0..60 {
            let expected = if number % 25 == 7 { "503" } else { "a" };
            becomes(at, &format!("{}.test", name(number)), "/", expected).await;
        }
        becomes(at, "other.test", "/", "b").await;
    };
    are_served().await;
    for number in [7, 32, 57] {
        is_reported(&sesame, &name(number), true).await;
    }
    replace(&sesame).await;
    are_served().await;
}

/// Kills the Envoy, whose successor then gets everything anew.
async fn replace(sesame: &Sesame) {
    let envoys: Vec<u32> = sesame.envoys().into_iter().map(|(pid, _)| pid).collect();
    for envoy in &envoys {
        send_signal(*envoy, Signal::SIGKILL);
    }
    ended(&envoys).await;
}

#[tokio::test]
async fn a_rejected_backend_does_not_affect_others() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let envoy = Wrapper::without("envoy.transport_sockets.upstream/envoy.transport_sockets.tls");
    let ip = new_ip();
    let over_tls = policy("b", "wellKnownCACertificates: System, hostname: b.test");
    let to_b = route("b", &["web"], &["b.test"], &[to("b")]);
    let common = gateway("web", ip, &[HTTP]) + &services + &to_b;
    let folder = Folder::new(&[("all.yaml", common.clone() + &over_tls + &good("one"))]);
    let sesame = Sesame::start(ip, folder, &["--envoy", &envoy.path()]).await;
    let at = sesame.at(8080);
    let change = |objects: &str| {
        sesame
            .folder()
            .replace("all.yaml", &(common.clone() + objects))
    };
    becomes(at, "one.test", "/", "a").await;
    becomes(at, "b.test", "/", "503").await;
    let resolved = async || sesame.of_route("b", "ResolvedRefs").await;
    let message = turns("the route", "False", "RejectedByEnvoy", resolved).await;
    assert!(message.contains("envoy.transport_sockets.tls"), "{message}");
    sesame
        .assert_route("one", "ResolvedRefs", ("True", "ResolvedRefs"))
        .await;

    change(&(over_tls.clone() + &good("two")));
    becomes(at, "two.test", "/", "a").await;
    replace(&sesame).await;
    becomes(at, "two.test", "/", "a").await;
    check(at, &[("one.test", "/", "404"), ("b.test", "/", "503")]).await;

    change(&good("two"));
    becomes(at, "b.test", "/", "b").await;
    turns("the route", "True", "ResolvedRefs", resolved).await;
}

/// An HTTPS listener for the host `end.test`.
fn terminating() -> String {
    https(Https {
        name: "end",
        port: 8443,
        hostname: "end.test",
        certificates: &["cert"],
    })
}

/// The objects of [`terminating`]: a certificate, and a route to the backend `a`.
fn terminated() -> String {
    let identity = Identity::self_signed(&["end.test"]).expect("a certificate");
    certificate("cert", &identity) + &route("end", &["web"], &["end.test"], &[to("a")])
}

#[tokio::test]
async fn a_rejected_listener_does_not_affect_others_of_its_port() {
    let (_plain, services) = backends(&["a"]).await;
    let (_secure, secure_services) = tls_backends(&["b"]).await;
    let envoy = Wrapper::without("envoy.transport_sockets.downstream/envoy.transport_sockets.tls");
    let ip = new_ip();
    let common = terminated()
        + &services
        + &secure_services
        + &tls_route("b", &["web"], &["*.test"], &[to("b")]);
    let passthrough = |name: &str| tls(name, &format!("{name}.test"), &[]);
    let objects = |listeners: &[String]| gateway("web", ip, listeners) + &common;
    let folder = Folder::new(&[("all.yaml", objects(&[passthrough("one")]))]);
    let sesame = Sesame::start(ip, folder, &["--envoy", &envoy.path()]).await;
    let at = sesame.at(8443);
    let change = |listeners: &[String]| sesame.folder().replace("all.yaml", &objects(listeners));
    let reaches = async |name: &str, expected: &str| {
        eventually(&format!("{name} becomes {expected}"), async || {
            let found = over_tls(at, name).await;
            ensure!(found == expected, "got {found}");
            Ok(())
        })
        .await;
    };
    reaches("one.test", "b").await;

    change(&[passthrough("one"), terminating()]);
    let programmed = async || sesame.of_listener("web", "end", "Programmed").await;
    let message = turns("the listener", "False", "Invalid", programmed).await;
    assert!(message.contains("envoy.transport_sockets.tls"), "{message}");
    change(&[passthrough("two"), terminating()]);
    reaches("two.test", "b").await;
    reaches("one.test", "no response").await;
    replace(&sesame).await;
    reaches("two.test", "b").await;
    reaches("end.test", "no response").await;
    let other = sesame.of_listener("web", "two", "Programmed").await;
    assert_eq!(other.expect("a condition").status, "True");

    change(&[passthrough("end")]);
    reaches("end.test", "b").await;
    turns("the listener", "True", "Programmed", programmed).await;
}

#[tokio::test]
async fn rejected_certificates_are_reported_and_do_not_affect_other_ports() {
    let (_backends, services) = backends(&["a"]).await;
    let envoy = Wrapper::without("envoy.tls.cert_validator/envoy.tls.cert_validator.default");
    let ip = new_ip();
    let names = ["one", "two", "three"];
    let identity = Identity::self_signed(&["*.test"]).expect("a certificate");
    let listener = |name: &str| {
        https(Https {
            name,
            port: 8443,
            hostname: &format!("{name}.secure.test"),
            certificates: &[name],
        })
    };
    let mut listeners = vec![HTTP.to_owned()];
    listeners.extend(names.map(listener));
    let certificates = names.map(|name| certificate(name, &identity)).concat();
    let common = gateway("web", ip, &listeners) + &certificates + &services;
    let routes = good("four") + &route("secure", &["web"], &["*.secure.test"], &[to("a")]);
    let folder = Folder::new(&[("all.yaml", common.clone() + &routes)]);
    let sesame = Sesame::start(ip, folder, &["--envoy", &envoy.path()]).await;
    let at = sesame.at(8080);
    becomes(at, "four.test", "/", "a").await;
    for name in names {
        let programmed = async || sesame.of_listener("web", name, "Programmed").await;
        let message = turns(name, "False", "Invalid", programmed).await;
        let secret = format!("Secret default/{name} (");
        assert!(message.contains(&secret), "{message}");
    }
    let closed = over_tls(sesame.at(8443), "one.secure.test").await;
    assert_eq!(closed, "no response");

    sesame
        .folder()
        .replace("all.yaml", &(common + &good("five")));
    becomes(at, "five.test", "/", "a").await;
    replace(&sesame).await;
    becomes(at, "five.test", "/", "a").await;
}
