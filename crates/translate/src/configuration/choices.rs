//! What Gateways may choose for their Envoys: a Gateway's author may have fewer permissions than the pods of its Envoys
//! could get.

use std::collections::BTreeSet;

use sesame_api::{GatewayChoice, GatewayChoices};
use sesame_model::{Autoscaling, FleetParameters, OuterClass, Publishing};

use super::{FleetSettings, envoy};
use crate::problem::FieldError;

/// The default maximum number of Envoys.
const MAX_REPLICAS: u32 = 10;
/// The default maximum for CPU, in millicores.
const MAX_CPU: u64 = 4_000;
/// The default maximum for memory, in bytes.
const MAX_MEMORY: u64 = 4 << 30;

/// The fields that Gateways may set by default. The others affect nodes, or how long their pods and logs stay there.
const PERMITTED: [GatewayChoice; 5] = [
    GatewayChoice::Autoscaling,
    GatewayChoice::Managed,
    GatewayChoice::NetworkPublishing,
    GatewayChoice::Replicas,
    GatewayChoice::Resources,
];

/// What Gateways may choose; `None` means the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Choices {
    fields: Option<BTreeSet<GatewayChoice>>,
    max_replicas: Option<u32>,
    max_cpu: Option<u64>,
    max_memory: Option<u64>,
    annotation_prefixes: Option<Vec<String>>,
}

