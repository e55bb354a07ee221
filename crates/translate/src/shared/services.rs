//! Services and EndpointSlices: the clusters of backend references, and their endpoints.
//!
//! Stores only the fields in use: a Service's status and a Pod's labels change often and have no effect here.

mod routed;

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use sesame_api::{Kind, NamespacedName, ObjectKey};
use sesame_engine::{Reader, Table};
use sesame_model::{
    Authorities, CertificateName, Cluster, ClusterKey, ClusterPolicy, ConnectionSettings,
    Discovery, Endpoint, Endpoints, ExternalHost, Protocol, TlsSettings, Transport, TrustBundleKey,
    UpstreamTls, Verification, XBACKEND_LABEL,
};

use super::authorities::AuthorityState;
use super::pod_services::{self, Selection};
use super::service_annotations::ServiceAnnotations;

pub use self::routed::{Backend, RoutedBackend};

/// The label on an EndpointSlice that names its Service.
/// The maximum number of ports in a message.
const MAX_LISTED: usize = 10;
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// The routing-related fields of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// True for type ExternalName: it points outside the cluster, and routes must not refer to it.
    pub external: bool,
    /// The family of the primary cluster IP, if set.
    pub family: Option<Family>,
    /// The ports.
    pub ports: Box<[ServicePort]>,
    /// Set if an XBackend owns it.
    pub selection: Option<Box<Selection>>,
    /// The connection settings in its annotations.
    pub annotations: Option<Box<ServiceAnnotations>>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty for an unnamed port.
    pub name: Box<str>,
    /// The Service's port, not the Pod's.
    pub port: u16,
    /// `None` for SCTP.
    pub transport: Option<Transport>,
    /// The `appProtocol`.
    pub app_protocol: Option<Box<str>>,
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Service {
    /// Reads the fields in use.
    pub fn read(service: &core::Service) -> Self {
        let spec = service.spec.as_ref();
        let ports = spec
            .and_then(|spec| spec.ports.as_deref())
            .unwrap_or_default();
        let ports: Box<[ServicePort]> = ports.iter().filter_map(read_port).collect();
        let names = || ports.iter().map(|port| (&*port.name, port.port));
        let annotations = service.metadata.annotations.as_ref();
        let annotations = annotations.filter(|annotations| !annotations.is_empty());
        let annotations = annotations.and_then(|annotations| {
            ServiceAnnotations::read(annotations, &Vec::from_iter(names()))
        });
        Self {
            external: spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName"),
            family: spec
                .and_then(|spec| spec.ip_families.as_ref()?.first())
                .and_then(|family| match family.as_str() {
                    "IPv4" => Some(Family::V4),
                    "IPv6" => Some(Family::V6),
                    _ => None,
                }),
            ports,
            selection: Selection::read(service).map(Box::new),
            annotations: annotations.map(Box::new),
        }
    }

    /// The port with this number.
    pub(crate) fn port(&self, number: u16, transport: Transport) -> Option<&ServicePort> {
        let mut ports = self.ports.iter();
        ports.find(|port| port.port == number && port.transport == Some(transport))
    }

    /// Whether connections to a port use TLS, unless a route overrides that.
    pub(crate) fn uses_tls(&self, port: &ServicePort) -> bool {
        self.protocol(port).is_some_and(|(_, tls)| tls)
    }

    /// The HTTP version of a port, and whether it runs over TLS: from its `appProtocol` or, without one, from an
    /// annotation. `None`: unsupported.
    fn protocol(&self, port: &ServicePort) -> Option<(Protocol, bool)> {
        if port.app_protocol.is_none()
            && let Some(annotations) = &self.annotations
            && let Some(found) = annotations.protocol(&port.name, port.port)
        {
            return Some(found);
        }
        protocol(port.app_protocol.as_deref())
    }
}

fn read_port(port: &core::ServicePort) -> Option<ServicePort> {
    Some(ServicePort {
        name: port.name.as_deref().unwrap_or_default().into(),
        port: u16::try_from(port.port).ok().filter(|&port| port != 0)?,
        transport: match port.protocol.as_deref() {
            None | Some("TCP") => Some(Transport::Tcp),
            Some("UDP") => Some(Transport::Udp),
            Some(_) => None,
        },
        app_protocol: port.app_protocol.as_deref().map(Into::into),
    })
}

/// The routing-related fields of an EndpointSlice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The Service that owns the endpoints.
    pub service: NamespacedName,
    /// The family of all addresses.
    pub family: Family,
    /// The name (empty if unnamed) and number of each port.
    pub ports: Box<[(Box<str>, u16)]>,
    /// The endpoints.
    pub endpoints: Box<[SliceEndpoint]>,
}

