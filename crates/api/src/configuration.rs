//! SesameConfiguration: how an instance of Sesame works, and how its Envoys run.
//!
//! The same format is used for objects in a cluster, files, and text in a ConfigMap. Unknown fields are errors, since they
//! would have no effect.

mod envoy;
mod gateway_choices;
mod global_auth;
mod instance;
mod listeners;
mod policy;
mod publishing;
mod replica;
mod tracing;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::check::{self, Check};
use crate::condition::ConditionsStatus;
use crate::decode::{self, DecodeError};
use crate::http_proxy::RateLimitDescriptor;
use crate::key::NamespacedName;
use crate::meta::Meta;
use crate::named::Named;
use crate::object::resource;
use crate::skip::is_default;

pub use self::envoy::{
    EnvoyAutoscaling, EnvoyConfiguration, EnvoyDrain, EnvoyLogLevel, EnvoyResources,
    EnvoyToleration, EnvoyWorkload, ResourceAmounts, TolerationEffect, TolerationOperator,
};
pub use self::gateway_choices::{GatewayChoice, GatewayChoices};
pub use self::global_auth::{GlobalAuthBody, GlobalAuthConfiguration, GlobalAuthPolicy};
pub use self::instance::{EnvoyNamespace, InstanceConfiguration, InstanceResources};
pub use self::listeners::{
    AcceptProxyProtocol, AccessLogFilter, AccessLogStyle, CipherSuite, CompressionAlgorithm,
    EscapedSlashesAction, HeadersWithUnderscores, ListenersAccessLog, ListenersConfiguration,
    ListenersLimits, ListenersPaths, ListenersTimeouts, ListenersTls, ListenersTlsVersion,
};
pub use self::policy::{DefaultHeader, DefaultHeaders, PolicyConfiguration};
pub use self::publishing::{
    AwsLoadBalancer, AwsLoadBalancerType, AzureLoadBalancer, ExternalTrafficPolicy,
    GatewayPublishing, GatewayPublishingParameters, GcpLoadBalancer, LoadBalancerProvider,
    LoadBalancerProviderType, LoadBalancerPublishing, LoadBalancerScope, NetworkPublishing,
    NetworkPublishingType,
};
pub use self::replica::{
    ContourCompatMode, LeaderElectionConfiguration, LoggingConfiguration, LoggingFormat,
    LoggingLevel, MetricsConfiguration, XdsConfiguration,
};
pub use self::tracing::{CustomTag, TracingConfiguration};

/// Configures a Sesame instance and its Envoys. GatewayClasses and Gateways may refer to a SesameConfiguration of their
/// own for their Envoys.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct SesameConfiguration {
    /// The metadata.
    #[serde(rename = "metadata")]
    #[cfg_attr(feature = "schema", schemars(schema_with = "crate::crd::metadata"))]
    pub meta: Meta,
    /// The settings. An omitted section has its defaults.
    #[serde(default)]
    pub spec: ConfigurationSpec,
    /// The status, as reported by Sesame.
    #[serde(default, skip_serializing_if = "ConditionsStatus::is_empty")]
    pub status: ConditionsStatus,
}

resource! { SesameConfiguration {
    fn check(&self) -> Check {
        check::at("spec", check::configuration::spec(&self.spec))
    }

    fn references(&self, named: &mut Named) {
        named.by_configuration(self);
    }
} }

