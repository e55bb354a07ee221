//! Addresses: what a Gateway asks for, what its Service has, and what to say of the difference.
//!
//! Pure. There is no waiting time in it: an address that was asked for isn't usable until the Service has it.
//!
//! A Service of type LoadBalancer can ask for one IP address. With the other types there is nothing to ask for, and the
//! addresses are those inside the cluster: at a node's address the ports would be others than the Gateway's.

use std::collections::BTreeSet;
use std::net::IpAddr;

use serde_json::Value;
use sesame_api::{AddressType, GatewayStatusAddress};
use sesame_model::ServiceType;

use super::spec::{FleetSpec, Problem};

/// What a Gateway asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Asked {
    /// The IP addresses, as they are written, in their order, no doubles.
    ips: Vec<String>,
    /// What nobody can give.
    unsupported: Option<String>,
}

impl Asked {
    /// The one that the Service asks for.
    pub(super) fn ip(&self) -> Option<&str> {
        self.ips.first().map(String::as_str)
    }
}

/// What a Gateway asks for. An entry without a value asks for any address, as does no entry at all.
pub(super) fn asked_for(spec: &FleetSpec) -> Asked {
    let service = spec.parameters.service_type.unwrap_or_default();
    let mut asked = Asked::default();
    for address in &spec.addresses {
        let unsupported = match &address.type_ {
            AddressType::IpAddress | AddressType::Hostname if address.value.is_empty() => continue,
            AddressType::IpAddress if service == ServiceType::LoadBalancer => {
                if !asked.ips.contains(&address.value) {
                    asked.ips.push(address.value.clone());
                }
                continue;
            }
            AddressType::IpAddress => format!(
                "{}: an address can be asked for only when the Gateway's Service is of type LoadBalancer",
                address.value
            ),
            AddressType::Hostname => format!(
                "{}: a load balancer can't be asked for a hostname; leave the value out to get what it gives",
                address.value
            ),
            other => format!(
                "addresses of type {} are not supported; use IPAddress",
                other.as_str()
            ),
        };
        asked.unsupported.get_or_insert(unsupported);
    }
    asked
}

/// What an observed Service says about addresses. Kept instead of the object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Given {
    load_balancer: bool,
    /// From the load balancer, or inside the cluster.
    addresses: BTreeSet<GatewayStatusAddress>,
}

impl Given {
    /// Out of a Service's `spec` and `status`.
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
                .map(address)
                .collect(),
        }
    }

    /// The addresses, sorted.
    pub(super) fn addresses(&self) -> Vec<GatewayStatusAddress> {
        self.addresses.iter().cloned().collect()
    }
}

/// What is wrong between what is asked for and what is given; `service` is the Service's name.
pub(super) fn problem(asked: &Asked, given: Option<&Given>, service: &str) -> Option<Problem> {
    if let Some(message) = &asked.unsupported {
        return Some(Problem::UnsupportedAddress(message.clone()));
    }
    let empty = BTreeSet::new();
    let given_addresses = given.map_or(&empty, |given| &given.addresses);
    if let [first, others @ ..] = &*asked.ips {
        let has = |ip: &String| {
            let wanted = ip.parse::<IpAddr>().ok();
            given_addresses.iter().any(|address| {
                address.value == *ip || wanted.is_some_and(|ip| address.value.parse() == Ok(ip))
            })
        };
        let missing: Vec<&str> = asked
            .ips
            .iter()
            .filter(|ip| !has(ip))
            .map(String::as_str)
            .collect();
        if missing.is_empty() {
            return None;
        }
        let mut message = format!(
            "{}: not given to Service {service} by the cluster's load balancer; an address must be one of its own and free",
            missing.join(", ")
        );
        if !others.is_empty() {
            message.push_str(&format!(
                ". It can be asked for one address only, and {first} was asked for"
            ));
        }
        return Some(Problem::AddressNotUsable(message));
    }
    if given_addresses.is_empty() {
        let message = match given {
            Some(given) if given.load_balancer => {
                format!("the cluster's load balancer has given no address to Service {service} yet")
            }
            _ => format!("Service {service} has no address yet"),
        };
        return Some(Problem::AddressNotAssigned(message));
    }
    None
}

