//! CORS: preflight requests, which the gateway answers itself, and headers that it adds to the backend's responses.

use sesame_testkit::client::{Connect, Request, Response};

use crate::harness::{DefaultFleet, Sesame, at, backends, becomes};

fn rule(path: &str, cors: &str) -> String {
    format!(
        "filters: [{{type: CORS, cors: {{{cors}}}}}], {}",
        at(path, "a")
    )
}

/// Sends a preflight request.
async fn preflight(
    sesame: &Sesame,
    path: &str,
    origin: &str,
    method: &str,
    headers: &str,
) -> Response {
    let mut request = Request::get("a.example.com", path)
        .method("OPTIONS")
        .header("origin", origin)
        .header("access-control-request-method", method);
    if !headers.is_empty() {
        request = request.header("access-control-request-headers", headers);
    }
    Connect::plain()
        .send(sesame.at(8080), &request)
        .await
        .expect("a response")
}

/// Sends a simple request.
async fn simple(sesame: &Sesame, path: &str, origin: &str) -> Response {
    let request = Request::get("a.example.com", path).header("origin", origin);
    let response = sesame.send(&request).await;
    assert_eq!(
        (response.status.as_u16(), response.backend().as_str()),
        (200, "a"),
        "{path} from {origin}"
    );
    response
}

/// The names in a list header, lower-cased and sorted.
fn names(response: &Response, header: &str) -> Vec<String> {
    let list = response.header(&format!("access-control-{header}"));
    let mut names: Vec<_> = list
        .split(',')
        .map(|name| name.trim().to_ascii_lowercase())
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names
}

/// The allowed origin and credentials.
fn permission(response: &Response) -> (&str, &str) {
    (
        response.header("access-control-allow-origin"),
        response.header("access-control-allow-credentials"),
    )
}

#[tokio::test]
async fn listed_origins_are_allowed_and_others_are_not() {
    let (_backends, services) = backends(&["a"]).await;
    let rules = [rule(
        "/",
        "allowOrigins: ['https://www.foo.com', 'https://*.bar.com', 'http://port.com:8080'], allowMethods: [GET, PUT], \
         allowHeaders: [x-one, X-Two], exposeHeaders: [x-three, x-four], maxAge: 3600",
    )];
    let sesame = Sesame::with_rules(&services, &rules).await;
    for origin in [
        "https://www.foo.com",
        "https://www.bar.com",
        "https://a.b.bar.com",
        "http://port.com:8080",
    ] {
        let response = preflight(&sesame, "/x", origin, "PUT", "x-one").await;
        assert!(
            matches!(response.status.as_u16(), 200 | 204),
            "{origin}: {response:?}"
        );
        assert_eq!(
            response.backend(),
            "",
            "{origin}: the backend got the preflight request"
        );
        assert_eq!(permission(&response), (origin, ""));
        assert_eq!(
            names(&response, "allow-methods"),
            ["get", "put"],
            "{origin}"
        );
        assert_eq!(
            names(&response, "allow-headers"),
            ["x-one", "x-two"],
            "{origin}"
        );
        assert_eq!(
            names(&response, "expose-headers"),
            ["x-four", "x-three"],
            "{origin}"
        );
        assert_eq!(
            response.header("access-control-max-age"),
            "3600",
            "{origin}"
        );
        let response = simple(&sesame, "/x", origin).await;
        assert_eq!(permission(&response), (origin, ""));
        assert_eq!(
            names(&response, "expose-headers"),
            ["x-four", "x-three"],
            "{origin}"
        );
    }
    for origin in [
        "http://www.foo.com",
        "https://foo.com",
        "https://www.foo.com:8443",
        "https://bar.com",
        "https://xbar.com",
        "https://x.bar.com.evil.com",
        "https://evil.com/x.bar.com",
        "http://port.com",
        "null",
    ] {
        let response = preflight(&sesame, "/x", origin, "PUT", "x-one").await;
        assert!(
            matches!(response.status.as_u16(), 200 | 204 | 403),
            "{origin}: {response:?}"
        );
        assert_eq!(permission(&response), ("", ""), "{origin}");
        let response = simple(&sesame, "/x", origin).await;
        assert_eq!(permission(&response), ("", ""), "{origin}");
    }
}

