//! A tenant whose objects are valid but extreme, or reach for what belongs to others.
//!
//! In: neighbours. Out: the tenant's objects report the reasons; the neighbours' changes are served.

use std::fs;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::{Neighbours, PROXY, SHARED};
use crate::e2e::scene::{Scene, until};
use crate::e2e::shop;
use sesame_tools::cargo;

/// The tenant's namespace.
pub(super) const NAMESPACE: &str = "hostile";

/// A host with the most expensive regular expressions that are accepted.
pub(super) const EXPRESSIONS: &str = "expressions.hostile.test";

/// The number of objects just below the limit on configuration.
const LARGE: usize = 100;

/// The golden test whose Secrets have keys and certificates that Envoys don't accept.
const SECRETS: &str = "tests/cases/listener_tls/wrong_secrets.yaml";

/// Objects, and a part of their statuses.
const EXPECTED: [(&str, &str, &str); 13] = [
    ("httproute", "oversized", "KiB in total; the limit is"),
    ("httproute", "framing", "framing or hop-by-hop header"),
    ("httproute", "slow", "needs too many states"),
    ("httproute", "expressions", "the limit is 3 ms"),
    ("httproute", "ungranted", "no ReferenceGrant in namespace"),
    ("gateway", "web", "neither RSA nor ECDSA"),
    ("gateway", "web", "1024-bit RSA key"),
    ("gateway", "web", "does not match the certificate"),
    ("gateway", "foreign", "no ReferenceGrant in namespace"),
    ("gateway", "image", "envoy.image"),
    ("httpproxy", "second", "IncludeCycle"),
    ("httpproxy", "level-1", "16384 inclusions"),
    ("httpproxy", "claim", "is older and serves host"),
];

/// Creates the objects, and checks their statuses and the neighbours.
pub(super) fn attack(scene: &Scene, neighbours: &mut Neighbours<'_>) -> Result<String> {
    scene.apply(&[
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": NAMESPACE } }),
    ])?;
    scene.apply(&objects()?)?;
    neighbours.change()?;
    for (kind, name, expected) in EXPECTED {
        let what = format!("the status of {kind} {name} has {expected:?}");
        until(&what, shop::SERVED, || {
            let object = scene.get(&["-n", NAMESPACE, kind, name])?;
            let status = object["status"].to_string();
            ensure!(status.contains(expected), "{status}");
            Ok(())
        })?;
    }
    let large: Vec<Value> = (0..LARGE).map(large).collect();
    scene.apply(&large)?;
    let meanwhile = neighbours.change()?;
    let (left_out, took) = until("all large routes have a status", shop::SERVED, || {
        let routes = scene.list(&["-n", NAMESPACE, "httproutes", "-l", "size=large"])?;
        let conditions = routes
            .iter()
            .map(|route| route["status"]["parents"][0]["conditions"].to_string());
        let conditions: Vec<String> = conditions.collect();
        let pending = conditions.iter().filter(|text| *text == "null").count();
        ensure!(pending == 0, "{pending} routes have no status");
        let left_out = conditions
            .iter()
            .filter(|text| text.contains("on wildcard hosts"));
        Ok(left_out.count())
    })?;
    let later = neighbours.change()?;
    Ok(format!(
        "{LARGE} large routes, {left_out} of them left out on wildcard hosts, in {:.0} s, changes meanwhile served within {:.2} s, \
         later within {:.2} s",
        took.as_secs_f32(),
        meanwhile.as_secs_f32(),
        later.as_secs_f32()
    ))
}

