//! Routes.

use serde_json::{Value, json};
use sesame_testkit::many;

use super::{NAME, Shape, hostnames, list, object, service, slice};
use crate::gateways::{self, gateway};

/// Filters with 64 headers of about `bytes` in total.
fn headers(bytes: usize) -> Value {
    let value = "v".repeat((bytes / 64).min(4_000));
    let list = |part: &str| {
        let header = |number| json!({"name": format!("x-{part}-{number}"), "value": value});
        (0..16).map(header).collect::<Vec<_>>()
    };
    json!([
        {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": list("a"), "add": list("b")}},
        {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"set": list("c"), "add": list("d")}},
    ])
}

pub(crate) fn http_route(hosts: usize, rules: &[Value]) -> Value {
    let parent = json!([{"name": many::GATEWAY}]);
    let spec = json!({"parentRefs": parent, "hostnames": hostnames(hosts), "rules": rules});
    object("gateway.networking.k8s.io/v1", "HTTPRoute", NAME, spec)
}

fn paths(count: usize) -> Vec<Value> {
    let path = |number| json!({"path": {"value": format!("/p{number}")}});
    (0..count).map(path).collect()
}

/// Matches with long conditions.
fn conditions(count: usize, bytes: usize) -> Vec<Value> {
    let condition = |of: usize, number: usize| {
        let value = format!("{of}{}", "v".repeat(bytes / count / 16));
        json!({"name": format!("x-{number}"), "value": value})
    };
    let one =
        |of| json!({"headers": (0..16).map(|number| condition(of, number)).collect::<Vec<_>>()});
    (0..count).map(one).collect()
}

fn backends(count: usize, bytes: usize) -> Value {
    let one = |_| json!({"name": "s", "port": 80, "filters": headers(bytes / count)});
    (0..count).map(one).collect::<Vec<_>>().into()
}

/// Backends and mirrors that each refer to another port, none of which exists.
fn missing_ports() -> Vec<Value> {
    let backend = |port: usize| {
        let mirror = |number| {
            let backend = json!({"name": "s", "port": 20_000 + port * 17 + number});
            json!({"type": "RequestMirror", "requestMirror": {"backendRef": backend}})
        };
        let mirrors = (1..17).map(mirror).collect::<Vec<_>>();
        json!({"name": "s", "port": 20_000 + port * 17, "filters": mirrors})
    };
    let rule = |rule: usize| {
        let backends = (rule * 16..(rule + 1) * 16).map(backend);
        json!({"backendRefs": backends.collect::<Vec<_>>()})
    };
    (0..16).map(rule).collect()
}

/// An external authorization with this number of names of headers.
pub(crate) fn check(count: usize, bytes: usize) -> Value {
    let name = |number| json!(format!("x{number}-{}", "n".repeat(bytes)));
    json!([{"type": "ExternalAuth", "externalAuth": {
        "protocol": "HTTP",
        "backendRef": {"name": "s", "port": 80},
        "http": {"allowedHeaders": list(count, name)},
    }}])
}

/// Backends on 16 ports each of 16 rules.
fn ports(first: usize) -> Vec<Value> {
    let rule = |rule: usize| {
        let backend = |number| json!({"name": "s", "port": first + rule * 16 + number});
        json!({"matches": [{"path": {"value": format!("/r{rule}")}}], "backendRefs": list(16, backend)})
    };
    (0..16).map(rule).collect()
}

/// Rules whose matches have 128 regular expressions each for 16 headers.
fn expressions() -> Vec<Value> {
    let header = |number| json!({"type": "RegularExpression", "name": format!("x-{number}"), "value": format!("a{number}.*b")});
    let one = |number| json!({"path": {"type": "RegularExpression", "value": format!("/a{number}.*b")}, "headers": list(16, header)});
    vec![
        json!({"matches": list(64, one)}),
        json!({"matches": list(64, one)}),
    ]
}

