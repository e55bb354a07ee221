//! RequestMirror: targets, shares, and contents of the copies.

use std::collections::BTreeMap;
use std::time::Duration;

use sesame_testkit::backend::{Backend, Received};
use sesame_testkit::client::Request;

use crate::harness::{Sesame, assert_share, backend, backends, eventually, shares, to};

fn mirror(to: &str, share: &str) -> String {
    format!(
        "{{type: RequestMirror, requestMirror: {{backendRef: {{name: {to}, port: 80}}{share}}}}}"
    )
}

async fn copy(backend: &Backend, path: &str) -> Received {
    let arrived = |requests: &[Received]| requests.iter().any(|request| request.path == path);
    let requests = backend.wait_for(Duration::from_secs(20), arrived).await;
    let requests = requests.unwrap_or_else(|all| panic!("{} got no copy: {all:?}", backend.name()));
    let found = requests.into_iter().find(|request| request.path == path);
    found.expect("found above")
}

#[tokio::test]
async fn all_mirrors_get_the_same_request_as_the_backend() {
    let (backends, services) = backends(&["a", "one", "two"]).await;
    let modifier = "{type: RequestHeaderModifier, requestHeaderModifier: {set: [{name: x-set, value: new}], remove: [x-gone]}}";
    let rule = format!(
        "filters: [{}, {modifier}, {}], {}",
        mirror("one", ""),
        mirror("two", ""),
        to("a")
    );
    let sesame = Sesame::with_rules(&services, &[&rule]).await;
    let request = Request::get("a.example.com", "/copied?q=1")
        .method("POST")
        .body("what it says")
        .header("x-gone", "1");
    let response = sesame.send(&request).await;
    assert_eq!(
        (response.status.as_u16(), response.backend().as_str()),
        (200, "a")
    );
    for backend in &backends {
        let copy = copy(backend, "/copied?q=1").await;
        let seen = (copy.method.as_str(), copy.host.as_str(), copy.body.as_str());
        assert_eq!(
            seen,
            ("POST", "a.example.com", "what it says"),
            "{}",
            backend.name()
        );
        assert_eq!(copy.header("x-set"), Some("new"), "{}", backend.name());
        assert_eq!(copy.header("x-gone"), None, "{}", backend.name());
    }
}

/// The client waits only for the response to its own request.
#[tokio::test]
async fn a_failing_or_missing_mirror_does_not_affect_the_client() {
    let (_backends, services) = backends(&["a", "slow"]).await;
    let (gone, gone_text) = backend("gone").await;
    gone.stop().await;
    let rule = format!(
        "filters: [{}, {}, {}], {}",
        mirror("gone", ""),
        mirror("missing", ""),
        mirror("slow", ""),
        to("a")
    );
    let sesame = Sesame::with_rules(&(services + &gone_text), &[&rule]).await;
    let responses = shares(sesame.at(8080), &Request::get("a.example.com", "/"), 20).await;
    assert_eq!(responses, BTreeMap::from([("a".to_owned(), 20)]));
    sesame
        .assert_route("a", "ResolvedRefs", ("False", "BackendNotFound"))
        .await;
}

#[tokio::test]
async fn a_share_of_requests_is_mirrored() {
    const ASKED: u32 = 500;
    let cases = [
        ("none", ", percent: 0", 0.0),
        ("percent", ", percent: 20", 0.2),
        (
            "fraction",
            ", fraction: {numerator: 25, denominator: 50}",
            0.5,
        ),
        (
            "thousandths",
            ", fraction: {numerator: 350, denominator: 1000}",
            0.35,
        ),
        ("all", ", percent: 100", 1.0),
    ];
    let (_backend, mut services) = backend("a").await;
    let mut mirrors = Vec::new();
    for (name, ..) in cases {
        let (backend, text) = backend(name).await;
        mirrors.push(backend);
        services += &text;
    }
    let filters: Vec<_> = cases
        .iter()
        .map(|(name, share, _)| mirror(name, share))
        .collect();
    let rule = format!("filters: [{}], {}", filters.join(", "), to("a"));
    let sesame = Sesame::with_rules(&services, &[&rule]).await;
    let responses = shares(sesame.at(8080), &Request::get("a.example.com", "/"), ASKED).await;
    assert_eq!(responses, BTreeMap::from([("a".to_owned(), ASKED)]));
    // Copies may arrive after the responses. `all` gets a known number of copies, so wait for all of these.
    eventually("all copies arrive", async || {
        let count = mirrors[4].count();
        anyhow::ensure!(count == u64::from(ASKED), "{count} of {ASKED}");
        Ok(())
    })
    .await;
    for ((name, _, share), mirror) in cases.iter().zip(&mirrors).take(4) {
        let count = u32::try_from(mirror.count()).expect("a small number");
        assert_share(name, count, ASKED, *share);
    }
}
