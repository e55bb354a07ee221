//! Matches the addresses of a fleet's Services with its owner's requests.
//!
//! Pure. A fleet has a Service whose type its parameters determine, by default LoadBalancer, and a second one of type
//! ClusterIP if a request has routability Cluster. Each Service can request one IP address. The addresses of a Service
//! whose type isn't LoadBalancer are its cluster IPs, since node ports differ from the Gateway's ports. If a Gateway of another
//! implementation is in front of the Service, its addresses replace the Service's.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use sesame_model::{
    AddressRequest, AddressValue, FleetAddress, FleetProblem, FleetState, Publishing, Routability,
};

use super::kind::ObjectKind;
use super::spec::FleetSpec;

/// The routability that GEP-5093 requires for tests. Its addresses are like any others, but are reported with this
/// name.
const SENTINEL: &str = "testing.x-k8s.io/sentinel";

/// The conditions of a Gateway that explain why it has no address.
const GATEWAY_CONDITIONS: [&str; 2] = ["Accepted", "Programmed"];

/// The maximum length of another controller's message, in characters.
const MAX_MESSAGE: usize = 300;

/// The requested addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestedAddresses {
    requests: Vec<AddressRequest>,
    publishing: Publishing,
}

impl RequestedAddresses {
    /// The addresses that the fleet's owner requests.
    pub(super) fn of(spec: &FleetSpec) -> Self {
        Self {
            requests: spec.request.addresses.clone(),
            publishing: spec.parameters.publishing.clone().unwrap_or_default(),
        }
    }

    /// Whether a request needs the fleet's Service.
    pub(super) fn needs_service(&self) -> bool {
        let mut requests = self.requests.iter();
        self.requests.is_empty() || requests.any(is_outside)
    }

    /// Whether a request needs the Service for addresses inside the cluster.
    pub(super) fn needs_cluster_service(&self) -> bool {
        self.requests.iter().any(is_in_cluster)
    }

    /// The kind of the object whose addresses satisfy requests for addresses outside the cluster.
    pub(super) fn source(&self) -> ObjectKind {
        match self.publishing {
            Publishing::Gateway(_) => ObjectKind::Gateway,
            _ => ObjectKind::Service,
        }
    }

    /// The addresses that a Gateway in front of the Service requests.
    pub(super) fn ips(&self) -> impl Iterator<Item = IpAddr> {
        let outside = self.requests.iter().filter(|request| is_outside(request));
        outside.filter_map(ip)
    }

    /// The address that the Service requests.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.ips().next()
    }

    /// The cluster IP that the Service for addresses inside the cluster requests.
    pub(super) fn cluster_ip(&self) -> Option<IpAddr> {
        let mut requests = self.requests.iter();
        requests.find_map(|request| ip(request).filter(|_| is_in_cluster(request)))
    }

    /// Why a request can never be satisfied, apart from an unsupported routability.
    fn unsupported(&self, request: &AddressRequest) -> Option<String> {
        match &request.address {
            AddressValue::Ip(ip)
                if matches!(
                    self.publishing,
                    Publishing::NodePort | Publishing::ClusterIp
                ) && !is_in_cluster(request) =>
            {
                Some(format!(
                    "{ip}: an address can be requested only if the fleet's Service is of type LoadBalancer"
                ))
            }
            AddressValue::Hostname(name) if !name.is_empty() => Some(format!(
                "{name}: cannot request a hostname from a load balancer; omit the value to use whatever address the \
                 load balancer assigns"
            )),
            AddressValue::Other(type_) => Some(format!(
                "addresses of type {type_} are not supported; use IPAddress"
            )),
            AddressValue::Any
            | AddressValue::Ip(_)
            | AddressValue::InvalidIp(_)
            | AddressValue::Hostname(_) => None,
        }
    }
}

fn is_in_cluster(request: &AddressRequest) -> bool {
    request.routability == Routability::Cluster
}

/// Whether addresses of the fleet's first Service can satisfy a request.
fn is_outside(request: &AddressRequest) -> bool {
    match &request.routability {
        Routability::Default => true,
        Routability::Cluster => false,
        Routability::Other(name) => name == SENTINEL,
    }
}

fn ip(request: &AddressRequest) -> Option<IpAddr> {
    match request.address {
        AddressValue::Ip(ip) => Some(ip),
        _ => None,
    }
}

/// Where the addresses of an object come from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
enum Origin {
    /// The cluster.
    #[default]
    Cluster,
    /// The cluster's load balancer.
    LoadBalancer,
    /// Another Gateway API implementation, and what its conditions say is wrong.
    Gateway(Option<String>),
}

