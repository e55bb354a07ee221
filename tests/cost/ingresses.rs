//! Ingresses, each with its own hostname, Service and certificate.

use serde_json::{Value, json};
use sesame_api::Kind;
use sesame_control::{FleetId, Options};
use sesame_model::{FleetAddress, FleetState};
use sesame_tests::world::World;

use crate::{
    BACKEND, Input, ONE, ROUTES, costs, hostname, metadata, remove, route_name, service,
    service_name, slice, upsert, with,
};

/// The work for each change to an Ingress without TLS.
const INGRESS: &[(&str, usize)] = &[
    ("our ingresses", 1),
    ("ingress tls", 1),
    ("ingress rules", 1),
    ("ingress attachments", 1),
    ("ingress status", 1),
    ("ingress notices", 1),
];

/// The work for a host whose routes change.
const HOST: &[(&str, usize)] = &[
    ("virtual host", 1),
    ("envoy.virtual_hosts", 1),
    ("overlaps", 1),
];

fn ingress(name: &str, hosts: &[(&str, &str)]) -> Value {
    let rules: Vec<Value> = hosts
        .iter()
        .map(|(host, service)| {
            json!({
                "host": host,
                "http": {"paths": [{
                    "path": "/",
                    "pathType": "Prefix",
                    "backend": {"service": {"name": service, "port": {"number": 80}}},
                }]},
            })
        })
        .collect();
    json!({
        "apiVersion": "networking.k8s.io/v1",
        "kind": "Ingress",
        "metadata": metadata(name),
        "spec": {"ingressClassName": "sesame", "rules": rules},
    })
}

fn with_class(mut ingress: Value, class: &str) -> Value {
    ingress["spec"]["ingressClassName"] = class.into();
    ingress
}

#[test]
fn a_path_changes_only_its_own_host() {
    let state = FleetState {
        addresses: vec![FleetAddress::Ip([127, 0, 0, 1].into())],
        ready: true,
        ..FleetState::default()
    };
    let mut inputs = vec![Input::Fleet(FleetId::Default, Some(state))];
    for n in 0..ROUTES {
        let name = service_name(n);
        inputs.push(upsert(ingress(&route_name(n), &[(&hostname(n), &name)])));
        inputs.push(upsert(service(&name)));
        inputs.push(upsert(slice(&name, "10.0.0.1")));
    }
    let mut world = World::new(Options::default());
    world.apply(inputs);

    let (name, host, own) = (route_name(ONE), hostname(ONE), service_name(ONE));
    let other = service_name(7);
    let table = "RouteConfiguration 80#3.";
    let cluster = format!("Cluster default/{own}:80");
    let endpoints = format!("ClusterLoadAssignment default/{own}:80");
    // Switch to a backend that another Ingress already uses. The old backend becomes unused.
    costs(
        &mut world,
        vec![upsert(ingress(&name, &[(&host, &other)]))],
        &with(&[INGRESS, HOST]),
        &[&format!("-{cluster}"), &format!("-{endpoints}"), table],
    );
    // Add a second host: the first host isn't merged again.
    costs(
        &mut world,
        vec![upsert(ingress(
            &name,
            &[(&host, &other), ("new.example.com", &own)],
        ))],
        &with(&[
            INGRESS,
            HOST,
            BACKEND,
            &[("backend uses", 1), ("hosts", 1), ("open hosts", 1)],
        ]),
        &[&cluster, &endpoints, table],
    );
    // An Ingress of another class costs only the class check.
    costs(
        &mut world,
        vec![upsert(with_class(
            ingress("theirs", &[("theirs.example.com", &own)]),
            "theirs",
        ))],
        &[("our ingresses", 1)],
        &[],
    );
    costs(&mut world, vec![remove(Kind::Ingress, "theirs")], &[], &[]);
}
