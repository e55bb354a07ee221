//! SesameConfigurations that Gateways refer to, valid and invalid.

use proptest::prelude::*;
use serde_json::json;

use super::json::{Json, any_number, any_of, boolean, just, may, mostly, record};

/// The names of SesameConfigurations.
const NAMES: &[&str] = &["c1", "c2"];

pub(super) fn configuration() -> Json {
    let amounts = || {
        record(vec![
            ("cpu", may(0.5, mostly(&["100m", "2"], &["much"]))),
            ("memory", may(0.5, mostly(&["128Mi", "1Gi"], &["lots"]))),
        ])
    };
    let resources = record(vec![
        ("requests", may(0.5, amounts())),
        ("limits", may(0.5, amounts())),
    ]);
    let publishing = record(vec![
        (
            "type",
            may(0.5, any_of(&["NodePortService", "ClusterIPService"])),
        ),
        ("loadBalancerSourceRanges", may(0.2, ranges())),
    ]);
    let envoy = record(vec![
        ("managed", may(0.3, boolean())),
        ("replicas", may(0.5, any_number(&[1, 3]))),
        ("resources", may(0.3, resources)),
        ("networkPublishing", may(0.3, publishing)),
        ("maxConnections", may(0.3, any_number(&[1, u32::MAX]))),
    ]);
    let classes = just(json!({"classNames": ["other"]}));
    let spec = record(vec![
        ("envoy", may(0.8, envoy)),
        ("ingress", may(0.2, classes)),
    ]);
    (super::metadata(NAMES, &["one", "one", "two"]), spec)
        .prop_map(|(metadata, spec)| {
            json!({
                "apiVersion": "projectsesame.io/v1alpha1",
                "kind": "SesameConfiguration",
                "metadata": metadata,
                "spec": spec,
            })
        })
        .boxed()
}

fn ranges() -> Json {
    prop_oneof![
        4 => just(json!(["192.0.2.0/24"])),
        1 => just(json!(["192.0.2.0"])),
    ]
    .boxed()
}

/// A Gateway's reference to a SesameConfiguration.
pub(super) fn reference() -> Json {
    mostly(NAMES, &["missing"])
        .prop_map(|name| json!({"group": "projectsesame.io", "kind": "SesameConfiguration", "name": name}))
        .boxed()
}