/// The settings for an instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.envoy) || !has(self.unmanagedEnvoy)", "message": "envoy and unmanagedEnvoy are mutually exclusive"},
    {"rule": "!has(self.gateway) || !has(self.envoy) || !has(self.envoy.networkPublishing) || !has(self.envoy.networkPublishing.gateway) || !has(self.envoy.networkPublishing.gateway.controllerName) || self.envoy.networkPublishing.gateway.controllerName != self.gateway.controllerName", "message": "envoy.networkPublishing.gateway.controllerName must differ from gateway.controllerName"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfigurationSpec {
    /// Settings for the Gateway API. Without this section, Sesame doesn't serve Gateways.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<GatewayConfiguration>,
    /// The Envoys that Sesame runs. Without this section, Envoys run outside Sesame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub envoy: Option<Box<EnvoyConfiguration>>,
    /// Settings for all listeners.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub listeners: Option<Box<ListenersConfiguration>>,
    /// Where clients reach Envoys that run outside Sesame.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unmanaged_envoy: Option<UnmanagedEnvoy>,
    /// The ports on which Ingresses and HTTPProxies are served.
    #[serde(default, skip_serializing_if = "is_default")]
    pub default_ports: DefaultPorts,
    /// The Secret with the client certificate that is presented to backends with TLS on the Envoys for Ingresses and
    /// HTTPProxies. Its type is `kubernetes.io/tls`, and it must be in a watched namespace. Gateways have their own, in
    /// `spec.tls.backend`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client_certificate: Option<ObjectName>,
    /// Settings for Ingresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressConfiguration>,
    /// Settings for HTTPProxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http_proxy: Option<HttpProxyConfiguration>,
    /// The service that enforces the global rate limits of HTTPProxies. Without this section, such limits are errors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_limit_service: Option<RateLimitServiceConfiguration>,
    /// How the operator runs Sesame itself for this configuration. Without the operator, this section has no effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance: Option<Box<InstanceConfiguration>>,
    /// External authorization of the requests to all hosts of HTTPProxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub global_auth: Option<Box<GlobalAuthConfiguration>>,
    /// Changes to the headers of requests and responses, for all routes of HTTPProxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<Box<PolicyConfiguration>>,
    /// Tracing of requests, for all Envoys of the instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracing: Option<Box<TracingConfiguration>>,
    /// The namespaces to watch, in addition to this object's namespace; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 256), inner(length(min = 1, max = 63)))
    )]
    pub watch_namespaces: Option<Vec<Arc<str>>>,
    /// Whether Contour's objects and annotations are read as Sesame's own; `Disabled` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contour_compat: Option<ContourCompatMode>,
    /// The xDS server, from which Envoys get their configuration over mutual TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xds: Option<XdsConfiguration>,
    /// A server for Sesame's metrics alone. Without this section, `/metrics` is on the port of the probes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metrics: Option<MetricsConfiguration>,
    /// The election of the replica that writes statuses and manages Envoys.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_election: Option<LeaderElectionConfiguration>,
    /// The logs of Sesame, on standard error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logging: Option<LoggingConfiguration>,
}

impl ConfigurationSpec {
    /// Whether the operator runs an instance of Sesame for this configuration: it has a section that only instances use.
    /// Others hold settings for the fleets of GatewayClasses and Gateways that refer to them.
    pub fn describes_instance(&self) -> bool {
        self.gateway.is_some()
            || self.ingress.is_some()
            || self.http_proxy.is_some()
            || self.instance.is_some()
    }

    /// Reads the settings from a value that no API server has validated, such as YAML in a ConfigMap.
    ///
    /// # Errors
    /// If the value isn't valid settings. The error names the field, without `spec`.
    pub fn decode(value: serde_json::Value) -> Result<Self, DecodeError> {
        let spec: Self = decode::decode_value(value)?;
        check::configuration::spec(&spec).map_err(|problem| decode::invalid(&[], problem))?;
        Ok(spec)
    }
}

/// Settings for the Gateway API.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "has(self.name) == has(self.namespace)", "message": "name and namespace must be set together"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct GatewayConfiguration {
    /// The `controllerName` of the GatewayClasses that Sesame serves: a domain and a path, unique in the cluster.
    #[cfg_attr(
        feature = "schema",
        schemars(
            length(min = 1, max = 253),
            regex(
                pattern = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9/\-._~%!$&'()*+,;=:]+$"
            )
        )
    )]
    pub controller_name: Arc<str>,
    /// Deprecated: the name of the only Gateway that Envoys outside Sesame serve. By default, they serve the oldest
    /// Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Option<Arc<str>>,
    /// Deprecated: the namespace of that Gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 63)))]
    pub namespace: Option<Arc<str>>,
}

impl GatewayConfiguration {
    /// The controller name of an instance without a configuration.
    pub const DEFAULT_CONTROLLER_NAME: &str = "projectsesame.io/gateway-controller";

    /// The only Gateway to serve, if one is named.
    pub fn gateway(&self) -> Option<NamespacedName> {
        let (namespace, name) = (self.namespace.clone()?, self.name.clone()?);
        Some(NamespacedName::new(namespace, name))
    }
}

