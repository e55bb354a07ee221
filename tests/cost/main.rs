//! The cost of a change: with 10,000 HTTPRoutes, each with its own hostname, Service and EndpointSlice, a change runs
//! only the keys that depend on it. Runs are counted, not timed.

mod clients;
mod connections;
mod ingresses;
mod pods;
mod policies;
mod proxies;
mod shared_host;

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use serde_json::{Value, json};
use sesame_api::{Kind, ObjectKey, ObjectStatus};
use sesame_control::core::{Input, Step};
use sesame_control::{FleetId, Options};
use sesame_model::{
    BackendName, ClusterKey, FleetAddress, FleetState, RouteTableKey, VirtualHostKey,
};
use sesame_testkit::certs::Identity;
use sesame_testkit::generate::decode;
use sesame_tests::world::World;
use sesame_translate::fleet::{Rejected, RejectedKind};

const ROUTES: usize = 10_000;

/// The route to change, chosen arbitrarily.
const ONE: usize = 4_321;

fn upsert(object: Value) -> Input {
    Input::Upsert(decode(&object))
}

fn remove(kind: Kind, name: &str) -> Input {
    Input::Remove(ObjectKey::new(kind, "default", name))
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "namespace": "default"})
}

fn gateway() -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "Gateway",
        "metadata": metadata("web"),
        "spec": {
            "gatewayClassName": "sesame",
            "allowedListeners": {"namespaces": {"from": "Same"}},
            "listeners": [
                {"name": "http", "port": 80, "protocol": "HTTP"},
                {
                    "name": "https",
                    "port": 443,
                    "protocol": "HTTPS",
                    "hostname": "*.example.com",
                    "tls": {"certificateRefs": [{"name": "certificate"}]},
                },
            ],
        },
    })
}

fn secret(name: &str, identity: &Identity) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": metadata(name),
        "type": "kubernetes.io/tls",
        "stringData": {"tls.crt": identity.chain, "tls.key": identity.private_key},
    })
}

fn route(name: &str, hostname: &str, service: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": metadata(name),
        "spec": {
            "parentRefs": [{"name": "web"}],
            "hostnames": [hostname],
            "rules": [{"backendRefs": [{"name": service, "port": 80}]}],
        },
    })
}

fn service(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": metadata(name),
        "spec": {"ports": [{"name": "web", "port": 80}]},
    })
}

fn slice(service: &str, address: &str) -> Value {
    json!({
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "name": format!("{service}-x"),
            "namespace": "default",
            "labels": {"kubernetes.io/service-name": service},
        },
        "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}],
        "ports": [{"name": "web", "port": 8080}],
    })
}

fn route_name(n: usize) -> String {
    format!("r{n}")
}

fn service_name(n: usize) -> String {
    format!("s{n}")
}

fn hostname(n: usize) -> String {
    format!("h{n}.example.com")
}

fn fleet() -> FleetId {
    FleetId::of_gateway("default", "web")
}

fn fleet_state(ready: bool) -> Input {
    let state = FleetState {
        addresses: vec![FleetAddress::Ip(Ipv4Addr::LOCALHOST.into())],
        ready,
        ..FleetState::default()
    };
    Input::Fleet(fleet(), Some(state))
}

fn full_world() -> World {
    let mut inputs = vec![fleet_state(true), upsert(gateway())];
    let identity = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    inputs.push(upsert(secret("certificate", &identity)));
    for n in 0..ROUTES {
        let name = service_name(n);
        inputs.push(upsert(route(&route_name(n), &hostname(n), &name)));
        inputs.push(upsert(service(&name)));
        inputs.push(upsert(slice(&name, "10.0.0.1")));
    }
    let mut world = World::new(Options::default());
    world.apply(inputs);
    world
}

/// Unions of tables or keys. They run for the keys that changed in a source, so the sources' counts cover them.
const UNIONS: [&str; 21] = [
    "claims",
    "attach points",
    "terminations",
    "route rules",
    "attachments",
    "connection backends",
    "statuses",
    "referenced authorities",
    "trust bundles",
    "referenced clusters",
    "fleet's clusters",
    "fleet's destinations",
    "fleet's trust bundles",
    "referenced certificates",
    "fleet's certificates",
    "targets of policies",
    "backends in use",
    "route statuses",
    "attachments without gateway",
    "all terminations",
    "listeners",
];

/// Number of keys that ran, per stage.
fn work(step: &Step) -> BTreeMap<&'static str, usize> {
    let work = step.commit.work().iter().copied();
    work.filter(|(stage, _)| !UNIONS.contains(stage)).collect()
}

