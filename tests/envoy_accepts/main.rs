//! Real Envoys receive random sets of objects, each as a change from the previous one.
//!
//! - Envoy accepts everything that Sesame generates.
//! - [`layering`]: requests get the responses that the precedence of objects determines.
//! - [`precedence`]: requests match the rule that the precedence of matches determines.
//!
//! `SESAME_CASES` sets the number of sets. A failure prints the objects in a form that `sesame translate` reads.

mod layering;
mod precedence;
mod rig;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};

use proptest::prelude::*;
use proptest::test_runner::{TestError, TestRunner};
use serde_json::{Value, json};
use sesame_api::NamespacedName;
use sesame_control::core::Core;
use sesame_control::{FleetId, Options};
use sesame_testkit::certs::Authority;
use sesame_testkit::generate::{self, GATEWAYS, GATEWAYS_AT_BOUNDS, INSTANCE, Set};
use sesame_tests::world::{World, cases};
use sesame_translate::settings::{Mode, Settings};
use tokio::runtime::Runtime;

use crate::rig::Rig;

/// Envoys can share ports without an error, so only one test at a time may look for free ports.
static TURN: Mutex<()> = Mutex::new(());

/// A fleet for each Gateway, and the default fleet.
fn fleets() -> BTreeSet<FleetId> {
    GATEWAYS
        .into_iter()
        .chain(GATEWAYS_AT_BOUNDS)
        .map(|(namespace, name)| FleetId::of_gateway(namespace, name))
        .chain([FleetId::Default])
        .collect()
}

/// Tries random values.
///
/// # Errors
/// A minimal failing value, and why it fails.
fn try_all<T: std::fmt::Debug>(
    strategy: &impl Strategy<Value = T>,
    count: u32,
    check: impl Fn(T) -> Result<(), String>,
) -> Result<(), String> {
    let mut runner = TestRunner::new(ProptestConfig {
        cases: count,
        failure_persistence: None,
        max_shrink_iters: 300,
        ..ProptestConfig::default()
    });
    let result = runner.run(strategy, |value| check(value).map_err(TestCaseError::fail));
    result.map_err(|error| match error {
        TestError::Fail(reason, value) => format!("{reason}\n\n{value:?}"),
        TestError::Abort(reason) => reason.to_string(),
    })
}

/// Tries random sets with the Envoys of [`fleets`], and checks the world with each of them.
fn try_sets(
    strategy: &impl Strategy<Value = Set>,
    count: u32,
    check: impl Fn(&World) -> Result<(), String>,
) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::new().expect("a runtime");
    let (namespace, name) = INSTANCE;
    let settings = Settings {
        configuration: Some(NamespacedName::new(namespace, name)),
        ..Settings::new(Mode::Local)
    };
    let world = World::of(Core::local(settings, Options::default()));
    let rig = RefCell::new(runtime.block_on(Rig::start(world, fleets(), BTreeMap::new())));
    let outcome = try_all(strategy, count, |set| {
        let mut rig = rig.borrow_mut();
        runtime.block_on(rig.change_to(&set))?;
        check(rig.world())
    });
    runtime.block_on(rig.into_inner().stop());
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn envoy_accepts_every_set() {
    try_sets(&generate::sets(), cases(2_000), |_| Ok(()));
}

#[test]
fn objects_at_their_bounds_are_served() {
    try_sets(&Just(generate::bounds()), 1, |world| {
        let problems = problems(world);
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems.join("\n")),
        }
    });
}

/// The conditions that report a problem, and the problems of objects without a status for them.
fn problems(world: &World) -> Vec<String> {
    let (engine, outputs) = (world.core().engine(), world.core().outputs());
    let mut problems = Vec::new();
    for (key, status) in engine.iter(outputs.statuses) {
        for conditions in conditions(&serde_json::to_value(&**status).expect("a status is JSON")) {
            let (type_, good) = (&conditions["type"], conditions["status"] == "True");
            let expected = type_ != "Conflicted" && type_ != "PartiallyInvalid";
            if good != expected {
                problems.push(format!("{key}: {conditions}"));
            }
        }
    }
    for (key, notices) in engine.iter(outputs.notices) {
        problems.push(format!("{key}: {notices:?}"));
    }
    problems
}

