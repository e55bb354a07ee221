//! What is chosen about fleets, and what a wrong choice does and doesn't do.

use serde_json::{Value, json};
use sesame_api::Kind;
use sesame_model::FleetParameters;
use sesame_translate::settings::Mode;

use crate::rig::{Rig, class, config_map, fleet, gateway, said, set};

fn reference(name: &str) -> Value {
    json!({"group": "", "kind": "ConfigMap", "name": name})
}

fn tuned_gateway() -> Value {
    let gateway = set(gateway("web", "edge", 1), "/spec/infrastructure", json!({}));
    set(
        gateway,
        "/spec/infrastructure/parametersRef",
        reference("own"),
    )
}

fn tuned_class() -> Value {
    let reference = set(reference("wide"), "/namespace", json!("ns"));
    set(class("edge", 0), "/spec/parametersRef", reference)
}

fn accepted(rig: &Rig) -> String {
    said(&rig.gateway("web").conditions, "Accepted")
}

fn parameters(rig: &Rig) -> Option<FleetParameters> {
    let request = rig.request(&fleet("web")).expect("a fleet");
    request.parameters.clone()
}

#[test]
fn a_gateways_choices_stand_over_those_of_its_class() {
    let mut rig = Rig::new(Mode::Managed);
    rig.put([
        tuned_class(),
        config_map("wide", "{replicas: 3, maxConnections: 100}"),
        tuned_gateway(),
        config_map("own", "replicas: 5"),
    ]);
    let both = FleetParameters {
        replicas: Some(5),
        max_connections: Some(100),
        ..FleetParameters::default()
    };
    assert_eq!(parameters(&rig), Some(both.clone()));
    assert_eq!(accepted(&rig), "Accepted/Accepted");

    // Other choices are another fleet to be had, and nothing to be served differently or told.
    let outputs = rig.pipeline.outputs;
    let commit = rig.put([config_map("wide", "{replicas: 3, maxConnections: 200}")]);
    assert_eq!(commit.changes(outputs.fleets).len(), 1);
    assert!(commit.changes(outputs.gateway_status).is_empty());
    assert!(commit.ran(outputs.listeners).is_empty());
    // What nobody reads is nobody's change.
    let other = set(config_map("own", "replicas: 5"), "/data/other", json!("x"));
    assert!(rig.put([other]).is_empty());
}

#[test]
fn a_wrong_choice_is_told_where_it_was_made_and_stops_nothing() {
    let mut rig = Rig::new(Mode::Managed);
    rig.put([
        class("edge", 0),
        tuned_gateway(),
        config_map("own", "replicas: 2"),
    ]);
    let serving = rig.binds();
    assert_eq!(serving.len(), 1);
    for (text, why) in [
        ("replicas: many", "replicas: expected a whole number"),
        ("replica: 2", "replica: unknown field `replica`"),
    ] {
        let commit = rig.put([config_map("own", text)]);
        assert!(commit.changes(rig.pipeline.outputs.listeners).is_empty());
        let start = "not Accepted/InvalidParameters: spec.infrastructure.parametersRef: ConfigMap ns/own has a parameters.yaml \
                     that can't be read: ";
        let said = accepted(&rig);
        assert!(said.starts_with(&format!("{start}{why}")), "{said}");
        // The fleet isn't taken away, and isn't made.
        assert_eq!(parameters(&rig), None);
    }
    rig.remove(Kind::ConfigMap, "ns", "own");
    assert_eq!(
        accepted(&rig),
        "not Accepted/InvalidParameters: spec.infrastructure.parametersRef: ConfigMap ns/own does not exist"
    );
    assert_eq!((parameters(&rig), rig.binds()), (None, serving));
    let without = set(config_map("own", ""), "/data", json!({"other": "x"}));
    rig.put([without]);
    assert!(accepted(&rig).ends_with("ConfigMap ns/own has no key parameters.yaml"));
    rig.put([config_map("own", "")]);
    assert_eq!(accepted(&rig), "Accepted/Accepted");
    assert_eq!(parameters(&rig), Some(FleetParameters::default()));
}

#[test]
fn a_wrong_choice_of_a_class_holds_for_all_its_gateways() {
    let mut rig = Rig::new(Mode::Managed);
    rig.put([tuned_class(), gateway("web", "edge", 1)]);
    let said_of_class = said(&rig.class("edge").unwrap().conditions, "Accepted");
    assert_eq!(
        said_of_class,
        "not Accepted/InvalidParameters: spec.parametersRef: ConfigMap ns/wide does not exist"
    );
    assert_eq!(
        accepted(&rig),
        "not Accepted/Invalid: GatewayClass edge is not accepted; see its status"
    );
    assert_eq!((parameters(&rig), rig.binds().len()), (None, 1));
    rig.put([config_map("wide", "workload: DaemonSet")]);
    assert_eq!(accepted(&rig), "Accepted/Accepted");
    assert!(parameters(&rig).is_some());
}

/// GatewayInvalidParametersRef, and its like for classes.
#[test]
fn references_that_lead_nowhere_are_refused() {
    let mut rig = Rig::new(Mode::Managed);
    let other =
        json!({"group": "example.com", "kind": "Tuning", "name": "fast", "namespace": "ns"});
    rig.put([set(class("edge", 0), "/spec/parametersRef", other.clone())]);
    let of_class = |rig: &Rig| said(&rig.class("edge").unwrap().conditions, "Accepted");
    assert_eq!(
        of_class(&rig),
        "not Accepted/InvalidParameters: spec.parametersRef: Tuning of group \"example.com\" can't hold parameters; use a \
         ConfigMap with key parameters.yaml"
    );
    rig.put([set(
        class("edge", 0),
        "/spec/parametersRef",
        reference("wide"),
    )]);
    assert!(of_class(&rig).contains("spec.parametersRef.namespace: a ConfigMap is in a namespace"));

    let web = set(tuned_gateway(), "/spec/infrastructure/parametersRef", other);
    rig.put([class("edge", 0), web]);
    assert!(
        accepted(&rig).starts_with(
            "not Accepted/InvalidParameters: spec.infrastructure.parametersRef: Tuning"
        )
    );
}
