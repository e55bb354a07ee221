//! Configurations that GatewayClasses and Gateways refer to: SesameConfigurations, or ConfigMaps with the same
//! document. Only the `envoy` and `listeners` sections apply to these objects.
//!
//! An invalid configuration doesn't affect traffic: a condition of the referring object reports the error, and the
//! fleet keeps the last valid parameters.

use std::sync::Arc;

use sesame_api::{
    ConfigurationSpec, Gateway, GatewayClass, Group, Kind, KindName, LocalObjectReference,
    NamespacedName, ObjectKey, ObjectReference, reason,
};
use sesame_engine::{Builder, Reader, Table};

use super::{FleetSettings, KEY, parse, publishing};
use crate::gateway_api::class::ClassState;
use crate::inputs::Inputs;
use crate::problem::{FieldError, Problem, bounded};

/// The settings for fleets in a configuration, or an error.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Chosen {
    /// Valid settings.
    Settings(Box<FleetSettings>),
    /// The error, as the end of a sentence about the object.
    Wrong(String),
}

/// Settings for fleets by the SesameConfiguration or ConfigMap that contains them.
pub(crate) type Parameters = Table<ObjectKey, Chosen>;

/// The relevant fields of a ConfigMap.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfigData {
    /// The text under [`KEY`].
    pub(crate) configuration: Option<Arc<str>>,
    /// The text under [`AUTHORITIES`](crate::shared::authorities::AUTHORITIES).
    pub(crate) authorities: Option<Arc<str>>,
}

/// The settings of a Gateway's fleet: the Gateway's own, with its class's and the instance's as defaults.
#[derive(Clone, Debug, PartialEq)]
pub struct GatewayParameters {
    /// The settings; `None` if `wrong` is set.
    pub chosen: Option<FleetSettings>,
    /// Why there are no valid settings.
    pub wrong: Option<Problem>,
}

/// Declares the parameters in all configurations.
pub(crate) fn stages(b: &mut Builder, inputs: &Inputs) -> Parameters {
    let inputs = *inputs;
    let of_objects = b.derive(
        "configured parameters",
        inputs.configurations,
        move |reader, key: &ObjectKey| {
            let configuration = reader.get(inputs.configurations, key)?;
            Some(chosen(&configuration.spec, "is invalid: ", "spec."))
        },
    );
    let of_config_maps = b.derive_many(
        "parameters in config_maps",
        inputs.config_maps,
        move |reader, name: &NamespacedName| {
            let data = reader.get(inputs.config_maps, name);
            let chosen = data.map(|data| of_text(data.configuration.as_deref()));
            let key = name.clone().of_kind(Kind::ConfigMap);
            Vec::from_iter(chosen.map(|chosen| (key, chosen)))
        },
    );
    b.union("parameters", [of_objects, of_config_maps])
}

fn of_text(text: Option<&str>) -> Chosen {
    let Some(text) = text else {
        return Chosen::Wrong(format!("has no key {KEY}"));
    };
    let invalid = format!("has an invalid {KEY}: ");
    match parse(text) {
        Ok(spec) => chosen(&spec, &invalid, ""),
        Err(why) => Chosen::Wrong(invalid + &why),
    }
}

fn chosen(spec: &ConfigurationSpec, invalid: &str, prefix: &str) -> Chosen {
    match FleetSettings::read(spec) {
        Ok(settings) => Chosen::Settings(Box::new(settings)),
        Err(errors) => {
            let errors: Vec<String> = errors
                .iter()
                .map(|error| format!("{prefix}{error}"))
                .collect();
            Chosen::Wrong(format!("{invalid}{}", errors.join(", ")))
        }
    }
}

/// The settings of a GatewayClass: the defaults for its Gateways.
pub(crate) fn of_class(
    reader: &mut Reader<'_>,
    table: Parameters,
    class: &GatewayClass,
) -> Result<FleetSettings, Problem> {
    let Some(reference) = &class.spec.parameters_ref else {
        return Ok(FleetSettings::default());
    };
    let field = "spec.parametersRef";
    let ObjectReference {
        group,
        kind,
        name,
        namespace,
    } = reference;
    let kind = known_kind(field, reference.known_kind(), group, kind)?;
    let Some(namespace) = namespace else {
        return Err(invalid(format!(
            "{field}.namespace: is required because {kind}s are namespaced"
        )));
    };
    let key = ObjectKey::new(kind, namespace.clone(), name.clone());
    look_up(reader, table, field, &key)
}