impl Choices {
    /// Reads the section.
    ///
    /// # Errors
    /// All invalid fields.
    pub(super) fn read(section: &GatewayChoices) -> Result<Self, Vec<FieldError>> {
        let mut errors = Vec::new();
        let field = "envoy.gatewayChoices.maxResources";
        let (max_cpu, max_memory) = envoy::amounts(field, &section.max_resources, &mut errors);
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            fields: section
                .fields
                .as_ref()
                .map(|fields| fields.iter().cloned().collect()),
            max_replicas: section.max_replicas,
            max_cpu,
            max_memory,
            annotation_prefixes: envoy::texts(section.annotation_prefixes.as_deref()),
        })
    }

    /// These choices, with those of `wider` as defaults.
    #[must_use]
    pub(super) fn over(self, wider: Self) -> Self {
        Self {
            fields: self.fields.or(wider.fields),
            max_replicas: self.max_replicas.or(wider.max_replicas),
            max_cpu: self.max_cpu.or(wider.max_cpu),
            max_memory: self.max_memory.or(wider.max_memory),
            annotation_prefixes: self.annotation_prefixes.or(wider.annotation_prefixes),
        }
    }

    /// Checks the settings in a Gateway's configuration.
    ///
    /// # Errors
    /// All fields that Gateways may not set, or not to these values.
    pub(super) fn check(&self, own: &FleetSettings) -> Result<(), Vec<FieldError>> {
        let FleetSettings {
            parameters,
            listeners: _,
            choices,
        } = own;
        // Names all fields, so that a new one needs a decision.
        let FleetParameters {
            managed,
            workload,
            replicas,
            autoscaling,
            disruption_budget,
            network_policy,
            publishing,
            load_balancer_annotations,
            service_annotations,
            service_account_annotations,
            load_balancer_class,
            load_balancer_source_ranges,
            external_traffic_policy,
            image,
            image_pull_secrets,
            cpu_request,
            cpu_limit,
            memory_request,
            memory_limit,
            node_selector,
            tolerations,
            priority_class,
            drain_delay,
            drain_timeout,
            log_level,
            max_connections,
        } = parameters;
        let mut errors = Vec::new();
        for (set, field) in [
            (image.is_some(), "image"),
            (image_pull_secrets.is_some(), "imagePullSecrets"),
            (
                service_account_annotations.is_some(),
                "serviceAccountAnnotations",
            ),
            (*choices != Self::default(), "gatewayChoices"),
            // GatewayClasses are cluster-scoped, and their parameters can be in any namespace.
            (
                matches!(
                    publishing,
                    Some(Publishing::Gateway(OuterClass::Created(_)))
                ),
                "networkPublishing.gateway.controllerName",
            ),
        ] {
            if set {
                errors.push(error(field, "Gateways can't set it"));
            }
        }
        let published = publishing.is_some()
            || load_balancer_annotations.is_some()
            || service_annotations.is_some()
            || load_balancer_class.is_some()
            || load_balancer_source_ranges.is_some()
            || external_traffic_policy.is_some();
        let resources = [cpu_request, cpu_limit, memory_request, memory_limit];
        let autoscaled = matches!(autoscaling, Some(Autoscaling::Between { .. }));
        for (set, field) in [
            (managed.is_some(), GatewayChoice::Managed),
            (workload.is_some(), GatewayChoice::Workload),
            (replicas.is_some(), GatewayChoice::Replicas),
            (autoscaled, GatewayChoice::Autoscaling),
            (disruption_budget.is_some(), GatewayChoice::DisruptionBudget),
            (network_policy.is_some(), GatewayChoice::NetworkPolicy),
            (published, GatewayChoice::NetworkPublishing),
            (
                resources.iter().any(|amount| amount.is_some()),
                GatewayChoice::Resources,
            ),
            (node_selector.is_some(), GatewayChoice::NodeSelector),
            (tolerations.is_some(), GatewayChoice::Tolerations),
            (priority_class.is_some(), GatewayChoice::PriorityClassName),
            (
                drain_delay.is_some() || drain_timeout.is_some(),
                GatewayChoice::Drain,
            ),
            (log_level.is_some(), GatewayChoice::LogLevel),
            (max_connections.is_some(), GatewayChoice::MaxConnections),
        ] {
            if set && !self.allows(&field) {
                let name = field.as_str();
                let message = format!(
                    "the class doesn't permit it; remove it, or list {name} in envoy.gatewayChoices.fields of the class's \
                     configuration"
                );
                errors.push(error(name, message));
            }
        }
        self.check_amounts(parameters, &mut errors);
        for (annotations, field) in [
            (service_annotations, "annotations"),
            (load_balancer_annotations, "loadBalancer"),
        ] {
            let keys = annotations.iter().flatten().map(|(key, _)| key);
            let field = format!("envoy.networkPublishing.{field}");
            errors.extend(self.annotations(&field, keys));
        }
        match errors.is_empty() {
            true => Ok(()),
            false => Err(errors),
        }
    }

    fn allows(&self, field: &GatewayChoice) -> bool {
        match &self.fields {
            Some(fields) => fields.contains(field),
            None => PERMITTED.contains(field),
        }
    }

    fn check_amounts(&self, parameters: &FleetParameters, errors: &mut Vec<FieldError>) {
        let most = self.max_replicas.unwrap_or(MAX_REPLICAS);
        let scaled = match parameters.autoscaling {
            Some(Autoscaling::Between { max, .. }) => Some(max),
            _ => None,
        };
        for (count, field) in [
            (parameters.replicas, "replicas"),
            (scaled, "autoscaling.maxReplicas"),
        ] {
            if count.is_some_and(|count| count > most) {
                errors.push(error(field, format!("the maximum is {most}")));
            }
        }
        let (cpu, memory) = (
            self.max_cpu.unwrap_or(MAX_CPU),
            self.max_memory.unwrap_or(MAX_MEMORY),
        );
        for (amount, most, shown, field) in [
            (parameters.cpu_request, cpu, millicores(cpu), "requests.cpu"),
            (parameters.cpu_limit, cpu, millicores(cpu), "limits.cpu"),
            (
                parameters.memory_request,
                memory,
                bytes(memory),
                "requests.memory",
            ),
            (
                parameters.memory_limit,
                memory,
                bytes(memory),
                "limits.memory",
            ),
        ] {
            if amount.is_some_and(|amount| amount > most) {
                let message = format!("the maximum is {shown}");
                errors.push(error(&format!("resources.{field}"), message));
            }
        }
    }

    /// The annotations that Gateways may not set, as errors in `field`.
    pub(super) fn annotations<'a>(
        &self,
        field: &str,
        keys: impl Iterator<Item = &'a String>,
    ) -> Vec<FieldError> {
        let Some(prefixes) = &self.annotation_prefixes else {
            return Vec::new();
        };
        let permitted = match prefixes.is_empty() {
            true => "none".to_owned(),
            false => prefixes.join(", "),
        };
        let refused = keys.filter(|key| !prefixes.iter().any(|prefix| key.starts_with(prefix)));
        refused
            .map(|key| {
                let message = format!(
                    "the class doesn't permit annotation {key}; remove it, or add its prefix to \
                     envoy.gatewayChoices.annotationPrefixes of the class's configuration (now: {permitted})"
                );
                FieldError::new(field.to_owned(), message)
            })
            .collect()
    }
}

fn error(field: &str, message: impl Into<String>) -> FieldError {
    FieldError::new(format!("envoy.{field}"), message.into())
}

/// An amount of CPU as a quantity.
fn millicores(amount: u64) -> String {
    match amount.is_multiple_of(1_000) {
        true => (amount / 1_000).to_string(),
        false => format!("{amount}m"),
    }
}

/// An amount of memory as a quantity.
fn bytes(amount: u64) -> String {
    let units = [(30, "Gi"), (20, "Mi"), (10, "Ki")];
    let unit = units
        .into_iter()
        .find(|(bits, _)| amount.is_multiple_of(1 << bits));
    match unit {
        Some((bits, unit)) => format!("{}{unit}", amount >> bits),
        None => amount.to_string(),
    }
}
