//! Statuses of SesameConfigurations: the instance's own, and those that its GatewayClasses and Gateways refer to.

use std::borrow::Cow;
use std::sync::Arc;

use sesame_api::condition::configuration::{ACCEPTED, ENVOYS_UPGRADED, PROGRAMMED};
use sesame_api::{
    Condition, ConditionStatus, ConditionsStatus, ConfigurationSpec, Gateway, GatewayClass,
    ObjectKey, ObjectStatus, SubCondition,
};
use sesame_engine::{Builder, Index, Reader, Table};
use sesame_model::UpgradeProgress;

use super::unresolved::unresolved;
use super::{FleetSettings, errors, publishing};
use crate::gateway_api::class;
use crate::http_proxy::extensions::ExtensionState;
use crate::inputs::Inputs;
use crate::problem::{FieldError, bounded};
use crate::settings::{Mode, Settings};

/// The objects that refer to configurations.
#[derive(Clone, Copy)]
struct Users {
    classes: Index<ObjectKey, GatewayClass, ObjectKey>,
    gateways: Index<ObjectKey, Gateway, ObjectKey>,
}

/// How the instance uses a configuration.
struct Use {
    /// Whether it is the instance's own configuration.
    instance: bool,
    /// The number of GatewayClasses that refer to it.
    classes: usize,
    /// The number of Gateways that refer to it.
    gateways: usize,
}

/// What is wrong with a configuration.
struct Problems {
    /// Invalid fields.
    errors: Vec<FieldError>,
    /// Why its Envoys can't be published.
    refusal: Option<FieldError>,
    /// Fields that refer to missing or invalid objects.
    unresolved: Vec<FieldError>,
}

/// Declares the statuses.
pub(crate) fn statuses(
    b: &mut Builder,
    inputs: &Inputs,
    extensions: Table<ObjectKey, ExtensionState>,
    client_certificate: Table<(), String>,
) -> Table<ObjectKey, ObjectStatus> {
    let inputs = *inputs;
    let users = Users {
        classes: b.index(
            inputs.gateway_classes,
            "gateway_classes by parameters",
            |_, class: &GatewayClass| {
                let reference = class.spec.parameters_ref.as_ref();
                let key = reference.and_then(|of| {
                    let namespace = of.namespace.clone()?;
                    Some(ObjectKey::new(of.known_kind()?, namespace, of.name.clone()))
                });
                Vec::from_iter(key)
            },
        ),
        gateways: b.index(
            inputs.gateways,
            "gateways by parameters",
            |_, gateway: &Gateway| {
                let infrastructure = gateway.spec.infrastructure.as_ref();
                let reference = infrastructure.and_then(|of| of.parameters_ref.as_ref());
                let key = reference.and_then(|of| {
                    let namespace = gateway.meta.namespace.clone();
                    Some(ObjectKey::new(of.known_kind()?, namespace, of.name.clone()))
                });
                Vec::from_iter(key)
            },
        ),
    };
    b.derive(
        "configuration status",
        inputs.configurations,
        move |reader, key: &ObjectKey| {
            let settings = reader.get(inputs.settings, &())?;
            let uses = uses(reader, &inputs, users, &settings, key)?;
            let configuration = reader.get(inputs.configurations, key)?;
            let generation = configuration.meta.generation;
            let spec = &configuration.spec;
            let own = FleetSettings::read(spec);
            let refusal = own.as_ref().ok().and_then(|own| {
                publishing::refusal(reader, inputs.gateway_classes, &settings, &own.parameters)
            });
            let errors = match uses.instance {
                true => errors(spec),
                false => own.err().unwrap_or_default(),
            };
            let unresolved = match uses.instance {
                true => unresolved(reader, extensions, client_certificate, spec),
                false => Vec::new(),
            };
            let problems = Problems {
                errors,
                refusal,
                unresolved,
            };
            let mut status = status(&settings, spec, &uses, problems, generation);
            if uses.instance
                && let Some(progress) = reader.get(inputs.upgrades, &())
            {
                status.conditions.push(upgraded(&progress, generation));
            }
            Some(ObjectStatus::Conditions(Arc::new(status)))
        },
    )
}

/// How this instance uses a configuration; `None` if it doesn't.
fn uses(
    reader: &mut Reader<'_>,
    inputs: &Inputs,
    users: Users,
    settings: &Settings,
    key: &ObjectKey,
) -> Option<Use> {
    let classes = reader.by(users.classes, key);
    let classes = classes.iter().filter(|(_, class)| settings.controls(class));
    let classes = classes.count();
    let gateways = reader.by(users.gateways, key);
    let gateways = gateways.iter().filter(|(_, gateway)| {
        let class = class::key(&gateway.spec.gateway_class_name);
        let class = reader.get(inputs.gateway_classes, &class);
        class.is_some_and(|class| settings.controls(&class))
    });
    let gateways = gateways.count();
    let instance = settings.configuration.as_ref() == Some(&key.namespaced_name());
    (instance || classes + gateways > 0).then_some(Use {
        instance,
        classes,
        gateways,
    })
}

