//! XBackendTrafficPolicies, valid and invalid.

use proptest::prelude::*;
use serde_json::json;

use super::json::{Json, any_number, any_of, may, mostly, must, record, unique_list};
use super::{pool, route};

pub(super) fn policy() -> Json {
    let service = record(vec![
        ("group", must(mostly(&[""], &["example.net"]))),
        ("kind", must(mostly(&["Service"], &["Secret"]))),
        ("name", must(mostly(pool::SERVICES, &["missing"]))),
    ]);
    let xbackend = any_of(pool::XBACKENDS).prop_map(
        |name| json!({"group": "gateway.networking.x-k8s.io", "kind": "XBackend", "name": name}),
    );
    let target = prop_oneof![5 => service, 1 => xbackend].boxed();
    let spec = record(vec![
        ("targetRefs", must(unique_list(target, 1..3, "name"))),
        ("retryConstraint", may(0.6, retries())),
        ("sessionPersistence", may(0.6, route::session())),
    ]);
    let metadata = super::metadata(&["b1", "b2", "b3"], &["one", "one", "two"]);
    (metadata, spec)
        .prop_map(|(metadata, spec)| {
            json!({
                "apiVersion": "gateway.networking.x-k8s.io/v1alpha1",
                "kind": "XBackendTrafficPolicy",
                "metadata": metadata,
                "spec": spec,
            })
        })
        .boxed()
}

fn retries() -> Json {
    let budget = record(vec![
        ("percent", may(0.7, any_number(&[0, 1, 20, 100]))),
        ("interval", may(0.5, any_of(&["1s", "10s", "1h"]))),
    ]);
    let rate = record(vec![
        ("count", may(0.7, any_number(&[1, 10, 1_000_000]))),
        ("interval", may(0.7, any_of(&["1ms", "1s", "59m60s"]))),
    ]);
    record(vec![
        ("budget", may(0.7, budget)),
        ("minRetryRate", may(0.7, rate)),
    ])
}
