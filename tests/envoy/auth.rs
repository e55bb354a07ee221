//! ExternalAuth filters on routes: requests to services and backends, responses to clients, failures, and changes.
//!
//! An echo backend serves as an HTTP authorization service: it permits a request by responding with 200.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::ensure;
use serde_json::Value;
use sesame_testkit::auth::{AuthServer, Decision};
use sesame_testkit::backend::{Backend, Received};
use sesame_testkit::client::{Request, Response};

use crate::backend_tls::{authorities, authority, by, policy};
use crate::harness::{
    HTTP, Sesame, at, backend, backends, becomes, check, eventually, gateway, grant, listening,
    route, service,
};

const HOST: &str = "a.example.com";

/// An ExternalAuth filter that calls the Service `service` over HTTP, with fields of `http`, such as `path: /a`.
pub(crate) fn http(service: &str, fields: &str) -> String {
    external_auth(&format!("protocol: HTTP, http: {{{fields}}}"), service)
}

/// An ExternalAuth filter that calls the Service `service` over gRPC, with fields of `grpc`.
pub(crate) fn grpc(service: &str, fields: &str) -> String {
    external_auth(&format!("protocol: GRPC, grpc: {{{fields}}}"), service)
}

fn external_auth(protocol: &str, service: &str) -> String {
    format!(
        "{{type: ExternalAuth, externalAuth: {{{protocol}, backendRef: {{name: {service}, port: 80}}}}}}"
    )
}

fn forwarding_body(filter: &str, size: u32) -> String {
    filter.replace(
        "backendRef",
        &format!("forwardBody: {{maxSize: {size}}}, backendRef"),
    )
}

/// A rule with these filters.
fn rule(path: &str, filters: &[String], backend: &str) -> String {
    format!("filters: [{}], {}", filters.join(", "), at(path, backend))
}

/// Starts a gRPC authorization service. Also returns a Service for it, with port 80.
pub(crate) async fn auth_server(
    name: &str,
    decide: impl Fn(&str) -> Decision + Send + Sync + 'static,
) -> (AuthServer, String) {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let server = AuthServer::start(any, move |request| decide(&request.path)).await;
    let server = server.expect("a server");
    let text = service(name, &[server.address()]);
    (server, text)
}

pub(crate) fn pair(name: &str, value: &str) -> (String, String) {
    (name.to_owned(), value.to_owned())
}

/// The headers that the backend received.
fn headers(response: &Response) -> Value {
    response.json()["headers"].clone()
}

fn only(backend: &Backend) -> Received {
    let mut requests = backend.requests();
    assert_eq!(requests.len(), 1, "{requests:?}");
    requests.remove(0)
}

#[tokio::test]
async fn an_http_service_gets_the_request_and_decides() {
    let (backends, services) = backends(&["a", "auth"]).await;
    let filter = http(
        "auth",
        "allowedHeaders: [x-seen, x-echo-set-header], allowedResponseHeaders: [X-User, x-seen, x-none]",
    );
    let rules = [rule("/", &[filter], "a"), at("/open", "a")];
    let sesame = Sesame::with_rules(&services, &rules).await;
    let request = Request::get(HOST, "/path?query=1")
        .method("POST")
        .header("authorization", "token")
        .header("x-seen", "client")
        .header("x-unseen", "client")
        .header("x-user", "forged")
        .header("x-none", "forged")
        .header("x-echo-set-header", "x-user: bob")
        .body("secret");
    let response = sesame.ask_well(&request).await;
    assert_eq!(response.backend(), "a");
    assert_eq!(response.json()["body"], "secret");
    let got = headers(&response);
    assert_eq!(got["x-user"], serde_json::json!(["bob"]));
    assert_eq!(got["x-seen"], serde_json::json!(["client"]));
    assert_eq!(got["x-none"], Value::Null, "only the service may set it");
    let checked = only(&backends[1]);
    assert_eq!(
        (
            &*checked.method,
            &*checked.path,
            &*checked.host,
            checked.body_length
        ),
        ("POST", "/path?query=1", HOST, 0)
    );
    for (name, value) in [
        ("authorization", Some("token")),
        ("content-length", Some("0")),
        ("x-seen", Some("client")),
        ("x-unseen", None),
        ("x-user", None),
    ] {
        assert_eq!(checked.header(name), value, "{name}");
    }
    // Denied: the client gets the service's status, headers and body.
    let denied = sesame
        .send(
            &Request::get(HOST, "/status/401")
                .header("x-echo-set-header", "www-authenticate: Basic"),
        )
        .await;
    assert_eq!(denied.status, 401);
    assert_eq!(denied.header("www-authenticate"), "Basic");
    assert_eq!(denied.backend(), "auth");
    let login = Request::get(HOST, "/status/302").header("x-echo-set-header", "location: /login");
    let login = sesame.send(&login).await;
    assert_eq!(
        (login.status.as_u16(), login.header("location")),
        (302, "/login")
    );
    check(
        sesame.at(8080),
        &[
            // Only 200 permits a request; the service's 5xx responses count as failed checks.
            (HOST, "/status/201", "201"),
            (HOST, "/status/500", "503"),
            (HOST, "/open", "a"),
        ],
    )
    .await;
    assert_eq!(backends[0].count(), 2);
}