/// The status. `errors` are those in the spec itself; `refusal` depends on other objects, so it affects only the fleets.
fn status(
    settings: &Settings,
    spec: &ConfigurationSpec,
    uses: &Use,
    problems: Problems,
    generation: i64,
) -> ConditionsStatus {
    let Problems {
        mut errors,
        refusal,
        unresolved,
    } = problems;
    let refused = refusal.is_some();
    errors.extend(refusal);
    let valid = errors.is_empty();
    let (reason, message) = match valid {
        true => ("Accepted", "The spec is valid."),
        false => (
            "Invalid",
            "The spec is invalid; see the errors in this condition.",
        ),
    };
    let accepted = Condition {
        errors: entries("InvalidField", errors),
        warnings: entries("Warning", warnings(settings, spec, uses)),
        ..Condition::new(ACCEPTED, valid, reason, message, generation)
    };
    let (restart, unresolved) = match uses.instance && valid {
        true => (restarts(settings, spec), unresolved),
        false => (Vec::new(), Vec::new()),
    };
    let (reason, message): (_, Cow<'static, str>) = match (valid, restart.is_empty()) {
        (false, _) if refused => (
            "Invalid",
            "Not in effect for Envoys: their last valid settings stay in effect. See the Accepted condition.".into(),
        ),
        (false, _) => (
            "Invalid",
            "Not in effect: the last valid version stays in effect. See the Accepted condition.".into(),
        ),
        (true, false) => (
            "RestartRequired",
            "Part of the spec takes effect only after Sesame restarts; see the errors in this condition."
                .into(),
        ),
        (true, true) if !unresolved.is_empty() => (
            "Unresolved",
            "Part of the spec isn't in effect, since it refers to objects that can't be used; see the errors in this \
             condition."
                .into(),
        ),
        (true, true) => ("Programmed", in_effect(uses).into()),
    };
    let programmed = Condition {
        errors: [
            entries("RestartRequired", restart),
            entries("Unresolved", unresolved),
        ]
        .concat()
        .into(),
        ..Condition::new(
            PROGRAMMED,
            reason == "Programmed",
            reason,
            message,
            generation,
        )
    };
    ConditionsStatus {
        conditions: vec![accepted, programmed],
    }
}

/// Whether all managed Envoys run this release of Sesame.
fn upgraded(progress: &UpgradeProgress, generation: i64) -> Condition {
    let reason = match progress {
        UpgradeProgress::Complete => "Upgraded",
        UpgradeProgress::AwaitingSesame { .. } => "AwaitingSesame",
        UpgradeProgress::Upgrading { .. } => "Upgrading",
        UpgradeProgress::Paused { .. } => "Paused",
    };
    let complete = *progress == UpgradeProgress::Complete;
    let message = bounded(progress.to_string());
    Condition::new(ENVOYS_UPGRADED, complete, reason, message, generation)
}

fn in_effect(uses: &Use) -> String {
    let instance = uses.instance.then(|| "this instance of Sesame".to_owned());
    let count = |count: usize, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {many}")),
    };
    let users: Vec<String> = [
        instance,
        count(uses.classes, "GatewayClass", "GatewayClasses"),
        count(uses.gateways, "Gateway", "Gateways"),
    ]
    .into_iter()
    .flatten()
    .collect();
    format!("In effect for {}.", users.join(", "))
}

/// Warnings about fields that have no effect or are deprecated.
fn warnings(settings: &Settings, spec: &ConfigurationSpec, uses: &Use) -> Vec<FieldError> {
    let mut warnings = Vec::new();
    let gateway = spec.gateway.as_ref().and_then(|gateway| gateway.gateway());
    if gateway.is_some() {
        let message = match settings.mode {
            Mode::Unmanaged { .. } => "is deprecated; without it, the oldest Gateway is served",
            _ => {
                "is deprecated and has no effect: all Gateways of Sesame's GatewayClasses are served"
            }
        };
        warnings.push(FieldError::new("gateway.name", message));
    }
    if !uses.instance {
        let others = ConfigurationSpec {
            envoy: None,
            listeners: None,
            ..spec.clone()
        };
        if others != ConfigurationSpec::default() {
            let message = "only the envoy and listeners sections have an effect, since no instance of Sesame uses this configuration";
            warnings.push(FieldError::new("", message));
        }
        if spec.listeners.is_some() && matches!(settings.mode, Mode::Unmanaged { .. }) {
            let message =
                "has no effect: Envoys outside Sesame have the listener settings of the instance";
            warnings.push(FieldError::new("listeners", message));
        }
    }
    warnings
}

/// The differences from the settings with which the instance started, which need a restart.
fn restarts(settings: &Settings, spec: &ConfigurationSpec) -> Vec<FieldError> {
    let mut fields = settings.start.changed(&settings.mode, spec);
    let message = match (&settings.mode, &spec.envoy) {
        (Mode::Managed, None) => {
            "is missing, but Sesame runs Envoys; add the section, or restart Sesame to run the Envoys yourself"
        }
        (Mode::Unmanaged { .. }, Some(_)) => {
            "was added, but Sesame doesn't run Envoys; remove the section, or restart Sesame to let it run the Envoys"
        }
        _ => return fields,
    };
    fields.push(FieldError::new("envoy", message));
    fields
}

/// Groups messages into one entry per section of the spec.
fn entries(suffix: &str, fields: Vec<FieldError>) -> Box<[SubCondition]> {
    let mut entries: Vec<(String, Vec<String>)> = Vec::new();
    for FieldError { field, message } in fields {
        let section = field.split(['.', '[']).next().unwrap_or_default();
        let mut type_ = section.to_owned();
        if let Some(first) = type_.get_mut(..1) {
            first.make_ascii_uppercase();
        }
        let type_ = type_ + suffix;
        let path = match field.is_empty() {
            true => "spec".to_owned(),
            false => format!("spec.{field}"),
        };
        let message = format!("{path}: {message}");
        match entries.iter_mut().find(|(of, _)| *of == type_) {
            Some((_, messages)) => messages.push(message),
            None => entries.push((type_, vec![message])),
        }
    }
    entries
        .into_iter()
        .map(|(type_, messages)| SubCondition {
            type_: type_.into(),
            status: ConditionStatus::True,
            reason: suffix.to_owned().into(),
            message: bounded(messages.join(", ")).into(),
        })
        .collect()
}
