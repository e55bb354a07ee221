//! HTTPProxies: the paths and headers that backends and clients get.

use sesame_testkit::client::Request;

use crate::harness::{DefaultFleet, backends};

/// An HTTPProxy for the host `name`.test with these fields.
fn proxy(name: &str, fields: &str) -> String {
    format!(
        "apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: {name}}}\nspec:\n  \
         virtualhost: {{fqdn: {name}.test}}\n{fields}\n---\n"
    )
}

/// An HTTPProxy for the host `name`.test with a route to the Service `a` that replaces the prefix in `conditions`.
fn replacing(name: &str, conditions: &str, replacement: &str) -> String {
    let fields = format!(
        "  routes:\n  - conditions: [{conditions}]\n    services: [{{name: a, port: 80}}]\n    \
         pathRewritePolicy: {{replacePrefix: [{{replacement: {replacement}}}]}}"
    );
    proxy(name, &fields)
}

/// The path that the backend receives, or the status if it receives no request.
async fn received(fleet: &DefaultFleet, host: &str, path: &str) -> String {
    let response = fleet.send(&Request::get(host, path)).await;
    match response.json()["path"].as_str() {
        Some(path) => path.to_owned(),
        None => response.status.as_u16().to_string(),
    }
}

#[tokio::test]
async fn prefixes_are_replaced_with_correct_slashes() {
    let (_backends, services) = backends(&["a"]).await;
    let objects = services
        + &replacing("web", "{prefix: /a}", "/b")
        + &replacing("slash", "{prefix: /a/}", "/b")
        + &replacing("slashes", "{prefix: /a/}", "/b/")
        + &replacing("root", "{prefix: /a}", "/")
        + &replacing("all", "", "/b");
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    for (host, path, expected) in [
        ("web.test", "/a", "/b"),
        ("web.test", "/a/", "/b/"),
        ("web.test", "/a/x/?q=/a", "/b/x/?q=/a"),
        ("web.test", "/a?q", "/b?q"),
        ("web.test", "/ax", "/bx"),
        ("web.test", "/x/a", "404"),
        ("slash.test", "/a", "/b"),
        ("slash.test", "/a/", "/b/"),
        ("slash.test", "/a/x", "/b/x"),
        ("slash.test", "/ax", "404"),
        ("slashes.test", "/a", "/b"),
        ("slashes.test", "/a/", "/b/"),
        ("slashes.test", "/a/x", "/b/x"),
        ("slashes.test", "/ax", "404"),
        ("root.test", "/a", "/"),
        ("root.test", "/a/", "/"),
        ("root.test", "/a/x", "/x"),
        ("root.test", "/a?q", "/?q"),
        ("root.test", "/ax", "404"),
        ("all.test", "/", "/b/"),
        ("all.test", "/a/x", "/b/a/x"),
    ] {
        let found = received(&fleet, host, path).await;
        assert_eq!(found, expected, "{host}{path}");
    }
}

/// An HTTPProxy `child` in namespace `shop`, and these Services there. Its route goes to the Service `a`, with further
/// fields of the Service and of the route.
fn child(services: &str, service: &str, route: &str) -> String {
    let there = services.replace("metadata: {", "metadata: {namespace: shop, ");
    format!(
        "{there}apiVersion: projectsesame.io/v1\nkind: HTTPProxy\nmetadata: {{name: child, namespace: shop}}\nspec:\n  \
         routes:\n  - services: [{{name: a, port: 80{service}}}]\n{route}\n---\n"
    )
}

#[tokio::test]
async fn an_included_route_replaces_the_prefix_with_that_of_the_inclusion() {
    let (_backends, services) = backends(&["a"]).await;
    let include = |prefix: &str| {
        format!("{{name: child, namespace: shop, conditions: [{{prefix: {prefix}}}]}}")
    };
    let includes = ["/api", "/old/", "/other"].map(include).join(", ");
    let replacements = "    conditions: [{prefix: /v1}]\n    pathRewritePolicy: {replacePrefix: [{prefix: /api/v1, \
                        replacement: /new}, {prefix: /old/v1, replacement: /}, {prefix: /v1, replacement: /no}, \
                        {replacement: /any}]}";
    let objects =
        child(&services, "", replacements) + &proxy("web", &format!("  includes: [{includes}]"));
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    for (path, expected) in [
        ("/api/v1", "/new"),
        ("/api/v1/x", "/new/x"),
        ("/old/v1", "/"),
        ("/old/v1/x", "/x"),
        ("/other/v1/x", "/any/x"),
        ("/api", "404"),
        ("/v1", "404"),
    ] {
        let found = received(&fleet, "web.test", path).await;
        assert_eq!(found, expected, "{path}");
    }
}

#[tokio::test]
async fn references_in_headers_are_replaced() {
    let (backends, services) = backends(&["a"]).await;
    let of_route = "    requestHeadersPolicy:
      set:
      - {name: x-client, value: '%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%'}
      - {name: x-request, value: '%PROTOCOL% %REQ(x-id)% 100% %START_TIME%'}
      - {name: x-namespace, value: '%SESAME_NAMESPACE% %SESAME_SERVICE_NAME%'}
    responseHeadersPolicy:
      set:
      - {name: x-client, value: '%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%'}
      - {name: x-response, value: '%RESPONSE_CODE% %UPSTREAM_REMOTE_ADDRESS% %REQ(x-id)%'}
      - {name: x-namespace, value: '%CONTOUR_NAMESPACE%'}";
    let service = "'%SESAME_NAMESPACE%/%SESAME_SERVICE_NAME%:%SESAME_SERVICE_PORT%'";
    let set = format!("{{set: [{{name: x-service, value: {service}}}]}}");
    let of_service = format!(", requestHeadersPolicy: {set}, responseHeadersPolicy: {set}");
    let objects = child(&services, &of_service, of_route)
        + &proxy("web", "  includes: [{name: child, namespace: shop}]");
    let fleet = DefaultFleet::serving("HTTPProxy", &objects).await;
    let request = Request::get("web.test", "/")
        .header("x-id", "7")
        .header("x-client", "forged");
    let response = fleet.send(&request).await;
    assert_eq!(response.backend(), "a");
    let seen = response.json()["headers"].clone();
    for (name, expected) in [
        ("x-client", "127.0.0.1"),
        ("x-request", "HTTP/1.1 7 100% %START_TIME%"),
        // Routes can have several Services.
        ("x-namespace", "shop %SESAME_SERVICE_NAME%"),
        ("x-service", "shop/a:80"),
    ] {
        assert_eq!(seen[name], serde_json::json!([expected]), "{name}");
    }
    let address = backends[0].address();
    for (name, expected) in [
        ("x-client", "127.0.0.1"),
        ("x-response", &*format!("200 {address} 7")),
        ("x-namespace", "shop"),
        ("x-service", "shop/a:80"),
    ] {
        assert_eq!(response.header(name), expected, "{name}");
    }
}
