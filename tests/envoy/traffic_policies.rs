//! XBackendTrafficPolicies: retry limits, and session persistence for Services.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::join_all;
use sesame_testkit::backend::Backend;
use sesame_testkit::client::Request;
use tokio::time::sleep;

use crate::harness::{
    HTTP, Sesame, Summary, assert_share, at, backend, backends, listening, route, service, shares,
};

/// Number of concurrent requests in a storm.
const STORM: u64 = 40;

/// A policy for the Service `a` with these further fields.
fn policy(fields: &str) -> String {
    format!(
        "apiVersion: gateway.networking.x-k8s.io/v1alpha1\nkind: XBackendTrafficPolicy\nmetadata: {{name: p}}\n\
         spec: {{targetRefs: [{{group: \"\", kind: Service, name: a}}], {fields}}}\n---\n"
    )
}

/// Sends requests that fail, with up to three retries each, and returns the number of retries.
async fn storm(sesame: &Sesame, backend: &Backend, status: &str) -> u64 {
    let before = backend.count();
    let path = format!("/status/{status}?delay=400ms");
    let requests = (0..STORM).map(async |_| {
        let request = Request::get("a.example.com", &path);
        assert_eq!(request.of(sesame.at(8080)).await, status);
    });
    join_all(requests).await;
    backend.count() - before - STORM
}

#[tokio::test]
async fn retries_in_progress_are_limited() {
    let (backends, services) = backends(&["a"]).await;
    let rule = "retry: {codes: [500, 503], attempts: 3}, backendRefs: [{name: a, port: 80}]";
    let sesame = Sesame::with_rules(&services, &[rule]).await;
    let backend = &backends[0];
    assert_eq!(storm(&sesame, backend, "503").await, 3 * STORM);

    // The policy changes only the cluster and doesn't interrupt requests.
    let slow = Request::get("a.example.com", "/?delay=3s");
    let changed = async {
        sleep(Duration::from_millis(500)).await;
        let from = sesame.events();
        let limit = "retryConstraint: {budget: {percent: 10}, minRetryRate: {count: 2}}";
        sesame.folder().write("policy.yaml", &policy(limit));
        let change = sesame.event("a change", from, |event| event["type"] == "change");
        let change = change.await;
        let served = sesame.event("an ACK", from, |event| {
            event["type"] == "served" && event["revision"] == change["revision"]
        });
        served.await;
    };
    let (response, ()) = tokio::join!(slow.of(sesame.at(8080)), changed);
    assert_eq!(response, "a");
    let status = sesame.status("XBackendTrafficPolicy", "p").await;
    let accepted = &status.expect("a status")["ancestors"][0]["conditions"][0];
    assert_eq!(
        accepted["message"],
        "concurrent retries are limited to 10% of concurrent requests, but at least 2 are allowed"
    );

    // When all requests fail together, a tenth of them may be retried, then a tenth of those still in flight. Beyond
    // the limit, the client gets the backend's last response.
    for status in ["503", "500"] {
        let retries = storm(&sesame, backend, status).await;
        assert!((1..=STORM / 2).contains(&retries), "{retries} retries");
    }
    // A single request is below the minimum.
    let path = "/flaky?key=one&failures=3&code=500";
    let single = Request::get("a.example.com", path);
    assert_eq!(single.of(sesame.at(8080)).await, "a");
}

#[tokio::test]
async fn sessions_of_a_service_are_persistent_except_in_rules_with_their_own() {
    let (three, _) = backends(&["one", "two", "three"]).await;
    let addresses: Vec<_> = three.iter().map(|backend| backend.address()).collect();
    let (other, _) = backend("other").await;
    let objects = [
        service("a", &addresses),
        service("b", &[other.address()]),
        policy("sessionPersistence: {cookie: {}}"),
        route(
            "r",
            &["web"],
            &["a.example.com"],
            &[
                &at("/policy", "a"),
                &format!(
                    "sessionPersistence: {{cookie: {{name: own}}}}, {}",
                    at("/own", "a")
                ),
                "matches: [{path: {value: /split}}], backendRefs: [{name: a, port: 80}, {name: b, port: 80}]",
            ],
        ),
    ];
    let sesame = Sesame::with_gateway(&[HTTP], &objects.concat()).await;
    listening(sesame.at(8080)).await;
    let mut homes = BTreeSet::new();
    for (path, cookie) in [
        ("/policy", "sesame-session.default.a.80="),
        ("/own", "own="),
    ] {
        for _ in 0..6 {
            let first = sesame.ask_well(&Request::get("a.example.com", path)).await;
            let set: Vec<_> = first.headers.get_all("set-cookie").iter().collect();
            assert_eq!(set.len(), 1, "{set:?}");
            assert!(first.header("set-cookie").starts_with(cookie), "{set:?}");
            let found = returning(&sesame, path, first.header("set-cookie")).await;
            assert_eq!(found.keys().collect::<Vec<_>>(), [&first.backend()]);
            homes.insert(first.backend());
        }
    }
    assert!(homes.len() > 1, "{homes:?}");

    // The session doesn't affect the choice between weighted backends. The backend without a policy sets no cookie.
    let split = async || {
        let request = Request::get("a.example.com", "/split");
        sesame.ask_well(&request).await
    };
    let first = loop {
        let response = split().await;
        let from_other = response.backend() == "other";
        assert_eq!(from_other, response.header("set-cookie").is_empty());
        if !from_other {
            break response;
        }
    };
    let found = returning(&sesame, "/split", first.header("set-cookie")).await;
    let expected = BTreeSet::from([first.backend(), "other".to_owned()]);
    assert_eq!(found.keys().cloned().collect::<BTreeSet<_>>(), expected);
    assert_share("other", found["other"], RETURNS, 0.5);
}

/// Number of requests from a returning client.
const RETURNS: u32 = 100;

/// Sends several requests with a response's cookie, and counts the responses from each backend.
pub(crate) async fn returning(
    sesame: &Sesame,
    path: &str,
    set_cookie: &str,
) -> BTreeMap<String, u32> {
    let (cookie, _) = set_cookie
        .split_once(';')
        .expect("a cookie with attributes");
    let request = Request::get("a.example.com", path).header("cookie", cookie);
    shares(sesame.at(8080), &request, RETURNS).await
}
