//! An object of at most 1.5 MB takes little memory, however its parts multiply. Counts allocated bytes, without the
//! allocator's overhead.

#![allow(clippy::print_stdout, reason = "the figures are in docs/security.md")]

use std::time::Instant;

use serde_json::{Value, json};
use sesame_control::core::{Core, Input};
use sesame_envoy::Options;
use sesame_testkit::many;
use sesame_tests::allocator::{self, Counting};

/// The maximum size of an object: etcd's limit.
const OBJECT: usize = 1_500_000;
/// A number of objects of one tenant, and the maximum memory for all of them together: below the default limit of Sesame's
/// containers, 768 MiB.
const MANY: usize = 100;
const MEMORY_OF_MANY: usize = 160 * 1024 * 1024;
/// The maximum memory for an object, at any time while it is translated.
const MEMORY: usize = 64 * 1024 * 1024;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

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

fn hostnames(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("h{number}.example.com"))
        .collect()
}

fn http_route(hosts: usize, rules: &[Value]) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"namespace": many::NAMESPACE, "name": "hostile"},
        "spec": {"parentRefs": [{"name": many::GATEWAY}], "hostnames": hostnames(hosts), "rules": rules},
    })
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

/// An HTTPProxy that others include.
fn child() -> Value {
    let route = |number: usize| {
        json!({"conditions": [{"prefix": format!("/p{number}")}], "services": [{"name": "s", "port": 80}],
            "requestHeadersPolicy": {"set": [{"name": "x-a", "value": "v".repeat(100)}]}})
    };
    json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": {"namespace": many::NAMESPACE, "name": "child"},
        "spec": {"routes": (0..100).map(route).collect::<Vec<_>>()},
    })
}

/// A Service with ports from 80 on.
fn service() -> Value {
    let port = |number: usize| json!({"name": format!("p{number}"), "port": 80 + number});
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": many::NAMESPACE, "name": "s"},
        "spec": {"ports": (0..5_000).map(port).collect::<Vec<_>>()},
    })
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

/// An external authorization with long names of headers.
fn check() -> Value {
    let names = (0..64).map(|number| format!("x{number}-{}", "n".repeat(2_000)));
    json!([{"type": "ExternalAuth", "externalAuth": {
        "protocol": "HTTP",
        "backendRef": {"name": "s", "port": 80},
        "http": {"allowedHeaders": names.collect::<Vec<_>>()},
    }}])
}

/// Objects whose parts multiply.
fn objects() -> Vec<(&'static str, Value)> {
    let mut out = vec![
        (
            "HTTPRoute: 16 hostnames, 3 matches, just below the limit",
            http_route(
                16,
                &[json!({"matches": paths(3), "filters": headers(12_500)})],
            ),
        ),
        (
            "HTTPRoute: one hostname, just below the limit",
            http_route(
                1,
                &[json!({"matches": paths(48), "filters": headers(12_500)})],
            ),
        ),
        (
            "HTTPRoute: 16 hostnames, 64 matches, 64 headers of 2 KB",
            http_route(
                16,
                &[json!({"matches": paths(64), "filters": headers(130_000)})],
            ),
        ),
        (
            "HTTPRoute: 16 hostnames, 64 matches, 64 headers of 4 KB",
            http_route(
                16,
                &[json!({"matches": paths(64), "filters": headers(256_000)})],
            ),
        ),
        (
            "HTTPRoute: 16 hostnames, 2 rules of 64 matches, headers",
            http_route(
                16,
                &[
                    json!({"matches": paths(64), "filters": headers(256_000)}),
                    json!({"matches": paths(64), "filters": headers(256_000)}),
                ],
            ),
        ),
        (
            "HTTPRoute: 16 hostnames, 64 matches with long conditions",
            http_route(16, &[json!({"matches": conditions(64, 1_300_000)})]),
        ),
        (
            "HTTPRoute: 16 hostnames, 64 matches, 16 backends with headers",
            http_route(
                16,
                &[json!({"matches": paths(64), "backendRefs": backends(16, 1_300_000)})],
            ),
        ),
        (
            "HTTPRoute: one hostname, paths and one match with long conditions",
            http_route(
                1,
                &[
                    json!({"matches": paths(64)}),
                    json!({"matches": conditions(1, 60_000)}),
                ],
            ),
        ),
        (
            "HTTPRoute: 16 hostnames, 64 matches, external authorization with 64 names of 2 KB",
            http_route(16, &[json!({"matches": paths(64), "filters": check()})]),
        ),
        (
            "HTTPRoute: 4,352 missing ports of a Service with 5,000",
            http_route(1, &missing_ports()),
        ),
        (
            "HTTPRoute: 16 hostnames, 128 matches, short",
            http_route(
                16,
                &[json!({"matches": paths(64)}), json!({"matches": paths(64)})],
            ),
        ),
    ];
    let grpc = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "GRPCRoute",
        "metadata": {"namespace": many::NAMESPACE, "name": "hostile"},
        "spec": {"parentRefs": [{"name": many::GATEWAY}], "hostnames": hostnames(16), "rules": [{
            "matches": (0..64).map(|number| json!({"method": {"service": format!("s{number}")}})).collect::<Vec<_>>(),
            "filters": headers(256_000),
        }]},
    });
    out.push(("GRPCRoute: 16 hostnames, 64 matches, 64 headers", grpc));
    let path = |number: usize| json!({"path": format!("/p{number}"), "pathType": "Prefix", "backend": {"service": {"name": "s", "port": {"number": 80}}}});
    let mut rules: Vec<Value> =
        vec![json!({"http": {"paths": (0..6_000).map(path).collect::<Vec<_>>()}})];
    let wildcards: Vec<String> = (0..9_000)
        .map(|number| format!("*.w{number}.example.com"))
        .collect();
    let ingress = |rules: &[Value], hosts: &[String]| {
        json!({
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": {"namespace": many::NAMESPACE, "name": "hostile"},
            "spec": {"ingressClassName": "sesame", "rules": rules, "tls": [{"hosts": hosts, "secretName": "cert"}]},
        })
    };
    out.push((
        "Ingress: 6,000 paths for 9,000 wildcard hosts",
        ingress(&rules, &wildcards),
    ));
    out.push((
        "Ingress: 64 paths for 64 wildcard hosts, just below the limit",
        ingress(
            &[json!({"http": {"paths": (0..64).map(path).collect::<Vec<_>>()}})],
            &wildcards[..64],
        ),
    ));
    rules = (0..5_000)
        .map(|number| json!({"host": format!("h{number}.example.com"), "http": {"paths": [path(number)]}}))
        .collect();
    out.push(("Ingress: 5,000 hosts", ingress(&rules, &[])));
    let route = |number: usize| {
        json!({"conditions": [{"prefix": format!("/p{number}")}], "services": [{"name": "s", "port": 80}],
            "requestHeadersPolicy": {"set": [{"name": "x-a", "value": "v".repeat(1_000)}]}})
    };
    let proxy = json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": {"namespace": many::NAMESPACE, "name": "hostile"},
        "spec": {"virtualhost": {"fqdn": "proxy.example.com"}, "routes": (0..1_200).map(route).collect::<Vec<_>>()},
    });
    out.push(("HTTPProxy: 1,200 routes with a header of 1 KB", proxy));
    let include =
        |number: usize| json!({"name": "child", "conditions": [{"prefix": format!("/i{number}")}]});
    let root = json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": {"namespace": many::NAMESPACE, "name": "hostile"},
        "spec": {
            "virtualhost": {"fqdn": "proxy.example.com"},
            "includes": (0..1_000).map(include).collect::<Vec<_>>(),
        },
    });
    out.push(("HTTPProxy: 1,000 inclusions of 100 routes", root));
    out
}