/// A route for connections or datagrams.
fn l4(kind: &str, version: &str, settings: Value) -> Value {
    let backend = |number| json!({"name": "s", "port": 80 + number});
    let mut route = object(
        &format!("gateway.networking.k8s.io/{version}"),
        kind,
        NAME,
        json!({"parentRefs": [{"name": "wide"}], "rules": [{"backendRefs": list(16, backend)}]}),
    );
    for (field, value) in settings.as_object().unwrap() {
        route["spec"][field] = value.clone();
    }
    route
}

fn on(gateway: &str, mut route: Value) -> Value {
    route["spec"]["parentRefs"] = json!([{"name": gateway}]);
    route
}

fn on_ports() -> Vec<Option<Shape>> {
    let protocol = |protocol: &str| {
        let mut service = service("s", 5_000);
        if protocol == "UDP" {
            for port in service["spec"]["ports"].as_array_mut().unwrap() {
                port["protocol"] = json!(protocol);
            }
        }
        vec![gateway("wide", &json!({"protocol": protocol})), service]
    };
    let tls = json!({"protocol": "TLS", "tls": {"mode": "Passthrough"}});
    let http = || protocol("HTTP");
    let slices = (0..3).map(|number| {
        let mut slice = slice("s", 16, 1_000);
        slice["metadata"]["name"] = json!(format!("s-{number}"));
        let address = |place: usize| format!("10.{number}.{}.{}", place / 250, place % 250);
        for port in slice["ports"].as_array_mut().unwrap() {
            port["protocol"] = json!("UDP");
        }
        slice["endpoints"] = list(1_000, |place| json!({"addresses": [address(place)]}));
        slice
    });
    let short = [json!({"matches": paths(64), "backendRefs": [{"name": "s", "port": 80}]})];
    let long = [json!({"matches": paths(3), "filters": headers(7_000)})];
    let parents = json!({"parentRefs": list(32, |number| json!({"name": "wide", "sectionName": format!("l{number}")}))});
    vec![
        shape!(
            "HTTPRoute: 16 hostnames, 64 matches, 64 ports",
            http(),
            on("wide", http_route(16, &short)),
        ),
        shape!(
            "HTTPRoute: 16 hostnames, just below the limit, 64 ports",
            http(),
            on("wide", http_route(16, &long)),
        ),
        shape!(
            "HTTPRoute: 256 ports of a Service",
            http(),
            http_route(16, &ports(80)),
        )
        .map(Shape::copied),
        shape!(
            "HTTPRoute: 256 ports of a Service, 64 ports",
            http(),
            on("wide", http_route(16, &ports(80))),
        ),
        shape!(
            "HTTPRoute: 2,176 expressions, 64 ports",
            http(),
            on("wide", http_route(16, &expressions())),
        ),
        shape!(
            "TLSRoute: 16 hostnames, 64 ports",
            vec![gateway("wide", &tls), service("s", 5_000)],
            l4("TLSRoute", "v1", json!({"hostnames": hostnames(16)})),
        ),
        shape!(
            "TCPRoute: 64 ports",
            protocol("TCP"),
            l4("TCPRoute", "v1", json!({})),
        )
        .map(Shape::copied),
        shape!(
            "TCPRoute: 32 parents",
            protocol("TCP"),
            l4("TCPRoute", "v1", parents),
        ),
        shape!(
            "UDPRoute: 64 ports",
            protocol("UDP"),
            l4("UDPRoute", "v1", json!({})),
        )
        .map(Shape::copied),
        shape!(
            "UDPRoute: 64 ports, 3,000 endpoints",
            [protocol("UDP"), slices.collect()].concat(),
            l4("UDPRoute", "v1", json!({})),
        ),
        shape!(
            "HTTPRoute: 16 hostnames on a Gateway with external authorization",
            vec![gateways::gateway(
                "wide",
                &json!({"filters": {"requests": check(64, 55)}}),
            )],
            on("wide", http_route(16, &short)),
        ),
        shape!(
            "EndpointSlice: 1,000 endpoints, 100 ports, a route to each",
            vec![service("s", 5_000), http_route(1, &ports(80))],
            slice("s", 100, 1_000),
        ),
        shape!(
            "Service: 5,000 ports, 100 routes",
            gateways::routes(100, many::GATEWAY),
            service("s", 5_000),
        ),
    ]
}