/// An endpoint, usually a Pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// The address, in the slice's family.
    pub address: IpAddr,
    /// Whether it gets requests.
    pub state: EndpointState,
}

/// Whether an endpoint gets requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// It gets requests.
    Ready,
    /// Terminating, but still serving: used only if no endpoint is ready.
    Draining,
    /// It doesn't get requests.
    Away,
}

impl Slice {
    /// Reads the fields in use; `None` if the slice has no Service or no IP addresses. A slice without a Service may
    /// name an XBackend.
    pub fn read(slice: &discovery::EndpointSlice) -> Option<Self> {
        let labels = slice.metadata.labels.as_ref()?;
        let name = match labels.get(SERVICE_NAME) {
            Some(name) => name.as_str().into(),
            None => pod_services::name(labels.get(XBACKEND_LABEL)?),
        };
        let family = match slice.address_type.as_str() {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => return None,
        };
        let ports = slice.ports.as_deref().unwrap_or_default();
        Some(Self {
            service: NamespacedName::new(
                slice.metadata.namespace.as_deref().unwrap_or("default"),
                name,
            ),
            family,
            ports: ports
                .iter()
                .filter_map(|port| {
                    let number = u16::try_from(port.port?)
                        .ok()
                        .filter(|&number| number != 0)?;
                    Some((port.name.as_deref().unwrap_or_default().into(), number))
                })
                .collect(),
            endpoints: slice
                .endpoints
                .iter()
                .flatten()
                .flat_map(|endpoint| read_endpoint(endpoint, family))
                .collect(),
        })
    }
}

fn read_endpoint(endpoint: &discovery::Endpoint, family: Family) -> Option<SliceEndpoint> {
    // The addresses of one endpoint are interchangeable: the first one suffices.
    let address: IpAddr = endpoint.addresses.first()?.parse().ok()?;
    if address.is_ipv4() != (family == Family::V4) {
        return None;
    }
    let conditions = endpoint.conditions.as_ref();
    let said = |condition: Option<bool>, unsaid: bool| condition.unwrap_or(unsaid);
    let ready = said(conditions.and_then(|conditions| conditions.ready), true);
    let terminating = said(
        conditions.and_then(|conditions| conditions.terminating),
        false,
    );
    let serving = said(conditions.and_then(|conditions| conditions.serving), ready);
    let state = match (ready, serving && terminating) {
        (true, _) => EndpointState::Ready,
        (false, true) => EndpointState::Draining,
        (false, false) => EndpointState::Away,
    };
    Some(SliceEndpoint { address, state })
}

/// The target for `key`, which is port `number` of the Service `name`; `service` is `None` if it doesn't exist.
pub fn backend(
    key: &ClusterKey,
    name: &NamespacedName,
    number: u16,
    service: Option<&Service>,
) -> Backend {
    let Some(service) = service else {
        return Backend::NotFound(format!("Service {name} does not exist"));
    };
    if service.external {
        return Backend::NotFound(format!(
            "Service {name} has type ExternalName, which is not supported because it can point outside the cluster; \
             use a Service with EndpointSlices"
        ));
    }
    let Some(port) = service.port(number, key.transport()) else {
        if service.ports.iter().any(|port| port.port == number) {
            return Backend::UnsupportedProtocol(format!(
                "port {number} of Service {name} is not a {} port",
                match key.transport() {
                    Transport::Tcp => "TCP",
                    Transport::Udp => "UDP",
                }
            ));
        }
        let more = service.ports.len().saturating_sub(MAX_LISTED);
        let listed = service.ports.iter().take(MAX_LISTED);
        let listed: BTreeSet<u16> = listed.map(|port| port.port).collect();
        let listed: Vec<String> = listed.iter().map(u16::to_string).collect();
        let listed = match (listed.is_empty(), more) {
            (true, _) => "none".to_owned(),
            (false, 0) => listed.join(", "),
            (false, more) => format!("{} and {more} more", listed.join(", ")),
        };
        return Backend::NotFound(format!(
            "Service {name} has no port {number} (available ports: {listed})"
        ));
    };
    let policy = key.policy.as_deref();
    if let Some(protocol @ (Protocol::Opaque | Protocol::Datagrams)) =
        policy.and_then(|policy| policy.protocol)
    {
        return Backend::Serves(Cluster {
            discovery: Discovery::Endpoints,
            protocol,
            tls: upstream_tls(key, false),
            retries: None,
            connections: connections(policy, service),
        });
    }
    let of_route = policy.and_then(|policy| policy.protocol);
    let protocol = match of_route {
        // The route's settings replace the Service's.
        Some(protocol) if key.tls().is_some() => Some((protocol, false)),
        _ => service.protocol(port),
    };
    match protocol {
        Some((protocol, tls)) => {
            let cluster = Cluster {
                discovery: Discovery::Endpoints,
                protocol: of_route.unwrap_or(protocol),
                tls: upstream_tls(key, tls),
                retries: None,
                connections: connections(policy, service),
            };
            Backend::Serves(cluster)
        }
        None => Backend::UnsupportedProtocol(format!(
            "port {number} of Service {name} has unsupported appProtocol {:?}; use http, https, h2c, \
             kubernetes.io/h2c, kubernetes.io/ws or kubernetes.io/wss",
            port.app_protocol.as_deref().unwrap_or_default()
        )),
    }
}