#[tokio::test]
async fn a_service_cannot_change_framing_or_internal_headers() {
    let (backends, services) = backends(&["a", "auth"]).await;
    let seen = "allowedHeaders: [x-echo-set-header]";
    let sesame = Sesame::with_rules(&services, &[rule("/", &[http("auth", seen)], "a")]).await;
    let mut request = Request::get(HOST, "/").method("POST").body("12345");
    for header in [
        "x-user: bob",
        "host: evil",
        "x-sesame-shard: 1",
        "x-envoy-retry-on: 5xx",
        "te: trailers",
        "content-encoding: gzip",
        "keep-alive: 1",
    ] {
        request = request.header("x-echo-set-header", header);
    }
    let response = sesame.ask_well(&request).await;
    assert_eq!(response.json()["body"], "12345");
    assert_eq!(response.json()["host"], HOST);
    let got = headers(&response);
    assert_eq!(got["x-user"], serde_json::json!(["bob"]));
    for name in [
        "x-sesame-shard",
        "x-envoy-retry-on",
        "te",
        "content-encoding",
        "keep-alive",
        "content-type",
    ] {
        assert_eq!(got[name], Value::Null, "{name}");
    }
    assert_eq!(backends[1].count(), 1);
}

#[tokio::test]
async fn a_grpc_service_gets_the_request_and_decides() {
    let (_backend, backend) = backend("a").await;
    let (server, auth) = auth_server("auth", |path| match path {
        "/denied" => Decision {
            denied: Some(403),
            set: vec![pair("x-reason", "no")],
            body: "denied".to_owned(),
            ..Decision::default()
        },
        _ => Decision {
            set: vec![
                pair("x-user", "bob"),
                pair("host", "evil"),
                pair(":path", "/evil"),
                pair("content-length", "1"),
                pair("x-envoy-a", "1"),
            ],
            remove: vec!["x-secret".to_owned(), "content-length".to_owned()],
            ..Decision::default()
        },
    })
    .await;
    let some = grpc("auth", "allowedHeaders: [X-Token]");
    let rules = [
        rule("/", &[grpc("auth", "")], "a"),
        rule("/some", &[some], "a"),
        rule("/body", &[forwarding_body(&grpc("auth", ""), 8)], "a"),
    ];
    let sesame = Sesame::with_rules(&(backend + &auth), &rules).await;
    let request = |path: &str| {
        Request::get(HOST, path)
            .method("POST")
            .header("x-token", "t")
            .header("x-user", "forged")
            .header("x-secret", "s")
            .body("12345678")
    };
    let response = sesame.ask_well(&request("/all")).await;
    let json = response.json();
    assert_eq!(
        (&json["host"], &json["path"], &json["body"]),
        (&HOST.into(), &"/all".into(), &"12345678".into())
    );
    let got = headers(&response);
    assert_eq!(got["x-user"], serde_json::json!(["bob"]));
    for name in ["x-secret", "x-envoy-a"] {
        assert_eq!(got[name], Value::Null, "{name}");
    }
    let denied = sesame.send(&request("/denied")).await;
    assert_eq!(
        (denied.status.as_u16(), denied.header("x-reason")),
        (403, "no")
    );
    assert_eq!(denied.body, "denied");
    for path in ["/some", "/body"] {
        assert_eq!(sesame.ask_well(&request(path)).await.backend(), "a");
    }
    let larger = sesame.send(&request("/body").body("123456789")).await;
    assert_eq!(larger.status, 413);
    let checked = server.checked();
    let summary: Vec<_> = checked
        .iter()
        .map(|request| {
            let has = |name: &str| request.headers.contains_key(name);
            (
                &*request.path,
                has("x-token"),
                has("x-secret"),
                &*request.body,
            )
        })
        .collect();
    assert_eq!(
        summary,
        [
            ("/all", true, true, ""),
            ("/denied", true, true, ""),
            ("/some", true, false, ""),
            ("/body", true, true, "12345678"),
        ]
    );
    assert!(
        checked
            .iter()
            .all(|request| request.host == HOST && request.method == "POST")
    );
}

