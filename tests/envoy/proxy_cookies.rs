//! HTTPProxies that change attributes of the cookies that backends set.

use sesame_testkit::client::Request;

use crate::harness::{DefaultFleet, backends};

const HOST: &str = "web.example.com";

const PROXIES: &str = r#"
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost: {fqdn: web.example.com}
  routes:
  - services: [{name: a, port: 80}]
    cookieRewritePolicies:
    - {name: id, pathRewrite: {value: "/new 100%REQ(host)%"}, domainRewrite: {value: example.com}, secure: true, sameSite: Strict}
    - {name: open, secure: false}
    - {name: __Host-x.y, sameSite: None}
  - conditions: [{prefix: /service}]
    services:
    - name: a
      port: 80
      cookieRewritePolicies: [{name: id, pathRewrite: {value: /service}, secure: false}, {name: own, secure: true}]
    cookieRewritePolicies: [{name: id, pathRewrite: {value: /}, secure: true, sameSite: Lax}]
  - conditions: [{prefix: /plain}]
    services: [{name: a, port: 80}]
  - conditions: [{prefix: /shared}]
    services:
    - {name: a, port: 80, weight: 1, cookieRewritePolicies: [{name: id, pathRewrite: {value: /a}}]}
    - {name: b, port: 80, weight: 1}
  - conditions: [{prefix: /response}]
    directResponsePolicy: {statusCode: 200}
    responseHeadersPolicy: {set: [{name: set-cookie, value: id=1}]}
    cookieRewritePolicies: [{name: id, secure: true}]
---
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: other}
spec:
  virtualhost: {fqdn: other.example.com}
  routes: [{services: [{name: a, port: 80}]}]
"#;

/// Sends a request for which the backend sets these cookies. Returns the cookies in the response.
async fn cookies(started: &DefaultFleet, host: &str, path: &str, set: &[&str]) -> Vec<String> {
    let request = set
        .iter()
        .fold(Request::get(host, path), |request, cookie| {
            request.header("x-echo-set-header", &format!("set-cookie: {cookie}"))
        });
    let response = started.send(&request).await;
    assert_eq!(response.status, 200, "{path}");
    let found = response.headers.get_all("set-cookie").iter();
    found
        .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
        .collect()
}

#[tokio::test]
async fn attributes_of_cookies_are_changed() {
    let (_backends, services) = backends(&["a", "b"]).await;
    let objects = format!("{services}\n---{PROXIES}");
    let started = DefaultFleet::serving("HTTPProxy", &objects).await;
    let new = "Path=/new 100%REQ(host)%; Domain=example.com; SameSite=Strict; Secure";
    let [long, cut] = [1_000, 33].map(|times| format!("id={}", "x; ".repeat(times)));
    let spaces = format!("id{}x", " ".repeat(4_000));
    let cases: &[(&str, &str)] = &[
        // Attributes are added or replaced; the others keep their order.
        ("id=1", &format!("id=1; {new}")),
        (
            "id=1; Path=/old; Expires=Wed, 21 Oct 2026 07:28:00 GMT; HttpOnly",
            &format!("id=1; Expires=Wed, 21 Oct 2026 07:28:00 GMT; HttpOnly; {new}"),
        ),
        (
            "id=1;PATH = /old ;path=/older;domain=.old.com; secure;SAMESITE=none; Max-Age=5",
            &format!("id=1; Max-Age=5; {new}"),
        ),
        ("id=", &format!("id=; {new}")),
        ("id = 1", &format!("id = 1; {new}")),
        // Values are neither attributes nor patterns.
        (
            "id=\"Path=/old, Secure\"; Path=/old",
            &format!("id=\"Path=/old, Secure\"; {new}"),
        ),
        (
            "id=Secure=Path=%1%%; Securely; Pathname=1",
            &format!("id=Secure=Path=%1%%; Securely; Pathname=1; {new}"),
        ),
        // Attributes are removed.
        ("open=Secure; Secure; HttpOnly", "open=Secure; HttpOnly"),
        ("open=1;Secure", "open=1"),
        ("open=1", "open=1"),
        (
            "__Host-x.y=1; Secure",
            "__Host-x.y=1; Secure; SameSite=None",
        ),
        // Cookies with other names don't change.
        ("ID=1; path=/old", "ID=1; path=/old"),
        ("idx=1; Path=/old", "idx=1; Path=/old"),
        ("x=id=1; Path=/old", "x=id=1; Path=/old"),
        ("id; Path=/old", "id; Path=/old"),
        ("=id; Path=/old", "=id; Path=/old"),
        (&spaces, &spaces),
    ];
    for (set, expected) in cases {
        let found = cookies(&started, HOST, "/", &[set]).await;
        assert_eq!(found, [*expected], "{set}");
    }
    let found = cookies(&started, HOST, "/", &[&long]).await;
    assert_eq!(found, [format!("{}; {new}", cut.trim_end_matches("; "))]);

    // Each of several cookies, in order.
    let (set, expected): (Vec<&str>, Vec<&str>) = cases.iter().copied().unzip();
    assert_eq!(cookies(&started, HOST, "/", &set).await, expected);
    assert_eq!(cookies(&started, HOST, "/", &[]).await, [""; 0]);

    // A Service's changes override the route's, attribute by attribute.
    let set = ["id=1; Secure; Path=/old", "own=1", "open=1; Secure"];
    let expected = ["id=1; Path=/service; SameSite=Lax", "own=1; Secure", set[2]];
    let found = cookies(&started, HOST, "/service", &set).await;
    assert_eq!(found, expected);
    for (host, path) in [(HOST, "/plain"), ("other.example.com", "/")] {
        assert_eq!(cookies(&started, host, path, &set).await, set, "{path}");
    }
    let found = cookies(&started, HOST, "/response", &[]).await;
    assert_eq!(found, ["id=1"]);

    // Each Service has its own changes.
    let request = Request::get(HOST, "/shared").header("x-echo-set-header", "set-cookie: id=1");
    let mut seen = [0, 0];
    while seen.contains(&0) {
        let response = started.send(&request).await;
        let of_a = response.json()["backend"] == "a";
        seen[usize::from(of_a)] += 1;
        let expected = if of_a { "id=1; Path=/a" } else { "id=1" };
        assert_eq!(response.headers["set-cookie"], expected);
    }
}
