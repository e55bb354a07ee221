//! Kubernetes objects as Sesame reads them.
//!
//! In: JSON values, from files or from an API server. Out: [`Object`]s with typed fields, their keys, and constants for
//! statuses. Doesn't do IO or translation, and doesn't depend on Envoy. Everything kind-specific is in the table of
//! kinds ([`KindInfo`]).
//!
//! - Gateway API kinds (v1.7.0, both channels) are defined here. They share types such as
//!   [`ParentReference`], [`BackendRef`], [`RouteFilter`] and [`Listener`].
//! - Sesame's own kinds are defined here, such as [`HTTPProxy`]. The feature `schema` generates their CRDs from the
//!   types.
//! - Built-in Kubernetes kinds come from `k8s-openapi`, except [`Ingress`] and [`IngressClass`].
//! - Decoding fills in defaults, so a field with a default is never an `Option`.
//! - Strings with well-known values are enums with an `Other` variant: a value from a later release
//!   decodes, and translation reports it. Unknown fields are dropped.
//! - Objects from files are validated as an API server would ([`Object::decode`]); objects that an API
//!   server has admitted are not ([`Object::decode_admitted`]).
//! - Names are `Arc<str>` because they are part of keys, which are cloned often.

mod backend_tls_policy;
mod backend_traffic_policy;
mod check;
pub mod condition;
mod configuration;
mod contour;
mod core_kind;
#[cfg(feature = "schema")]
pub mod crd;
mod decode;
mod duration;
mod extension_service;
pub mod features;
mod fields;
mod filter;
#[cfg(test)]
mod fixtures;
mod gateway;
mod gateway_class;
mod grpc_route;
mod http_filter;
mod http_proxy;
mod http_route;
mod ingress;
mod key;
mod kind;
mod kind_name;
mod l4_route;
mod listener;
mod listener_set;
mod meta;
mod named;
mod object;
mod open_enum;
mod policy_status;
pub mod reason;
mod reference;
mod reference_grant;
mod release;
mod route;
mod session;
mod skip;
mod status;
mod strict;
mod telemetry_policy;
mod tls_certificate_delegation;
mod xbackend;