#[tokio::test]
async fn the_body_is_forwarded_up_to_its_maximum() {
    let (backends, services) = backends(&["a", "auth"]).await;
    let filter = forwarding_body(&http("auth", ""), 8);
    let sesame = Sesame::with_rules(&services, &[rule("/", &[filter], "a")]).await;
    let request = |body: &str| Request::get(HOST, "/").method("POST").body(body.to_owned());
    let response = sesame.ask_well(&request("12345678")).await;
    assert_eq!(response.json()["body"], "12345678");
    let checked = only(&backends[1]);
    assert_eq!(
        (&*checked.body, checked.header("content-length")),
        ("12345678", Some("8"))
    );
    assert_eq!(sesame.send(&request("123456789")).await.status, 413);
    assert_eq!((backends[0].count(), backends[1].count()), (1, 1));
}

#[tokio::test]
async fn the_check_comes_after_header_changes_before_it_and_before_the_action() {
    let (backends, services) = backends(&["a", "auth", "copy"]).await;
    let set = |name: &str| {
        format!(
            "{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: {name}, value: 100%}}]}}}}"
        )
    };
    let auth = || http("auth", "path: check/, allowedHeaders: [x-before, x-after]");
    let mirror =
        "{type: RequestMirror, requestMirror: {backendRef: {name: copy, port: 80}}}".to_owned();
    let rewrite =
        "{type: URLRewrite, urlRewrite: {path: {type: ReplaceFullPath, replaceFullPath: /new}}}";
    let cors = "{type: CORS, cors: {allowOrigins: ['http://o.test'], allowMethods: [GET]}}";
    let redirect = "{type: RequestRedirect, requestRedirect: {hostname: r.test}}".to_owned();
    let strict = http("auth", "allowedHeaders: [x-echo-set-header]");
    let rules = [
        rule(
            "/before",
            &[set("x-before"), auth(), rewrite.to_owned()],
            "a",
        ),
        rule("/after", &[auth(), set("x-after")], "a"),
        rule("/status", &[cors.to_owned(), mirror, strict.clone()], "a"),
        format!(
            "matches: [{{path: {{value: /status/403/redirect}}}}], filters: [{redirect}, {strict}]"
        ),
        format!("matches: [{{path: {{value: /redirect}}}}], filters: [{redirect}, {strict}]"),
    ];
    let sesame = Sesame::with_rules(&services, &rules).await;
    let before = sesame.ask_well(&Request::get(HOST, "/before?q")).await;
    assert_eq!(before.json()["path"], "/new?q");
    assert_eq!(headers(&before)["x-before"], serde_json::json!(["100%"]));
    let after = sesame.ask_well(&Request::get(HOST, "/after")).await;
    assert_eq!(headers(&after)["x-after"], serde_json::json!(["100%"]));
    let checked = backends[1].requests();
    let seen: Vec<_> = checked
        .iter()
        .map(|request| {
            (
                &*request.path,
                request.header("x-before"),
                request.header("x-after"),
            )
        })
        .collect();
    assert_eq!(
        seen,
        [
            ("/check/before?q", Some("100%"), None),
            ("/check/after", None, None)
        ]
    );
    check(
        sesame.at(8080),
        &[
            (HOST, "/redirect", "302"),
            (HOST, "/status/403/redirect", "400"),
            (HOST, "/status/403", "403"),
        ],
    )
    .await;
    assert_eq!(backends[2].count(), 0, "denied requests are not mirrored");
    // Preflights are answered without a check; browsers can read the service's response.
    let asked = backends[1].count();
    let cross_origin = |method: &str| {
        Request::get(HOST, "/status/403")
            .method(method)
            .header("origin", "http://o.test")
    };
    let preflight = cross_origin("OPTIONS").header("access-control-request-method", "GET");
    let preflight = sesame.ask_well(&preflight).await;
    assert_eq!(
        preflight.header("access-control-allow-origin"),
        "http://o.test"
    );
    assert_eq!(backends[1].count(), asked);
    let denied = sesame.send(&cross_origin("GET")).await;
    assert_eq!(
        (
            denied.status.as_u16(),
            denied.header("access-control-allow-origin")
        ),
        (403, "http://o.test")
    );
}

