//! Fleet parameters, and the effects of invalid ones.

use serde_json::{Value, json};
use sesame_api::Kind;
use sesame_model::{Autoscaling, FleetParameters};
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
    let request = rig.request(&fleet("web")).expect("the fleet is requested");
    request.parameters.clone()
}

#[test]
fn parameters_of_a_gateway_override_those_of_its_class() {
    let mut rig = Rig::new(Mode::Managed);
    rig.put([
        tuned_class(),
        config_map("wide", "replicas: 3, maxConnections: 100"),
        tuned_gateway(),
        config_map("own", "replicas: 5"),
    ]);
    let both = FleetParameters {
        replicas: Some(5),
        autoscaling: Some(Autoscaling::Off),
        max_connections: Some(100),
        ..FleetParameters::default()
    };
    assert_eq!(parameters(&rig), Some(both.clone()));
    assert_eq!(accepted(&rig), "Accepted/Accepted");

    // Changed parameters change the fleet, but neither listeners nor statuses.
    let outputs = rig.pipeline.outputs;
    let commit = rig.put([config_map("wide", "replicas: 3, maxConnections: 200")]);
    assert_eq!(commit.changes(outputs.fleets).len(), 1);
    assert!(commit.changes(outputs.statuses).is_empty());
    assert!(commit.ran(outputs.listeners).is_empty());
    // Other keys have no effect.
    let other = set(config_map("own", "replicas: 5"), "/data/other", json!("x"));
    assert!(rig.put([other]).is_empty());
}

#[test]
fn invalid_parameters_are_reported_and_listeners_stay() {
    let mut rig = Rig::new(Mode::Managed);
    rig.put([
        class("edge", 0),
        tuned_gateway(),
        config_map("own", "replicas: 2"),
    ]);
    let serving = rig.binds();
    assert_eq!(serving.len(), 1);
    for (text, why) in [
        ("replicas: many", "envoy.replicas: expected a whole number"),
        ("replica: 2", "envoy.replica: unknown field `replica`"),
    ] {
        let commit = rig.put([config_map("own", text)]);
        assert!(commit.changes(rig.pipeline.outputs.listeners).is_empty());
        let start = "not Accepted/InvalidParameters: spec.infrastructure.parametersRef: ConfigMap ns/own has an \
                     invalid configuration.yaml: ";
        let said = accepted(&rig);
        assert!(said.starts_with(&format!("{start}{why}")), "{said}");
        // While parameters are invalid, an existing fleet stays unchanged and a new one isn't created.
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
    assert!(accepted(&rig).ends_with("ConfigMap ns/own has no key configuration.yaml"));
    rig.put([config_map("own", "")]);
    assert_eq!(accepted(&rig), "Accepted/Accepted");
    assert_eq!(parameters(&rig), Some(FleetParameters::default()));
}

#[test]
fn invalid_parameters_of_a_class_apply_to_all_its_gateways() {
    let mut rig = Rig::new(Mode::Managed);
    rig.put([tuned_class(), gateway("web", "edge", 1)]);
    let said_of_class = said(&rig.class("edge").unwrap().conditions, "Accepted");
    assert_eq!(
        said_of_class,
        "not Accepted/InvalidParameters: spec.parametersRef: ConfigMap ns/wide does not exist"
    );
    assert_eq!(
        accepted(&rig),
        "not Accepted/Invalid: GatewayClass edge is not accepted; see its Accepted condition"
    );
    assert_eq!((parameters(&rig), rig.binds().len()), (None, 1));
    rig.put([config_map("wide", "workload: DaemonSet")]);
    assert_eq!(accepted(&rig), "Accepted/Accepted");
    assert!(parameters(&rig).is_some());
}

/// GatewayInvalidParametersRef, and the same for classes.
#[test]
fn invalid_parameter_references_are_reported() {
    let mut rig = Rig::new(Mode::Managed);
    let other =
        json!({"group": "example.com", "kind": "Tuning", "name": "fast", "namespace": "ns"});
    rig.put([set(class("edge", 0), "/spec/parametersRef", other.clone())]);
    let of_class = |rig: &Rig| said(&rig.class("edge").unwrap().conditions, "Accepted");
    assert_eq!(
        of_class(&rig),
        "not Accepted/InvalidParameters: spec.parametersRef: kind Tuning in group \"example.com\" is not supported; \
         use a SesameConfiguration, or a ConfigMap with key configuration.yaml"
    );
    rig.put([set(
        class("edge", 0),
        "/spec/parametersRef",
        reference("wide"),
    )]);
    assert!(of_class(&rig).contains("spec.parametersRef.namespace: is required"));

    let web = set(tuned_gateway(), "/spec/infrastructure/parametersRef", other);
    rig.put([class("edge", 0), web]);
    assert!(accepted(&rig).starts_with(
        "not Accepted/InvalidParameters: spec.infrastructure.parametersRef: kind Tuning"
    ));
}
