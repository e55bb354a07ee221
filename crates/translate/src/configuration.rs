//! SesameConfigurations: settings for the instance, and for fleets whose GatewayClass or Gateway refers to them.
//!
//! A ConfigMap may contain the same document. An invalid document doesn't affect traffic: the last valid settings stay
//! in effect, and the document's conditions, or those of the objects that refer to it, report the error.

mod choices;
pub(crate) mod client_certificate;
mod envoy;
mod fleets;
mod global_auth;
pub(crate) mod listeners;
mod policy;
pub(crate) mod publishing;
mod quantity;
pub mod references;
pub(crate) mod start;
mod status;
mod tracing;
mod unresolved;

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use sesame_api::{
    ConfigurationSpec, GlobalRateLimitPolicy, ObjectName, RateLimitServiceConfiguration,
    SesameConfiguration,
};
use sesame_model::{FleetParameters, ListenerSettings};

use self::choices::Choices;
use self::envoy::parameters;
use self::start::StartSettings;
use crate::http_proxy::global_rate;
use crate::problem::FieldError;
use crate::settings::{
    INGRESS_CLASS, IngressSettings, Mode, RATE_LIMIT_DOMAIN, RateLimitSettings, Settings,
};

pub(crate) use self::fleets::listener_settings;
pub(crate) use self::status::statuses;
pub(crate) use self::tracing::{TracingSources, collector, tracing};

/// The ConfigMap key that holds a document: the `spec` of a SesameConfiguration, as YAML or JSON.
pub const KEY: &str = "configuration.yaml";

/// The field with the default rate limits.
const DEFAULT_LIMITS: &str = "rateLimitService.defaultGlobalRateLimitPolicy";

/// The maximum length of the text, in bytes. All fields together take less than a tenth of it.
const MAX_TEXT: usize = 64 * 1024;

/// The maximum nesting of lists and mappings. The document has five levels.
const MAX_DEPTH: usize = 16;

/// The settings for a fleet in a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetSettings {
    /// How its Envoys run.
    pub parameters: FleetParameters,
    /// The settings of its listeners.
    pub listeners: ListenerSettings,
    /// What Gateways may choose.
    pub(crate) choices: Choices,
}

impl FleetSettings {
    /// Reads the settings.
    ///
    /// # Errors
    /// All invalid fields.
    fn read(spec: &ConfigurationSpec) -> Result<Self, Vec<FieldError>> {
        let envoy = spec.envoy.as_deref();
        let parameters = envoy.map(parameters).transpose();
        let choices = envoy.map(|envoy| Choices::read(&envoy.gateway_choices));
        let listeners = spec.listeners.as_deref().map(listeners::listeners);
        match (parameters, choices.transpose()) {
            (Ok(parameters), Ok(choices)) => Ok(Self {
                parameters: parameters.unwrap_or_default(),
                listeners: listeners.unwrap_or_default(),
                choices: choices.unwrap_or_default(),
            }),
            (parameters, choices) => {
                let errors = [parameters.err(), choices.err()];
                Err(errors.into_iter().flatten().flatten().collect())
            }
        }
    }

    /// These settings, with those of `wider` as defaults.
    #[must_use]
    fn over(self, wider: Self) -> Self {
        Self {
            parameters: self.parameters.over(wider.parameters),
            listeners: self.listeners.over(wider.listeners),
            choices: self.choices.over(wider.choices),
        }
    }
}

/// The invalid fields of an instance's configuration.
fn errors(spec: &ConfigurationSpec) -> Vec<FieldError> {
    let errors = [
        FleetSettings::read(spec).err(),
        ingress(spec).err(),
        StartSettings::read(spec).err(),
    ];
    errors.into_iter().flatten().flatten().collect()
}

fn default_limits(service: &RateLimitServiceConfiguration) -> Option<GlobalRateLimitPolicy> {
    let default = service.default_global_rate_limit_policy.as_ref()?;
    Some(GlobalRateLimitPolicy {
        disabled: false,
        descriptors: default.descriptors.clone(),
    })
}

