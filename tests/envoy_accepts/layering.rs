//! Which of several objects gets a request: Ingresses, HTTPProxies and HTTPRoutes with overlapping hosts and paths, all
//! served by the same Envoy.
//!
//! The expected responses come from [`Object::answer`], which judges requests one by one and knows nothing of tables.

use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use proptest::prelude::*;
use serde_json::{Value, json};
use sesame_control::core::Core;
use sesame_control::{FleetId, Sharding};
use sesame_fleet::local::ports;
use sesame_model::Port;
use sesame_testkit::backend::Backend;
use sesame_testkit::client::{Connect, Connection, Request};
use sesame_testkit::generate::Set;
use sesame_tests::world::{World, cases};
use sesame_translate::settings::{Mode, Settings};
use tokio::runtime::Runtime;

use crate::rig::{LOOPBACK, Rig};
use crate::{TURN, try_all};

/// Hosts of objects.
const HOSTS: [&str; 3] = ["a.example.com", "b.example.com", "*.example.com"];

/// Hosts of requests.
const REQUESTED: [&str; 5] = [
    "a.example.com",
    "b.example.com",
    "c.example.com",
    "x.a.example.com",
    "example.net",
];

const PATHS: [&str; 5] = ["/", "/a", "/a/b", "/ab", "/b"];

const BACKENDS: usize = 6;

/// How long an Envoy may take to use a table after it has accepted it.
const APPLIED: Duration = Duration::from_secs(5);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    // In order of precedence.
    HttpRoute,
    HttpProxy,
    Ingress,
}

/// An object with one host.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Object {
    kind: Kind,
    /// Part of its name. There are no creation times, so names decide between objects of a kind.
    number: usize,
    host: &'static str,
    rules: Vec<Rule>,
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Rule {
    path: &'static str,
    exact: bool,
    backend: usize,
}

impl Rule {
    fn matches(&self, kind: Kind, path: &str) -> bool {
        if self.exact {
            return path == self.path;
        }
        match (kind, path.strip_prefix(self.path)) {
            (_, None) => false,
            // A prefix of the text, not of segments.
            (Kind::HttpProxy, Some(_)) => true,
            (_, Some(rest)) => self.path == "/" || rest.is_empty() || rest.starts_with('/'),
        }
    }

    /// Its precedence among the rules for a host: the smallest comes first.
    fn rank(&self) -> (bool, Reverse<usize>) {
        (!self.exact, Reverse(self.path.len()))
    }
}

impl Object {
    fn serves(&self, host: &str) -> bool {
        match self.host.strip_prefix('*') {
            None => host == self.host,
            // Only the Gateway API's wildcards stand for more than one label.
            Some(suffix) => host.strip_suffix(suffix).is_some_and(|label| {
                !label.is_empty() && (self.kind == Kind::HttpRoute || !label.contains('.'))
            }),
        }
    }

    /// The backend that gets a request; `None`: 404.
    fn answer(objects: &BTreeSet<Self>, host: &str, path: &str) -> Option<usize> {
        let owns = |object: &Self| {
            // The first HTTPProxy of a host is its only one.
            object.kind != Kind::HttpProxy
                || !objects.iter().any(|other| {
                    other.kind == Kind::HttpProxy
                        && other.host == object.host
                        && other.number < object.number
                })
        };
        // A host with an HTTPProxy of its own gets none of the wildcard's.
        let has_proxy = objects
            .iter()
            .any(|object| object.kind == Kind::HttpProxy && object.host == host);
        let candidates = objects.iter().filter(|object| {
            object.serves(host)
                && owns(object)
                && !(has_proxy && object.kind == Kind::HttpProxy && object.host != host)
        });
        let rules: Vec<_> = candidates
            .flat_map(|object| {
                let rules = object.rules.iter().enumerate();
                rules.map(move |(at, rule)| {
                    let wildcard = object.host.starts_with('*');
                    let key = (wildcard, rule.rank(), object.kind, object.number, at);
                    (key, rule, object.kind)
                })
            })
            .filter(|(_, rule, kind)| rule.matches(*kind, path))
            .collect();
        let first = rules.iter().min_by_key(|(key, ..)| *key);
        first.map(|(_, rule, _)| rule.backend)
    }