/// All conditions in a status.
fn conditions(status: &Value) -> Vec<Value> {
    match status {
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| match (name.as_str(), value) {
                ("conditions", Value::Array(conditions)) => conditions.clone(),
                _ => conditions(value),
            })
            .collect(),
        Value::Array(list) => list.iter().flat_map(conditions).collect(),
        _ => Vec::new(),
    }
}

#[test]
fn envoy_accepts_every_regular_expression() {
    let few = prop::collection::vec(generate::regexes(), 1..16);
    let sets = few.prop_map(|regexes| route_with(&regexes));
    try_sets(&sets, cases(2_000).div_ceil(4), |_| Ok(()));
}

/// A route that matches paths by these regular expressions.
fn route_with(regexes: &[String]) -> Set {
    let path = |regex: &String| json!({"matches": [{"path": {"type": "RegularExpression", "value": regex}}]});
    let rules: Vec<Value> = regexes.iter().map(path).collect();
    let (namespace, name) = GATEWAYS[0];
    let route = json!({
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"namespace": namespace, "name": "route"},
        "spec": {"parentRefs": [{"name": name}], "rules": rules},
    });
    Set::new(generate::gateway().into_iter().chain([route]))
}

#[test]
fn envoy_accepts_every_ca_certificate() {
    let authority = Authority::new().expect("a CA").pem().to_owned();
    let certificates = prop::collection::vec(altered(authority), 1..4);
    let sets = certificates.prop_map(|certificates| backends_with(&certificates));
    try_sets(&sets, cases(2_000).div_ceil(4), |_| Ok(()));
}

/// A PEM block in which a character has been replaced. Many of these are still certificates.
fn altered(pem: String) -> impl Strategy<Value = String> {
    let text = pem.bytes().enumerate();
    let lines = text.scan(0, |line, (at, byte)| {
        *line += usize::from(byte == b'\n');
        Some((*line, at, byte))
    });
    let last = pem.lines().count() - 1;
    let body = lines.filter(|(line, _, byte)| (1..last).contains(line) && byte.is_ascii_graphic());
    let places: Vec<usize> = body.map(|(_, at, _)| at).collect();
    let character = prop::sample::select(('A'..='Z').chain('a'..='z').collect::<Vec<_>>());
    (prop::sample::select(places), character).prop_map(move |(at, character)| {
        let mut pem = pem.clone();
        pem.replace_range(at..=at, character.encode_utf8(&mut [0; 4]));
        pem
    })
}

/// Services with BackendTLSPolicies that trust these certificates, and a route to them.
fn backends_with(certificates: &[String]) -> Set {
    let (namespace, gateway) = GATEWAYS[0];
    let object = |group: &str, kind: &str, name: &str| {
        let metadata = json!({"namespace": namespace, "name": name});
        json!({"apiVersion": group, "kind": kind, "metadata": metadata})
    };
    let mut rules = Vec::new();
    let mut objects = Vec::new();
    for (number, certificate) in certificates.iter().enumerate() {
        let name = format!("s{number}");
        let mut authorities = object("v1", "ConfigMap", &name);
        authorities["data"] = json!({"ca.crt": certificate});
        let mut service = object("v1", "Service", &name);
        service["spec"] = json!({"ports": [{"port": 80}]});
        let mut policy = object("gateway.networking.k8s.io/v1", "BackendTLSPolicy", &name);
        policy["spec"] = json!({
            "targetRefs": [{"group": "", "kind": "Service", "name": name}],
            "validation": {
                "hostname": "s.test",
                "caCertificateRefs": [{"group": "", "kind": "ConfigMap", "name": name}],
            },
        });
        rules.push(json!({
            "matches": [{"path": {"value": format!("/{name}")}}],
            "backendRefs": [{"name": name, "port": 80}],
        }));
        objects.extend([authorities, service, policy]);
    }
    let mut route = object("gateway.networking.k8s.io/v1", "HTTPRoute", "route");
    route["spec"] = json!({"parentRefs": [{"name": gateway}], "rules": rules});
    Set::new(
        generate::gateway()
            .into_iter()
            .chain(objects)
            .chain([route]),
    )
}
