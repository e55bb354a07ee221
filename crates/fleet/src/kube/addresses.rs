//! Addresses: what is requested, what the fleet's Service has, and how these differ.
//!
//! Pure. A requested address counts as not usable until the Service has it.
//!
//! A Service of type LoadBalancer can request one IP address. The other types can't request any: they have cluster IPs, since
//! at a node's address the ports differ from the Gateway's.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use sesame_model::{AddressRequest, FleetAddress, FleetProblem, ServiceType};

use super::spec::FleetSpec;

/// The requested addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// In the order of the request, without duplicates.
    ips: Vec<IpAddr>,
    /// The problem with the first request that no load balancer supports.
    unsupported: Option<String>,
    /// The problem with the first value that is not an IP address.
    invalid: Option<String>,
}

impl Asked {
    /// The address that the Service requests.
    pub(super) fn ip(&self) -> Option<IpAddr> {
        self.ips.first().copied()
    }
}

/// The addresses that a fleet's owner requests.
pub(super) fn asked_for(spec: &FleetSpec) -> Asked {
    let service = spec.parameters.service_type.unwrap_or_default();
    let mut asked = Asked::default();
    for address in &spec.request.addresses {
        let unsupported = match address {
            AddressRequest::Any => continue,
            AddressRequest::Hostname(name) if name.is_empty() => continue,
            AddressRequest::Ip(ip) if service == ServiceType::LoadBalancer => {
                if !asked.ips.contains(ip) {
                    asked.ips.push(*ip);
                }
                continue;
            }
            AddressRequest::InvalidIp(value) => {
                let message = format!("{value:?} is not an IP address");
                asked.invalid.get_or_insert(message);
                continue;
            }
            AddressRequest::Ip(ip) => format!(
                "{ip}: an address can be requested only if the fleet's Service is of type LoadBalancer"
            ),
            AddressRequest::Hostname(name) => format!(
                "{name}: a hostname can't be requested from a load balancer; leave the value out to get the one it assigns"
            ),
            AddressRequest::Other(type_) => {
                format!("addresses of type {type_} are not supported; use IPAddress")
            }
        };
        asked.unsupported.get_or_insert(unsupported);
    }
    asked
}

/// The addresses of an observed Service, stored instead of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    load_balancer: bool,
    /// Of the load balancer, or else the cluster IPs.
    addresses: BTreeSet<FleetAddress>,
}

