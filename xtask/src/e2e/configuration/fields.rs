//! The changes of a SesameConfiguration: a valid and, where one exists, an invalid value of each field.
//!
//! Out: specs and their expected outcomes, in the order of the rows. A test compares the fields with the CRD.
//!
//! Requests to the shop must not fail meanwhile, so some values have little or no effect:
//! - `gateway.controllerName` keeps its value, since another one removes all Gateways;
//! - the default ports change while no Ingress or HTTPProxy exists; `moved_ports` checks their effect;
//! - `proxyProtocol` isn't `Required`, the source ranges include the clients, and the image is the one in the cluster;
//! - the fields in [`UNAPPLIED`] change while Sesame leaves the Envoys' objects unchanged.

mod publishing;
mod rows;
mod sections;

use serde_json::{Value, json};

use super::usual;

/// Fields that move a Service's address, which change together with `managed: false`.
const UNAPPLIED: [&str; 3] = [
    "envoy.networkPublishing",
    "envoy.networkPublishing.type",
    "envoy.networkPublishing.loadBalancerClass",
];

/// The PriorityClass of Envoys, the ExtensionService and the Secret with a client certificate, which must exist.
pub(super) const PRIORITY_CLASS: &str = "configured";
pub(super) const EXTENSION: &str = "extension";
pub(super) const CERTIFICATE: &str = "client";

/// What a change does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It takes effect.
    Programmed,
    /// It is valid, but takes effect only after a restart.
    RestartRequired,
    /// The API server accepts it; the status reports the invalid field.
    Reported,
    /// The API server rejects it.
    Rejected,
}

/// A change of the configuration.
#[derive(Debug)]
pub(super) struct Change {
    /// The field, a path in the spec.
    pub(super) field: &'static str,
    pub(super) spec: Value,
    pub(super) outcome: Outcome,
}

impl Change {
    fn new(field: &'static str, value: Value, outcome: Outcome) -> Self {
        let mut spec = usual();
        if UNAPPLIED.contains(&field) {
            spec["envoy"]["managed"] = json!(false);
        }
        // The two sections are mutually exclusive.
        if field.starts_with("unmanagedEnvoy.")
            && let Some(sections) = spec.as_object_mut()
        {
            sections.remove("envoy");
        }
        let mut place = &mut spec;
        for name in field.split('.') {
            place = &mut place[name];
        }
        *place = value;
        Self {
            field,
            spec,
            outcome,
        }
    }
}

/// A row of the table: a field, a valid value with its outcome, and an invalid one.
struct Row(&'static str, Value, Outcome, Option<(Value, Outcome)>);

/// A row whose invalid value the API server rejects.
fn row(field: &'static str, valid: Value, invalid: Value) -> Row {
    let invalid = Some((invalid, Outcome::Rejected));
    Row(field, valid, Outcome::Programmed, invalid)
}

/// A row whose invalid value only Sesame detects.
fn reported(field: &'static str, valid: &str, invalid: &str) -> Row {
    let invalid = Some((json!(invalid), Outcome::Reported));
    Row(field, json!(valid), Outcome::Programmed, invalid)
}

/// All changes; valid and invalid ones alternate.
pub(super) fn changes() -> Vec<Change> {
    let rows = rows::all().into_iter();
    let changes = rows.flat_map(|Row(field, valid, outcome, invalid)| {
        let invalid = invalid.map(|(value, outcome)| Change::new(field, value, outcome));
        [Some(Change::new(field, valid, outcome)), invalid]
    });
    changes.flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use sesame_api::Object;
    use sesame_tools::cargo;

    use super::super::object;
    use super::*;

    /// The fields of a schema without fields of their own.
    fn leaves(schema: &Value, path: &str, found: &mut BTreeSet<String>) {
        let of = |schema: &Value| schema["properties"].as_object().cloned();
        match of(schema).or_else(|| of(&schema["items"])) {
            Some(fields) => {
                for (name, field) in &fields {
                    leaves(field, &format!("{path}.{name}"), found);
                }
            }
            None => {
                found.insert(path.to_owned());
            }
        }
    }

    /// The fields in a value.
    fn fields(value: &Value, path: &str, found: &mut BTreeSet<String>) {
        found.insert(path.to_owned());
        for (name, field) in value.as_object().into_iter().flatten() {
            fields(field, &format!("{path}.{name}"), found);
        }
        for item in value.as_array().into_iter().flatten() {
            fields(item, path, found);
        }
    }

    #[test]
    fn each_field_of_the_crd_has_a_valid_change() {
        let path = cargo::root().join("deploy/crds/sesameconfigurations.yaml");
        let text = fs::read_to_string(path).unwrap();
        let definition: Value = serde_saphyr::from_str(&text).unwrap();
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let mut all = BTreeSet::new();
        leaves(&schema["properties"]["spec"], "spec", &mut all);
        assert!(all.contains("spec.envoy.tolerations.key"), "{all:?}");
        let mut changed = BTreeSet::new();
        for change in changes() {
            if matches!(
                change.outcome,
                Outcome::Programmed | Outcome::RestartRequired
            ) {
                fields(&change.spec, "spec", &mut changed);
            }
        }
        let missing: Vec<&String> = all.difference(&changed).collect();
        assert!(missing.is_empty(), "fields without a row: {missing:?}");
    }

    #[test]
    fn only_the_api_server_rejects_invalid_changes() {
        for change in changes() {
            let decoded = Object::decode(object(&change.spec));
            let rejected = change.outcome == Outcome::Rejected;
            assert_eq!(decoded.is_err(), rejected, "{change:?}: {decoded:?}");
        }
    }

    #[test]
    fn each_change_differs_from_the_previous_one() {
        let changes = changes();
        let accepted = changes
            .iter()
            .filter(|change| change.outcome != Outcome::Rejected);
        let specs: Vec<&Value> = accepted.map(|change| &change.spec).collect();
        assert!(specs.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
