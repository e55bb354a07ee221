//! Services and EndpointSlices: what a backend reference leads to, and who answers there.
//!
//! Only what is read here is kept of an object: a Service's status or a Pod's labels change often and mean nothing.

use std::collections::BTreeSet;
use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;
use sesame_api::NamespacedName;
use sesame_model::{Cluster, Endpoint, Endpoints, Protocol, UpstreamTls};

/// The label by which an EndpointSlice names its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A Service, as far as routing reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// True for type ExternalName: a name outside the cluster, which no route may lead to.
    pub external: bool,
    /// The family of its primary address, where it says.
    pub family: Option<Family>,
    /// Its ports.
    pub ports: Box<[ServicePort]>,
}

/// A port of a Service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePort {
    /// Empty where it has none.
    pub name: Box<str>,
    /// The Service's port, not the Pod's.
    pub port: u16,
    /// False for UDP and SCTP.
    pub tcp: bool,
    /// What is spoken there.
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
    /// The part of a Service that is read.
    pub fn read(service: &core::Service) -> Self {
        let spec = service.spec.as_ref();
        let ports = spec
            .and_then(|spec| spec.ports.as_deref())
            .unwrap_or_default();
        Self {
            external: spec.and_then(|spec| spec.type_.as_deref()) == Some("ExternalName"),
            family: spec
                .and_then(|spec| spec.ip_families.as_ref()?.first())
                .and_then(|family| match family.as_str() {
                    "IPv4" => Some(Family::V4),
                    "IPv6" => Some(Family::V6),
                    _ => None,
                }),
            ports: ports
                .iter()
                .filter_map(|port| {
                    Some(ServicePort {
                        name: port.name.as_deref().unwrap_or_default().into(),
                        port: u16::try_from(port.port).ok().filter(|&port| port != 0)?,
                        tcp: port
                            .protocol
                            .as_deref()
                            .is_none_or(|protocol| protocol == "TCP"),
                        app_protocol: port.app_protocol.as_deref().map(Into::into),
                    })
                })
                .collect(),
        }
    }

    /// The port of that number over TCP, or over whatever there is.
    fn port(&self, number: u16) -> Option<&ServicePort> {
        let mut ports = self.ports.iter().filter(|port| port.port == number);
        let first = ports.next()?;
        if first.tcp {
            Some(first)
        } else {
            ports.find(|port| port.tcp).or(Some(first))
        }
    }
}

/// An EndpointSlice, as far as routing reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The Service whose endpoints these are.
    pub service: NamespacedName,
    /// Of all its addresses.
    pub family: Family,
    /// Name (empty where it has none) and number of each port.
    pub ports: Box<[(Box<str>, u16)]>,
    /// Who may answer.
    pub endpoints: Box<[SliceEndpoint]>,
}

/// One Pod, or whatever stands behind an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceEndpoint {
    /// Its address of the slice's family.
    pub address: IpAddr,
    /// Whether requests should go there.
    pub state: EndpointState,
}

/// Whether requests should go to an endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndpointState {
    /// Yes.
    Ready,
    /// On its way out but still answering: better than nobody.
    Draining,
    /// No.
    Away,
}

