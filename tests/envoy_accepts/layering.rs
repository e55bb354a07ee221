//! Precedence of objects: Ingresses, HTTPProxies and HTTPRoutes with overlapping hosts and paths, all served by the
//! same Envoy, with and without TLS.
//!
//! The expected answers come from [`object::answer`], which evaluates each request on its own, without route tables.

mod client;
mod object;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::PoisonError;

use proptest::prelude::*;
use serde_json::{Value, json};
use sesame_control::core::Core;
use sesame_control::{FleetId, Sharding};
use sesame_fleet::local::ports;
use sesame_model::Port;
use sesame_testkit::backend::Backend;
use sesame_testkit::certs::Identity;
use sesame_testkit::generate::Set;
use sesame_tests::world::{World, cases};
use sesame_translate::settings::{Mode, Settings};
use tokio::runtime::Runtime;

use self::client::Client;
use self::object::{Kind, Object, Plain, Rule, SECRET, Tls, answer};
use crate::rig::{LOOPBACK, Rig};
use crate::{TURN, try_all};

/// Hosts in objects.
const HOSTS: [&str; 3] = ["a.example.com", "b.example.com", "*.example.com"];

/// Hosts in requests.
const REQUESTED: [&str; 5] = [
    "a.example.com",
    "b.example.com",
    "c.example.com",
    "x.a.example.com",
    "example.net",
];

const PATHS: [&str; 5] = ["/", "/a", "/a/b", "/ab", "/b"];

const BACKENDS: usize = 6;

fn object() -> impl Strategy<Value = Object> {
    let kinds = prop::sample::select(vec![Kind::HttpRoute, Kind::HttpProxy, Kind::Ingress]);
    let tls = prop_oneof![
        3 => Just(Tls::None),
        4 => Just(Tls::Valid),
        1 => Just(Tls::Broken),
        1 => Just(Tls::Forwarded)
    ];
    let plain = prop_oneof![
        3 => Just(Plain::Served),
        1 => Just(Plain::Redirected),
        1 => Just(Plain::Refused)
    ];
    let rule = (
        prop::sample::select(&PATHS[..]),
        prop::bool::weighted(0.3),
        prop::bool::weighted(0.3),
        0..BACKENDS,
    );
    let rule = rule.prop_map(|(path, exact, permit_insecure, backend)| Rule {
        path,
        exact,
        permit_insecure,
        backend,
    });
    let rules = prop::collection::vec(rule, 1..4);
    let hosts = prop::sample::select(&HOSTS[..]);
    (kinds, 0..4usize, hosts, tls, plain, rules).prop_map(
        |(kind, number, host, tls, plain, rules)| Object {
            kind,
            number,
            host,
            tls: match (kind, tls) {
                (Kind::HttpRoute, _) => Tls::None,
                (Kind::Ingress, Tls::Forwarded) => Tls::Valid,
                _ => tls,
            },
            plain: if kind == Kind::Ingress {
                plain
            } else {
                Plain::Served
            },
            rules,
        },
    )
}

/// Objects with distinct names.
fn objects() -> impl Strategy<Value = BTreeSet<Object>> {
    prop::collection::vec(object(), 0..8).prop_map(|objects| {
        let mut named = BTreeSet::new();
        let distinct = objects
            .into_iter()
            .filter(|object| named.insert((object.kind, object.number)));
        distinct.collect()
    })
}

/// The objects in every set: Gateway, Services, certificate, and an Ingress whose host keeps both listeners in place.
fn common(backends: &[Backend]) -> Vec<Value> {
    let certificate = Identity::self_signed(&["*.example.com"]).expect("a certificate");
    let mut all = vec![
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "GatewayClass",
            "metadata": {"name": "sesame"},
            "spec": {"controllerName": "projectsesame.io/gateway-controller"},
        }),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "Gateway",
            "metadata": {"namespace": "default", "name": "web"},
            "spec": {
                "gatewayClassName": "sesame",
                "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}],
            },
        }),
        json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": "default", "name": SECRET},
            "type": "kubernetes.io/tls",
            "stringData": {"tls.crt": certificate.chain, "tls.key": certificate.private_key},
        }),
        Object {
            kind: Kind::Ingress,
            number: 9,
            host: "always.example.org",
            tls: Tls::Valid,
            plain: Plain::Served,
            rules: vec![Rule {
                path: "/",
                exact: false,
                permit_insecure: false,
                backend: 0,
            }],
        }
        .json(),
    ];
    for (number, backend) in backends.iter().enumerate() {
        let name = format!("s{number}");
        all.push(json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": "default", "name": name},
            "spec": {"ports": [{"port": 80}]},
        }));
        all.push(json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "namespace": "default",
                "name": name,
                "labels": {"kubernetes.io/service-name": name},
            },
            "addressType": "IPv4",
            "ports": [{"port": backend.address().port()}],
            "endpoints": [{"addresses": [backend.address().ip().to_string()]}],
        }));
    }
    all
}

#[test]
fn requests_go_where_the_precedence_of_objects_says() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::new().expect("a runtime");
    let (backends, rig, clients) = runtime.block_on(async {
        let mut backends = Vec::new();
        for number in 0..BACKENDS {
            let backend = Backend::start(&number.to_string(), ([127, 0, 0, 1], 0).into()).await;
            backends.push(backend.expect("a backend"));
        }
        let settings = Settings::new(Mode::Unmanaged { gateway: None });
        let core = Core::in_cluster(settings, Sharding::Auto);
        let mut free = (20_000..30_000)
            .filter(|port| ports::probe(LOOPBACK.into(), Port::tcp(*port)).is_ok())
            .map(|port| SocketAddr::new(LOOPBACK.into(), port));
        let places = ["80", "443"].map(|name| (name, free.next().expect("a free port")));
        let fleets = BTreeSet::from([FleetId::Unmanaged]);
        let rig = Rig::start(World::of(core), fleets, BTreeMap::from(places)).await;
        let clients = places.map(|(name, place)| Client::new(name == "443", place));
        (backends, RefCell::new(rig), RefCell::new(clients))
    });
    let common = common(&backends);
    let outcome = try_all(&objects(), cases(1_000), |objects| {
        let all = objects.iter().map(Object::json);
        let set = Set::new(common.iter().cloned().chain(all));
        let mut rig = rig.borrow_mut();
        let mut clients = clients.borrow_mut();
        runtime.block_on(async {
            rig.change_to(&set).await?;
            for client in clients.iter_mut() {
                client.forget();
                for host in REQUESTED {
                    for path in PATHS {
                        let expected = answer(&objects, client.tls, host, path);
                        client.expect(host, path, expected).await?;
                    }
                }
            }
            Ok(())
        })
    });
    runtime.block_on(async {
        rig.into_inner().stop().await;
        for backend in backends {
            backend.stop().await;
        }
    });
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