pub(crate) fn shapes() -> Vec<Option<Shape>> {
    let refused = |name, hosts, rules: &[Value]| shape!(name, vec![], http_route(hosts, rules));
    let full = json!({"matches": paths(64), "filters": headers(256_000)});
    let short = json!([{"type": "RequestHeaderModifier", "requestHeaderModifier":
        {"set": list(16, |number| json!({"name": format!("x-a-{number}"), "value": "12345678"}))}}]);
    let mut out = vec![
        refused(
            "HTTPRoute: 16 hostnames, 3 matches, just below the limit",
            16,
            &[json!({"matches": paths(3), "filters": headers(7_000)})],
        )
        .map(Shape::copied),
        refused(
            "HTTPRoute: 16 hostnames, 32 matches, just below the limit",
            16,
            &[json!({"matches": paths(32), "filters": short})],
        )
        .map(Shape::copied),
        refused(
            "HTTPRoute: one hostname, just below the limit",
            1,
            &[json!({"matches": paths(32), "filters": headers(12_500)})],
        ),
        refused(
            "HTTPRoute: 16 hostnames, 64 matches, 64 headers of 2 KB",
            16,
            &[json!({"matches": paths(64), "filters": headers(130_000)})],
        ),
        refused(
            "HTTPRoute: 16 hostnames, 64 matches, 64 headers of 4 KB",
            16,
            std::slice::from_ref(&full),
        ),
        refused(
            "HTTPRoute: 16 hostnames, 2 rules of 64 matches, headers",
            16,
            &[full.clone(), full],
        ),
        refused(
            "HTTPRoute: 16 hostnames, 64 matches with long conditions",
            16,
            &[json!({"matches": conditions(64, 1_300_000)})],
        )
        .map(Shape::copied),
        refused(
            "HTTPRoute: 16 hostnames, 64 matches, 16 backends with headers",
            16,
            &[json!({"matches": paths(64), "backendRefs": backends(16, 1_300_000)})],
        )
        .map(Shape::copied),
        refused(
            "HTTPRoute: one hostname, paths and one match with long conditions",
            1,
            &[
                json!({"matches": paths(64)}),
                json!({"matches": conditions(1, 60_000)}),
            ],
        ),
        refused(
            "HTTPRoute: 16 hostnames, 64 matches, external authorization with 64 names of 2 KB",
            16,
            &[json!({"matches": paths(64), "filters": check(64, 2_000)})],
        ),
        shape!(
            "HTTPRoute: 4,352 missing ports of a Service with 5,000",
            vec![service("s", 5_000)],
            http_route(1, &missing_ports()),
        ),
        refused(
            "HTTPRoute: 16 hostnames, 128 matches, short",
            16,
            &[json!({"matches": paths(64)}), json!({"matches": paths(64)})],
        ),
        refused(
            "HTTPRoute: 16 hostnames, 2,176 expressions",
            16,
            &expressions(),
        ),
    ];
    let method = |number| json!({"method": {"service": format!("s{number}")}});
    let mut grpc = http_route(
        16,
        &[json!({"matches": list(64, method), "filters": headers(256_000)})],
    );
    grpc["kind"] = "GRPCRoute".into();
    out.push(shape!(
        "GRPCRoute: 16 hostnames, 64 matches, 64 headers",
        vec![],
        grpc,
    ));
    let mut grpc = http_route(
        16,
        &[json!({"matches": list(3, method), "filters": headers(7_000)})],
    );
    grpc["kind"] = "GRPCRoute".into();
    out.push(
        shape!(
            "GRPCRoute: 16 hostnames, 3 matches, just below the limit",
            vec![],
            grpc,
        )
        .map(Shape::copied),
    );
    out.extend(on_ports());
    out
}