/// The changed resources: type and name, prefixed with `-` if removed. Shard numbers are omitted.
fn sent(step: &Step) -> Vec<String> {
    let line = |change: &sesame_envoy::ResourceChange| {
        let (_, short) = change.type_url.rsplit_once('.').expect("a type url");
        let sign = if change.body.is_some() { "" } else { "-" };
        let name = change
            .name
            .trim_end_matches(|c: char| change.name.contains('#') && c.is_ascii_digit());
        format!("{sign}{short} {name}")
    };
    step.resources.iter().map(line).collect()
}

/// Applies changes and checks the number of keys per stage and the changed resources.
#[track_caller]
fn costs(
    world: &mut World,
    inputs: Vec<Input>,
    ran: &[(&'static str, usize)],
    sends: &[&str],
) -> Step {
    let step = world.apply(inputs);
    assert_eq!(work(&step), ran.iter().copied().collect());
    assert_eq!(sent(&step), sends);
    step
}

/// The work for each change to a route attached to both listeners.
const ROUTE: &[(&str, usize)] = &[
    ("our http_routes", 1),
    ("http rules", 1),
    ("http attachments", 1),
    ("backend uses", 1),
    ("virtual host", 2),
    ("envoy.virtual_hosts", 2),
    ("http_route status", 1),
];

/// The work for the first reference to a Service port.
const BACKEND: &[(&str, usize)] = &[
    ("backend", 1),
    ("cluster", 1),
    ("endpoints", 1),
    ("envoy.clusters", 1),
    ("envoy.endpoints", 1),
];

/// A new host on two ports.
const NEW_HOST: &[(&str, usize)] = &[("hosts", 2), ("open hosts", 2)];
/// One shard of each listener's route table.
const TABLES: [&str; 2] = ["RouteConfiguration 443#3.", "RouteConfiguration 80#3."];

/// Number of shards per table.
const SHARDS: usize = 256;

fn with<T: Clone>(parts: &[&[T]]) -> Vec<T> {
    parts.concat()
}

#[test]
fn a_change_runs_only_the_keys_that_depend_on_it() {
    let mut world = full_world();
    let outputs = *world.core().outputs();
    assert_eq!(world.core().engine().len(outputs.virtual_hosts), 2 * ROUTES);
    // Clusters and endpoints; listeners and the certificate; scopes and shards of two tables.
    assert_eq!(world.resources().len(), 2 * ROUTES + 3 + 4 * SHARDS);

    routes(&mut world);
    backends(&mut world);
    gateways(&mut world);
    listener_sets(&mut world);
    assigned_ports(&mut world);
    policies::policies(&mut world);
    policies::client_certificates(&mut world);
    policies::traffic(&mut world);
    pods::xbackends(&mut world);
    clients::validation(&mut world);
    no_ops(&mut world);
}

fn routes(world: &mut World) {
    let outputs = *world.core().outputs();
    let (name, host, service) = (route_name(ONE), hostname(ONE), service_name(ONE));
    let cluster = format!("Cluster default/{service}:80");
    let endpoints = format!("ClusterLoadAssignment default/{service}:80");
    let refusal = ("http refused", 1);

    // Switch to a backend that other routes already use. The old backend becomes unused.
    let step = costs(
        world,
        vec![upsert(route(&name, &host, &service_name(7)))],
        &with(&[ROUTE, &[refusal]]),
        &[
            &format!("-{cluster}"),
            &format!("-{endpoints}"),
            TABLES[0],
            TABLES[1],
        ],
    );
    let hosts = step.commit.ran(outputs.virtual_hosts);
    let of = |port| VirtualHostKey {
        table: RouteTableKey {
            fleet: fleet(),
            port,
        },
        domain: host.as_str().into(),
    };
    assert_eq!(hosts, [of(80), of(443)]);

    // Revert it.
    let step = costs(
        world,
        vec![upsert(route(&name, &host, &service))],
        &with(&[ROUTE, BACKEND, &[refusal]]),
        &[&cluster, &endpoints, TABLES[0], TABLES[1]],
    );
    assert_eq!(step.commit.ran(outputs.clusters), [cluster_key(ONE)]);

    // A route is added, moves to another host, and is removed.
    costs(
        world,
        vec![upsert(route("new", "new.example.com", &service))],
        &with(&[ROUTE, NEW_HOST, &[refusal, ("gateway status", 1)]]),
        &TABLES,
    );
    costs(
        world,
        vec![upsert(route("new", "newer.example.com", &service))],
        &with(&[ROUTE, &[("hosts", 4), ("open hosts", 2)]]),
        // The shards of both hosts.
        &[TABLES[0], TABLES[0], TABLES[1], TABLES[1]],
    );
    costs(
        world,
        vec![remove(Kind::HTTPRoute, "new")],
        &[("gateway status", 1), ("hosts", 2)],
        &TABLES,
    );

    // A route on another route's host: the host's routes are merged again, but the other route isn't read again.
    let mut beside = route("new", &host, &service_name(7));
    beside["spec"]["rules"][0]["matches"] = json!([{"path": {"value": "/beside"}}]);
    costs(
        world,
        vec![upsert(beside)],
        &with(&[ROUTE, &[refusal, ("gateway status", 1)]]),
        &TABLES,
    );
    costs(
        world,
        vec![remove(Kind::HTTPRoute, "new")],
        &[
            ("virtual host", 2),
            ("envoy.virtual_hosts", 2),
            ("gateway status", 1),
        ],
        &TABLES,
    );

    // A route that belongs to another controller.
    let mut foreign = route("foreign", "foreign.example.com", &service);
    foreign["spec"]["parentRefs"] = json!([{"name": "another-controllers"}]);
    costs(world, vec![upsert(foreign)], &[("our http_routes", 1)], &[]);
    costs(world, vec![remove(Kind::HTTPRoute, "foreign")], &[], &[]);

    // Ten changes cost ten times as much as one.
    let ten = (100..110).map(|n| upsert(route(&route_name(n), &hostname(n), &service_name(7))));
    let step = world.apply(ten);
    let one = with(&[ROUTE, &[refusal]]).into_iter();
    assert_eq!(
        work(&step),
        one.map(|(stage, keys)| (stage, 10 * keys)).collect()
    );
}

fn backends(world: &mut World) {
    let outputs = *world.core().outputs();
    let name = service_name(ONE);
    let cluster = format!("Cluster default/{name}:80");
    let endpoints = format!("ClusterLoadAssignment default/{name}:80");

    // A pod is replaced.
    let step = costs(
        world,
        vec![upsert(slice(&name, "10.0.0.2"))],
        &[("endpoints", 1), ("envoy.endpoints", 1)],
        &[&endpoints],
    );
    assert_eq!(step.commit.ran(outputs.endpoints), [cluster_key(ONE)]);
    assert_eq!(step.resources.len(), 1);

    // The Service's port changes its protocol; the route stays the same.
    let mut http2 = service(&name);
    http2["spec"]["ports"][0]["appProtocol"] = "kubernetes.io/h2c".into();
    costs(
        world,
        vec![upsert(http2)],
        &[
            ("backend", 1),
            ("cluster", 1),
            ("endpoints", 1),
            ("envoy.clusters", 1),
            ("http rules", 1),
        ],
        &[&cluster],
    );

    // The port number changes, so the route's reference dangles.
    let mut moved = service(&name);
    moved["spec"]["ports"][0]["port"] = 81.into();
    let read_again: &[(&str, usize)] = &[
        ("http rules", 1),
        ("http refused", 1),
        ("virtual host", 2),
        ("envoy.virtual_hosts", 2),
        ("http_route status", 1),
    ];
    costs(
        world,
        vec![upsert(moved)],
        &with(&[read_again, &[("backend", 1), ("cluster", 1)]]),
        &[
            &format!("-{cluster}"),
            &format!("-{endpoints}"),
            TABLES[0],
            TABLES[1],
        ],
    );
    costs(
        world,
        vec![upsert(service(&name))],
        &with(&[read_again, BACKEND]),
        &[&cluster, &endpoints, TABLES[0], TABLES[1]],
    );
}

fn gateways(world: &mut World) {
    // A certificate is rotated.
    let identity = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    costs(
        world,
        vec![upsert(secret("certificate", &identity))],
        &[
            ("certificate state", 1),
            ("expiring certificates", 1),
            ("certificate", 1),
            ("gateway state", 1),
            ("envoy.certificates", 1),
        ],
        &["Secret default/certificate"],
    );

    // The Gateway's Envoys are temporarily not ready.
    let status = [("listener", 2), ("gateway status", 1)];
    costs(world, vec![fleet_state(false)], &status, &[]);
    costs(world, vec![fleet_state(true)], &status, &[]);

    // An Envoy rejects a resource.
    for (what, name) in [
        (RejectedKind::Routes, "80"),
        (RejectedKind::Secret, "default/certificate"),
    ] {
        let rejected = Rejected {
            fleet: fleet(),
            what,
            name: name.into(),
        };
        for message in [Some("no".to_owned()), None] {
            let inputs = vec![Input::Rejection(rejected.clone(), message.clone())];
            let all = [("gateway status", 1), ("rejected resource of routes", 1)];
            let expected = match message {
                Some(_) => &all[..],
                None => &all[..1],
            };
            costs(world, inputs, expected, &[]);
        }
    }
}

/// A ListenerSet's listener affects only the hosts that it covers, although all hosts share a port.
fn listener_sets(world: &mut World) {
    let set = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "ListenerSet",
        "metadata": metadata("set"),
        "spec": {
            "parentRef": {"name": "web"},
            "listeners": [{"name": "more", "port": 80, "protocol": "HTTP", "hostname": "set.example.net"}],
        },
    });
    let on_port: &[(&str, usize)] = &[
        ("port claim", 1),
        ("listener", 1),
        ("route table", 1),
        ("gateway status", 1),
    ];
    let own: &[(&str, usize)] = &[
        ("own listener_set", 1),
        ("host claim", 1),
        ("listener_set claims", 1),
        ("listener_set", 1),
        ("listener_set points", 1),
        ("listener_set terminations", 1),
        ("listener_set parent status", 1),
        ("listener_set status", 1),
        ("listener_set notices", 1),
    ];
    costs(
        world,
        vec![upsert(set)],
        &with(&[on_port, own]),
        &TABLES[1..],
    );
    costs(
        world,
        vec![remove(Kind::ListenerSet, "set")],
        on_port,
        &TABLES[1..],
    );
}

