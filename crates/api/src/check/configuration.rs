//! SesameConfigurations: the rules of their generated CRD. Translation checks quantities and addresses, and reports invalid
//! ones in the status.

use std::sync::Arc;

use crate::configuration::{
    ConfigurationSpec, CustomTag, DefaultHeader, DefaultHeaders, DefaultPorts, EnvoyAutoscaling,
    EnvoyConfiguration, EnvoyLogLevel, EnvoyToleration, EnvoyWorkload, GatewayChoice,
    GatewayChoices, GatewayConfiguration, GlobalAuthBody, GlobalAuthConfiguration,
    HttpProxyConfiguration, IngressConfiguration, ObjectName, PolicyConfiguration,
    RateLimitServiceConfiguration, ResourceAmounts, TolerationEffect, TolerationOperator,
    TracingConfiguration, UnmanagedEnvoy,
};

use super::{
    Check, at, each, each_of_some, ensure, fail, http_proxy, instance, known, known_word,
    listeners, optional, publishing, replica, text, unique,
};

/// The maximum number of replicas, and the maximum CPU target in percent.
const MAX_REPLICAS: u32 = 10_000;

/// The maximum size of a body for an authorization service, whole or in part.
const MAX_BODY: u32 = 8 << 20;
const MAX_PARTIAL_BODY: u32 = 1 << 20;

/// The maximum length of a path in spans.
const MAX_PATH_TAG: u32 = 8192;

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
    optional("clientCertificate", spec.client_certificate.as_ref(), named)?;
    optional("ingress", spec.ingress.as_ref(), ingress)?;
    optional("httpProxy", spec.http_proxy.as_ref(), proxies)?;
    optional(
        "rateLimitService",
        spec.rate_limit_service.as_ref(),
        rate_limits,
    )?;
    optional("globalAuth", spec.global_auth.as_deref(), global_auth)?;
    optional("policy", spec.policy.as_deref(), policy)?;
    optional("tracing", spec.tracing.as_deref(), tracing)?;
    optional("instance", spec.instance.as_deref(), instance::instance)?;
    replica::sections(spec)
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

fn proxies(proxies: &HttpProxyConfiguration) -> Check {
    if let Some(namespaces) = proxies.root_namespaces.as_deref() {
        each_of_some("rootNamespaces", namespaces, 1024, |name| namespace(name))?;
    }
    let certificate = proxies.fallback_certificate.as_ref();
    optional("fallbackCertificate", certificate, named)
}

fn rate_limits(service: &RateLimitServiceConfiguration) -> Check {
    at("extensionService", named(&service.extension_service))?;
    optional("domain", service.domain.as_deref(), object_name)?;
    let default = service.default_global_rate_limit_policy.as_deref();
    optional("defaultGlobalRateLimitPolicy", default, |default| {
        let some = !default.descriptors.is_empty();
        at(
            "descriptors",
            ensure(some, "at least one entry is required"),
        )?;
        http_proxy::policy::descriptors(&default.descriptors)
    })
}

fn global_auth(auth: &GlobalAuthConfiguration) -> Check {
    at("extensionService", named(&auth.extension_service))?;
    let few = auth.auth_policy.context.len() <= 32;
    let context = at("context", ensure(few, "at most 32 entries are allowed"));
    at("authPolicy", context)?;
    optional("withRequestBody", auth.with_request_body.as_ref(), body)
}

fn body(body: &GlobalAuthBody) -> Check {
    let fits = (1..=MAX_BODY).contains(&body.max_request_bytes);
    let fits = ensure(fits, &format!("expected a number from 1 to {MAX_BODY}"));
    at("maxRequestBytes", fits)?;
    ensure(
        !body.allow_partial_message || body.max_request_bytes <= MAX_PARTIAL_BODY,
        "maxRequestBytes must not exceed 1048576 with allowPartialMessage",
    )
}

fn policy(policy: &PolicyConfiguration) -> Check {
    at("requestHeaders", headers(&policy.request_headers))?;
    at("responseHeaders", headers(&policy.response_headers))
}

/// Translation checks the names and values.
fn headers(headers: &DefaultHeaders) -> Check {
    each("set", &headers.set, 64, |header: &DefaultHeader| {
        at("name", text::length(&header.name, 1, 256))?;
        at("value", text::length(&header.value, 1, 4096))
    })?;
    unique("set", &headers.set, "name is a duplicate", |header| {
        Some(&header.name)
    })?;
    each("remove", &headers.remove, 64, |name| {
        text::length(name, 1, 256)
    })?;
    unique("remove", &headers.remove, "is a duplicate", Some)
}

fn tracing(tracing: &TracingConfiguration) -> Check {
    at("extensionService", named(&tracing.extension_service))?;
    optional("serviceName", tracing.service_name.as_deref(), object_name)?;
    let sampling = tracing.overall_sampling.as_deref();
    optional("overallSampling", sampling, |text| {
        let valid = percentage(text).is_some();
        ensure(
            valid,
            "expected a percentage from 0 to 100 with at most four decimals, such as 0.25",
        )
    })?;
    let length = tracing.max_path_tag_length.as_ref();
    optional("maxPathTagLength", length, |length| {
        let fits = (1..=MAX_PATH_TAG).contains(length);
        ensure(fits, &format!("expected a number from 1 to {MAX_PATH_TAG}"))
    })?;
    let tags = &tracing.custom_tags;
    each("customTags", tags, 64, custom_tag)?;
    unique("customTags", tags, "tagName is a duplicate", |tag| {
        Some(&tag.tag_name)
    })
}

fn custom_tag(tag: &CustomTag) -> Check {
    at("tagName", object_name(&tag.tag_name))?;
    let literal = tag.literal.as_deref();
    optional("literal", literal, |text| text::length(text, 1, 1024))?;
    let header = tag.request_header_name.as_deref();
    optional("requestHeaderName", header, |name| {
        text::length(name, 1, 253)?;
        let valid = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        ensure(
            name.bytes().all(valid),
            "expected letters, digits, dashes and underscores",
        )
    })?;
    ensure(
        literal.is_some() != header.is_some(),
        "exactly one of literal and requestHeaderName is required",
    )
}

/// A percentage in millionths; `None` if the text isn't one. Expects at most four decimals.
pub(crate) fn percentage(text: &str) -> Option<u32> {
    let digits = |text: &str, most: usize| {
        (1..=most).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit())
    };
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    if !digits(whole, 3) || !digits(decimals, 4) || (whole.len() == 3 && whole != "100") {
        return None;
    }
    let millionths = format!("{whole}{decimals:0<4}").parse().ok()?;
    (millionths <= 1_000_000).then_some(millionths)
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
