//! Timeouts and retries, separately and together.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use futures::future::join_all;
use sesame_testkit::backend::Backend;
use sesame_testkit::client::{Request, send};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::harness::{
    HTTP, Sesame, Summary, backends, check, check_requests, listening, route, service, shares,
};

/// A route per hostname, each with one rule. The path determines what the backend does.
fn routes(rules: &[(&str, &str)]) -> String {
    rules
        .iter()
        .map(|(name, rest)| {
            let host = format!("{name}.example.com");
            let rule = format!("{rest}, backendRefs: [{{name: a, port: 80}}]");
            route(name, &["web"], &[&host], &[&rule])
        })
        .collect()
}

async fn serving(services: &str, rules: &[(&str, &str)]) -> Sesame {
    let sesame = Sesame::with_gateway(&[HTTP], &(services.to_owned() + &routes(rules))).await;
    listening(sesame.at(8080)).await;
    sesame
}

/// Starts Sesame with these rules, and the backend of all its routes.
async fn with_backend(rules: &[(&str, &str)]) -> (Vec<Backend>, Sesame) {
    let (backends, services) = backends(&["a"]).await;
    let sesame = serving(&services, rules).await;
    (backends, sesame)
}

#[tokio::test]
async fn timeouts_return_504_and_there_is_no_default_timeout() {
    let (_backends, sesame) = with_backend(&[
        ("request", "timeouts: {request: 2s}"),
        ("backend", "timeouts: {backendRequest: 2s}"),
        ("both", "timeouts: {request: 30s, backendRequest: 2s}"),
        ("split", "timeouts: {request: 0s600ms700ms700ms}"),
        ("zero", "timeouts: {request: 0s, backendRequest: 0s}"),
        (
            "zero-request",
            "timeouts: {request: 0s, backendRequest: 2s}",
        ),
        ("unset", "timeouts: {}"),
    ])
    .await;
    let address = sesame.at(8080);
    let limited = ["request", "backend", "both", "split", "zero-request"].map(async |host| {
        let host = format!("{host}.example.com");
        let start = Instant::now();
        check(address, &[(&host, "/?delay=20s", "504")]).await;
        assert!(
            start.elapsed() < Duration::from_secs(15),
            "{host}: waited for the response"
        );
        check(address, &[(&host, "/", "a")]).await;
    });
    join_all(limited).await;
    check(
        address,
        &[
            ("zero.example.com", "/?delay=1s", "a"),
            ("unset.example.com", "/?delay=1s", "a"),
        ],
    )
    .await;
}

/// A request with a key for which the backend fails the first `failures` times.
fn flaky(host: &str, key: &str, failures: u32, code: &str) -> Request {
    Request::get(
        &format!("{host}.example.com"),
        &format!("/flaky?key={host}-{key}&failures={failures}&code={code}"),
    )
}

#[tokio::test]
async fn listed_codes_are_retried_up_to_the_limit() {
    let (_backends, sesame) = with_backend(&[
        ("one", "retry: {codes: [500], attempts: 3}"),
        ("four", "retry: {codes: [500, 502, 503, 504], attempts: 2}"),
        ("none", "retry: {codes: [500, 503], attempts: 0}"),
        (
            "backoff",
            "retry: {codes: [500], attempts: 2, backoff: 100ms}",
        ),
        ("unset", "timeouts: {}"),
    ])
    .await;
    let mut cases = vec![
        (flaky("one", "a", 2, "500"), "a"),
        (flaky("one", "b", 3, "500"), "a"),
        (flaky("one", "c", 4, "500"), "500"),
        (flaky("one", "d", 1, "503"), "503"),
        (flaky("one", "e", 1, "404"), "404"),
        (flaky("backoff", "a", 2, "500"), "a"),
        (flaky("backoff", "b", 3, "500"), "500"),
        (flaky("none", "a", 1, "500"), "500"),
        (flaky("none", "b", 1, "503"), "503"),
        (flaky("unset", "a", 1, "500"), "500"),
        (flaky("unset", "b", 1, "503"), "503"),
    ];
    for code in ["500", "502", "503", "504"] {
        cases.push((flaky("four", &format!("{code}-1"), 1, code), "a"));
        cases.push((flaky("four", &format!("{code}-3"), 3, code), code));
    }
    // A retry sends the same body.
    let post = flaky("one", "post", 2, "500")
        .method("POST")
        .body("what it says");
    let response = sesame.send(&post).await;
    assert_eq!(
        (response.status.as_u16(), response.json()["body"].as_str()),
        (200, Some("what it says"))
    );
    check_requests(sesame.at(8080), cases).await;
}