/// The settings for a Gateway of the class.
pub(crate) fn of_gateway(
    reader: &mut Reader<'_>,
    table: Parameters,
    inputs: &Inputs,
    class: &ClassState,
    gateway: &Gateway,
) -> Option<GatewayParameters> {
    let settings = reader.get(inputs.settings, &())?;
    let own = own(reader, table, gateway);
    Some(match (own, &class.parameters) {
        (Ok(own), Some(wider)) => {
            let inherited = wider.clone().over(settings.fleet.clone());
            let chosen = permitted(gateway, &own, &inherited).and_then(|()| {
                let chosen = own.over(inherited);
                let classes = inputs.gateway_classes;
                let refusal = publishing::refusal(reader, classes, &settings, &chosen.parameters);
                match refusal.or_else(|| publishing::chain(gateway, &chosen.parameters)) {
                    Some(error) => Err(invalid(format!("configuration field spec.{error}"))),
                    None => Ok(chosen),
                }
            });
            let (chosen, wrong) = match chosen {
                Ok(chosen) => (Some(chosen), None),
                Err(problem) => (None, Some(problem)),
            };
            GatewayParameters { chosen, wrong }
        }
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
    })
}

fn own(
    reader: &mut Reader<'_>,
    table: Parameters,
    gateway: &Gateway,
) -> Result<FleetSettings, Problem> {
    let infrastructure = gateway.spec.infrastructure.as_ref();
    let Some(reference) = infrastructure.and_then(|fields| fields.parameters_ref.as_ref()) else {
        return Ok(FleetSettings::default());
    };
    let field = "spec.infrastructure.parametersRef";
    let LocalObjectReference { group, kind, name } = reference;
    let kind = known_kind(field, reference.known_kind(), group, kind)?;
    let key = ObjectKey::new(kind, gateway.meta.namespace.clone(), name.clone());
    look_up(reader, table, field, &key)
}

/// Checks what the Gateway chooses for its Envoys.
fn permitted(
    gateway: &Gateway,
    own: &FleetSettings,
    inherited: &FleetSettings,
) -> Result<(), Problem> {
    let choices = &inherited.choices;
    let mut errors = Vec::new();
    if let Some(infrastructure) = &gateway.spec.infrastructure {
        let keys = infrastructure.annotations.keys();
        errors.extend(choices.annotations("spec.infrastructure.annotations", keys));
    }
    let reference = gateway.spec.infrastructure.as_deref();
    let reference = reference.and_then(|infrastructure| infrastructure.parameters_ref.as_ref());
    if let (Err(refused), Some(reference)) = (choices.check(own), reference) {
        let refused: Vec<String> = refused
            .iter()
            .map(|error| format!("spec.{error}"))
            .collect();
        let message = format!(
            "{} {}/{} sets more than the GatewayClass permits: {}",
            reference.kind,
            gateway.meta.namespace,
            reference.name,
            refused.join("; ")
        );
        errors.push(FieldError::new(
            "spec.infrastructure.parametersRef",
            message,
        ));
    }
    if errors.is_empty() {
        return Ok(());
    }
    let errors: Vec<String> = errors.iter().map(FieldError::to_string).collect();
    Err(invalid(errors.join("; ")))
}

fn look_up(
    reader: &mut Reader<'_>,
    table: Parameters,
    field: &str,
    key: &ObjectKey,
) -> Result<FleetSettings, Problem> {
    let object = format!("{} {}", key.kind, key.namespaced_name());
    match reader.get(table, key).as_deref() {
        Some(Chosen::Settings(settings)) => Ok(FleetSettings::clone(settings)),
        Some(Chosen::Wrong(why)) => Err(invalid(format!("{field}: {object} {why}"))),
        None => Err(invalid(format!("{field}: {object} does not exist"))),
    }
}

fn known_kind(
    field: &str,
    known: Option<Kind>,
    group: &Group,
    kind: &KindName,
) -> Result<Kind, Problem> {
    let known = known.filter(|kind| matches!(kind, Kind::SesameConfiguration | Kind::ConfigMap));
    known.ok_or_else(|| {
        invalid(format!(
            "{field}: kind {kind} in group {:?} is not supported; use a SesameConfiguration, or a ConfigMap with key {KEY}",
            group.as_str()
        ))
    })
}

/// GatewayClasses and Gateways use the same reason.
fn invalid(message: String) -> Problem {
    Problem::new(reason::gateway::INVALID_PARAMETERS, bounded(message))
}