impl Given {
    /// From a Service's `spec` and `status`.
    pub(super) fn of(service: &Value) -> Self {
        let load_balancer = service["spec"]["type"] == "LoadBalancer";
        let texts: Vec<&str> = if load_balancer {
            let ingress = service["status"]["loadBalancer"]["ingress"].as_array();
            let of = |entry: &'static str| {
                ingress
                    .into_iter()
                    .flatten()
                    .filter_map(move |point| point[entry].as_str())
            };
            of("ip").chain(of("hostname")).collect()
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

/// How the assigned addresses differ from the requested ones; `service` is the Service's name.
pub(super) fn problem(asked: &Asked, given: Option<&Given>, service: &str) -> Option<FleetProblem> {
    if let Some(message) = &asked.unsupported {
        return Some(FleetProblem::UnsupportedAddress(message.clone()));
    }
    if let Some(message) = &asked.invalid {
        return Some(FleetProblem::AddressNotUsable(message.clone()));
    }
    let empty = BTreeSet::new();
    let given_addresses = given.map_or(&empty, |given| &given.addresses);
    if let [first, others @ ..] = &*asked.ips {
        let missing: Vec<String> = asked
            .ips
            .iter()
            .filter(|ip| !given_addresses.contains(&FleetAddress::Ip(**ip)))
            .map(ToString::to_string)
            .collect();
        if missing.is_empty() {
            return None;
        }
        let mut message = format!(
            "{}: not assigned to Service {service} by the cluster's load balancer; request a free address of its pool",
            missing.join(", ")
        );
        if !others.is_empty() {
            message.push_str(&format!(
                ". Only one address can be requested from it, and that is {first}"
            ));
        }
        return Some(FleetProblem::AddressNotUsable(message));
    }
    if given_addresses.is_empty() {
        let message = match given {
            Some(given) if given.load_balancer => {
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

    fn asking(addresses: &[AddressRequest]) -> Asked {
        let mut spec = testing::spec("web");
        spec.request.addresses = addresses.to_vec();
        asked_for(&spec)
    }

    fn ip(text: &str) -> AddressRequest {
        AddressRequest::Ip(text.parse().unwrap())
    }

    fn load_balancer(ingress: Value) -> Given {
        Given::of(&json!({
            "spec": { "type": "LoadBalancer", "clusterIPs": ["10.0.0.1"] },
            "status": { "loadBalancer": { "ingress": ingress } },
        }))
    }

    #[test]
    fn any_address_will_do_where_none_is_named() {
        for asked in [
            asking(&[]),
            asking(&[AddressRequest::Any]),
            asking(&[AddressRequest::Hostname(String::new())]),
        ] {
            assert_eq!(asked.ip(), None);
            assert!(matches!(
                problem(&asked, None, "s"),
                Some(FleetProblem::AddressNotAssigned(_))
            ));
            let pending = load_balancer(json!([]));
            assert!(matches!(
                problem(&asked, Some(&pending), "s"),
                Some(FleetProblem::AddressNotAssigned(_))
            ));
            let given = load_balancer(json!([{ "ip": "192.0.2.1" }]));
            assert_eq!(problem(&asked, Some(&given), "s"), None);
        }
    }

    #[test]
    fn a_named_address_is_usable_once_the_service_has_it() {
        let asked = asking(&[ip("192.0.2.7")]);
        assert_eq!(asked.ip(), Some([192, 0, 2, 7].into()));
        for given in [
            None,
            Some(load_balancer(json!([]))),
            Some(load_balancer(json!([{ "ip": "192.0.2.1" }]))),
        ] {
            assert!(matches!(
                problem(&asked, given.as_ref(), "s"),
                Some(FleetProblem::AddressNotUsable(_))
            ));
        }
        let given = load_balancer(json!([{ "ip": "192.0.2.7" }]));
        assert_eq!(problem(&asked, Some(&given), "s"), None);
    }

    #[test]
    fn addresses_are_compared_as_addresses() {
        let asked = asking(&[ip("2001:DB8::0:1")]);
        let given = load_balancer(json!([{ "ip": "2001:db8::1" }]));
        assert_eq!(problem(&asked, Some(&given), "s"), None);
    }

    #[test]
    fn one_usable_address_beside_another_is_not_enough() {
        let asked = asking(&[ip("203.0.113.1"), ip("192.0.2.7"), ip("192.0.2.7")]);
        for ip in ["203.0.113.1", "192.0.2.7"] {
            let given = load_balancer(json!([{ "ip": ip }]));
            let Some(FleetProblem::AddressNotUsable(message)) = problem(&asked, Some(&given), "s")
            else {
                panic!("usable with {ip} only");
            };
            assert!(
                message.contains("Only one address") && message.ends_with("203.0.113.1"),
                "{message}"
            );
        }
        let both = load_balancer(json!([{ "ip": "203.0.113.1" }, { "ip": "192.0.2.7" }]));
        assert_eq!(problem(&asked, Some(&both), "s"), None);
    }

    #[test]
    fn what_nobody_can_give_is_told_first() {
        let given = load_balancer(json!([{ "ip": "192.0.2.7" }]));
        for other in [
            AddressRequest::Other("NamedAddress".to_owned()),
            AddressRequest::Hostname("x".to_owned()),
        ] {
            let asked = asking(&[ip("192.0.2.7"), other]);
            assert_eq!(asked.ip(), Some([192, 0, 2, 7].into()));
            assert!(matches!(
                problem(&asked, Some(&given), "s"),
                Some(FleetProblem::UnsupportedAddress(_))
            ));
        }
    }

    #[test]
    fn a_value_that_is_no_ip_address_is_not_usable() {
        let asked = asking(&[AddressRequest::InvalidIp("web".to_owned())]);
        let given = load_balancer(json!([{ "ip": "192.0.2.7" }]));
        let problem = problem(&asked, Some(&given), "s");
        assert!(matches!(problem, Some(FleetProblem::AddressNotUsable(_))));
    }

    #[test]
    fn an_address_inside_the_cluster_cant_be_chosen() {
        let mut spec = testing::spec("web");
        spec.parameters.service_type = Some(ServiceType::ClusterIp);
        spec.request.addresses = vec![ip("10.0.0.1")];
        assert!(matches!(
            problem(&asked_for(&spec), None, "s"),
            Some(FleetProblem::UnsupportedAddress(_))
        ));
    }

    #[test]
    fn addresses_are_those_of_the_load_balancer_or_else_of_the_cluster() {
        let given = load_balancer(json!([
            { "hostname": "lb.example" },
            { "ip": "192.0.2.7", "ipMode": "VIP" },
            { "ip": "" },
        ]));
        assert_eq!(
            given.addresses(),
            ["192.0.2.7", "lb.example"].map(FleetAddress::parse)
        );
        let inside = Given::of(&json!({
            "spec": { "type": "ClusterIP", "clusterIPs": ["10.0.0.1", "fd00::1"] },
        }));
        assert_eq!(inside.addresses().len(), 2);
        let headless = Given::of(&json!({
            "spec": { "type": "ClusterIP", "clusterIPs": ["None"] },
        }));
        assert!(headless.addresses().is_empty());
        assert_eq!(Given::of(&json!({ "spec": 3 })), Given::default());
    }
}
