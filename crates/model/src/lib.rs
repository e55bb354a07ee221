//! What a gateway does, as plain data: the interface between `translate`, which interprets objects, and `envoy`, which
//! encodes the result as protobuf.
//!
//! In: nothing. Out: types with no behaviour beyond their own consistency.
//! Must not depend on Kubernetes or Envoy, nor use terms that only one of them uses.
//!
//! It also contains the items that `translate` and `fleet` share: the Services of XBackends, and the naming rule of
//! generated objects.
//!
//! Keys are chosen so that changing one object affects few values:
//!
//! | value | key | changes when |
//! |---|---|---|
//! | [`Listener`] | [`ListenerKey`] | ports, TLS listener hostnames, certificate names or tracing change |
//! | [`RouteTable`] | [`RouteTableKey`] | a listener is added or removed, or its hostname changes |
//! | [`VirtualHost`] | [`VirtualHostKey`] | a route for that host changes |
//! | [`Cluster`] | [`ClusterKey`] | a Service port or its policy changes |
//! | [`ClusterKey`] | [`DestinationKey`] | the only backend of a route for those connections changes |
//! | [`Datagrams`] | [`ListenerKey`] | a UDP port's route or its Pods change |
//! | [`Endpoints`] | [`ClusterKey`] | Pods come and go |
//! | [`Certificate`] | [`CertificateKey`] | a certificate is rotated |
//! | [`TrustBundle`] | [`TrustBundleKey`] | a CA certificate is rotated |

mod auth;
mod backend;
mod connection;
mod datagrams;
mod destination;
mod fleet;
mod global_rate;
mod headers;
mod jwt;
mod listener;
mod listener_settings;
mod object_name;
mod pod_service;
mod port;
mod route;
mod route_policy;
mod size;
mod tls;
mod tracing;

pub use auth::{AuthBody, AuthProtocol, ExternalAuth, MAX_HOST_AUTH};
pub use backend::{
    AddressFamilies, Authorities, BackendName, CertificateName, Cluster, ClusterKey, ClusterPolicy,
    Discovery, Endpoint, EndpointShare, Endpoints, ExternalHost, NamedAuthorities, Protocol,
    RetryLimit, TlsSettings, UpstreamTls, Verification,
};
pub use connection::{
    Balancing, ConnectionLimits, ConnectionSettings, HealthCheck, HttpCheck, SlowStart,
};
pub use datagrams::Datagrams;
pub use destination::DestinationKey;
pub use fleet::{
    AddressRequest, AddressValue, Autoscaling, ClassParameters, CreatedClass, FLEET_LABEL,
    FleetAddress, FleetId, FleetLogLevel, FleetParameters, FleetProblem, FleetRequest, FleetState,
    GatewayOwner, OuterClass, ParseFleetIdError, Publishing, Routability, TaintEffect, Toleration,
    TrafficPolicy, UpgradeProgress, Workload,
};
pub use global_rate::{GlobalRate, RateDescriptor, RateEntry, RateService};
pub use headers::{HOP_BY_HOP, INTERNAL};
pub use jwt::{JwtKeys, JwtProvider, RemoteKeys};
pub use listener::{
    Chain, ChainTarget, ChainTls, ClientValidation, ForwardedCertificate, Listener, ListenerKey,
    Termination, TlsMode, WeightedBackend,
};
pub use listener_settings::{
    AccessLogFormat, AccessLogLevel, Compression, EscapedSlashes, ListenerLimits, ListenerSettings,
    ListenerTimeouts, ProxyProtocol, UnderscoreHeaders,
};
pub use object_name::{dns_label, name_hash};
pub use pod_service::{PodService, PodServiceChange, PodServiceId, XBACKEND_LABEL};
pub use port::{Port, Transport};
pub use route::{
    Action, Cors, DirectResponse, Forward, HeaderChanges, HeaderLists, HeaderMatch, List,
    MAX_PROGRAM_SIZE, Mirror, OriginMatch, PartsPerMillion, PathMatch, PathRewrite, QueryMatch,
    Redirect, RedirectPort, Retry, Route, RouteMatch, RouteTable, RouteTableKey, Search, Session,
    Target, TextMatch, TextPosition, ValueMatch, VirtualHost, VirtualHostKey, WeightedTarget,
};
pub use route_policy::{
    CookieChange, CrossScheme, ForwardOptions, HashOf, HashPolicy, InternalRedirects,
    MAX_INTERNAL_REDIRECTS, Rate, RateLimit, RoutePolicy, SourceFilter, SourceRange,
};
pub use tls::{
    Certificate, CertificateKey, TlsPolicyKey, TlsVersion, TlsVersions, TrustBundle, TrustBundleKey,
};
pub use tracing::{Sampling, SpanAttribute, SpanProperty, SpanValue, Tracing};
