//! GRPCRoutes: calls by service and method, statuses of failed calls, and HTTPRoutes on the same host.

use sesame_testkit::client::{Connect, Request, Response};

use crate::harness::{HTTP, Sesame, at, backends, grpc_route, listening, route, to};

/// The gRPC status of calls that no rule matches.
const UNIMPLEMENTED: &str = "12";
/// The gRPC status of calls without a backend.
const UNAVAILABLE: &str = "14";

fn call(host: &str, path: &str) -> Request {
    Request::get(host, path)
        .method("POST")
        .header("content-type", "application/grpc+proto")
        .header("te", "trailers")
}

/// Makes a call. Returns the backend that received it over HTTP/2, or the gRPC status.
async fn outcome(sesame: &Sesame, request: &Request) -> String {
    let response = Connect::plain().h2().send(sesame.at(8080), request).await;
    let response = response.expect("a response");
    assert_eq!(response.status, 200, "gRPC statuses are in headers");
    let Response { headers, .. } = &response;
    match headers.get("grpc-status") {
        Some(status) => status.to_str().expect("ASCII").to_owned(),
        None => {
            assert_eq!(response.json()["protocol"], "HTTP/2");
            response.backend()
        }
    }
}

fn method(service: &str, method: &str) -> String {
    format!("matches: [{{method: {{service: {service:?}, method: {method:?}}}}}]")
}

#[tokio::test]
async fn calls_are_routed_by_service_method_and_headers() {
    let (_backends, services) = backends(&["any", "users", "login", "gold", "ping"]).await;
    let rules = [
        to("any"),
        format!(
            "matches: [{{method: {{service: shop.Users}}}}], {}",
            to("users")
        ),
        format!("{}, {}", method("shop.Users", "Login"), to("login")),
        format!(
            "matches: [{{method: {{service: shop.Users}}, headers: [{{name: tier, value: gold}}]}}], {}",
            to("gold")
        ),
        format!(
            "matches: [{{method: {{type: RegularExpression, method: 'P[io]ng'}}}}], {}",
            to("ping")
        ),
    ];
    let routes = grpc_route("calls", &["web"], &["a.example.com"], &rules)
        + &grpc_route(
            "narrow",
            &["web"],
            &["b.example.com"],
            &[format!(
                "{}, {}",
                method("shop.Users", "Login"),
                to("login")
            )],
        );
    let sesame = Sesame::with_gateway(&[HTTP], &(services + &routes)).await;
    listening(sesame.at(8080)).await;
    for (request, expected) in [
        (call("a.example.com", "/shop.Users/Get"), "users"),
        (call("a.example.com", "/shop.Users/Login"), "login"),
        (
            call("a.example.com", "/shop.Users/Login").header("tier", "gold"),
            "login",
        ),
        (
            call("a.example.com", "/shop.Users/Get").header("tier", "gold"),
            "gold",
        ),
        (call("a.example.com", "/shop.UsersOld/Get"), "any"),
        (call("a.example.com", "/other.Service/Ping"), "ping"),
        (call("a.example.com", "/shop.Users/Ping"), "users"),
        (call("b.example.com", "/shop.Users/Login"), "login"),
        (call("b.example.com", "/shop.Users/Logout"), UNIMPLEMENTED),
        (call("c.example.com", "/shop.Users/Login"), UNIMPLEMENTED),
    ] {
        assert_eq!(outcome(&sesame, &request).await, expected, "{request:?}");
    }
}

#[tokio::test]
async fn calls_without_a_backend_are_unavailable() {
    let (_backends, services) = backends(&["one"]).await;
    let rules = [
        format!("{}, {}", method("a.B", "Missing"), to("missing")),
        format!(
            "{}, backendRefs: [{{name: one, port: 80, weight: 0}}, {{name: missing, port: 80}}]",
            method("a.B", "Weight")
        ),
        format!(
            "{}, backendRefs: [{{name: one, port: 80}}, {{name: missing, port: 80}}]",
            method("a.B", "Half")
        ),
        method("a.B", "None"),
    ];
    let routes = grpc_route("calls", &["web"], &["a.example.com"], &rules);
    let sesame = Sesame::with_gateway(&[HTTP], &(services + &routes)).await;
    listening(sesame.at(8080)).await;
    for path in ["/a.B/Missing", "/a.B/Weight", "/a.B/None"] {
        let found = outcome(&sesame, &call("a.example.com", path)).await;
        assert_eq!(found, UNAVAILABLE, "{path}");
    }
    let half = call("a.example.com", "/a.B/Half");
    let mut found = std::collections::BTreeSet::new();
    for _ in 0..64 {
        found.insert(outcome(&sesame, &half).await);
    }
    assert_eq!(Vec::from_iter(found), [UNAVAILABLE, "one"]);
    let status = sesame.status("GRPCRoute", "calls").await.expect("a status");
    let resolved = &status["parents"][0]["conditions"][1];
    assert_eq!(resolved["type"], "ResolvedRefs");
    assert_eq!(resolved["reason"], "BackendNotFound");
}

#[tokio::test]
async fn filters_apply_to_calls_of_a_named_rule() {
    let (_backends, services) = backends(&["one"]).await;
    let rule = format!(
        "name: login, filters: [{{type: RequestHeaderModifier, requestHeaderModifier: {{set: [{{name: x-tier, value: gold}}], \
         remove: [x-secret]}}}}], {}",
        to("one")
    );
    let routes = grpc_route("calls", &["web"], &["a.example.com"], &[rule]);
    let sesame = Sesame::with_gateway(&[HTTP], &(services + &routes)).await;
    listening(sesame.at(8080)).await;
    let request = call("a.example.com", "/a.B/C")
        .header("x-tier", "none")
        .header("x-secret", "1");
    let response = Connect::plain().h2().send(sesame.at(8080), &request).await;
    let received = response.expect("a response").json();
    assert_eq!(received["headers"]["x-tier"], serde_json::json!(["gold"]));
    assert!(received["headers"].get("x-secret").is_none());
    assert_eq!(received["headers"]["te"], serde_json::json!(["trailers"]));
}

#[tokio::test]
async fn a_host_serves_grpc_calls_and_http_requests() {
    let (_backends, services) = backends(&["pages", "calls"]).await;
    let objects = services
        + &route("pages", &["web"], &["a.example.com"], &[at("/", "pages")])
        + &grpc_route("calls", &["web"], &["a.example.com"], &[to("calls")]);
    let sesame = Sesame::with_gateway(&[HTTP], &objects).await;
    listening(sesame.at(8080)).await;
    assert_eq!(
        outcome(&sesame, &call("a.example.com", "/a.B/C")).await,
        "calls"
    );
    let page = Request::get("a.example.com", "/a.B/C");
    let response = Connect::plain()
        .send(sesame.at(8080), &page)
        .await
        .expect("a response");
    assert_eq!(response.backend(), "pages");
    assert_eq!(response.json()["protocol"], "HTTP/1.1");
}