#[test]
fn an_object_takes_little_memory() {
    let mut core = Core::new(Options::default());
    let others = [many::gateway(8080), child(), service()];
    core.apply(others.map(|object| Input::Upsert(many::object(&object))));
    let mut too_large = Vec::new();
    for (name, object) in objects() {
        let size = object.to_string().len();
        assert!(size <= OBJECT, "{name}: {size}");
        let object = many::object(&object);
        let key = object.key();
        let before = allocator::in_use();
        allocator::reset_peak();
        let started = Instant::now();
        let step = core.apply([Input::Upsert(object)]);
        let messages: Vec<_> = step
            .resources
            .iter()
            .filter_map(|change| change.message())
            .collect();
        let sent: usize = messages.iter().map(|message| message.len()).sum();
        let took = started.elapsed();
        drop((step, messages));
        let peak = allocator::peak() - before;
        let held = allocator::in_use().saturating_sub(before);
        println!(
            "{name}: {} kB; at most {} kB, then {} kB, {} kB sent, {} ms",
            size / 1_000,
            peak / 1_000,
            held / 1_000,
            sent / 1_000,
            took.as_millis()
        );
        if peak > MEMORY {
            too_large.push(format!("{name}: {peak} bytes"));
        }
        core.apply([Input::Remove(key)]);
    }
    assert!(too_large.is_empty(), "{too_large:#?}");
    // One test, since the allocator counts for the whole process.
    drop(core);
    many_objects();
}

/// Checks that many objects just below the limit fit into Sesame's memory.
fn many_objects() {
    let mut core = Core::new(Options::default());
    core.apply([Input::Upsert(many::object(&many::gateway(8080)))]);
    let short = json!([{"type": "RequestHeaderModifier", "requestHeaderModifier": {"set":
        (0..16).map(|number| json!({"name": format!("x-a-{number}"), "value": "12345678"})).collect::<Vec<_>>()}}]);
    let one = |object: usize| {
        let mut route = http_route(16, &[json!({"matches": paths(48), "filters": short})]);
        let host = |number| format!("h{number}.o{object}.example.com");
        route["metadata"]["name"] = format!("hostile-{object}").into();
        route["spec"]["hostnames"] = (0..16).map(host).collect::<Vec<_>>().into();
        Input::Upsert(many::object(&route))
    };
    let objects: Vec<Input> = (0..MANY).map(one).collect();
    let before = allocator::in_use();
    allocator::reset_peak();
    let step = core.apply(objects);
    let sent: usize = step
        .resources
        .iter()
        .filter_map(|change| change.message())
        .map(|message| message.len())
        .sum();
    drop(step);
    let peak = allocator::peak() - before;
    let held = allocator::in_use().saturating_sub(before);
    println!(
        "{MANY} HTTPRoutes at the limit: at most {} MB, then {} MB, {} MB sent",
        peak / 1_000_000,
        held / 1_000_000,
        sent / 1_000_000
    );
    assert!(sent > MANY * 300_000, "refused: {sent} bytes");
    assert!(peak < MEMORY_OF_MANY, "{peak} bytes");
}