impl Slice {
    /// The part of a slice that is read; `None` if it belongs to no Service or holds no IP addresses.
    pub fn read(slice: &discovery::EndpointSlice) -> Option<Self> {
        let name = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
        let family = match slice.address_type.as_str() {
            "IPv4" => Family::V4,
            "IPv6" => Family::V6,
            _ => return None,
        };
        let ports = slice.ports.as_deref().unwrap_or_default();
        Some(Self {
            service: NamespacedName::new(
                slice.metadata.namespace.as_deref().unwrap_or("default"),
                name.as_str(),
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
    // The addresses of one endpoint are fungible: the first stands for all.
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

/// What a port of a Service is, for a route that leads to it.
#[derive(Clone, Debug, PartialEq)]
pub enum Backend {
    /// Requests can go there.
    Serves(Cluster),
    /// There is no such Service, or no such port: a sentence that says which.
    NotFound(String),
    /// The Service speaks something that routes can't: a sentence that says what.
    UnsupportedProtocol(String),
}

/// Reads the port `number` of the Service called `name`; `service` is `None` if there is none.
pub fn backend(name: &NamespacedName, number: u16, service: Option<&Service>) -> Backend {
    let Some(service) = service else {
        return Backend::NotFound(format!("Service {name} does not exist"));
    };
    if service.external {
        return Backend::NotFound(format!(
            "Service {name} is of type ExternalName, which a route may not lead to: it could point anywhere; use a Service \
             with EndpointSlices"
        ));
    }
    let Some(port) = service.port(number) else {
        let ports: BTreeSet<_> = service
            .ports
            .iter()
            .map(|port| port.port.to_string())
            .collect();
        let ports = if ports.is_empty() {
            "none".into()
        } else {
            ports.into_iter().collect::<Vec<_>>().join(", ")
        };
        return Backend::NotFound(format!(
            "Service {name} has no port {number} (it has {ports})"
        ));
    };
    if !port.tcp {
        return Backend::UnsupportedProtocol(format!("port {number} of Service {name} is not TCP"));
    }
    match protocol(port.app_protocol.as_deref()) {
        Some((protocol, tls)) => Backend::Serves(Cluster {
            protocol,
            tls: tls.then_some(UpstreamTls { server_name: None }),
        }),
        None => Backend::UnsupportedProtocol(format!(
            "port {number} of Service {name} has appProtocol {:?}; known are http, https, h2c, kubernetes.io/h2c, \
             kubernetes.io/ws and kubernetes.io/wss",
            port.app_protocol.as_deref().unwrap_or_default()
        )),
    }
}

/// What an `appProtocol` means for HTTP, and whether TLS is spoken below it.
///
/// Names without a domain that are not about HTTP's version (`tcp`, `mysql`) say nothing against HTTP/1.1: people copy them
/// from their meshes. A name with a domain is a promise of its owner, and one we don't know is refused (GEP-1911).
fn protocol(app_protocol: Option<&str>) -> Option<(Protocol, bool)> {
    let Some(name) = app_protocol else {
        return Some((Protocol::Http1, false));
    };
    let name = name.to_ascii_lowercase();
    Some(match name.as_str() {
        "kubernetes.io/h2c" | "h2c" | "http2" | "grpc" => (Protocol::Http2, false),
        "https" => (Protocol::Negotiated, true),
        // A WebSocket begins as HTTP/1.1: an endpoint that was offered HTTP/2 might take it.
        "kubernetes.io/wss" | "wss" => (Protocol::Http1, true),
        "kubernetes.io/ws" => (Protocol::Http1, false),
        other if other.contains('/') => return None,
        _ => (Protocol::Http1, false),
    })
}

/// Who answers on port `number` of a Service: the ready ones, or else those that are leaving but still serve.
pub fn endpoints<'a>(
    number: u16,
    service: &Service,
    slices: impl Iterator<Item = &'a Slice> + Clone,
) -> Endpoints {
    let Some(port) = service.port(number) else {
        return Endpoints::default();
    };
    // A Pod of a dual-stack Service is in a slice of each family: the primary one stands for both.
    let families = match service.family {
        Some(Family::V6) => [Family::V6, Family::V4],
        _ => [Family::V4, Family::V6],
    };
    for state in [EndpointState::Ready, EndpointState::Draining] {
        for family in families {
            let found: BTreeSet<Endpoint> = slices
                .clone()
                .filter(|slice| slice.family == family)
                .flat_map(|slice| in_slice(slice, &port.name, state))
                .collect();
            if !found.is_empty() {
                return Endpoints {
                    endpoints: found.into_iter().collect(),
                };
            }
        }
    }
    Endpoints::default()
}

fn in_slice<'a>(
    slice: &'a Slice,
    port: &'a str,
    state: EndpointState,
) -> impl Iterator<Item = Endpoint> + 'a {
    let port = slice
        .ports
        .iter()
        .find(|(name, _)| &**name == port)
        .map(|&(_, number)| number);
    slice
        .endpoints
        .iter()
        .filter(move |endpoint| endpoint.state == state)
        .filter_map(move |endpoint| {
            Some(Endpoint {
                address: endpoint.address,
                port: port?,
            })
        })
}

/// The Service that owns a slice, for the index of slices.
pub fn owner(slice: &Slice) -> Vec<NamespacedName> {
    vec![slice.service.clone()]
}