fn address(text: &str) -> GatewayStatusAddress {
    let type_ = match text.parse::<IpAddr>() {
        Ok(_) => AddressType::IpAddress,
        Err(_) => AddressType::Hostname,
    };
    GatewayStatusAddress {
        type_,
        value: text.to_owned(),
        routability: None,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sesame_api::GatewaySpecAddress;

    use super::*;
    use crate::kube::testing;

    fn asking(addresses: &[(AddressType, &str)]) -> Asked {
        let mut spec = testing::spec("default", "web");
        spec.addresses = addresses
            .iter()
            .map(|(type_, value)| GatewaySpecAddress {
                type_: type_.clone(),
                value: (*value).to_owned(),
                routability: None,
            })
            .collect();
        asked_for(&spec)
    }

    fn load_balancer(ingress: Value) -> Given {
        Given::of(&json!({
            "spec": { "type": "LoadBalancer", "clusterIPs": ["10.0.0.1"] },
            "status": { "loadBalancer": { "ingress": ingress } },
        }))
    }

    const IP: AddressType = AddressType::IpAddress;

    #[test]
    fn any_address_will_do_where_none_is_named() {
        for asked in [
            asking(&[]),
            asking(&[(IP, "")]),
            asking(&[(AddressType::Hostname, "")]),
        ] {
            assert_eq!(asked.ip(), None);
            assert!(matches!(
                problem(&asked, None, "s"),
                Some(Problem::AddressNotAssigned(_))
            ));
            let pending = load_balancer(json!([]));
            assert!(matches!(
                problem(&asked, Some(&pending), "s"),
                Some(Problem::AddressNotAssigned(_))
            ));
            let given = load_balancer(json!([{ "ip": "192.0.2.1" }]));
            assert_eq!(problem(&asked, Some(&given), "s"), None);
        }
    }

    #[test]
    fn a_named_address_is_usable_once_the_service_has_it() {
        let asked = asking(&[(IP, "192.0.2.7")]);
        assert_eq!(asked.ip(), Some("192.0.2.7"));
        for given in [
            None,
            Some(load_balancer(json!([]))),
            Some(load_balancer(json!([{ "ip": "192.0.2.1" }]))),
        ] {
            assert!(matches!(
                problem(&asked, given.as_ref(), "s"),
                Some(Problem::AddressNotUsable(_))
            ));
        }
        let given = load_balancer(json!([{ "ip": "192.0.2.7" }]));
        assert_eq!(problem(&asked, Some(&given), "s"), None);
    }

    #[test]
    fn addresses_are_compared_as_addresses() {
        let asked = asking(&[(IP, "2001:DB8::0:1")]);
        let given = load_balancer(json!([{ "ip": "2001:db8::1" }]));
        assert_eq!(problem(&asked, Some(&given), "s"), None);
    }

    #[test]
    fn one_usable_address_beside_another_is_not_enough() {
        let asked = asking(&[(IP, "203.0.113.1"), (IP, "192.0.2.7"), (IP, "192.0.2.7")]);
        for ip in ["203.0.113.1", "192.0.2.7"] {
            let given = load_balancer(json!([{ "ip": ip }]));
            let Some(Problem::AddressNotUsable(message)) = problem(&asked, Some(&given), "s")
            else {
                panic!("usable with {ip} only");
            };
            assert!(
                message.contains("one address only, and 203.0.113.1"),
                "{message}"
            );
        }
        let both = load_balancer(json!([{ "ip": "203.0.113.1" }, { "ip": "192.0.2.7" }]));
        assert_eq!(problem(&asked, Some(&both), "s"), None);
    }

    #[test]
    fn what_nobody_can_give_is_told_first() {
        let given = load_balancer(json!([{ "ip": "192.0.2.7" }]));
        for type_ in [
            AddressType::NamedAddress,
            AddressType::Hostname,
            AddressType::from("example.com/x"),
        ] {
            let asked = asking(&[(IP, "192.0.2.7"), (type_, "x")]);
            assert_eq!(asked.ip(), Some("192.0.2.7"));
            assert!(matches!(
                problem(&asked, Some(&given), "s"),
                Some(Problem::UnsupportedAddress(_))
            ));
        }
    }

    #[test]
    fn an_address_inside_the_cluster_cant_be_chosen() {
        let mut spec = testing::spec("default", "web");
        spec.parameters.service_type = Some(ServiceType::ClusterIp);
        spec.addresses = vec![GatewaySpecAddress {
            type_: IP,
            value: "10.0.0.1".to_owned(),
            routability: None,
        }];
        assert!(matches!(
            problem(&asked_for(&spec), None, "s"),
            Some(Problem::UnsupportedAddress(_))
        ));
    }

    #[test]
    fn addresses_are_those_of_the_load_balancer_or_else_of_the_cluster() {
        let given = load_balancer(json!([
            { "hostname": "lb.example" },
            { "ip": "192.0.2.7", "ipMode": "VIP" },
            { "ip": "" },
        ]));
        let values: Vec<_> = given
            .addresses()
            .into_iter()
            .map(|address| (address.type_, address.value))
            .collect();
        assert_eq!(
            values,
            [
                (IP, "192.0.2.7".to_owned()),
                (AddressType::Hostname, "lb.example".to_owned()),
            ]
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