fn objects() -> Result<Vec<Value>> {
    let mut out = secrets()?;
    out.extend([
        route("oversized", &hosts("oversized"), &[json!({ "matches": paths(64), "filters": headers(16, 2_000) })]),
        route("framing", &["framing.hostile.test".to_owned()], &[json!({ "filters": [{
            "type": "RequestHeaderModifier",
            "requestHeaderModifier": { "set": [{ "name": "Transfer-Encoding", "value": "chunked" }] },
        }] })]),
        route("slow", &["slow.hostile.test".to_owned()], &[expressions("/.*a.{20}", 1)]),
        route("expressions", &[EXPRESSIONS.to_owned()], &[expressions("/.*x", 60)]),
        // The oldest route for a host and path takes precedence.
        route("claim", &[shop::host(SHARED)], &[json!({})]),
        route("ungranted", &["ungranted.hostile.test".to_owned()], &[json!({
            "backendRefs": [{ "name": "shop", "namespace": shop::NAMESPACE, "port": 8080 }],
        })]),
        gateway("foreign", json!({}), json!([{
            "name": "https", "port": 443, "protocol": "HTTPS",
            "tls": { "certificateRefs": [{ "name": "any", "namespace": shop::NAMESPACE }] },
        }])),
        json!({
            "apiVersion": "projectsesame.io/v1alpha1",
            "kind": "SesameConfiguration",
            "metadata": { "name": "image", "namespace": NAMESPACE },
            "spec": { "envoy": { "image": "example.com/other:1" } },
        }),
        gateway(
            "image",
            json!({ "parametersRef": { "group": "projectsesame.io", "kind": "SesameConfiguration", "name": "image" } }),
            json!([{ "name": "http", "port": 80, "protocol": "HTTP" }]),
        ),
        proxy("cycle", json!({ "virtualhost": { "fqdn": "cycle.hostile.test" }, "includes": [{ "name": "first" }] })),
        proxy("first", json!({ "includes": [{ "name": "second" }] })),
        proxy("second", json!({ "includes": [{ "name": "first" }] })),
        proxy("claim", json!({ "virtualhost": { "fqdn": shop::host(PROXY) }, "routes": [{ "directResponsePolicy": { "statusCode": 418 } }] })),
        proxy("tree", json!({ "virtualhost": { "fqdn": "tree.hostile.test" }, "includes": inclusions("level-1") })),
        proxy("level-1", json!({ "includes": inclusions("level-2") })),
        proxy("level-2", json!({ "includes": inclusions("leaf") })),
        proxy("leaf", json!({ "routes": [{ "directResponsePolicy": { "statusCode": 200 } }] })),
    ]);
    Ok(out)
}

/// The Secrets of a golden test and the Gateway that refers to them.
fn secrets() -> Result<Vec<Value>> {
    let path = cargo::root().join(SECRETS);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let input = text.split("# --- output ---").next().unwrap_or_default();
    let mut objects: Vec<Value> = serde_saphyr::from_multiple(input)?;
    // The API server refuses the Secret without data.
    objects.retain(|object| object["metadata"]["name"] != "empty");
    for object in &mut objects {
        object["metadata"]["namespace"] = json!(NAMESPACE);
    }
    Ok(objects)
}

fn gateway(name: &str, infrastructure: Value, listeners: Value) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": { "gatewayClassName": "sesame", "infrastructure": infrastructure, "listeners": listeners },
    })
}

fn proxy(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": spec,
    })
}

/// Three levels of these are 125,000 inclusions.
fn inclusions(name: &str) -> Vec<Value> {
    let one = |number| json!({ "name": name, "conditions": [{ "prefix": format!("/{number}") }] });
    (0..50).map(one).collect()
}

/// A route on the shared Gateway.
fn route(name: &str, hosts: &[String], rules: &[Value]) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": { "name": name, "namespace": NAMESPACE },
        "spec": {
            "parentRefs": [{ "name": SHARED, "namespace": shop::NAMESPACE }],
            "hostnames": hosts,
            "rules": rules,
        },
    })
}

/// A route whose hosts take almost as much configuration as is permitted.
fn large(number: usize) -> Value {
    let name = format!("large-{number}");
    let mut hosts = hosts(&name);
    if number.is_multiple_of(2) {
        // A large table has them in every shard, so most of them exceed the limit for wildcard hosts.
        hosts.iter_mut().for_each(|host| host.insert_str(0, "*."));
    }
    let mut route = route(
        &name,
        &hosts,
        &[json!({ "matches": paths(32), "filters": headers(4, 8) })],
    );
    route["metadata"]["labels"] = json!({ "size": "large" });
    route
}

/// The maximum number of hostnames of a route.
fn hosts(name: &str) -> Vec<String> {
    (0..16)
        .map(|number| format!("{name}-{number}.hostile.test"))
        .collect()
}

/// Matches of a rule, which has at most 64.
fn paths(count: usize) -> Vec<Value> {
    (0..count)
        .map(|number| json!({ "path": { "value": format!("/{number}") } }))
        .collect()
}

/// A rule with matches that differ in their expressions' last characters.
fn expressions(value: &str, count: usize) -> Value {
    let one = |number: usize| {
        let value = format!("{value}{number}");
        json!({ "path": { "type": "RegularExpression", "value": value } })
    };
    json!({ "matches": (0..count).map(one).collect::<Vec<_>>() })
}

/// Filters with four lists of headers. The maximum is 16 each, with values of 4,096 bytes.
fn headers(count: usize, length: usize) -> Value {
    let value = "v".repeat(length);
    let list = |part: &str| {
        let header = |number| json!({ "name": format!("x-{part}-{number}"), "value": value });
        (0..count).map(header).collect::<Vec<_>>()
    };
    json!([
        { "type": "RequestHeaderModifier", "requestHeaderModifier": { "set": list("a"), "add": list("b") } },
        { "type": "ResponseHeaderModifier", "responseHeaderModifier": { "set": list("c"), "add": list("d") } },
    ])
}
