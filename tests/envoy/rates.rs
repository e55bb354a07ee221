//! Rate limits for hosts and routes: local to each Envoy, and global, enforced by a service.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use sesame_testkit::auth::{AuthServer, Decision};
use sesame_testkit::client::Request;
use sesame_testkit::rates::RateServer;

use crate::auth::pair;
use crate::harness::{DefaultFleet, backends, check, check_requests, service};

const ANY: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), 0);

/// An ExtensionService for the Service of the same name.
fn extension(name: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1alpha1\nkind: ExtensionService\nmetadata: {{name: {name}}}\nspec:\n  \
         services: [{{name: {name}, port: 80}}]\n  protocol: h2c\n---\n"
    )
}

#[tokio::test]
async fn routes_share_the_rate_of_their_host_unless_they_have_their_own() {
    let (_backends, services) = backends(&["a"]).await;
    let objects = services
        + r#"
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost:
    fqdn: web.test
    corsPolicy: {allowOrigin: ["*"], allowMethods: [GET]}
    rateLimitPolicy: {local: {requests: 4, unit: hour, responseStatusCode: 431}}
  includes: [{name: child, conditions: [{prefix: /child}]}, {name: missing, conditions: [{prefix: /missing}]}]
  routes:
  - services: [{name: a, port: 80}]
  - conditions: [{prefix: /own}]
    services: [{name: a, port: 80}]
    rateLimitPolicy: {local: {requests: 1, unit: hour}}
  - conditions: [{prefix: /invalid}]
    services: [{name: missing, port: 80}]
---
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: child}
spec:
  routes: [{directResponsePolicy: {statusCode: 418}}]
---
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec:
  ingressClassName: sesame
  rules:
  - host: web.test
    http: {paths: [{path: /ingress, pathType: Prefix, backend: {service: {name: a, port: {number: 80}}}}]}
---
"#;
    let started = DefaultFleet::serving("HTTPProxy", &objects).await;
    let on_web = |cases: &[(&'static str, &'static str)]| {
        let cases = cases
            .iter()
            .map(|(path, expected)| ("web.test", *path, *expected));
        cases.collect::<Vec<_>>()
    };
    let uncounted = [("/ingress", "a"), ("/ingress", "a"), ("/ingress", "a")];
    check(started.http, &on_web(&uncounted)).await;
    check(started.http, &on_web(&uncounted)).await;
    let counted = [
        ("/own", "a"),
        ("/own", "429"),
        ("/", "a"),
        ("/child", "418"),
        ("/invalid", "503"),
        ("/missing", "502"),
        ("/", "431"),
        ("/child", "431"),
        ("/own", "429"),
    ];
    check(started.http, &on_web(&counted)).await;
    check(started.http, &on_web(&uncounted)).await;
}

const GLOBAL: &str = r#"
apiVersion: projectsesame.io/v1
kind: HTTPProxy
metadata: {name: web}
spec:
  virtualhost:
    fqdn: web.test
    rateLimitPolicy:
      global:
        descriptors:
        - entries: [{genericKey: {value: "100%"}}, {requestHeader: {headerName: X-User, descriptorKey: user}}]
  routes:
  - services: [{name: a, port: 80}]
  - conditions: [{prefix: /own}]
    services: [{name: a, port: 80}]
    rateLimitPolicy:
      global:
        descriptors:
        - entries:
          - genericKey: {key: route, value: own}
          - requestHeaderValueMatch: {headers: [{name: x-tier, exact: gold}], expectMatch: false, value: other}
  - conditions: [{prefix: /disabled}]
    services: [{name: a, port: 80}]
    rateLimitPolicy: {global: {disabled: true}}
  - conditions: [{prefix: /only}]
    services: [{name: a, port: 80}]
    rateLimitPolicy: {global: {disabled: true, descriptors: [{entries: [{remoteAddress: {}}]}]}}
  - conditions: [{prefix: /direct}]
    directResponsePolicy: {statusCode: 418}
