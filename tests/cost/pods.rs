//! XBackends of type EndpointSelector.

use serde_json::{Value, json};
use sesame_api::Kind;
use sesame_tests::world::World;

use crate::{costs, metadata, remove, route, slice, upsert};

fn xbackend(app: &str, port: u16) -> Value {
    json!({
        "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
        "kind": "XBackend",
        "metadata": metadata("pods"),
        "spec": {
            "type": "EndpointSelector",
            "endpointSelector": {"matchLabels": {"app": app}},
            "port": {"number": port},
        },
    })
}

fn pods(address: &str) -> Value {
    let mut slice = slice("pods", address);
    slice["metadata"]["labels"] = json!({"projectsesame.io/xbackend": "pods"});
    slice
}

/// Pods that come and go, and a changed port, change only the endpoints.
pub(crate) fn xbackends(world: &mut World) {
    let mut route = route("pods", "pods.example.com", "");
    route["spec"]["rules"][0]["backendRefs"] =
        json!([{"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": "pods"}]);
    world.apply([
        upsert(xbackend("a", 80)),
        upsert(route),
        upsert(pods("10.0.0.1")),
    ]);
    let endpoints = "ClusterLoadAssignment xbackend:default/pods";
    costs(
        world,
        vec![upsert(pods("10.0.0.2"))],
        &[("endpoints", 1), ("envoy.endpoints", 1)],
        &[endpoints],
    );
    let state: &[(&str, usize)] = &[
        ("xbackend state", 1),
        ("xbackend trust bundle", 1),
        ("pod service change", 1),
        ("xbackend status", 1),
    ];
    costs(world, vec![upsert(xbackend("b", 80))], state, &[]);
    costs(
        world,
        vec![upsert(xbackend("b", 81))],
        &[
            state,
            &[("backend", 1), ("endpoints", 1), ("envoy.endpoints", 1)],
        ]
        .concat(),
        &[endpoints],
    );
    world.apply([
        remove(Kind::HTTPRoute, "pods"),
        remove(Kind::XBackend, "pods"),
        remove(Kind::EndpointSlice, "pods-x"),
    ]);
}
