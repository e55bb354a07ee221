//! Compares a fleet's requested addresses with those assigned to its Service.
//!
//! Pure. A requested address isn't usable until it is assigned to the Service.
//!
//! A Service of type LoadBalancer can request one IP address. Services of other types can't request any; their
//! addresses are their cluster IPs, since the ports on the nodes' addresses differ from the Gateway's.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use sesame_model::{AddressRequest, FleetAddress, FleetProblem, ServiceType};

use super::spec::FleetSpec;

/// The requested addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct RequestedAddresses {
    /// In the order of the request, without duplicates.
    ips: Vec<IpAddr>,
    /// The problem with the first unsupported request.
    unsupported: Option<String>,
    /// The problem with the first value that is not an IP address.
    invalid: Option<String>,
}

impl RequestedAddresses {
    /// The addresses that the fleet's owner requests.
    pub(super) fn of(spec: &FleetSpec) -> Self {
        let service = spec.parameters.service_type.unwrap_or_default();
        let mut requested = Self::default();
        for address in &spec.request.addresses {
            let unsupported = match address {
                AddressRequest::Any => continue,
                AddressRequest::Hostname(name) if name.is_empty() => continue,
                AddressRequest::Ip(ip) if service == ServiceType::LoadBalancer => {
                    if !requested.ips.contains(ip) {
                        requested.ips.push(*ip);
                    }
                    continue;
                }
                AddressRequest::InvalidIp(value) => {
                    let message = format!("{value:?} is not an IP address");
                    requested.invalid.get_or_insert(message);
                    continue;
                }
                AddressRequest::Ip(ip) => format!(
                    "{ip}: an address can be requested only if the fleet's Service is of type LoadBalancer"
                ),
                AddressRequest::Hostname(name) => format!(
                    "{name}: cannot request a hostname from a load balancer; omit the value to use \
                     whatever address the load balancer assigns"
                ),
                AddressRequest::Other(type_) => {
                    format!("addresses of type {type_} are not supported; use IPAddress")
                }
            };
            requested.unsupported.get_or_insert(unsupported);
        }
        requested
    }

    /// The address that the Service requests.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.ips.first().copied()
    }
}

/// The addresses of an observed Service.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AssignedAddresses {
    load_balancer: bool,
    /// The load balancer's addresses, or the cluster IPs.
    addresses: BTreeSet<FleetAddress>,
}

impl AssignedAddresses {
    /// From a Service's `spec` and `status`.
    pub(super) fn of(service: &Value) -> Self {
        let load_balancer = service["spec"]["type"] == "LoadBalancer";
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
            service["spec"]["clusterIPs"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(Value::as_str)
                .filter(|ip| *ip != "None")
                .collect()
        };
        Self {
            load_balancer,
            addresses: texts
                .into_iter()
                .filter(|text| !text.is_empty())
                .map(FleetAddress::parse)
                .collect(),
        }
    }

    /// The addresses, sorted.
    pub(super) fn addresses(&self) -> Vec<FleetAddress> {
        self.addresses.iter().cloned().collect()
    }
}

