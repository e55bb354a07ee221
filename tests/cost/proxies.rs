//! HTTPProxies: flat ones, each with its own host and Service, and a root with many children.

use std::sync::Arc;

use serde_json::{Value, json};
use sesame_api::{Kind, NamespacedName};
use sesame_control::core::Core;
use sesame_control::{FleetId, IngressSettings, Options};
use sesame_model::{FleetAddress, FleetState, Route, RouteTableKey, VirtualHostKey};
use sesame_testkit::certs::Identity;
use sesame_tests::world::World;
use sesame_translate::settings::{Mode, Settings};

use crate::{
    BACKEND, Input, ONE, ROUTES, costs, hostname, metadata, remove, route_name, secret, service,
    service_name, slice, upsert, with,
};

/// The number of children of the root.
const CHILDREN: usize = 1_000;

/// The work for each change to an HTTPProxy.
const PROXY: &[(&str, usize)] = &[
    ("our http_proxies", 1),
    ("http_proxy", 1),
    ("http_proxy includes", 1),
    ("http_proxy root", 1),
    ("http_proxy with errors", 1),
    ("http_proxy status", 1),
];

/// The work for a host whose routes change.
const HOST: &[(&str, usize)] = &[
    ("http_proxy routes", 1),
    ("http_proxy rules", 1),
    ("virtual host", 1),
    ("envoy.virtual_hosts", 1),
    ("overlaps", 1),
];

/// The work for a route on a host with many routes: only one part of the host is encoded, and the tree of its paths
/// stays.
pub(crate) const PART: &[(&str, usize)] = &[
    ("envoy.outlines", 1),
    ("envoy.routes of parts", 1),
    ("envoy.parts", 1),
];

fn proxy(name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": metadata(name),
        "spec": spec,
    })
}

fn flat(n: usize, service: &str) -> Value {
    let spec = json!({
        "virtualhost": {"fqdn": hostname(n)},
        "routes": [{"services": [{"name": service, "port": 80}]}],
    });
    proxy(&route_name(n), spec)
}

fn child(n: usize, service: &str) -> Value {
    let spec = json!({"routes": [{"services": [{"name": service, "port": 80}]}]});
    proxy(&route_name(n), spec)
}

fn root(children: usize) -> Value {
    let includes: Vec<Value> = (0..children)
        .map(|n| json!({"name": route_name(n), "conditions": [{"prefix": format!("/{n}")}]}))
        .collect();
    let spec = json!({"virtualhost": {"fqdn": "root.example.com"}, "includes": includes});
    proxy("root", spec)
}

fn world(inputs: Vec<Input>, services: usize) -> World {
    world_of(Core::new(Options::default()), inputs, services)
}

fn world_of(core: Core, mut inputs: Vec<Input>, services: usize) -> World {
    let state = FleetState {
        addresses: vec![FleetAddress::Ip([127, 0, 0, 1].into())],
        ready: true,
        ..FleetState::default()
    };
    inputs.push(Input::Fleet(FleetId::Default, Some(state)));
    for n in 0..services {
        let name = service_name(n);
        inputs.push(upsert(service(&name)));
        inputs.push(upsert(slice(&name, "10.0.0.1")));
    }
    let mut world = World::of(core);
    world.apply(inputs);
    world
}

fn routes_of_root(world: &World) -> Vec<Arc<Route>> {
    let key = VirtualHostKey {
        table: RouteTableKey {
            fleet: FleetId::Default,
            port: 80,
        },
        domain: "root.example.com".into(),
    };
    let core = world.core();
    let host = core.engine().get(core.outputs().virtual_hosts, &key);
    host.expect("the root has a host").routes.clone()
}

#[test]
fn a_new_fallback_certificate_costs_the_same_for_any_number_of_hosts() {
    let identity = || Identity::self_signed(&["*.example.com"]).expect("a certificate");
    let tls = json!({"secretName": "certificate", "enableFallbackCertificate": true});
    let proxies = (0..CHILDREN).map(|n| {
        let mut proxy = flat(n, &service_name(0));
        proxy["spec"]["virtualhost"]["tls"] = tls.clone();
        upsert(proxy)
    });
    let secrets = ["certificate", "fallback"].map(|name| upsert(secret(name, &identity())));
    let settings = Settings {
        ingress: IngressSettings {
            fallback_certificate: Some(NamespacedName::new("default", "fallback")),
            ..IngressSettings::default()
        },
        ..Settings::new(Mode::Local)
    };
    let core = Core::local(settings, Options::default());
    let mut world = world_of(core, secrets.into_iter().chain(proxies).collect(), 1);
    costs(
        &mut world,
        vec![upsert(secret("fallback", &identity()))],
        &[
            ("certificate state", 1),
            ("expiring certificates", 1),
            ("certificate", 1),
            ("fallback certificate", 1),
            ("envoy.certificates", 1),
        ],
        &["Secret default/fallback"],
    );
}

#[test]
fn a_route_of_a_flat_proxy_changes_only_its_own_host() {
    let proxies = (0..ROUTES).map(|n| upsert(flat(n, &service_name(n))));
    let mut world = world(proxies.collect(), ROUTES);
    let own = service_name(ONE);
    let cluster = format!("Cluster default/{own}:80");
    let endpoints = format!("ClusterLoadAssignment default/{own}:80");
    let table = "RouteConfiguration 80#3.";
    // Switch to a backend that another HTTPProxy already uses. The old backend becomes unused.
    costs(
        &mut world,
        vec![upsert(flat(ONE, &service_name(7)))],
        &with(&[PROXY, HOST, &[("http_proxy host", 1)]]),
        &[&format!("-{cluster}"), &format!("-{endpoints}"), table],
    );
    // An HTTPProxy of another class costs only the class check.
    let mut theirs = flat(ONE, &own);
    theirs["metadata"]["name"] = "theirs".into();
    theirs["spec"]["ingressClassName"] = "theirs".into();
    costs(
        &mut world,
        vec![upsert(theirs)],
        &[("our http_proxies", 1)],
        &[],
    );
    costs(
        &mut world,
        vec![remove(Kind::HTTPProxy, "theirs")],
        &[],
        &[],
    );
}

#[test]
fn a_route_of_a_child_changes_only_the_trees_that_include_it() {
    let mut inputs: Vec<Input> = (0..CHILDREN)
        .map(|n| upsert(child(n, &service_name(n))))
        .collect();
    inputs.push(upsert(root(CHILDREN)));
    let others = CHILDREN..ROUTES;
    inputs.extend(others.map(|n| upsert(flat(n, &service_name(n)))));
    let mut world = world(inputs, ROUTES);
    let own = service_name(321);
    let cluster = format!("Cluster default/{own}:80");
    let endpoints = format!("ClusterLoadAssignment default/{own}:80");
    // The shard that contains its host.
    let table = "RouteConfiguration 80#3.";
    let before = routes_of_root(&world);
    costs(
        &mut world,
        vec![upsert(child(321, &service_name(7)))],
        &with(&[PROXY, HOST, PART]),
        &[&format!("-{cluster}"), &format!("-{endpoints}"), table],
    );
    // The routes of other children are shared, so comparing them costs a pointer each.
    let after = routes_of_root(&world);
    assert_eq!(after.len(), CHILDREN);
    let rebuilt = before
        .iter()
        .zip(&after)
        .filter(|(a, b)| !Arc::ptr_eq(a, b));
    assert_eq!(rebuilt.count(), 1);
    costs(
        &mut world,
        vec![upsert(child(321, &own))],
        &with(&[PROXY, HOST, PART, BACKEND]),
        &[&cluster, &endpoints, table],
    );
}