#[tokio::test]
async fn requests_fail_if_the_service_fails() {
    let (backends, services) = backends(&["a", "auth"]).await;
    let refusing = service("refusing", &[SocketAddr::from(([127, 0, 0, 1], 1))]);
    let elsewhere =
        |filter: String| filter.replace("backendRef: {", "backendRef: {namespace: other, ");
    let mut rules = vec![
        rule("/missing", &[http("missing", "")], "a"),
        rule("/denied", &[elsewhere(http("auth", ""))], "a"),
        rule("/empty", &[http("empty", "")], "a"),
        rule("/refusing", &[http("refusing", "")], "a"),
        rule("/grpc", &[grpc("refusing", "")], "a"),
        // The backend speaks HTTP/2, but doesn't implement this gRPC service.
        rule("/wrong", &[grpc("auth", "")], "a"),
        rule("/", &[http("auth", "")], "a"),
    ];
    rules.push(format!(
        "timeouts: {{request: 1s}}, {}",
        rule("/slow", &[http("auth", "")], "a")
    ));
    let objects = services + &service("empty", &[]) + &refusing;
    let sesame = Sesame::with_rules(&objects, &rules).await;
    check(
        sesame.at(8080),
        &[
            (HOST, "/missing", "500"),
            (HOST, "/denied", "500"),
            (HOST, "/empty", "503"),
            (HOST, "/refusing", "503"),
            (HOST, "/grpc", "503"),
            (HOST, "/wrong", "503"),
        ],
    )
    .await;
    let start = Instant::now();
    check(sesame.at(8080), &[(HOST, "/slow?delay=30s", "503")]).await;
    assert!(
        start.elapsed() < Duration::from_secs(4),
        "the request's timeout applies"
    );
    check(sesame.at(8080), &[(HOST, "/?delay=30s", "503")]).await;
    let limit = start.elapsed();
    assert!(
        limit > Duration::from_secs(5) && limit < Duration::from_secs(20),
        "{limit:?}"
    );
    assert_eq!(backends[0].count(), 0);
    let resolved = sesame
        .of_route("a", "ResolvedRefs")
        .await
        .expect("a condition");
    assert_eq!(
        (&*resolved.status, &*resolved.reason),
        ("False", "BackendNotFound")
    );
}

