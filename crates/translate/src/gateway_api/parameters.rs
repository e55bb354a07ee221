//! The ConfigMaps with fleet parameters that GatewayClasses and Gateways refer to.
//!
//! Invalid parameters don't affect traffic: the owner's condition reports them, and the fleet keeps the last valid
//! ones.

use std::sync::Arc;

use sesame_api::{
    Gateway, GatewayClass, Group, Kind, KindName, LocalObjectReference, NamespacedName,
    ObjectReference, reason,
};
use sesame_engine::{Reader, Table};
use sesame_model::FleetParameters;

use super::class::ClassState;
use crate::problem::{Problem, bounded};
use crate::shared::parameters::{self, KEY};

/// The fleet parameters in a ConfigMap, or an error.
#[derive(Clone, Debug, PartialEq)]
pub enum Chosen {
    /// Valid parameters.
    Parameters(Box<FleetParameters>),
    /// The first error, with its field.
    Wrong(String),
}

/// The relevant fields of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigData {
    /// The text under [`KEY`].
    pub(crate) parameters: Option<Arc<str>>,
    /// The text under [`AUTHORITIES`](crate::shared::authorities::AUTHORITIES).
    pub(crate) authorities: Option<Arc<str>>,
}

/// The parameters of a Gateway's fleet: the Gateway's own, with its class's as defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayParameters {
    /// The parameters; `None` if `wrong` is set.
    pub chosen: Option<FleetParameters>,
    /// Why they are invalid.
    pub wrong: Option<Problem>,
}

/// Reads a ConfigMap.
pub(crate) fn chosen(config: &ConfigData) -> Chosen {
    let Some(text) = &config.parameters else {
        return Chosen::Wrong(format!("has no key {KEY}"));
    };
    match parameters::parse(text) {
        Ok(parameters) => Chosen::Parameters(Box::new(parameters)),
        Err(why) => Chosen::Wrong(format!("has an invalid {KEY}: {why}")),
    }
}

/// The parameters of a GatewayClass: the defaults for its Gateways.
pub(crate) fn of_class(
    reader: &mut Reader<'_>,
    table: Table<NamespacedName, Chosen>,
    class: &GatewayClass,
) -> Result<FleetParameters, Problem> {
    let Some(reference) = &class.spec.parameters_ref else {
        return Ok(FleetParameters::default());
    };
    let field = "spec.parametersRef";
    let ObjectReference {
        group,
        kind,
        name,
        namespace,
    } = reference;
    if reference.known_kind() != Some(Kind::ConfigMap) {
        return Err(other_kind(field, group, kind));
    }
    let Some(namespace) = namespace else {
        return Err(invalid(format!(
            "{field}.namespace: is required because ConfigMaps are namespaced"
        )));
    };
    let name = NamespacedName::new(namespace.clone(), name.clone());
    look_up(reader, table, field, &name)
}

/// The parameters of a Gateway of the class.
pub(crate) fn of_gateway(
    reader: &mut Reader<'_>,
    table: Table<NamespacedName, Chosen>,
    class: &ClassState,
    gateway: &Gateway,
) -> GatewayParameters {
    let own = own(reader, table, gateway);
    match (own, &class.parameters) {
        (Ok(own), Some(wider)) => GatewayParameters {
            chosen: Some(own.over(wider.clone())),
            wrong: None,
        },
        (Err(problem), _) => GatewayParameters {
            chosen: None,
            wrong: Some(problem),
        },
        (Ok(_), None) => GatewayParameters {
            chosen: None,
            wrong: Some(Problem::new(
                reason::gateway::INVALID,
                format!(
                    "GatewayClass {} is not accepted; see its Accepted condition",
                    gateway.spec.gateway_class_name
                ),
            )),
        },
    }
}

fn own(
    reader: &mut Reader<'_>,
    table: Table<NamespacedName, Chosen>,
    gateway: &Gateway,
) -> Result<FleetParameters, Problem> {
    let infrastructure = gateway.spec.infrastructure.as_ref();
    let Some(reference) = infrastructure.and_then(|fields| fields.parameters_ref.as_ref()) else {
        return Ok(FleetParameters::default());
    };
    let field = "spec.infrastructure.parametersRef";
    let LocalObjectReference { group, kind, name } = reference;
    if reference.known_kind() != Some(Kind::ConfigMap) {
        return Err(other_kind(field, group, kind));
    }
    let name = NamespacedName::new(gateway.meta.namespace.clone(), name.clone());
    look_up(reader, table, field, &name)
}

fn look_up(
    reader: &mut Reader<'_>,
    table: Table<NamespacedName, Chosen>,
    field: &str,
    name: &NamespacedName,
) -> Result<FleetParameters, Problem> {
    match reader.get(table, name).as_deref() {
        Some(Chosen::Parameters(parameters)) => Ok(FleetParameters::clone(parameters)),
        Some(Chosen::Wrong(why)) => Err(invalid(format!("{field}: ConfigMap {name} {why}"))),
        None => Err(invalid(format!("{field}: ConfigMap {name} does not exist"))),
    }
}

fn other_kind(field: &str, group: &Group, kind: &KindName) -> Problem {
    invalid(format!(
        "{field}: kind {kind} in group {:?} is not supported; use a ConfigMap with key {KEY}",
        group.as_str()
    ))
}

/// GatewayClass and Gateway use the same reason.
fn invalid(message: String) -> Problem {
    Problem::new(reason::gateway::INVALID_PARAMETERS, bounded(message))
}