/// Writing an assigned port to the status reruns only the keys that read it.
fn assigned_ports(world: &mut World) {
    let set = |port: Option<u16>| {
        let mut set = json!({
            "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
            "kind": "XListenerSet",
            "metadata": metadata("early"),
            "spec": {
                "parentRef": {"name": "web"},
                "listeners": [{"name": "more", "protocol": "TCP"}],
            },
        });
        let recorded = port.map(|port| json!({"name": "more", "port": port}));
        set["status"] = json!({"listeners": Vec::from_iter(recorded)});
        set
    };
    world.apply(vec![upsert(set(None))]);
    let key = ObjectKey::new(Kind::XListenerSet, "default", "early");
    let statuses = world.core().outputs().statuses;
    let status = world.core().engine().get(statuses, &key);
    let Some(ObjectStatus::ListenerSet(status)) = status.as_deref() else {
        panic!("no status");
    };
    let recorded = upsert(set(status.listeners[0].port));
    costs(
        world,
        vec![recorded],
        &[
            ("port demand", 1),
            ("assigned port", 1),
            ("own listener_set", 1),
            ("listener_set claims", 1),
            ("listener_set status", 1),
        ],
        &[],
    );
    world.apply(vec![remove(Kind::XListenerSet, "early")]);
}

/// Changes with no effect.
fn no_ops(world: &mut World) {
    let identity = Identity::self_signed(&["example.com"]).expect("a certificate");
    let unrelated = vec![
        upsert(secret("unrelated", &identity)),
        upsert(service("unrelated")),
        upsert(slice("unrelated", "10.0.0.9")),
        upsert(json!({
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": "default", "labels": {"team": "red"}},
        })),
        upsert(json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "ReferenceGrant",
            "metadata": metadata("unrelated"),
            "spec": {
                "from": [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "namespace": "other"}],
                "to": [{"group": "", "kind": "Service"}],
            },
        })),
    ];
    costs(world, unrelated, &[], &[]);

    // Versions, statuses and other frequently changing metadata.
    let revision = world.core().engine().revision();
    let name = service_name(ONE);
    let mut objects = [
        gateway(),
        route(&route_name(ONE), &hostname(ONE), &name),
        service(&name),
        slice(&name, "10.0.0.2"),
    ];
    for object in &mut objects {
        object["metadata"]["resourceVersion"] = "2".into();
        object["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
    }
    objects[0]["status"] = json!({"listeners": []});
    objects[1]["status"] = json!({"parents": []});
    objects[2]["status"] = json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}});
    objects[2]["metadata"]["annotations"] = json!({"note": "x"});
    objects[3]["metadata"]["annotations"] = json!({"note": "x"});
    let step = costs(world, objects.into_iter().map(upsert).collect(), &[], &[]);
    assert!(step.commit.is_empty());
    assert_eq!(world.core().engine().revision(), revision);
}

fn cluster_key(n: usize) -> ClusterKey {
    ClusterKey {
        namespace: "default".into(),
        backend: BackendName::ServicePort {
            service: service_name(n).into(),
            port: 80,
        },
        policy: None,
    }
}
