//! Routes of the Gateway API.

use serde_json::{Value, json};

use super::super::pool;
use super::gateways::{WITH_TLS, listeners};
use super::policies::XBACKENDS;
use super::{NAME, NAMESPACE, domains, list, named, names, object, path, services, text};

pub(super) fn all() -> Vec<Value> {
    let mut all = longest();
    all.extend(layer_4());
    for kind in ["HTTPRoute", "GRPCRoute"] {
        // 16 hostnames with 128 matches on two ports would exceed the limit on a route's configuration.
        all.push(with_matches(kind, 16, [60, 1]));
        all.push(with_matches(kind, 8, [64, 50]));
        all.push(with_backends(kind));
    }
    all
}

/// Session persistence with the longest names and paths: with a cookie and with a header.
pub(super) fn sessions() -> [Value; 2] {
    [
        json!({"type": "Cookie", "cookie": {"name": text(256), "path": path(1_024)}}),
        json!({"type": "Header", "header": {"name": text(256)}}),
    ]
}

/// References to this number of Services.
fn backends(count: usize) -> Vec<Value> {
    let backend =
        |name| json!({"namespace": NAMESPACE, "name": name, "port": 80, "weight": 1_000_000});
    services().take(count).map(backend).collect()
}

/// References to this number of listeners each of the Gateway and the ListenerSet with the longest names.
fn parents(count: usize) -> Vec<Value> {
    let parent = |kind: &str, name| json!({"kind": kind, "namespace": NAMESPACE, "name": NAME, "sectionName": name});
    let both = ["Gateway", "ListenerSet"].into_iter();
    both.flat_map(|kind| listeners().take(count).map(move |name| parent(kind, name)))
        .collect()
}

/// A match of a kind of route.
fn matching(kind: &str, number: usize) -> Value {
    match kind {
        "HTTPRoute" => json!({"path": {"type": "Exact", "value": format!("/{number}")}}),
        _ => json!({"method": {"service": "a", "method": format!("m{number}")}}),
    }
}

/// A route with as many rules as possible, two parents for each of its hostnames, and these numbers of matches in its first
/// rules. A rule has at most 64 matches, a route 128, 16 hostnames and 32 parents.
fn with_matches(kind: &str, hostnames: usize, matches: [usize; 2]) -> Value {
    let sizes = [matches.as_slice(), &[1; 14]].concat();
    let mut next = 0;
    let rule = |(name, size): (String, usize)| {
        let first = next;
        next += size;
        json!({
            "name": name,
            "matches": list(size, |number| matching(kind, first + number)),
            "backendRefs": backends(1),
        })
    };
    let rules: Vec<Value> = names(16, 253).zip(sizes).map(rule).collect();
    let spec =
        json!({"parentRefs": parents(hostnames), "hostnames": domains(hostnames), "rules": rules});
    named(
        "gateway.networking.k8s.io/v1",
        kind,
        &names(hostnames, 253).last().expect("a name"),
        spec,
    )
}

/// A route with as many backends and filters as possible.
fn with_backends(kind: &str) -> Value {
    let http = kind == "HTTPRoute";
    let target = |name| json!({"namespace": NAMESPACE, "name": name, "port": 80});
    let headers: Vec<String> = names(64, 256).collect();
    let http_auth = json!({
        "protocol": "HTTP",
        "http": {"path": path(1_024), "allowedHeaders": headers, "allowedResponseHeaders": headers},
        "backendRef": target(services().next()),
    });
    let grpc_auth = json!({
        "protocol": "GRPC",
        "grpc": {"allowedHeaders": headers},
        "backendRef": target(services().next()),
    });
    let auths =
        [http_auth, grpc_auth].map(|auth| json!({"type": "ExternalAuth", "externalAuth": auth}));
    let header = |name: &str| json!({"set": [{"name": name, "value": "a"}]});
    let modifiers = || {
        vec![
            json!({"type": "RequestHeaderModifier", "requestHeaderModifier": header("x-request")}),
            json!({"type": "ResponseHeaderModifier", "responseHeaderModifier": header("x-response")}),
        ]
    };
    let rewrite = json!({"type": "URLRewrite", "urlRewrite": {"hostname": domains(1)[0]}});
    let filters = |auth: &Value| {
        let mut filters = modifiers();
        if http {
            filters.extend([rewrite.clone(), auth.clone()]);
        }
        let rest = 16 - filters.len();
        let mirrors = services().take(rest);
        filters.extend(mirrors.map(|name| json!({"type": "RequestMirror", "requestMirror": {"backendRef": target(Some(name))}})));
        filters
    };
    let with_filters: Vec<Value> = backends(16)
        .into_iter()
        .map(|mut backend| {
            backend["filters"] = modifiers().into();
            backend
        })
        .collect();
    let rule = |number: usize| {
        json!({
            "matches": [matching(kind, number)],
            "filters": filters(&auths[number % 2]),
            "backendRefs": with_filters,
            "sessionPersistence": sessions()[number % 2],
        })
    };
    let mut rules: Vec<Value> = (0..16).map(rule).collect();
    if http {
        let code = |number: usize| 400 + number;
        rules[0]["retry"] =
            json!({"attempts": 2_147_483_647, "codes": list(200, code), "backoff": "99999h"});
        rules[0]["timeouts"] = json!({"request": "0s", "backendRequest": "99999h"});
        rules[1]["backendRefs"] = list(
            2,
            |at| json!({"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": XBACKENDS[at]}),
        );
    }
    let parents = json!([{"namespace": NAMESPACE, "name": NAME}]);
    let hosts = &domains(64)[63..];
    let spec = json!({"parentRefs": parents, "hostnames": hosts, "rules": rules});
    object("gateway.networking.k8s.io/v1", kind, spec)
}