/// The addresses of an observed Service or Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AssignedAddresses {
    origin: Origin,
    /// The addresses of the Gateway or the load balancer, or the cluster IPs.
    addresses: BTreeSet<FleetAddress>,
    /// The primary cluster IP.
    cluster_ip: Option<IpAddr>,
}

impl AssignedAddresses {
    /// From a Service's `spec` and `status`.
    pub(super) fn of(service: &Value) -> Self {
        let load_balancer = service["spec"]["type"] == "LoadBalancer";
        let cluster_ips: Vec<&str> = service["spec"]["clusterIPs"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .filter(|ip| *ip != "None")
            .collect();
        let cluster_ip = cluster_ips.first().and_then(|ip| ip.parse().ok());
        let texts: Vec<&str> = if load_balancer {
            let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
            let values = |field: &'static str| {
                ingress
                    .into_iter()
                    .flatten()
                    .filter_map(move |point| point[field].as_str())
            };
            values("ip").chain(values("hostname")).collect()
        } else {
            cluster_ips
        };
        Self {
            origin: match load_balancer {
                true => Origin::LoadBalancer,
                false => Origin::Cluster,
            },
            cluster_ip,
            addresses: texts
                .into_iter()
                .filter(|text| !text.is_empty())
                .map(FleetAddress::parse)
                .collect(),
        }
    }

    /// From a Gateway's `status`. Another controller has written it, so addresses and messages have any length.
    pub(super) fn of_gateway(gateway: &Value) -> Self {
        let list = |field: &str| gateway["status"][field].as_array().into_iter().flatten();
        let wrong = list("conditions")
            .find(|of| {
                of["status"] == "False" && GATEWAY_CONDITIONS.iter().any(|name| of["type"] == *name)
            })
            .and_then(|of| of["message"].as_str());
        let addresses = list("addresses").filter_map(|address| address["value"].as_str());
        Self {
            origin: Origin::Gateway(wrong.map(|wrong| wrong.chars().take(MAX_MESSAGE).collect())),
            cluster_ip: None,
            addresses: addresses
                .filter(|text| !text.is_empty())
                .map(FleetAddress::parse)
                .collect(),
        }
    }

    /// The cluster IP that a Service requests. A dual-stack Service also has a second one.
    pub(super) fn cluster_ip(&self) -> Option<IpAddr> {
        self.cluster_ip
    }

    fn routability(&self) -> Routability {
        match self.origin {
            Origin::LoadBalancer | Origin::Gateway(_) => Routability::Default,
            Origin::Cluster => Routability::Cluster,
        }
    }
}

/// The observed Services of a fleet, and the Gateway in front of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Services<'a> {
    /// Kind, namespace and name of the Service or the Gateway, for messages.
    pub(super) source: &'a str,
    /// Its addresses.
    pub(super) assigned: Option<&'a AssignedAddresses>,
    /// Kind, namespace and name of the Service for addresses inside the cluster, for messages.
    pub(super) cluster_service: &'a str,
    /// Its addresses.
    pub(super) in_cluster: Option<&'a AssignedAddresses>,
    /// Why the Service for addresses inside the cluster can't be written.
    pub(super) failure: Option<&'a str>,
}

/// Assigns a distinct address to each request, starting with requests for a specific one. Sets the state's
/// addresses, unassigned requests and problem.
pub(super) fn assign(state: &mut FleetState, requested: &RequestedAddresses, of: Services<'_>) {
    let (mut outside, mut inside) = (all(of.assigned), all(of.in_cluster));
    let mut assigned = Vec::new();
    if requested.requests.is_empty() {
        assigned = outside;
    } else {
        let mut order: Vec<usize> = (0..requested.requests.len()).collect();
        order.sort_by_key(|index| ip(&requested.requests[*index]).is_none());
        let mut unassigned = Vec::new();
        for index in order {
            let request = &requested.requests[index];
            let free = match is_in_cluster(request) {
                true => &mut inside,
                false => &mut outside,
            };
            let found = match requested.unsupported(request) {
                None if is_in_cluster(request) || is_outside(request) => {
                    free.iter().position(|(free, _)| satisfies(free, request))
                }
                _ => None,
            };
            match found {
                Some(position) => {
                    let (address, routability) = free.remove(position);
                    let named = matches!(request.routability, Routability::Other(_));
                    assigned.push(match named {
                        true => (address, request.routability.clone()),
                        false => (address, routability),
                    });
                }
                None => unassigned.push(index),
            }
        }
        unassigned.sort_unstable();
        let why = |index: &usize| requested.why(&requested.requests[*index], of);
        state.problem = requested.problem(&unassigned, why);
        let field = |index: &usize| format!("spec.addresses[{index}]: {}", why(index));
        state.unassigned = unassigned.iter().map(field).collect();
    }
    if state.problem.is_none() && assigned.is_empty() {
        let message = match &*state.unassigned {
            [] => of.pending(),
            unassigned => unassigned.join("; "),
        };
        state.problem = Some(FleetProblem::AddressNotAssigned(message));
    }
    // Addresses that are reachable from outside come first.
    assigned.sort_by(|(a, of_a), (b, of_b)| (of_a, a).cmp(&(of_b, b)));
    state.addresses = assigned
        .iter()
        .map(|(address, _)| address.clone())
        .collect();
    assigned.retain(|(_, routability)| *routability != Routability::Default);
    state.routability = assigned.into_iter().collect();
}