/// The cluster of a host.
pub(crate) fn of_host(key: &ClusterKey, host: &Arc<ExternalHost>) -> Cluster {
    let tls = upstream_tls(key, false);
    Cluster {
        discovery: Discovery::Dns(Arc::clone(host)),
        protocol: match tls {
            Some(_) => Protocol::Negotiated,
            None => Protocol::Http1,
        },
        tls,
        retries: None,
        connections: None,
    }
}

/// The settings in a policy, with the limits in the Service's annotations.
fn connections(
    policy: Option<&ClusterPolicy>,
    service: &Service,
) -> Option<Arc<ConnectionSettings>> {
    let of_policy = policy.and_then(|policy| policy.connections.clone());
    let annotations = service.annotations.as_deref();
    let limits = annotations.and_then(|annotations| annotations.limits);
    if limits.is_none() || of_policy.as_ref().is_some_and(|own| own.limits.is_some()) {
        return of_policy;
    }
    let of_policy = of_policy.map_or_else(ConnectionSettings::default, Arc::unwrap_or_clone);
    Some(Arc::new(ConnectionSettings {
        limits,
        ..of_policy
    }))
}

/// The TLS settings from a route or from the Service's `appProtocol`. Settings from policies are added later.
fn upstream_tls(key: &ClusterKey, of_service: bool) -> Option<Arc<UpstreamTls>> {
    match key.tls() {
        Some(TlsSettings::Verified(validation)) => {
            let names = validation.names.iter().cloned();
            Some(Arc::new(UpstreamTls {
                server_name: validation.names.first().cloned(),
                verification: Some(Verification {
                    authorities: Authorities::Bundle(TrustBundleKey::Secret(
                        validation.authorities.clone(),
                    )),
                    names: names.map(CertificateName::Dns).collect(),
                }),
                client_certificate: None,
            }))
        }
        Some(TlsSettings::Unverified | TlsSettings::Service) => Some(Arc::default()),
        Some(TlsSettings::Plaintext) => None,
        Some(TlsSettings::Policy(_) | TlsSettings::Own) | None => of_service.then(Arc::default),
    }
}

/// The cluster of an ExtensionService, whose settings are all in its key.
pub(crate) fn extension(
    reader: &mut Reader<'_>,
    authorities: Table<ObjectKey, AuthorityState>,
    key: &ClusterKey,
) -> Backend {
    let policy = key.policy.as_deref();
    let backend = Backend::Serves(Cluster {
        discovery: Discovery::Endpoints,
        protocol: policy
            .and_then(|policy| policy.protocol)
            .unwrap_or(Protocol::Http2),
        tls: upstream_tls(key, false),
        retries: None,
        connections: policy.and_then(|policy| policy.connections.clone()),
    });
    match key.tls() {
        Some(tls) => verifiable(reader, authorities, tls, backend),
        None => backend,
    }
}

/// A backend with a route's TLS settings; refused if its certificate can't be verified.
pub(crate) fn verifiable(
    reader: &mut Reader<'_>,
    authorities: Table<ObjectKey, AuthorityState>,
    tls: &TlsSettings,
    backend: Backend,
) -> Backend {
    let TlsSettings::Verified(validation) = tls else {
        return backend;
    };
    let secret = &validation.authorities;
    let secret = ObjectKey::new(
        Kind::Secret,
        Arc::clone(&secret.namespace),
        Arc::clone(&secret.name),
    );
    let valid = matches!(
        reader.get(authorities, &secret).as_deref(),
        Some(AuthorityState::Valid(_))
    );
    match backend {
        Backend::Serves(cluster) if !valid => Backend::Refused(cluster),
        backend => backend,
    }
}

