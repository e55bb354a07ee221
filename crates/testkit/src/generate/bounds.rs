//! Objects at the bounds of their CRDs.

use serde_json::{Value, json};

use super::pool;

/// Sizes of a crowd (matches of one kind): around 64, the threshold for a match tree, and a route's maximum.
const CROWDS: [usize; 4] = [63, 64, 65, 128];

/// HTTPRoutes with many matches of one kind, each route with its own host.
pub(super) fn crowds() -> Vec<Value> {
    let header = |n: usize| json!([{"name": "x-a", "value": n.to_string()}]);
    let path = |type_: &str, value: String| json!({"path": {"type": type_, "value": value}});
    let root = |n: usize| json!({"headers": header(n)});
    let regex = |n: usize| path("RegularExpression", format!("/{n}/.*"));
    let prefix = |n: usize| path("PathPrefix", format!("/{n}"));
    let kinds: [(&str, &dyn Fn(usize) -> Value); 7] = [
        ("root", &root),
        ("regex", &regex),
        ("prefix", &prefix),
        ("exact", &|n| path("Exact", format!("/{n}"))),
        ("nested", &|n| path("PathPrefix", "/a".repeat(n + 1))),
        (
            "same",
            &|n| json!({"path": {"value": "/a"}, "headers": header(n)}),
        ),
        ("mixed", &|n| [root(n), regex(n), prefix(n)][n % 3].clone()),
    ];
    let sized = kinds
        .iter()
        .flat_map(|kind| CROWDS.map(|count| (kind, count)));
    sized
        .map(|((kind, matching), count)| {
            let matches: Vec<Value> = (0..count).map(matching).collect();
            // A rule has at most 64 matches.
            let rules: Vec<Value> = matches
                .chunks(64)
                .map(|matches| json!({"matches": matches, "backendRefs": [{"name": "s1", "port": 80}]}))
                .collect();
            let (namespace, gateway) = pool::GATEWAYS[0];
            json!({
                "apiVersion": "gateway.networking.k8s.io/v1",
                "kind": "HTTPRoute",
                "metadata": {"namespace": namespace, "name": format!("{kind}-{count}")},
                "spec": {
                    "parentRefs": [{"name": gateway}],
                    "hostnames": [format!("{kind}-{count}.example.com")],
                    "rules": rules,
                },
            })
        })
        .collect()
}

/// An HTTPRoute and a GRPCRoute with the longest values and lists that their CRDs and Envoy's limits accept.
pub(super) fn longest() -> Vec<Value> {
    let text = |count: usize| "a".repeat(count);
    let path = |count: usize| format!("/{}", text(count - 1));
    let names = |count: usize, length: usize| {
        (0..count).map(move |n| format!("x{n:02}{}", "a".repeat(length - 3)))
    };
    let headers: Vec<Value> = names(16, 256)
        .map(|name| json!({"name": name, "value": text(4_096)}))
        .collect();
    let query: Vec<Value> = names(16, 256)
        .map(|name| json!({"name": name, "value": text(1_024)}))
        .collect();
    let modifier = json!({
        "set": headers,
        "add": names(16, 255).map(|name| json!({"name": name, "value": text(4_096)})).collect::<Vec<_>>(),
        "remove": names(16, 254).collect::<Vec<_>>(),
    });
    let cors = json!({
        "allowOrigins": names(64, 63).map(|name| format!("https://{name}.{}.com", text(63))).collect::<Vec<_>>(),
        "allowHeaders": names(64, 256).collect::<Vec<_>>(),
        "exposeHeaders": names(64, 256).collect::<Vec<_>>(),
        "allowMethods": ["GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH"],
    });
    let replace =
        |count: usize| json!({"type": "ReplacePrefixMatch", "replacePrefixMatch": path(count)});
    let filters = |path: Value| {
        json!([
            {"type": "RequestHeaderModifier", "requestHeaderModifier": modifier},
            {"type": "ResponseHeaderModifier", "responseHeaderModifier": modifier},
            {"type": "URLRewrite", "urlRewrite": {"hostname": "a.example.com", "path": path}},
            {"type": "CORS", "cors": cors},
            {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "s2", "port": 80}, "percent": 1}},
        ])
    };
    let backend = json!([{"name": "s1", "port": 80, "weight": 1_000_000}]);
    let prefix = json!([{"path": {"type": "PathPrefix", "value": path(1_024)}}]);
    let redirect =
        |path: Value| json!([{"type": "RequestRedirect", "requestRedirect": {"path": path}}]);
    // With more hosts, the route's configuration is too large.
    let hosts: Vec<String> = names(5, 63)
        .map(|name| [name, text(63), text(63), text(61)].join("."))
        .collect();
    let (namespace, gateway) = pool::GATEWAYS[0];
    let route = |kind: &str, rules: Value| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": kind,
            "metadata": {"namespace": namespace, "name": text(253)},
            "spec": {"parentRefs": [{"name": gateway}], "hostnames": hosts, "rules": rules},
        })
    };
    let http = json!([
        {
            "matches": [
                {"path": {"type": "Exact", "value": path(1_024)}, "headers": headers, "queryParams": query},
                {"path": {"type": "RegularExpression", "value": path(1_000)}},
            ],
            "filters": filters(json!({"type": "ReplaceFullPath", "replaceFullPath": path(1_024)})),
            "backendRefs": backend,
        },
        {"matches": prefix, "filters": filters(replace(1)), "backendRefs": backend},
        {"matches": [{"path": {"value": path(1_023)}}], "filters": filters(replace(1_024)), "backendRefs": backend},
        {"matches": [{"path": {"value": path(1_022)}}], "filters": redirect(replace(1))},
        {"matches": [{"path": {"value": path(1_021)}}], "filters": redirect(replace(1_024))},
    ]);
    let call = |method: Value| json!({"matches": [{"method": method, "headers": headers}], "backendRefs": backend});
    let grpc = json!([
        call(json!({"service": text(1_024), "method": text(1_024)})),
        call(json!({"method": text(1_000)})),
        call(json!({"type": "RegularExpression", "service": text(500), "method": text(500)})),
    ]);
    vec![route("HTTPRoute", http), route("GRPCRoute", grpc)]
}
