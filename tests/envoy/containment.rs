//! Hosts that Envoy rejects although Sesame accepts them don't affect other hosts.

use std::fmt::Write as _;

use anyhow::ensure;
use serde_json::json;

use crate::harness::{
    Folder, HTTP, Sesame, Wrapper, backends, becomes, check, eventually, gateway, new_ip, on,
    route, to,
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
    let (_backends, services) = backends(&["a"]).await;
    let (envoy, ip) = (strict(), new_ip());
    let mut objects = gateway("web", ip, &[HTTP]) + &services;
    let name = |number: usize| format!("host-{number}");
    for number in 0..60 {
        let one = if number % 25 == 7 { bad } else { good };
        let _ = write!(objects, "{}", one(&name(number)));
    }
    let folder = Folder::new(&[("all.yaml", objects)]);
    let sesame = Sesame::start(ip, folder, &["--envoy", &envoy.path()]).await;
    sesame.programmed().await;
    for number in 0..60 {
        let expected = if number % 25 == 7 { "503" } else { "a" };
        becomes(
            sesame.at(8080),
            &format!("{}.test", name(number)),
            "/",
            expected,
        )
        .await;
    }
    for number in [7, 32, 57] {
        is_reported(&sesame, &name(number), true).await;
    }
}