/// The HTTP version for an `appProtocol`, and whether it runs over TLS. `None`: unsupported.
///
/// Unknown names without a domain (`tcp`, `mysql`) mean HTTP/1.1: service meshes use them for their own purposes. A
/// name with a domain has a defined meaning, so unknown ones are rejected (GEP-1911).
fn protocol(app_protocol: Option<&str>) -> Option<(Protocol, bool)> {
    let Some(name) = app_protocol else {
        return Some((Protocol::Http1, false));
    };
    let name = name.to_ascii_lowercase();
    Some(match name.as_str() {
        "kubernetes.io/h2c" | "h2c" | "http2" | "grpc" => (Protocol::Http2, false),
        "https" => (Protocol::Negotiated, true),
        // A WebSocket starts as HTTP/1.1: if ALPN offered HTTP/2, the endpoint might choose it.
        "kubernetes.io/wss" | "wss" => (Protocol::Http1, true),
        "kubernetes.io/ws" => (Protocol::Http1, false),
        other if other.contains('/') => return None,
        _ => (Protocol::Http1, false),
    })
}

/// The endpoints of a Service's port: the ready ones or, if there are none, the draining ones. `health_port` is the
/// port for health checks: one of the Service's, or one of the Pods'.
pub fn endpoints<'a>(
    service: &Service,
    port: &ServicePort,
    health_port: Option<u16>,
    slices: impl Iterator<Item = &'a Slice> + Clone,
) -> Endpoints {
    let number = |slice: &Slice, port: &ServicePort| {
        let mut ports = slice.ports.iter();
        let found = ports.find(|(name, _)| *name == port.name);
        found.map(|&(_, number)| number)
    };
    endpoints_at(service.family, slices, |slice| {
        let checked = health_port.and_then(|checked| {
            let of_service = service.port(checked, Transport::Tcp);
            of_service.map_or(Some(checked), |port| number(slice, port))
        });
        Some((number(slice, port)?, checked))
    })
}

/// The endpoints in slices: the ready ones or, if there are none, the draining ones. `family` is the primary family;
/// `ports` returns the port of a slice's endpoints, if any, and their port for health checks.
pub fn endpoints_at<'a>(
    family: Option<Family>,
    slices: impl Iterator<Item = &'a Slice> + Clone,
    ports: impl Fn(&Slice) -> Option<(u16, Option<u16>)>,
) -> Endpoints {
    // A dual-stack Service has slices of both families with the same Pods: use one family, preferably the primary
    // one.
    let families = match family {
        Some(Family::V6) => [Family::V6, Family::V4],
        _ => [Family::V4, Family::V6],
    };
    for state in [EndpointState::Ready, EndpointState::Draining] {
        for family in families {
            let found: BTreeSet<Endpoint> = slices
                .clone()
                .filter(|slice| slice.family == family)
                .flat_map(|slice| in_slice(slice, ports(slice), state))
                .collect();
            if !found.is_empty() {
                return Endpoints {
                    endpoints: found.into_iter().collect(),
                    ..Endpoints::default()
                };
            }
        }
    }
    Endpoints::default()
}

fn in_slice(
    slice: &Slice,
    ports: Option<(u16, Option<u16>)>,
    state: EndpointState,
) -> impl Iterator<Item = Endpoint> {
    slice
        .endpoints
        .iter()
        .filter(move |endpoint| endpoint.state == state)
        .filter_map(move |endpoint| {
            let (port, health_port) = ports?;
            Some(Endpoint {
                address: endpoint.address,
                port,
                health_port,
            })
        })
}

/// The Service that owns a slice, for the index of slices.
pub fn owner(slice: &Slice) -> Vec<NamespacedName> {
    vec![slice.service.clone()]
}

#[cfg(test)]
mod tests {
    use sesame_model::BackendName;

    use super::*;

    #[test]
    fn a_policy_overrides_the_services_protocol() {
        let service = Service {
            external: false,
            family: None,
            ports: Box::new([ServicePort {
                name: "".into(),
                port: 80,
                transport: Some(Transport::Tcp),
                app_protocol: None,
            }]),
            selection: None,
            annotations: None,
        };
        let name = NamespacedName::new("ns", "api");
        let protocol = |policy: Option<Protocol>| {
            let key = ClusterKey {
                namespace: "ns".into(),
                backend: BackendName::ServicePort {
                    service: "api".into(),
                    port: 80,
                },
                policy: policy.map(|protocol| {
                    let policy = ClusterPolicy {
                        protocol: Some(protocol),
                        ..ClusterPolicy::default()
                    };
                    policy.into()
                }),
            };
            match backend(&key, &name, 80, Some(&service)) {
                Backend::Serves(cluster) => cluster.protocol,
                other => panic!("{other:?}"),
            }
        };
        assert_eq!(protocol(None), Protocol::Http1);
        assert_eq!(protocol(Some(Protocol::Http2)), Protocol::Http2);
    }
}
