//! Objects at the bounds of their CRDs.

mod configuration;
mod gateways;
mod http_proxy;
mod policies;
mod routes;

use serde_json::{Value, json};

use super::pool;

pub use configuration::INSTANCE;
pub use gateways::GATEWAYS_AT_BOUNDS;

/// The namespace of most of these objects, of the maximum length.
pub(super) const NAMESPACE: &str = match core::str::from_utf8(&[b'n'; 63]) {
    Ok(text) => text,
    Err(_) => "",
};

/// The name of most of these objects, of the maximum length.
pub(super) const NAME: &str = match core::str::from_utf8(&[b'a'; 253]) {
    Ok(text) => text,
    Err(_) => "",
};

/// The number of Services, and the maximum number of a route's backends.
const SERVICES: usize = 16;

/// Objects of every kind that together reach the bounds of all fields.
pub(super) fn all() -> Vec<Value> {
    [
        gateways::all(),
        routes::all(),
        policies::all(),
        http_proxy::all(),
        configuration::all(),
        crowds(),
    ]
    .concat()
}

/// An object with the longest name and namespace.
fn object(api_version: &str, kind: &str, spec: Value) -> Value {
    named(api_version, kind, NAME, spec)
}

fn named(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": api_version,
        "kind": kind,
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": spec,
    })
}

fn text(length: usize) -> String {
    "a".repeat(length)
}

fn path(length: usize) -> String {
    format!("/{}", text(length - 1))
}

/// Different names of this length.
fn names(count: usize, length: usize) -> impl Iterator<Item = String> + Clone {
    (0..count).map(move |number| format!("x{number:04}{}", text(length - 5)))
}

/// Different domains of the maximum length.
fn domains(count: usize) -> Vec<String> {
    let rest = [text(63), text(63), text(61)].join(".");
    names(count, 63)
        .map(|label| format!("{label}.{rest}"))
        .collect()
}

fn list<T: Into<Value>>(count: usize, element: impl FnMut(usize) -> T) -> Value {
    (0..count).map(element).map(Into::into).collect()
}

/// The names of Services with the maximum length.
fn services() -> impl Iterator<Item = String> + Clone {
    names(SERVICES, 63)
}

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