/// Parses the text of a ConfigMap.
///
/// # Errors
/// The first error, with its field: `envoy.resources.limits.memory: expected …`. Unknown fields are errors too, since
/// they would have no effect.
fn parse(text: &str) -> Result<ConfigurationSpec, String> {
    if text.len() > MAX_TEXT {
        return Err(format!("text is longer than the limit of {MAX_TEXT} bytes"));
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! { max_depth: MAX_DEPTH },
        with_snippet: false,
    };
    let value: Option<Value> = serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| format!("invalid YAML: {}", error.to_string().replace('\n', " ")))?;
    let value = value.filter(|value| !value.is_null());
    let value = value.unwrap_or_else(|| Value::Object(serde_json::Map::new()));
    ConfigurationSpec::decode(value).map_err(|error| error.to_string())
}

/// The settings of an instance with this configuration. Settings that the configuration doesn't contain, such as the
/// mode, and settings that can't change at run time come from `started`.
///
/// # Errors
/// All invalid fields.
pub fn settings(
    started: &Settings,
    configuration: &SesameConfiguration,
) -> Result<Settings, Vec<FieldError>> {
    let spec = &configuration.spec;
    let gateway = spec.gateway.as_ref();
    let mode = match &started.mode {
        Mode::Unmanaged { .. } => Mode::Unmanaged {
            gateway: gateway.and_then(|gateway| gateway.gateway()),
        },
        mode => mode.clone(),
    };
    let (Ok(fleet), Ok(ingress), Ok(start)) = (
        FleetSettings::read(spec),
        ingress(spec),
        StartSettings::read(spec),
    ) else {
        return Err(errors(spec));
    };
    Ok(Settings {
        controller_name: gateway.map(|gateway| Arc::clone(&gateway.controller_name)),
        mode,
        ingress,
        fleet,
        tracing: spec.tracing.as_deref().map(tracing::settings),
        configuration: Some(configuration.meta.namespaced_name()),
        start: match started.configuration {
            Some(_) => started.start.clone(),
            None => start,
        },
        logging: spec.logging.clone().unwrap_or_default(),
        ipv6: started.ipv6,
    })
}

fn ingress(spec: &ConfigurationSpec) -> Result<IngressSettings, Vec<FieldError>> {
    let set = |names: &[Arc<str>]| -> BTreeSet<Arc<str>> { names.iter().cloned().collect() };
    let limits = spec.rate_limit_service.as_ref().and_then(default_limits);
    let wrong_limits = limits.map(|limits| global_rate::check(DEFAULT_LIMITS, &limits));
    let (auth, headers) = match (
        global_auth::read(spec.global_auth.as_deref()),
        policy::read(spec.policy.as_deref()),
        wrong_limits.unwrap_or_default(),
    ) {
        (Ok(auth), Ok(headers), limits) if limits.is_empty() => (auth, headers),
        (auth, headers, limits) => {
            let errors = [auth.err(), headers.err(), Some(limits)];
            return Err(errors.into_iter().flatten().flatten().collect());
        }
    };
    let ingress = spec.ingress.as_ref();
    let proxies = spec.http_proxy.as_ref();
    let classes = ingress.and_then(|ingress| ingress.class_names.as_deref());
    Ok(IngressSettings {
        classes: classes.map_or_else(|| BTreeSet::from([INGRESS_CLASS.into()]), set),
        only_classes: classes.is_some(),
        ports: spec.default_ports,
        root_namespaces: proxies
            .and_then(|proxies| proxies.root_namespaces.as_deref())
            .map(set),
        fallback_certificate: proxies
            .and_then(|proxies| proxies.fallback_certificate.as_ref())
            .map(|secret| secret.key()),
        client_certificate: spec.client_certificate.as_ref().map(ObjectName::key),
        disable_permit_insecure: proxies.is_some_and(|proxies| proxies.disable_permit_insecure),
        rate_limits: spec.rate_limit_service.as_ref().map(|service| {
            let domain = service.domain.clone();
            RateLimitSettings {
                service: service.extension_service.key(),
                domain: domain.unwrap_or_else(|| RATE_LIMIT_DOMAIN.into()),
                fail_open: service.fail_open,
                headers: service.headers,
                resource_exhausted: service.resource_exhausted,
                default: default_limits(service),
            }
        }),
        auth,
        headers,
    })
}

#[cfg(test)]
mod tests;
