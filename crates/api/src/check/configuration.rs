//! SesameConfigurations: the rules of their generated CRD. Translation checks quantities and addresses, and reports invalid
//! ones in the status.

use std::sync::Arc;

use crate::configuration::{
    ConfigurationSpec, DefaultPorts, EnvoyAutoscaling, EnvoyConfiguration, EnvoyLogLevel,
    EnvoyToleration, EnvoyWorkload, GatewayChoice, GatewayChoices, GatewayConfiguration,
    HttpProxyConfiguration, IngressConfiguration, ObjectName, RateLimitServiceConfiguration,
    ResourceAmounts, TolerationEffect, TolerationOperator, UnmanagedEnvoy,
};

use super::{
    Check, at, each, each_of_some, ensure, fail, instance, known, known_word, listeners, optional,
    publishing, text, unique,
};

/// The maximum number of replicas, and the maximum CPU target in percent.
const MAX_REPLICAS: u32 = 10_000;

pub(crate) fn spec(spec: &ConfigurationSpec) -> Check {
    ensure(
        spec.envoy.is_none() || spec.unmanaged_envoy.is_none(),
        "envoy and unmanagedEnvoy are mutually exclusive",
    )?;
    ensure(
        !is_published_by_itself(spec),
        "envoy.networkPublishing.gateway.controllerName must differ from gateway.controllerName",
    )?;
    optional("gateway", spec.gateway.as_ref(), gateway)?;
    optional("envoy", spec.envoy.as_deref(), envoy)?;
    optional("listeners", spec.listeners.as_deref(), listeners::settings)?;
    optional("unmanagedEnvoy", spec.unmanaged_envoy.as_ref(), unmanaged)?;
    at("defaultPorts", ports(spec.default_ports))?;
    optional("ingress", spec.ingress.as_ref(), ingress)?;
    optional("httpProxy", spec.http_proxy.as_ref(), http_proxy)?;
    optional(
        "rateLimitService",
        spec.rate_limit_service.as_ref(),
        rate_limits,
    )?;
    optional("instance", spec.instance.as_deref(), instance::instance)
}

/// Whether Sesame would also implement the Gateways in front of its Envoys.
fn is_published_by_itself(spec: &ConfigurationSpec) -> bool {
    let outer = spec.envoy.as_ref().and_then(|envoy| {
        let gateway = envoy.network_publishing.gateway.as_ref()?;
        gateway.controller_name.as_ref()
    });
    let own = spec
        .gateway
        .as_ref()
        .map(|gateway| &gateway.controller_name);
    outer.is_some() && outer == own
}

fn gateway(gateway: &GatewayConfiguration) -> Check {
    at(
        "controllerName",
        text::domain_path(&gateway.controller_name),
    )?;
    optional("name", gateway.name.as_deref(), object_name)?;
    optional("namespace", gateway.namespace.as_deref(), namespace)?;
    ensure(
        gateway.name.is_some() == gateway.namespace.is_some(),
        "name and namespace must be set together",
    )
}

fn unmanaged(envoy: &UnmanagedEnvoy) -> Check {
    let addresses = envoy.addresses.as_deref();
    if let Some(addresses) = addresses {
        each_of_some("addresses", addresses, 16, |address| object_name(address))?;
    }
    optional("service", envoy.service.as_ref(), named)?;
    ensure(
        addresses.is_none() || envoy.service.is_none(),
        "addresses and service are mutually exclusive",
    )
}

fn ports(ports: DefaultPorts) -> Check {
    at("http", text::port(&ports.http))?;
    at("https", text::port(&ports.https))?;
    ensure(ports.http != ports.https, "http and https must differ")
}

fn ingress(ingress: &IngressConfiguration) -> Check {
    match ingress.class_names.as_deref() {
        Some(names) => each_of_some("classNames", names, 16, |name| object_name(name)),
        None => Ok(()),
    }
}

fn http_proxy(proxies: &HttpProxyConfiguration) -> Check {
    if let Some(namespaces) = proxies.root_namespaces.as_deref() {
        each_of_some("rootNamespaces", namespaces, 1024, |name| namespace(name))?;
    }
    let certificate = proxies.fallback_certificate.as_ref();
    optional("fallbackCertificate", certificate, named)
}

fn rate_limits(service: &RateLimitServiceConfiguration) -> Check {
    at("extensionService", named(&service.extension_service))?;
    optional("domain", service.domain.as_deref(), object_name)
}