/// Describes how the assigned addresses fall short of the request. `service` is the Service's name, for messages.
pub(super) fn problem(
    requested: &RequestedAddresses,
    assigned: Option<&AssignedAddresses>,
    service: &str,
) -> Option<FleetProblem> {
    if let Some(message) = &requested.unsupported {
        return Some(FleetProblem::UnsupportedAddress(message.clone()));
    }
    if let Some(message) = &requested.invalid {
        return Some(FleetProblem::AddressNotUsable(message.clone()));
    }
    let empty = BTreeSet::new();
    let assigned_addresses = assigned.map_or(&empty, |assigned| &assigned.addresses);
    if let [first, others @ ..] = &*requested.ips {
        let missing: Vec<String> = requested
            .ips
            .iter()
            .filter(|ip| !assigned_addresses.contains(&FleetAddress::Ip(**ip)))
            .map(ToString::to_string)
            .collect();
        if missing.is_empty() {
            return None;
        }
        let mut message = format!(
            "{}: not assigned to Service {service} by the cluster's load balancer; request a free address from its pool",
            missing.join(", ")
        );
        if !others.is_empty() {
            message.push_str(&format!(
                ". A Service can request only one address; Sesame requested {first}"
            ));
        }
        return Some(FleetProblem::AddressNotUsable(message));
    }
    if assigned_addresses.is_empty() {
        let message = match assigned {
            Some(assigned) if assigned.load_balancer => {
                format!(
                    "the cluster's load balancer has not assigned an address to Service {service} yet"
                )
            }
            _ => format!("Service {service} has no address yet"),
        };
        return Some(FleetProblem::AddressNotAssigned(message));
    }
    None
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::kube::testing;

    fn request(addresses: &[AddressRequest]) -> RequestedAddresses {
        let mut spec = testing::spec("web");
        spec.request.addresses = addresses.to_vec();
        RequestedAddresses::of(&spec)
    }

    fn ip(text: &str) -> AddressRequest {
        AddressRequest::Ip(text.parse().unwrap())
    }

    fn load_balancer(ingress: Value) -> AssignedAddresses {
        AssignedAddresses::of(&json!({
            "spec": { "type": "LoadBalancer", "clusterIPs": ["10.0.0.1"] },
            "status": { "loadBalancer": { "ingress": ingress } },
        }))
    }

    #[test]
    fn any_address_satisfies_an_unspecific_request() {
        for requested in [
            request(&[]),
            request(&[AddressRequest::Any]),
            request(&[AddressRequest::Hostname(String::new())]),
        ] {
            assert_eq!(requested.ip(), None);
            assert!(matches!(
                problem(&requested, None, "s"),
                Some(FleetProblem::AddressNotAssigned(_))
            ));
            let pending = load_balancer(json!([]));
            assert!(matches!(
                problem(&requested, Some(&pending), "s"),
                Some(FleetProblem::AddressNotAssigned(_))
            ));
            let assigned = load_balancer(json!([{ "ip": "192.0.2.1" }]));
            assert_eq!(problem(&requested, Some(&assigned), "s"), None);
        }
    }

    #[test]
    fn a_requested_ip_is_usable_once_the_service_has_it() {
        let requested = request(&[ip("192.0.2.7")]);
        assert_eq!(requested.ip(), Some([192, 0, 2, 7].into()));
        for assigned in [
            None,
            Some(load_balancer(json!([]))),
            Some(load_balancer(json!([{ "ip": "192.0.2.1" }]))),
        ] {
            assert!(matches!(
                problem(&requested, assigned.as_ref(), "s"),
                Some(FleetProblem::AddressNotUsable(_))
            ));
        }
        let assigned = load_balancer(json!([{ "ip": "192.0.2.7" }]));
        assert_eq!(problem(&requested, Some(&assigned), "s"), None);
    }

    #[test]
    fn addresses_are_compared_by_value() {
        let requested = request(&[ip("2001:DB8::0:1")]);
        let assigned = load_balancer(json!([{ "ip": "2001:db8::1" }]));
        assert_eq!(problem(&requested, Some(&assigned), "s"), None);
    }

    #[test]
    fn all_requested_addresses_must_be_assigned() {
        let requested = request(&[ip("203.0.113.1"), ip("192.0.2.7"), ip("192.0.2.7")]);
        for ip in ["203.0.113.1", "192.0.2.7"] {
            let assigned = load_balancer(json!([{ "ip": ip }]));
            let Some(FleetProblem::AddressNotUsable(message)) =
                problem(&requested, Some(&assigned), "s")
            else {
                panic!("{ip} alone satisfies the request");
            };
            assert!(
                message.contains("only one address") && message.ends_with("203.0.113.1"),
                "{message}"
            );
        }
        let both = load_balancer(json!([{ "ip": "203.0.113.1" }, { "ip": "192.0.2.7" }]));
        assert_eq!(problem(&requested, Some(&both), "s"), None);
    }

    #[test]
    fn an_unsupported_request_is_reported_first() {
        let assigned = load_balancer(json!([{ "ip": "192.0.2.7" }]));
        for other in [
            AddressRequest::Other("NamedAddress".to_owned()),
            AddressRequest::Hostname("x".to_owned()),
        ] {
            let requested = request(&[ip("192.0.2.7"), other]);
            assert_eq!(requested.ip(), Some([192, 0, 2, 7].into()));
            assert!(matches!(
                problem(&requested, Some(&assigned), "s"),
                Some(FleetProblem::UnsupportedAddress(_))
            ));
        }
    }

    #[test]
    fn an_invalid_ip_is_not_usable() {
        let requested = request(&[AddressRequest::InvalidIp("web".to_owned())]);
        let assigned = load_balancer(json!([{ "ip": "192.0.2.7" }]));
        let problem = problem(&requested, Some(&assigned), "s");
        assert!(matches!(problem, Some(FleetProblem::AddressNotUsable(_))));
    }

    #[test]
    fn a_cluster_ip_cannot_be_requested() {
        let mut spec = testing::spec("web");
        spec.parameters.service_type = Some(ServiceType::ClusterIp);
        spec.request.addresses = vec![ip("10.0.0.1")];
        assert!(matches!(
            problem(&RequestedAddresses::of(&spec), None, "s"),
            Some(FleetProblem::UnsupportedAddress(_))
        ));
    }

    #[test]
    fn addresses_come_from_the_load_balancer_or_are_cluster_ips() {
        let assigned = load_balancer(json!([
            { "hostname": "lb.example" },
            { "ip": "192.0.2.7", "ipMode": "VIP" },
            { "ip": "" },
        ]));
        assert_eq!(
            assigned.addresses(),
            ["192.0.2.7", "lb.example"].map(FleetAddress::parse)
        );
        let cluster_ip = AssignedAddresses::of(&json!({
            "spec": { "type": "ClusterIP", "clusterIPs": ["10.0.0.1", "fd00::1"] },
        }));
        assert_eq!(cluster_ip.addresses().len(), 2);
        let headless = AssignedAddresses::of(&json!({
            "spec": { "type": "ClusterIP", "clusterIPs": ["None"] },
        }));
        assert!(headless.addresses().is_empty());
        assert_eq!(
            AssignedAddresses::of(&json!({ "spec": 3 })),
            AssignedAddresses::default()
        );
    }
}
