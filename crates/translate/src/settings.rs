//! Settings for a translation: one input row that stages read, so that settings can change at run time.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use sesame_api::{
    DefaultPorts, GatewayClass, GatewayConfiguration, GlobalRateLimitPolicy, HeadersPolicy,
    IngressConfiguration, LoggingConfiguration, NamespacedName,
};
use sesame_model::{AuthBody, FleetId, PartsPerMillion, Port, SpanAttribute};

use crate::configuration::FleetSettings;

pub use crate::configuration::start::{ElectionSettings, StartSettings, XdsSettings};

/// The default controller name of Sesame's GatewayClasses.
pub const CONTROLLER_NAME: &str = GatewayConfiguration::DEFAULT_CONTROLLER_NAME;

/// The default name of the ingress class that Sesame implements.
pub const INGRESS_CLASS: &str = IngressConfiguration::DEFAULT_CLASS;

/// The default domain of descriptors for the rate limit service.
pub const RATE_LIMIT_DOMAIN: &str = "sesame";

/// `spec.controller` of the IngressClasses that Sesame implements, unless the configuration names classes.
pub const INGRESS_CONTROLLER: &str = "projectsesame.io/ingress-controller";

/// The settings for a translation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `spec.controllerName` of the GatewayClasses that Sesame implements; `None` if it doesn't serve Gateways.
    pub controller_name: Option<Arc<str>>,
    /// Where the Envoys run.
    pub mode: Mode,
    /// The settings for Ingresses and HTTPProxies.
    pub ingress: IngressSettings,
    /// The settings of all fleets, which GatewayClasses and Gateways may override.
    pub fleet: FleetSettings,
    /// How requests are traced, except those to Gateways with a valid policy of their own; `None` if they aren't.
    pub tracing: Option<TracingSettings>,
    /// The SesameConfiguration that these settings come from, if any.
    pub configuration: Option<NamespacedName>,
    /// The settings in that configuration that take effect when Sesame starts, as read then.
    pub start: StartSettings,
    /// The logs of Sesame, as far as that configuration sets them.
    pub logging: LoggingConfiguration,
    /// Whether Envoys in a cluster bind IPv6 addresses. Must be false if the nodes' kernels lack IPv6: Envoy rejects
    /// a listener if any of its addresses can't be bound.
    pub ipv6: bool,
}

/// Settings for Ingresses and HTTPProxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IngressSettings {
    /// The names of the ingress classes that Sesame implements, with or without an IngressClass.
    pub classes: BTreeSet<Arc<str>>,
    /// Whether Sesame implements only `classes`. If false, it also implements the IngressClasses with
    /// [`INGRESS_CONTROLLER`].
    pub only_classes: bool,
    /// The ports of the listeners that Ingresses and HTTPProxies share.
    pub ports: DefaultPorts,
    /// The namespaces whose HTTPProxies may have a `virtualhost`; `None` means all.
    pub root_namespaces: Option<BTreeSet<Arc<str>>>,
    /// The Secret with the certificate for TLS connections without SNI or with an unknown one, if any. HTTPProxies
    /// enable it for their hosts.
    pub fallback_certificate: Option<NamespacedName>,
    /// The Secret with the client certificate that the fleet of these objects presents to backends with TLS, if any.
    pub client_certificate: Option<NamespacedName>,
    /// Whether `permitInsecure` of HTTPProxies has no effect.
    pub disable_permit_insecure: bool,
    /// The service for global rate limits in HTTPProxies; without it, such limits are errors.
    pub rate_limits: Option<RateLimitSettings>,
    /// The authorization of requests to all hosts; `None` if there is none.
    pub auth: Option<GlobalAuthSettings>,
    /// Changes to headers on all routes.
    pub headers: HeaderDefaults,
}

/// External authorization of requests to all hosts of HTTPProxies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GlobalAuthSettings {
    /// The ExtensionService.
    pub service: NamespacedName,
    /// Whether requests pass if the service fails.
    pub fail_open: bool,
    /// Whether only hosts and routes with a policy of their own need authorization.
    pub disabled: bool,
    /// Names and values for the service.
    pub context: BTreeMap<String, String>,
    /// The timeout of a call: zero means no limit, `None` means the ExtensionService's.
    pub timeout: Option<Duration>,
    /// The part of the body that is sent to the service.
    pub body: Option<AuthBody>,
}

/// Changes to headers on all routes of HTTPProxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderDefaults {
    /// The changes to forwarded requests.
    pub requests: HeadersPolicy,
    /// The changes to responses.
    pub responses: HeadersPolicy,
    /// Whether they also apply to Ingresses.
    pub ingresses: bool,
}

