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
use sesame_control::{FleetId, Options};
use sesame_testkit::generate::{self, GATEWAYS, Set};
use sesame_tests::world::{World, cases};
use tokio::runtime::Runtime;

use crate::rig::Rig;

/// Envoys can share ports without an error, so only one test at a time may look for free ports.
static TURN: Mutex<()> = Mutex::new(());

/// A fleet for each Gateway, and the default fleet.
fn fleets() -> BTreeSet<FleetId> {
    GATEWAYS
        .into_iter()
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

/// Tries random sets with the Envoys of [`fleets`].
fn try_sets(strategy: &impl Strategy<Value = Set>, count: u32) {
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let runtime = Runtime::new().expect("a runtime");
    let world = World::new(Options::default());
    let rig = RefCell::new(runtime.block_on(Rig::start(world, fleets(), BTreeMap::new())));
    let outcome = try_all(strategy, count, |set| {
        runtime.block_on(rig.borrow_mut().change_to(&set))
    });
    runtime.block_on(rig.into_inner().stop());
    outcome.unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn envoy_accepts_every_set() {
    try_sets(&generate::sets(), cases(2_000));
}

#[test]
fn envoy_accepts_routes_at_their_bounds() {
    try_sets(&Just(generate::bounds()), 1);
}

#[test]
fn envoy_accepts_every_regular_expression() {
    let few = prop::collection::vec(generate::regexes(), 1..16);
    let sets = few.prop_map(|regexes| route_with(&regexes));
    try_sets(&sets, cases(2_000).div_ceil(4));
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