---
"#;

#[tokio::test]
async fn a_service_limits_the_rate_by_descriptors() {
    let (_backends, services) = backends(&["a"]).await;
    let limits = RateServer::start(ANY, 2).await.expect("a server");
    let login = AuthServer::start(ANY, |_| Decision {
        set: vec![pair("x-user", "eve")],
        ..Decision::default()
    });
    let login = login.await.expect("a server");
    let authorized = "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {name: authorized}\nspec:\n  \
        virtualhost:\n    fqdn: authorized.test\n    authorization: {extensionRef: {name: login}}\n    \
        rateLimitPolicy: {global: {descriptors: [{entries: [{requestHeader: {headerName: x-user, descriptorKey: user}}]}]}}\n  \
        routes: [{services: [{name: a, port: 80}]}]\n---\n";
    let objects = services
        + &service("limits", &[limits.address()])
        + &service("login", &[login.address()])
        + &extension("limits")
        + &extension("login")
        + authorized
        + GLOBAL;
    let arguments = [
        "--rate-limit-service=default/limits",
        "--rate-limit-domain=edge",
        "--rate-limit-headers",
        "--rate-limit-resource-exhausted",
    ];
    let started = DefaultFleet::start("HTTPProxy", &objects, &arguments).await;
    let plain = |path| Request::get("web.test", path);
    let bob = |path| plain(path).header("x-user", "bob");
    let first = started.send(&bob("/")).await;
    assert_eq!(first.backend(), "a");
    assert_eq!(first.header("x-ratelimit-limit"), "2, 2;w=3600");
    assert_eq!(first.header("x-ratelimit-remaining"), "1");
    check_requests(
        started.http,
        [
            (bob("/"), "a"),
            (bob("/"), "429"),
            (plain("/").header("x-user", "alice"), "a"),
            (plain("/"), "a"),
            (bob("/disabled"), "a"),
            (bob("/direct"), "418"),
            (bob("/own"), "a"),
            (plain("/own"), "a"),
            (plain("/own"), "429"),
            (plain("/own").header("x-tier", "gold"), "a"),
            (bob("/only"), "a"),
            (bob("/only"), "a"),
            (bob("/only"), "429"),
            (Request::get("authorized.test", "/"), "a"),
        ],
    )
    .await;
    let call = bob("/").header("content-type", "application/grpc");
    let rejected = started.send(&call).await;
    assert_eq!(rejected.header("grpc-status"), "8");
    // Each request is counted once.
    let expected = [
        ("edge generic_key=100% user=alice", 1),
        ("edge generic_key=100% user=bob", 4),
        ("edge remote_address=127.0.0.1", 3),
        ("edge route=own header_match=other", 3),
        ("edge user=eve", 1),
    ];
    let expected = expected.map(|(descriptor, count)| (descriptor.to_owned(), count));
    assert_eq!(limits.counts(), BTreeMap::from(expected));
}

#[tokio::test]
async fn requests_pass_without_the_service_only_if_that_is_set() {
    let (_backends, services) = backends(&["a"]).await;
    let nowhere = SocketAddr::from(([127, 0, 0, 1], 1));
    let down = services + &service("limits", &[nowhere]) + &extension("limits") + GLOBAL;
    for name in ["limits", "missing"] {
        let argument = format!("--rate-limit-service=default/{name}");
        let closed = DefaultFleet::start("HTTPProxy", &down, &[&argument]).await;
        let bob = |path| Request::get("web.test", path).header("x-user", "bob");
        let cases = [
            (bob("/"), "503"),
            (bob("/disabled"), "a"),
            (bob("/direct"), "418"),
        ];
        check_requests(closed.http, cases).await;
        drop(closed);
        let arguments = [&*argument, "--rate-limit-fail-open"];
        let open = DefaultFleet::start("HTTPProxy", &down, &arguments).await;
        check_requests(open.http, [(bob("/"), "a"), (bob("/own"), "a")]).await;
    }
}
