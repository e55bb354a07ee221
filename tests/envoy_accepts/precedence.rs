//! Precedence of matches: HTTPRoutes with all kinds of matches and overlapping hostnames, on listeners with overlapping
//! hostnames, served by one Envoy.
//!
//! The expected answers come from [`route::answer`], which evaluates each request on its own, as the API defines it.

mod route;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use proptest::prelude::*;
use serde_json::{Value, json};
use sesame_control::core::Core;
use sesame_control::{FleetId, Sharding};
use sesame_fleet::local::ports;
use sesame_model::Port;
use sesame_testkit::client::{Connect, Connection};
use sesame_testkit::generate::Set;
use sesame_tests::world::{World, cases};
use sesame_translate::settings::{Mode, Settings};
use tokio::runtime::Runtime;

use self::route::{Call, LISTENERS, Match, Path, Place, Route, answer};
use crate::rig::{LOOPBACK, Rig};
use crate::{TURN, try_all};

/// How long an Envoy may take to apply a configuration that it has accepted.
const APPLIED: Duration = Duration::from_secs(5);

/// Hostnames in routes.
const HOSTNAMES: [&str; 7] = [
    "a.example.com",
    "x.b.example.com",
    "*.b.example.com",
    "*.example.com",
    "*.com",
    "example.net",
    "example.com",
];

/// Hosts in requests.
const REQUESTED: [&str; 8] = [
    "a.example.com",
    "A.Example.com:8080",
    "c.example.com",
    "x.b.example.com",
    "y.x.b.example.com",
    "b.example.com",
    "example.com",
    "example.net",
];

const PATHS: [&str; 6] = ["/", "/a", "/a/", "/a/b", "/ab", "/b"];
const EXPRESSIONS: [&str; 4] = ["/a.*", "/[ab]", "/(a|ab)/?", "/.*b"];
const METHODS: [&str; 2] = ["GET", "POST"];
const HEADERS: [(&str, &str); 3] = [("x-a", "1"), ("x-a", "2"), ("x-b", "1")];
const PARAMETERS: [(&str, &str); 3] = [("q", "1"), ("q", "2"), ("r", "1")];

/// Headers or parameters with different names.
fn pairs(
    all: &'static [(&'static str, &'static str)],
) -> impl Strategy<Value = BTreeMap<&'static str, &'static str>> {
    prop::sample::subsequence(all, 0..all.len()).prop_map(|pairs| pairs.into_iter().collect())
}

fn matches() -> impl Strategy<Value = Match> {
    let literal = || prop::sample::select(&PATHS[..]);
    let path = prop_oneof![
        3 => literal().prop_map(Path::Exact),
        4 => literal().prop_map(Path::Prefix),
        1 => prop::sample::select(&EXPRESSIONS[..]).prop_map(Path::Expression),
    ];
    let method = prop::option::weighted(0.3, prop::sample::select(&METHODS[..]));
    let conditions = (pairs(&HEADERS), pairs(&PARAMETERS));
    let conditions = prop_oneof![2 => Just(Default::default()), 1 => conditions];
    (path, method, conditions).prop_map(|(path, method, (headers, parameters))| Match {
        path,
        method,
        headers,
        parameters,
    })
}

fn route() -> impl Strategy<Value = Route> {
    let rule = prop::collection::vec(matches(), 0..4);
    (
        0..6usize,
        0..2usize,
        prop::sample::subsequence(&HOSTNAMES[..], 0..4),
        prop::option::weighted(0.4, 0..LISTENERS.len()),
        prop::collection::vec(rule, 1..4),
    )
        .prop_map(|(number, age, hostnames, listener, rules)| Route {
            number,
            age,
            hostnames,
            listener,
            rules,
        })
}

fn call() -> impl Strategy<Value = Call> {
    (
        prop::sample::select(&REQUESTED[..]),
        prop::sample::select(&PATHS[..]),
        prop::sample::select(&METHODS[..]),
        pairs(&HEADERS),
        pairs(&PARAMETERS),
    )
        .prop_map(|(host, path, method, headers, parameters)| Call {
            host,
            path,
            method,
            headers,
            parameters,
        })
}

/// Routes with different names, and requests.
fn sets() -> impl Strategy<Value = (Vec<Route>, Vec<Call>)> {
    let routes = prop::collection::vec(route(), 0..7).prop_map(|routes| {
        let by_number = routes.into_iter().map(|route| (route.number, route));
        by_number
            .collect::<BTreeMap<_, _>>()
            .into_values()
            .collect()
    });
    (routes, prop::collection::vec(call(), 60))
}

fn common() -> [Value; 2] {
    let listener = |(name, hostname): &(&str, &str)| match *hostname {
        "" => json!({"name": name, "port": 80, "protocol": "HTTP"}),
        hostname => json!({"name": name, "port": 80, "protocol": "HTTP", "hostname": hostname}),
    };
    [
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
                "listeners": LISTENERS.iter().map(listener).collect::<Vec<_>>(),
            },
        }),
    ]
}

/// A client that keeps its connection.
struct Client {
    address: SocketAddr,
    kept: Option<Connection>,
}

impl Client {
    /// The rule that responds to a request; `None` if the response is 404.
    async fn ask(&mut self, call: &Call) -> Result<Option<Place>> {
        let mut connection = match self.kept.take() {
            Some(connection) => connection,
            None => Connect::plain().open(self.address).await?,
        };
        let response = connection.send(&call.request()).await?;
        self.kept = Some(connection);
        let status = response.status.as_u16();
        ensure!([302, 404].contains(&status), "status {status}");
        Ok(Place::of_location(response.header("location")))
    }

    /// Repeats a request until the expected rule responds.
    async fn expect(&mut self, routes: &[Route], call: &Call) -> Result<(), String> {
        let expected = answer(routes, call);
        let began = Instant::now();
        loop {
            let found = self.ask(call).await;
            if found.as_ref().is_ok_and(|found| *found == expected) {
                return Ok(());
            }
            if began.elapsed() > APPLIED {
                return Err(format!("{call:?}: expected {expected:?}, got {found:?}"));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

#[test]
fn requests_match_the_rule_with_precedence() {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::new().expect("a runtime");
    let mut free = (20_000..30_000)
        .filter(|port| ports::probe(LOOPBACK.into(), Port::tcp(*port)).is_ok())
        .map(|port| SocketAddr::new(LOOPBACK.into(), port));
    let address = free.next().expect("a free port");
    let settings = Settings::new(Mode::Unmanaged { gateway: None });
    let world = World::of(Core::in_cluster(settings, Sharding::Auto));
    let fleets = BTreeSet::from([FleetId::Unmanaged]);
    let places = BTreeMap::from([("80", address)]);
    let rig = RefCell::new(runtime.block_on(Rig::start(world, fleets, places)));
    let common = common();
    let outcome = try_all(&sets(), cases(500), |(routes, calls)| {
        let all = routes.iter().map(Route::json);
        let set = Set::new(common.iter().cloned().chain(all));
        let mut rig = rig.borrow_mut();
        let mut client = Client {
            address,
            kept: None,
        };
        runtime.block_on(async {
            rig.change_to(&set).await?;
            for call in &calls {
                client.expect(&routes, call).await?;
            }
            Ok(())
        })
    });
    runtime.block_on(rig.into_inner().stop());
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}