/// One of two endpoints refuses connections, so the retry goes to the other. No retry code is needed.
#[tokio::test]
async fn failed_connections_are_retried_elsewhere() {
    let (backends, _) = backends(&["a"]).await;
    let good = backends[0].address();
    // The same port on another address is closed.
    let refusing = SocketAddr::from(([127, 0, 0, 2], good.port()));
    let sesame = serving(
        &service("a", &[good, refusing]),
        &[
            ("retry", "retry: {attempts: 100}"),
            ("unset", "timeouts: {}"),
        ],
    )
    .await;
    let retried = shares(sesame.at(8080), &Request::get("retry.example.com", "/"), 50).await;
    assert_eq!(
        retried.into_iter().collect::<Vec<_>>(),
        [("a".to_owned(), 50)]
    );
    // Without retries, the same requests fail; otherwise the test would prove nothing.
    let alone = shares(sesame.at(8080), &Request::get("unset.example.com", "/"), 50).await;
    assert!(
        alone.get("503").is_some_and(|failed| *failed > 0),
        "{alone:?}"
    );
}

/// A connection that the backend resets before responding is also retried.
#[tokio::test]
async fn broken_connections_are_retried_separately_from_codes() {
    let (_backends, sesame) = with_backend(&[
        ("retry", "retry: {codes: [500], attempts: 3}"),
        ("unset", "timeouts: {}"),
    ])
    .await;
    let unset = flaky("unset", "a", 1, "reset").of(sesame.at(8080)).await;
    assert!(["502", "503"].contains(&unset.as_str()), "{unset}");
    // The request was sent, so the backend may have processed it.
    let retried = flaky("retry", "a", 1, "reset").of(sesame.at(8080)).await;
    assert!(["502", "503"].contains(&retried.as_str()), "{retried}");
}

#[tokio::test]
async fn the_request_timeout_includes_all_attempts() {
    let (_backends, sesame) = with_backend(&[
        (
            "request",
            "retry: {codes: [500], attempts: 5}, timeouts: {request: 3s}",
        ),
        (
            "backend",
            "retry: {codes: [500], attempts: 3}, timeouts: {request: 30s, backendRequest: 3s}",
        ),
    ])
    .await;
    let delayed = |host: &str, key: &str, failures: u32, delay: &str| {
        let path = format!("/flaky?key={host}-{key}&failures={failures}&code=500&delay={delay}");
        Request::get(&format!("{host}.example.com"), &path)
    };
    let cases = [
        (delayed("request", "quick", 1, "0ms"), "a"),
        (delayed("request", "slow", 2, "2s"), "504"),
        (delayed("request", "slower", 2, "5s"), "504"),
        // Together longer than the timeout of one attempt.
        (delayed("backend", "three", 2, "1200ms"), "a"),
    ];
    join_all(cases.map(|case| check_requests(sesame.at(8080), [case]))).await;
}

#[tokio::test]
async fn only_the_request_timeout_cuts_off_a_response_that_has_begun() {
    let (_backends, sesame) = with_backend(&[
        ("request", "timeouts: {request: 2s}"),
        ("backend", "timeouts: {backendRequest: 1s}"),
        ("both", "timeouts: {request: 2s, backendRequest: 1s}"),
    ])
    .await;
    let address = sesame.at(8080);
    let cut_off = ["request", "both"].map(async |host| {
        let host = format!("{host}.example.com");
        let start = Instant::now();
        let response = send(address, &Request::get(&host, "/?pause=20s")).await;
        let error = response.expect_err("an incomplete response").to_string();
        assert!(error.contains("the body is incomplete"), "{host}: {error}");
        assert!(start.elapsed() < Duration::from_secs(15), "{host}");
    });
    let complete = check(address, &[("backend.example.com", "/?pause=3s", "a")]);
    tokio::join!(join_all(cut_off), complete);
}

/// Sends a POST whose body ends after a pause, and returns the status of the response.
async fn slowly(address: SocketAddr, host: &str, path: &str, pause: Duration) -> String {
    let mut connection = TcpStream::connect(address).await.expect("a connection");
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: {host}.example.com\r\nconnection: close\r\ncontent-length: 4\r\n\r\nsl"
    );
    connection
        .write_all(head.as_bytes())
        .await
        .expect("a write");
    sleep(pause).await;
    // Fails if the gateway has already responded and closed the connection.
    let _ = connection.write_all(b"ow").await;
    let mut response = String::new();
    let read = timeout(
        Duration::from_secs(15),
        connection.read_to_string(&mut response),
    );
    read.await.expect("in time").expect("a response");
    let status = response.split(' ').nth(1).unwrap_or_default();
    status.to_owned()
}

#[tokio::test]
async fn timeouts_start_when_the_request_is_complete() {
    let (_backends, sesame) = with_backend(&[
        ("request", "timeouts: {request: 1s}"),
        ("backend", "timeouts: {backendRequest: 1s}"),
    ])
    .await;
    let address = sesame.at(8080);
    let pause = Duration::from_secs(3);
    let slow = ["request", "backend"].map(async |host| {
        let (quick, late) = tokio::join!(
            slowly(address, host, "/", pause),
            slowly(address, host, "/?delay=20s", pause),
        );
        assert_eq!((&*quick, &*late), ("200", "504"), "{host}");
    });
    join_all(slow).await;
}