#[tokio::test]
async fn a_service_in_another_namespace_needs_a_grant_and_a_policy_secures_it() {
    let ca = authority();
    let identity = ca.issue(&["s.test"]).expect("a certificate");
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let config = identity.server_config().expect("a configuration");
    let secured = Backend::start_tls("secured", any, config)
        .await
        .expect("a backend");
    let (backends, services) = backends(&["a", "auth"]).await;
    let there = service("there", &[backends[1].address()])
        .replace("{name: there", "{namespace: other, name: there");
    let rules = [
        rule(
            "/there",
            &[http("there", "").replace("{name: there", "{namespace: other, name: there")],
            "a",
        ),
        rule("/secured", &[http("secured", "")], "a"),
        rule("/distrusted", &[http("distrusted", "")], "a"),
    ];
    let objects = services
        + &there
        + &grant("other")
        + &authorities("ca", &[&ca])
        + &service("secured", &[secured.address()])
        + &policy("secured", &by("ca", "s.test"))
        + &service("distrusted", &[secured.address()])
        + &policy("distrusted", &by("ca", "other.test"));
    let sesame = Sesame::with_rules(&objects, &rules).await;
    for (path, expected) in [("/there", "a"), ("/secured", "a"), ("/distrusted", "503")] {
        becomes(sesame.at(8080), HOST, path, expected).await;
    }
    let tls = secured.requests().remove(0).tls.expect("TLS");
    assert_eq!(tls.sni.as_deref(), Some("s.test"));
}

#[tokio::test]
async fn changes_take_effect_on_open_connections_without_a_failed_request() {
    let (backends, services) = backends(&["a", "one", "two"]).await;
    let (server, auth) = auth_server("calls", |_| Decision::default()).await;
    let counts = || {
        [
            backends[1].count(),
            backends[2].count(),
            server.checked().len() as u64,
        ]
    };
    let files = |filters: &[String]| {
        vec![(
            "route.yaml",
            route("a", &["web"], &[HOST], &[rule("/", filters, "a")]),
        )]
    };
    let sesame = Sesame::serving(|ip| {
        let mut all = files(&[]);
        all.push(("all.yaml", gateway("web", ip, &[HTTP]) + &services + &auth));
        all
    })
    .await;
    listening(sesame.at(8080)).await;
    becomes(sesame.at(8080), HOST, "/", "a").await;
    let mut kept = sesame.open().await;
    let steps = [
        (vec![http("one", "")], Some(0)),
        (vec![http("two", "")], Some(1)),
        (vec![grpc("calls", "")], Some(2)),
        (vec![], None),
    ];
    for (filters, service) in steps {
        for (name, text) in files(&filters) {
            sesame.folder().write(name, &text);
        }
        let what = format!("service {service:?} checks requests");
        let deadline = Instant::now() + Duration::from_secs(30);
        // All requests use one connection, and none fails.
        loop {
            let before = counts();
            let response = kept.send(&Request::get(HOST, "/")).await;
            let response = response.expect("the connection stays open");
            assert_eq!(
                (response.status.as_u16(), &*response.backend()),
                (200, "a"),
                "{what}"
            );
            let asked = (0..3).find(|index| counts()[*index] > before[*index]);
            if asked == service {
                break;
            }
            assert!(Instant::now() < deadline, "{what}");
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

#[tokio::test]
async fn a_service_may_come_and_go() {
    let (_backends, services) = backends(&["a"]).await;
    let (auth, text) = backend("auth").await;
    let sesame = Sesame::with_rules(
        &services,
        &[rule("/", &[http("auth", "")], "a"), at("/open", "a")],
    )
    .await;
    check(sesame.at(8080), &[(HOST, "/", "500"), (HOST, "/open", "a")]).await;
    sesame.folder().write("auth.yaml", &text);
    becomes(sesame.at(8080), HOST, "/", "a").await;
    sesame.folder().remove("auth.yaml");
    becomes(sesame.at(8080), HOST, "/", "500").await;
    eventually("the status reports it", async || {
        let resolved = sesame.of_route("a", "ResolvedRefs").await?;
        ensure!(resolved.reason == "BackendNotFound", "{resolved:?}");
        Ok(())
    })
    .await;
    drop(auth);
}