    fn json(&self) -> Value {
        let services = |rule: &Rule| format!("s{}", rule.backend);
        let (api_version, kind, spec) = match self.kind {
            Kind::HttpRoute => {
                let rule = |rule: &Rule| {
                    let type_ = if rule.exact { "Exact" } else { "PathPrefix" };
                    json!({
                        "matches": [{"path": {"type": type_, "value": rule.path}}],
                        "backendRefs": [{"name": services(rule), "port": 80}],
                    })
                };
                let rules: Vec<Value> = self.rules.iter().map(rule).collect();
                let spec = json!({
                    "parentRefs": [{"name": "web"}],
                    "hostnames": [self.host],
                    "rules": rules,
                });
                ("gateway.networking.k8s.io/v1", "HTTPRoute", spec)
            }
            Kind::HttpProxy => {
                let route = |rule: &Rule| {
                    let condition = if rule.exact { "exact" } else { "prefix" };
                    json!({
                        "conditions": [{condition: rule.path}],
                        "services": [{"name": services(rule), "port": 80}],
                    })
                };
                let routes: Vec<Value> = self.rules.iter().map(route).collect();
                let spec = json!({
                    "ingressClassName": "sesame",
                    "virtualhost": {"fqdn": self.host},
                    "routes": routes,
                });
                ("projectsesame.io/v1", "HTTPProxy", spec)
            }
            Kind::Ingress => {
                let path = |rule: &Rule| {
                    json!({
                        "path": rule.path,
                        "pathType": if rule.exact { "Exact" } else { "Prefix" },
                        "backend": {"service": {"name": services(rule), "port": {"number": 80}}},
                    })
                };
                let paths: Vec<Value> = self.rules.iter().map(path).collect();
                let spec = json!({
                    "ingressClassName": "sesame",
                    "rules": [{"host": self.host, "http": {"paths": paths}}],
                });
                ("networking.k8s.io/v1", "Ingress", spec)
            }
        };
        json!({
            "apiVersion": api_version,
            "kind": kind,
            "metadata": {"namespace": "default", "name": format!("o{}", self.number)},
            "spec": spec,
        })
    }
}

fn object() -> impl Strategy<Value = Object> {
    let kinds = prop::sample::select(vec![Kind::HttpRoute, Kind::HttpProxy, Kind::Ingress]);
    let rule = (
        prop::sample::select(&PATHS[..]),
        prop::bool::weighted(0.3),
        0..BACKENDS,
    );
    let rule = rule.prop_map(|(path, exact, backend)| Rule {
        path,
        exact,
        backend,
    });
    let rules = prop::collection::vec(rule, 1..4);
    (kinds, 0..4usize, prop::sample::select(&HOSTS[..]), rules).prop_map(
        |(kind, number, host, rules)| Object {
            kind,
            number,
            host,
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

/// What all sets contain: the Gateway, the Services, and a host of an Ingress, so that the listener stays.
fn common(backends: &[Backend]) -> Vec<Value> {
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
        Object {
            kind: Kind::Ingress,
            number: 9,
            host: "always.example.org",
            rules: vec![Rule {
                path: "/",
                exact: false,
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

/// A client that keeps its connection.
struct Client {
    address: SocketAddr,
    connection: Option<Connection>,
}

impl Client {
    /// The backend that responds; `None`: 404.
    async fn ask(&mut self, host: &str, path: &str) -> Result<Option<usize>> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => Connect::plain().open(self.address).await?,
        };
        let response = connection.send(&Request::get(host, path)).await?;
        self.connection = Some(connection);
        match response.status.as_u16() {
            404 => Ok(None),
            200 => {
                let backend = response.backend();
                let number = backend
                    .parse()
                    .with_context(|| format!("backend {backend:?}"))?;
                Ok(Some(number))
            }
            status => anyhow::bail!("status {status}"),
        }
    }

    /// Asks until the response is the expected one.
    async fn expect(
        &mut self,
        host: &str,
        path: &str,
        expected: Option<usize>,
    ) -> Result<(), String> {
        let began = Instant::now();
        loop {
            let found = self.ask(host, path).await;
            if found.as_ref().is_ok_and(|found| *found == expected) {
                return Ok(());
            }
            if began.elapsed() > APPLIED {
                return Err(format!(
                    "{host}{path}: expected {expected:?}, got {found:?}"
                ));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[test]
fn requests_go_where_the_precedence_of_objects_says() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::new().expect("a runtime");
    let (backends, rig, client) = runtime.block_on(async {
        let mut backends = Vec::new();
        for number in 0..BACKENDS {
            let backend = Backend::start(&number.to_string(), ([127, 0, 0, 1], 0).into()).await;
            backends.push(backend.expect("a backend"));
        }
        let settings = Settings::new(Mode::Unmanaged { gateway: None });
        let core = Core::in_cluster(settings, Sharding::Auto);
        let port = (20_000..30_000)
            .find(|port| ports::probe(LOOPBACK.into(), Port::tcp(*port)).is_ok())
            .expect("a free port");
        let place = SocketAddr::new(LOOPBACK.into(), port);
        let fleets = BTreeSet::from([FleetId::Unmanaged]);
        let rig = Rig::start(World::of(core), fleets, Some(place)).await;
        let client = Client {
            address: place,
            connection: None,
        };
        (backends, RefCell::new(rig), RefCell::new(client))
    });
    let common = common(&backends);
    let outcome = try_all(&objects(), cases(1_000), |objects| {
        let all = objects.iter().map(Object::json);
        let set = Set::new(common.iter().cloned().chain(all));
        let mut rig = rig.borrow_mut();
        let mut client = client.borrow_mut();
        runtime.block_on(async {
            rig.change_to(&set).await?;
            for host in REQUESTED {
                for path in PATHS {
                    let expected = Object::answer(&objects, host, path);
                    client.expect(host, path, expected).await?;
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