/// Where clients reach Envoys that run outside Sesame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "!has(self.addresses) || !has(self.service)", "message": "addresses and service are mutually exclusive"},
])))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UnmanagedEnvoy {
    /// IP addresses and hostnames, for the statuses of Gateways, HTTPProxies and Ingresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))
    )]
    pub addresses: Option<Vec<Arc<str>>>,
    /// The Service whose status has the addresses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<ObjectName>,
}

/// The ports on which Ingresses and HTTPProxies are served, as clients see them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(extend("x-kubernetes-validations" = [
    {"rule": "self.http != self.https", "message": "http and https must differ"},
])))]
#[serde(default, deny_unknown_fields)]
pub struct DefaultPorts {
    /// The port for requests without TLS.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65535)))]
    pub http: u16,
    /// The port for TLS. Redirects to HTTPS include it unless it is 443.
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 65535)))]
    pub https: u16,
}

impl Default for DefaultPorts {
    fn default() -> Self {
        Self {
            http: 80,
            https: 443,
        }
    }
}

/// Settings for Ingresses, and for the classes of HTTPProxies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct IngressConfiguration {
    /// The names of the ingress classes that Sesame implements, with or without an IngressClass. If given, Sesame ignores
    /// all other classes, so several instances in a cluster can each have their own. By default, Sesame implements `sesame`
    /// and the IngressClasses with the controller `projectsesame.io/ingress-controller`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 16), inner(length(min = 1, max = 253)))
    )]
    pub class_names: Option<Vec<Arc<str>>>,
}

impl IngressConfiguration {
    /// The name of the class that Sesame implements by default.
    pub const DEFAULT_CLASS: &str = "sesame";
}

/// Settings for HTTPProxies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpProxyConfiguration {
    /// The namespaces whose HTTPProxies may have a `virtualhost`; all by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 1024), inner(length(min = 1, max = 63)))
    )]
    pub root_namespaces: Option<Vec<Arc<str>>>,
    /// The Secret with the certificate for TLS connections without SNI or with an unknown server name. These
    /// connections reach only the hosts of HTTPProxies that set `enableFallbackCertificate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fallback_certificate: Option<ObjectName>,
    /// Whether requests without TLS are redirected even on routes with `permitInsecure`.
    #[serde(default, skip_serializing_if = "is_default")]
    pub disable_permit_insecure: bool,
}

/// The service for global rate limits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RateLimitServiceConfiguration {
    /// The ExtensionService.
    pub extension_service: ObjectName,
    /// The domain of the descriptors that are sent to the service; `sesame` by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub domain: Option<Arc<str>>,
    /// Whether requests are allowed if the service fails or can't be used. If false, they get a 503 response.
    #[serde(default, skip_serializing_if = "is_default")]
    pub fail_open: bool,
    /// Whether responses have `X-RateLimit` headers if a limit applies to the request.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        rename = "enableXRateLimitHeaders"
    )]
    pub headers: bool,
    /// Whether rejected gRPC calls get RESOURCE_EXHAUSTED instead of UNAVAILABLE.
    #[serde(
        default,
        skip_serializing_if = "is_default",
        rename = "enableResourceExhaustedCode"
    )]
    pub resource_exhausted: bool,
    /// The limits for hosts of HTTPProxies without limits of their own. Hosts and routes disable them with
    /// `rateLimitPolicy.global.disabled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_global_rate_limit_policy: Option<Box<DefaultGlobalRateLimitPolicy>>,
}

/// The limits for hosts without limits of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct DefaultGlobalRateLimitPolicy {
    /// The descriptors to send to the service. A request is rejected if any descriptor is over its limit. They total at most
    /// 4096 bytes as JSON.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 32)))]
    pub descriptors: Vec<RateLimitDescriptor>,
}

/// The name of an object in any namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct ObjectName {
    /// The object's namespace.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 63)))]
    pub namespace: Arc<str>,
    /// The object's name.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 253)))]
    pub name: Arc<str>,
}

impl ObjectName {
    /// The same as a key.
    pub fn key(&self) -> NamespacedName {
        NamespacedName::new(Arc::clone(&self.namespace), Arc::clone(&self.name))
    }
}