/// A TLSRoute, a TCPRoute and a UDPRoute.
fn layer_4() -> Vec<Value> {
    let route = |kind: &str, section: &str| {
        let mut backends = backends(16);
        if kind == "UDPRoute" {
            for backend in &mut backends {
                backend["port"] = 81.into();
            }
        }
        let rules = json!([{"name": NAME, "backendRefs": backends}]);
        let parents = json!([{"namespace": NAMESPACE, "name": WITH_TLS, "sectionName": section}]);
        let spec = json!({"parentRefs": parents, "rules": rules});
        object("gateway.networking.k8s.io/v1", kind, spec)
    };
    let mut tls = route("TLSRoute", "tls");
    tls["spec"]["hostnames"] = domains(1_024).into();
    vec![tls, route("TCPRoute", "tcp"), route("UDPRoute", "udp")]
}

/// HTTPRoutes and GRPCRoutes with the longest values and lists that their CRDs and Envoy's limits accept. Each has one rule with
/// one match, and one host: a route's configuration may take at most 512 KiB.
fn longest() -> Vec<Value> {
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
    let redirect = |path: Value| json!([{"type": "RequestRedirect", "requestRedirect": {"hostname": domains(1)[0], "path": path}}]);
    let (namespace, gateway) = pool::GATEWAYS[0];
    let route = |kind: &str, (number, rule): (usize, Value)| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": kind,
            "metadata": {"namespace": namespace, "name": names(number + 1, 253).last()},
            "spec": {
                "parentRefs": [{"name": gateway}],
                "hostnames": [domains(number + 1).pop()],
                "rules": [rule],
            },
        })
    };
    let http = [
        json!({
            "matches": [{"path": {"type": "Exact", "value": path(1_024)}, "headers": headers, "queryParams": query}],
            "filters": filters(json!({"type": "ReplaceFullPath", "replaceFullPath": path(1_024)})),
            "backendRefs": backend,
        }),
        json!({"matches": [{"path": {"type": "RegularExpression", "value": path(1_000)}}], "backendRefs": backend}),
        json!({"matches": prefix, "filters": filters(replace(1)), "backendRefs": backend}),
        json!({"matches": [{"path": {"value": path(1_023)}}], "filters": filters(replace(1_024)), "backendRefs": backend}),
        json!({"matches": [{"path": {"value": path(1_022)}}], "filters": redirect(replace(1))}),
        json!({"matches": [{"path": {"value": path(1_021)}}], "filters": redirect(replace(1_024))}),
        json!({
            "matches": [{"path": {"value": path(1_020)}}],
            "filters": redirect(json!({"type": "ReplaceFullPath", "replaceFullPath": path(1_024)})),
        }),
    ];
    let modifiers = json!([
        {"type": "RequestHeaderModifier", "requestHeaderModifier": modifier},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": modifier},
    ]);
    let call = |method: Value| {
        json!({
            "matches": [{"method": method, "headers": headers}],
            "filters": modifiers,
            "backendRefs": backend,
        })
    };
    let grpc = [
        call(json!({"service": text(1_024), "method": text(1_024)})),
        call(json!({"method": text(1_000)})),
        call(json!({"type": "RegularExpression", "service": text(500), "method": text(500)})),
    ];
    let http = http
        .into_iter()
        .enumerate()
        .map(|rule| route("HTTPRoute", rule));
    let grpc = grpc
        .into_iter()
        .enumerate()
        .map(|rule| route("GRPCRoute", rule));
    http.chain(grpc).collect()
}
