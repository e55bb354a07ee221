//! TLSRoutes. A port's listener is one resource, so routes must not change it.

use serde_json::{Value, json};
use sesame_api::Kind;
use sesame_control::Options;
use sesame_tests::world::World;

use crate::{
    BACKEND, costs, fleet_state, hostname, metadata, remove, service, service_name, slice, upsert,
    with,
};

/// TLSRoutes, each with its own hostname and Service.
const ROUTES: usize = 1_000;

const ROUTE: &[(&str, usize)] = &[
    ("our tls_routes", 1),
    ("tls backends", 1),
    ("tls attachments", 1),
    ("backend uses", 1),
    ("chain", 1),
    ("destination", 1),
    ("tls_route status", 1),
];

fn gateway() -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": metadata("web"),
        "spec": {
            "gatewayClassName": "sesame",
            "listeners": [{
                "name": "tls",
                "port": 8443,
                "protocol": "TLS",
                "hostname": "*.example.com",
                "tls": {"mode": "Passthrough"},
            }],
        },
    })
}

fn route(name: &str, hostname: &str, service: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "TLSRoute",
        "metadata": metadata(name),
        "spec": {
            "parentRefs": [{"name": "web"}],
            "hostnames": [hostname],
            "rules": [{"backendRefs": [{"name": service, "port": 80}]}],
        },
    })
}

#[test]
fn a_tls_route_changes_only_its_own_cluster() {
    let mut inputs = vec![fleet_state(true), upsert(gateway())];
    for n in 0..ROUTES {
        let name = service_name(n);
        inputs.push(upsert(route(&name, &hostname(n), &name)));
        inputs.push(upsert(service(&name)));
        inputs.push(upsert(slice(&name, "10.0.0.1")));
    }
    let mut world = World::new(Options::default());
    world.apply(inputs);
    // Clusters and endpoints, and the listener.
    assert_eq!(world.resources().len(), 2 * ROUTES + 1);

    let (one, another) = (service_name(1), service_name(2));
    let endpoints =
        |service: &str| format!("ClusterLoadAssignment default/{service}:80?protocol=tcp");
    let name = |n: usize| format!("8443/{}", hostname(n));
    // Switch to a backend that another route already uses. The old backend becomes unused.
    let changed = ("envoy.destinations", 1);
    costs(
        &mut world,
        vec![upsert(route(&one, &hostname(1), &another))],
        &with(&[ROUTE, &[changed]]),
        &[
            &format!("Cluster {}", name(1)),
            &format!("-{}", endpoints(&one)),
        ],
    );
    // Change the host.
    costs(
        &mut world,
        vec![upsert(route("new", &hostname(ROUTES), &one))],
        &with(&[ROUTE, BACKEND, &[changed, ("gateway status", 1)]]),
        &[&format!("Cluster {}", name(ROUTES)), &endpoints(&one)],
    );
    costs(
        &mut world,
        vec![remove(Kind::TLSRoute, "new")],
        &[("gateway status", 1)],
        &[
            &format!("-Cluster {}", name(ROUTES)),
            &format!("-{}", endpoints(&one)),
        ],
    );
}