fn envoy(envoy: &EnvoyConfiguration) -> Check {
    at(
        "networkPublishing",
        publishing::publishing(&envoy.network_publishing),
    )?;
    known("workload", envoy.workload.as_ref(), EnvoyWorkload::KNOWN)?;
    optional("replicas", envoy.replicas.as_ref(), replicas)?;
    optional("autoscaling", envoy.autoscaling.as_ref(), autoscaling)?;
    ensure(
        envoy.replicas.is_none() || envoy.autoscaling.is_none(),
        "replicas and autoscaling are mutually exclusive",
    )?;
    optional("image", envoy.image.as_deref(), |image| {
        text::length(image, 1, 512)?;
        let blank = image.contains(char::is_whitespace);
        ensure(!blank, "expected a name without spaces")
    })?;
    let secrets = envoy.image_pull_secrets.as_deref().unwrap_or_default();
    each("imagePullSecrets", secrets, 16, |name| object_name(name))?;
    at("resources", {
        at("requests", amounts(&envoy.resources.requests))?;
        at("limits", amounts(&envoy.resources.limits))
    })?;
    let tolerations = envoy.tolerations.as_deref().unwrap_or_default();
    each("tolerations", tolerations, 64, toleration)?;
    let class = envoy.priority_class_name.as_deref();
    optional("priorityClassName", class, object_name)?;
    known("logLevel", envoy.log_level.as_ref(), EnvoyLogLevel::KNOWN)?;
    optional("maxConnections", envoy.max_connections.as_ref(), |most| {
        ensure(*most >= 1, "expected 1 or more")
    })?;
    at("gatewayChoices", choices(&envoy.gateway_choices))
}

fn choices(choices: &GatewayChoices) -> Check {
    let fields = choices.fields.as_deref().unwrap_or_default();
    each("fields", fields, GatewayChoice::KNOWN.len(), |field| {
        known_word(field.as_str(), GatewayChoice::KNOWN)
    })?;
    unique("fields", fields, "is a duplicate", Some)?;
    optional("maxReplicas", choices.max_replicas.as_ref(), replicas)?;
    at("maxResources", amounts(&choices.max_resources))?;
    let prefixes = choices.annotation_prefixes.as_deref().unwrap_or_default();
    each("annotationPrefixes", prefixes, 64, |prefix| {
        text::length(prefix, 1, 317)
    })
}

fn autoscaling(limits: &EnvoyAutoscaling) -> Check {
    at("minReplicas", replicas(&limits.min_replicas))?;
    at("maxReplicas", replicas(&limits.max_replicas))?;
    at("cpuPercent", replicas(&limits.cpu_percent))?;
    ensure(
        limits.min_replicas <= limits.max_replicas,
        "minReplicas must not exceed maxReplicas",
    )
}

pub(super) fn toleration(toleration: &EnvoyToleration) -> Check {
    let operator = toleration.operator.as_ref();
    known("operator", operator, TolerationOperator::KNOWN)?;
    let effect = toleration.effect.as_ref();
    known("effect", effect, TolerationEffect::KNOWN)?;
    if operator == Some(&TolerationOperator::Exists) && toleration.value.is_some() {
        return fail("the Exists operator takes no value");
    }
    if toleration.key.is_none() && toleration.value.is_some() {
        return fail("a value requires a key");
    }
    ensure(
        toleration.toleration_seconds.is_none() || effect == Some(&TolerationEffect::NoExecute),
        "tolerationSeconds requires the NoExecute effect",
    )
}

pub(super) fn amounts(amounts: &ResourceAmounts) -> Check {
    let quantity = |text: &Arc<str>| text::length(text, 1, 32);
    optional("cpu", amounts.cpu.as_ref(), quantity)?;
    optional("memory", amounts.memory.as_ref(), quantity)
}

fn replicas(count: &u32) -> Check {
    let fits = (1..=MAX_REPLICAS).contains(count);
    ensure(fits, &format!("expected a number from 1 to {MAX_REPLICAS}"))
}

fn named(name: &ObjectName) -> Check {
    at("namespace", namespace(&name.namespace))?;
    at("name", object_name(&name.name))
}

pub(super) fn namespace(name: &str) -> Check {
    text::length(name, 1, 63)
}

pub(super) fn object_name(name: &str) -> Check {
    text::length(name, 1, 253)
}