pub use backend_tls_policy::{
    BackendTLSPolicy, BackendTlsPolicySpec, BackendTlsValidation, PolicyTargetReference,
    SubjectAltName, WellKnownCaCertificates,
};
pub use backend_traffic_policy::{
    BackendTrafficPolicySpec, RequestRate, RetryBudget, RetryConstraint, XBackendTrafficPolicy,
};
pub use check::{is_header_name, is_hostname, is_precise_hostname};
pub use condition::{Condition, ConditionStatus, ConditionsStatus, SubCondition};
pub use configuration::{
    AcceptProxyProtocol, AccessLogFilter, AccessLogStyle, AwsLoadBalancer, AwsLoadBalancerType,
    AzureLoadBalancer, CipherSuite, CompressionAlgorithm, ConfigurationSpec, ContourCompatMode,
    CustomTag, DefaultGlobalRateLimitPolicy, DefaultHeader, DefaultHeaders, DefaultPorts,
    EnvoyAutoscaling, EnvoyConfiguration, EnvoyDrain, EnvoyLogLevel, EnvoyNamespace,
    EnvoyResources, EnvoyToleration, EnvoyWorkload, EscapedSlashesAction, ExternalTrafficPolicy,
    GatewayChoice, GatewayChoices, GatewayConfiguration, GatewayPublishing,
    GatewayPublishingParameters, GcpLoadBalancer, GlobalAuthBody, GlobalAuthConfiguration,
    GlobalAuthPolicy, HeadersWithUnderscores, HttpProxyConfiguration, IngressConfiguration,
    InstanceConfiguration, InstanceResources, LeaderElectionConfiguration, ListenersAccessLog,
    ListenersConfiguration, ListenersLimits, ListenersPaths, ListenersTimeouts, ListenersTls,
    ListenersTlsVersion, LoadBalancerProvider, LoadBalancerProviderType, LoadBalancerPublishing,
    LoadBalancerScope, LoggingConfiguration, LoggingFormat, LoggingLevel, MetricsConfiguration,
    NetworkPublishing, NetworkPublishingType, ObjectName, PolicyConfiguration,
    RateLimitServiceConfiguration, ResourceAmounts, SesameConfiguration, TolerationEffect,
    TolerationOperator, TracingConfiguration, UnmanagedEnvoy, XdsConfiguration,
};
pub use contour::{ContourExtensionService, ContourHTTPProxy, ContourTLSCertificateDelegation};
pub use decode::{DecodeError, PathSegment, decode_value};
pub use duration::{Duration, InvalidDuration};
pub use extension_service::{
    CircuitBreakerPolicy, ExtensionProtocol, ExtensionProtocolVersion, ExtensionService,
    ExtensionServiceSpec, ExtensionServiceTarget,
};
pub use fields::{Fields, KeptFields};
pub use filter::{ListenerFilter, RouteFilter};
pub use gateway::{
    AddressType, AllowedListeners, BackendTls, Gateway, GatewayInfrastructure, GatewaySpec,
    GatewaySpecAddress, GatewayStatus, GatewayStatusAddress, GatewayTls, ListenerNamespaces,
    Routability,
};
pub use gateway_class::{GatewayClass, GatewayClassSpec, GatewayClassStatus, SupportedFeature};
pub use grpc_route::{GRPCRoute, GrpcMethodMatch, GrpcRouteMatch, GrpcRouteRule, GrpcRouteSpec};
pub use http_filter::{
    Cors, ExternalAuth, ExternalAuthProtocol, ForwardBody, Fraction, GrpcAuth, HeaderModifier,
    HttpAuth, HttpHeader, PathModifier, RedirectScheme, RequestMirror, RequestRedirect, UrlRewrite,
};
pub use http_proxy::{
    AllowedHeader, AuthorizationPolicy, AuthorizationServer, AuthorizationServiceType,
    CookieRewrite, CookieRewritePolicy, CorsPolicy, CrossSchemeRedirect, DirectResponsePolicy,
    DnsLookupFamily, ExtensionServiceReference, ForwardClientCertificate, GenericKeyDescriptor,
    GlobalRateLimitPolicy, HTTPProxy, HeaderHashOptions, HeaderMatchCondition, HeadersPolicy,
    HttpAuthorization, HttpHealthCheckPolicy, HttpProxyClientValidation, HttpProxyInclude,
    HttpProxyRoute, HttpProxyService, HttpProxySpec, HttpProxyState, HttpProxyStatus, HttpProxyTls,
    HttpProxyVirtualHost, HttpStatusRange, InternalRedirectPolicy, IpFilter, IpFilterSource,
    JwtProvider, JwtVerificationPolicy, LoadBalancerIngress, LoadBalancerPolicy,
    LoadBalancerPortStatus, LoadBalancerStatus, LoadBalancerStrategy, LocalJwks,
    LocalRateLimitPolicy, MatchCondition, PathRewritePolicy, QueryParameterHashOptions,
    QueryParameterMatchCondition, RateLimitDescriptor, RateLimitDescriptorEntry, RateLimitPolicy,
    RateLimitUnit, RemoteAddressDescriptor, RemoteJwks, ReplacePrefix, RequestBodyBuffer,
    RequestHashPolicy, RequestHeaderDescriptor, RequestHeaderValueMatchDescriptor,
    RequestRedirectPolicy, RetryOn, RetryPolicy, SameSite, ServiceProtocol, SlowStartPolicy,
    TcpHealthCheckPolicy, TcpProxy, TcpProxyInclude, TimeoutPolicy, UpstreamValidation,
};
pub use http_route::{
    HTTPRoute, HeaderMatch, HttpMethod, HttpPathMatch, HttpQueryParamMatch, HttpRouteMatch,
    HttpRouteRetry, HttpRouteRule, HttpRouteSpec, HttpRouteTimeouts, MatchType, PathMatchType,
};
pub use ingress::{
    Ingress, IngressBackend, IngressClass, IngressClassSpec, IngressHttp, IngressPath,
    IngressPathType, IngressResource, IngressRule, IngressService, IngressServicePort, IngressSpec,
    IngressStatus, IngressTls,
};
pub use key::{NamespacedName, ObjectKey};
pub use kind::{GATEWAY_GROUP, Kind, KindInfo, Object, Serving};
pub use kind_name::{Group, KindName};
pub use l4_route::{L4RouteRule, L4RouteSpec, TCPRoute, TLSRoute, UDPRoute};
pub use listener::{
    AllowedRoutes, FromNamespaces, FrontendTls, FrontendTlsConfig, FrontendTlsPort,
    FrontendTlsValidation, FrontendValidationMode, Listener, ListenerFilters, ListenerStatus,
    ListenerTls, ProtocolType, RouteGroupKind, RouteNamespaces, TlsMode,
};
pub use listener_set::{ListenerSet, ListenerSetSpec, ListenerSetStatus, XListenerSet};
pub use meta::{LabelOperator, LabelRequirement, LabelSelector, Meta};
pub use named::{references, secret_name};
pub use policy_status::{PolicyAncestorStatus, PolicyStatus};
pub use reference::{
    BackendObjectReference, LocalObjectReference, ObjectReference, ParentGatewayReference,
    ParentReference, SecretObjectReference,
};
pub use reference_grant::{
    ReferenceGrant, ReferenceGrantFrom, ReferenceGrantSpec, ReferenceGrantTo,
};
pub use release::Release;
pub use route::{
    BackendRef, DefaultScope, Route, RouteParentStatus, RouteSpec, RouteStatus, RouteView, Rule,
};
pub use session::{
    CookieLifetime, SessionCookie, SessionHeader, SessionPersistence, SessionPersistenceType,
};
pub use status::{LiveStatus, ObjectStatus, StatusEntries, StatusEntry, StatusField, StatusOwner};
pub use telemetry_policy::{
    ParentBasedSampling, SamplingMode, SpanAttribute, SpanAttributeSource, TelemetryPolicySpec,
    TracingConfig, TracingMode, TracingProvider, XTelemetryPolicy,
};
pub use tls_certificate_delegation::{
    CertificateDelegation, TLSCertificateDelegation, TlsCertificateDelegationSpec,
};
pub use xbackend::{
    BackendProtocol, BackendTlsMode, EndpointSelector, ExternalHostname, XBackend, XBackendPort,
    XBackendSpec, XBackendTls, XBackendType,
};

/// Built-in Kubernetes kinds.
pub use k8s_openapi::ByteString;
pub use k8s_openapi::api::certificates::v1::ClusterTrustBundle;
pub use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, Service, ServicePort};
pub use k8s_openapi::api::discovery::v1::{
    Endpoint, EndpointConditions, EndpointPort, EndpointSlice,
};
pub use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