/// Whether an address has the requested type and value.
fn satisfies(address: &FleetAddress, request: &AddressRequest) -> bool {
    match &request.address {
        AddressValue::Any => address.ip().is_some(),
        AddressValue::Ip(ip) => address.ip() == Some(*ip),
        AddressValue::Hostname(_) => address.ip().is_none(),
        AddressValue::InvalidIp(_) | AddressValue::Other(_) => false,
    }
}

impl RequestedAddresses {
    /// The problem with unsatisfied requests. Requests with a routability may stay unsatisfied, unless no request is
    /// satisfied (GEP-5093).
    fn problem(
        &self,
        unassigned: &[usize],
        why: impl Fn(&usize) -> String,
    ) -> Option<FleetProblem> {
        let unsupported = unassigned
            .iter()
            .find_map(|index| self.unsupported(&self.requests[*index]));
        if let Some(message) = unsupported {
            return Some(FleetProblem::UnsupportedAddress(message));
        }
        let explicit = unassigned.iter().find(|index| {
            let request = &self.requests[**index];
            let explicit = matches!(
                request.address,
                AddressValue::Ip(_) | AddressValue::InvalidIp(_)
            );
            explicit && request.routability == Routability::Default
        });
        explicit.map(|index| FleetProblem::AddressNotUsable(why(index)))
    }

    /// Why a request isn't satisfied.
    fn why(&self, request: &AddressRequest, of: Services<'_>) -> String {
        if let Some(unsupported) = self.unsupported(request) {
            return unsupported;
        }
        if let Routability::Other(name) = &request.routability
            && !is_outside(request)
        {
            return format!("routability {name} is not supported; use Cluster, or omit it");
        }
        if is_in_cluster(request) {
            let service = of.cluster_service;
            let reason = of.failure.map(|reason| format!(": {reason}"));
            let reason = reason.unwrap_or_default();
            return match &request.address {
                AddressValue::Ip(ip) => format!("{ip} is not assigned to {service}{reason}"),
                AddressValue::Hostname(_) => {
                    "addresses of type Hostname are not supported with routability Cluster; use type IPAddress".to_owned()
                }
                _ => format!("{service} has no matching address{reason}"),
            };
        }
        match &request.address {
            AddressValue::InvalidIp(value) => format!("{value:?} is not an IP address"),
            AddressValue::Ip(ip) if self.source() == ObjectKind::Gateway => {
                format!("{ip}: not assigned to {}{}", of.source, of.wrong())
            }
            AddressValue::Ip(ip) => {
                let mut message = format!(
                    "{ip}: not assigned to {} by the cluster's load balancer; request a free address from its \
                     pool",
                    of.source
                );
                if let Some(first) = self.ip().filter(|first| first != ip) {
                    message.push_str(&format!(
                        ". A Service can request only one address; Sesame requested {first}"
                    ));
                }
                message
            }
            _ => of.pending(),
        }
    }
}

/// A Service's addresses, with their routability.
fn all(service: Option<&AssignedAddresses>) -> Vec<(FleetAddress, Routability)> {
    let addresses = service.into_iter().flat_map(|service| {
        let addresses = service.addresses.iter();
        addresses.map(|address| (address.clone(), service.routability()))
    });
    addresses.collect()
}

impl Services<'_> {
    fn pending(&self) -> String {
        match self.assigned {
            Some(AssignedAddresses {
                origin: Origin::LoadBalancer,
                addresses,
                ..
            }) => {
                let another = match addresses.is_empty() {
                    true => "an address",
                    false => "another address of this type",
                };
                let yet = if addresses.is_empty() { " yet" } else { "" };
                format!(
                    "the cluster's load balancer has not assigned {another} to {}{yet}",
                    self.source
                )
            }
            _ => format!("{} has no address yet{}", self.source, self.wrong()),
        }
    }

    /// What the Gateway's conditions say is wrong, as the end of a message.
    fn wrong(&self) -> String {
        match self.assigned.map(|assigned| &assigned.origin) {
            Some(Origin::Gateway(Some(wrong))) => format!(": {wrong}"),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests;