#[tokio::test]
async fn wildcards_allow_what_is_requested() {
    let (_backends, services) = backends(&["a"]).await;
    let all = "allowOrigins: ['*'], allowMethods: ['*'], allowHeaders: ['*']";
    let rules = [
        rule("/free", &format!("{all}, exposeHeaders: ['*']")),
        rule(
            "/credentials",
            &format!("{all}, allowCredentials: true, exposeHeaders: [x-one]"),
        ),
        rule(
            "/no-credentials",
            &format!("{all}, allowCredentials: false"),
        ),
    ];
    let sesame = Sesame::with_rules(&services, &rules).await;
    let origin = "https://anywhere.example.net:8443";
    for (path, credentials) in [
        ("/free", ""),
        ("/credentials", "true"),
        ("/no-credentials", ""),
    ] {
        let response = preflight(&sesame, path, origin, "DELETE", "x-one, x-two").await;
        assert!(
            matches!(response.status.as_u16(), 200 | 204),
            "{path}: {response:?}"
        );
        let (allowed, with) = permission(&response);
        // With credentials, browsers don't treat `*` in the response as a wildcard.
        assert!(
            allowed == origin || (allowed == "*" && credentials.is_empty()),
            "{path}: {allowed}"
        );
        assert_eq!(with, credentials, "{path}");
        let (methods, headers) = (
            names(&response, "allow-methods"),
            names(&response, "allow-headers"),
        );
        assert!(
            methods == ["delete"] || (methods == ["*"] && credentials.is_empty()),
            "{path}: {methods:?}"
        );
        assert!(
            headers == ["x-one", "x-two"] || (headers == ["*"] && credentials.is_empty()),
            "{path}: {headers:?}"
        );
        let response = simple(&sesame, path, origin).await;
        let (allowed, with) = permission(&response);
        assert!(
            allowed == origin || (allowed == "*" && credentials.is_empty()),
            "{path}: {allowed}"
        );
        assert_eq!(with, credentials, "{path}");
    }
}

/// A rule that matches one method must also match its preflight requests.
#[tokio::test]
async fn a_rule_for_one_method_also_matches_its_preflights() {
    let (_backends, services) = backends(&["a"]).await;
    let one = "allowOrigins: ['https://foo.com'], allowMethods: [PUT], maxAge: 7";
    let rules = [format!(
        "filters: [{{type: CORS, cors: {{{one}}}}}], matches: [{{method: PUT}}], backendRefs: [{{name: a, port: 80}}]"
    )];
    let sesame = Sesame::with_rules(&services, &rules).await;
    let response = preflight(&sesame, "/", "https://foo.com", "PUT", "").await;
    assert!(
        matches!(response.status.as_u16(), 200 | 204),
        "{response:?}"
    );
    assert_eq!(permission(&response), ("https://foo.com", ""));
    assert_eq!(response.header("access-control-max-age"), "7");
    let response = preflight(&sesame, "/", "https://foo.com", "DELETE", "").await;
    assert_eq!(
        (response.status.as_u16(), permission(&response)),
        (404, ("", ""))
    );
}

/// An HTTPProxy for the host `name`.test that allows GET requests from this origin.
fn proxy(name: &str, origin: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: {name}}}\nspec: {{virtualhost: {{fqdn: \
         {name}.test, corsPolicy: {{allowOrigin: [{origin}], allowMethods: [GET]}}}}, routes: [{{services: [{{name: a, \
         port: 80}}]}}]}}\n---\n"
    )
}

#[tokio::test]
async fn the_case_of_an_origin_has_no_effect() {
    let (_backends, services) = backends(&["a"]).await;
    let objects = services
        + &proxy("web", "'https://app.example.com'")
        + &proxy("upper", "'https://APP.example.com'");
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    for host in ["web.test", "upper.test"] {
        becomes(fleet.http, host, "/", "a").await;
        for (origin, allowed) in [
            ("https://APP.example.com", true),
            ("https://app.example.com", true),
            ("HTTPS://App.Example.COM", true),
            ("https://APPS.example.com", false),
            ("https://app.example.com:8443", false),
        ] {
            let preflight = Request::get(host, "/")
                .method("OPTIONS")
                .header("origin", origin)
                .header("access-control-request-method", "GET");
            let response = fleet.send(&preflight).await;
            let expected = if allowed { origin } else { "" };
            assert_eq!(permission(&response), (expected, ""), "{host}: {origin}");
            assert_eq!(response.status, 200);
            let simple = Request::get(host, "/").header("origin", origin);
            let response = fleet.send(&simple).await;
            assert_eq!(response.backend(), "a");
            assert_eq!(permission(&response), (expected, ""), "{host}: {origin}");
        }
    }
}

#[tokio::test]
async fn private_networks_are_permitted() {
    let (_backends, services) = backends(&["a"]).await;
    let objects = services
        + &proxy("other", "'*'")
        + &proxy("web", "'*'").replace("[GET]", "[GET], allowPrivateNetwork: true");
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    for (host, expected) in [("web.test", "true"), ("other.test", "")] {
        becomes(fleet.http, host, "/", "a").await;
        let request = Request::get(host, "/")
            .method("OPTIONS")
            .header("origin", "https://foo.com")
            .header("access-control-request-method", "GET")
            .header("access-control-request-private-network", "true");
        let response = fleet.send(&request).await;
        let permitted = response.header("access-control-allow-private-network");
        assert_eq!(permitted, expected, "{host}");
    }
}