/// The service for global rate limits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RateLimitSettings {
    /// The ExtensionService.
    pub service: NamespacedName,
    /// The domain of all descriptors; never empty.
    pub domain: Arc<str>,
    /// Whether requests pass if the service fails or can't be used. If false, they get 503.
    pub fail_open: bool,
    /// Whether responses have `X-RateLimit-*` headers.
    pub headers: bool,
    /// Whether rejected gRPC calls get `RESOURCE_EXHAUSTED` instead of `UNAVAILABLE`.
    pub resource_exhausted: bool,
    /// The limits for hosts without limits of their own.
    pub default: Option<GlobalRateLimitPolicy>,
}

/// How requests are traced.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracingSettings {
    /// The ExtensionService of the collector.
    pub collector: NamespacedName,
    /// The share of requests that are traced.
    pub rate: PartsPerMillion,
    /// The service name in spans; `None` for the fleet's name.
    pub service: Option<Arc<str>>,
    /// The maximum length of the URL's path in spans, in bytes; `None` for Envoy's default.
    pub max_path: Option<u32>,
    /// Additional attributes of spans, with unique names.
    pub attributes: Vec<SpanAttribute>,
}

impl IngressSettings {
    /// The port of the HTTP listener.
    pub(crate) fn http_port(&self) -> Port {
        Port::tcp(self.ports.http)
    }

    /// The Secrets that these settings refer to.
    pub fn secrets(&self) -> impl Iterator<Item = &NamespacedName> {
        let fallback = self.fallback_certificate.iter();
        fallback.chain(&self.client_certificate)
    }

    /// The port of all listeners with TLS.
    pub(crate) fn https_port(&self) -> Port {
        Port::tcp(self.ports.https)
    }

    /// Whether HTTPProxies in this namespace may have a `virtualhost`.
    pub(crate) fn permits_roots(&self, namespace: &str) -> bool {
        let namespaces = self.root_namespaces.as_ref();
        namespaces.is_none_or(|namespaces| namespaces.contains(namespace))
    }
}

impl Default for IngressSettings {
    fn default() -> Self {
        Self {
            classes: BTreeSet::from([INGRESS_CLASS.into()]),
            only_classes: false,
            ports: DefaultPorts::default(),
            root_namespaces: None,
            fallback_certificate: None,
            client_certificate: None,
            disable_permit_insecure: false,
            rate_limits: None,
            auth: None,
            headers: HeaderDefaults::default(),
        }
    }
}

/// Where the Envoys run, and which Gateways they serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// As processes on Sesame's machine. Each Gateway has a fleet, which binds only the addresses of its
    /// [`FleetState`](sesame_model::FleetState).
    Local,
    /// As pods that Sesame manages. Each Gateway has a fleet, which binds all addresses of its pods: the Gateway's
    /// own address belongs to a load balancer and may be assigned later.
    Managed,
    /// Outside Sesame. There is one fleet, [`FleetId::Unmanaged`], which serves one Gateway.
    Unmanaged {
        /// The Gateway; `None` selects the oldest Gateway of the oldest GatewayClass.
        gateway: Option<NamespacedName>,
    },
}

impl Settings {
    /// Settings for a mode, with the default controller name and IPv6.
    pub fn new(mode: Mode) -> Self {
        Self {
            controller_name: Some(CONTROLLER_NAME.into()),
            mode,
            ingress: IngressSettings::default(),
            fleet: FleetSettings::default(),
            tracing: None,
            configuration: None,
            start: StartSettings::default(),
            logging: LoggingConfiguration::default(),
            ipv6: true,
        }
    }

    /// Whether Sesame implements a GatewayClass.
    pub(crate) fn controls(&self, class: &GatewayClass) -> bool {
        self.controller_name.as_ref() == Some(&class.spec.controller_name)
    }

    /// The fleet for objects without a Gateway.
    pub fn default_fleet(&self) -> FleetId {
        match self.mode {
            Mode::Local | Mode::Managed => FleetId::Default,
            Mode::Unmanaged { .. } => FleetId::Unmanaged,
        }
    }

    /// Whether the Envoys run in a cluster.
    pub fn in_cluster(&self) -> bool {
        self.mode != Mode::Local
    }

    /// The fleet that serves a Gateway, if it is accepted.
    pub fn fleet_of(&self, gateway: &NamespacedName) -> FleetId {
        match self.mode {
            Mode::Local | Mode::Managed => {
                FleetId::of_gateway(Arc::clone(&gateway.namespace), Arc::clone(&gateway.name))
            }
            Mode::Unmanaged { .. } => FleetId::Unmanaged,
        }
    }
}
