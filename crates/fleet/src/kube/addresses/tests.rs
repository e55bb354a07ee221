//! Address requests, and the Services that satisfy them.

use serde_json::json;

use super::*;
use crate::kube::testing;

fn state(
    requested: &RequestedAddresses,
    service: Option<&AssignedAddresses>,
    in_cluster: Option<&AssignedAddresses>,
) -> FleetState {
    let mut state = FleetState::default();
    let services = Services {
        source: "Service ns/s",
        assigned: service,
        cluster_service: "Service ns/s-cluster",
        in_cluster,
        failure: None,
    };
    assign(&mut state, requested, services);
    state
}

fn problem(
    requested: &RequestedAddresses,
    service: Option<&AssignedAddresses>,
) -> Option<FleetProblem> {
    state(requested, service, None).problem
}

fn routable(address: AddressValue, routability: &str) -> AddressRequest {
    AddressRequest {
        address,
        routability: match routability {
            "Cluster" => Routability::Cluster,
            other => Routability::Other(other.to_owned()),
        },
    }
}

fn requests(addresses: &[AddressRequest]) -> RequestedAddresses {
    let mut spec = testing::spec("web");
    spec.request.addresses = addresses.to_vec();
    RequestedAddresses::of(&spec)
}

fn cluster_ip(ip: &str) -> AssignedAddresses {
    AssignedAddresses::of(&json!({ "spec": { "type": "ClusterIP", "clusterIPs": [ip] } }))
}

/// The assigned addresses with their routability, and the unassigned requests.
fn outcome(state: &FleetState) -> String {
    let addresses = state.addresses.iter().map(|address| {
        let routability = state.routability.get(address).cloned().unwrap_or_default();
        format!("{address} {routability}").trim_end().to_owned()
    });
    let all: Vec<_> = addresses.chain(state.unassigned.iter().cloned()).collect();
    all.join("\n")
}

fn request(addresses: &[AddressValue]) -> RequestedAddresses {
    let mut spec = testing::spec("web");
    spec.request.addresses = addresses
        .iter()
        .cloned()
        .map(AddressRequest::from)
        .collect();
    RequestedAddresses::of(&spec)
}

fn ip(text: &str) -> AddressValue {
    AddressValue::Ip(text.parse().unwrap())
}

fn load_balancer(ingress: Value) -> AssignedAddresses {
    AssignedAddresses::of(&json!({
        "spec": { "type": "LoadBalancer", "clusterIPs": ["10.0.0.1"] },
        "status": { "loadBalancer": { "ingress": ingress } },
    }))
}

#[test]
fn any_address_satisfies_an_unspecific_request() {
    for requested in [request(&[]), request(&[AddressValue::Any])] {
        assert_eq!(requested.ip(), None);
        assert!(matches!(
            problem(&requested, None),
            Some(FleetProblem::AddressNotAssigned(_))
        ));
        let pending = load_balancer(json!([]));
        assert!(matches!(
            problem(&requested, Some(&pending)),
            Some(FleetProblem::AddressNotAssigned(_))
        ));
        let assigned = load_balancer(json!([{ "ip": "192.0.2.1" }]));
        assert_eq!(problem(&requested, Some(&assigned)), None);
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
            problem(&requested, assigned.as_ref()),
            Some(FleetProblem::AddressNotUsable(_))
        ));
    }
    let assigned = load_balancer(json!([{ "ip": "192.0.2.7" }]));
    assert_eq!(problem(&requested, Some(&assigned)), None);
}

#[test]
fn addresses_are_compared_by_value() {
    let requested = request(&[ip("2001:DB8::0:1")]);
    let assigned = load_balancer(json!([{ "ip": "2001:db8::1" }]));
    assert_eq!(problem(&requested, Some(&assigned)), None);
}

#[test]
fn all_requested_addresses_must_be_assigned() {
    let requested = request(&[ip("203.0.113.1"), ip("192.0.2.7")]);
    let first = load_balancer(json!([{ "ip": "203.0.113.1" }]));
    let Some(FleetProblem::AddressNotUsable(message)) = problem(&requested, Some(&first)) else {
        panic!("one address satisfies both requests");
    };
    assert!(
        message.contains("only one address") && message.ends_with("203.0.113.1"),
        "{message}"
    );
    let second = load_balancer(json!([{ "ip": "192.0.2.7" }]));
    assert!(matches!(
        problem(&requested, Some(&second)),
        Some(FleetProblem::AddressNotUsable(message)) if message.starts_with("203.0.113.1: ")
    ));
    let both = load_balancer(json!([{ "ip": "203.0.113.1" }, { "ip": "192.0.2.7" }]));
    assert_eq!(problem(&requested, Some(&both)), None);
}

#[test]
fn an_unsupported_request_is_reported_first() {
    let assigned = load_balancer(json!([{ "ip": "192.0.2.7" }]));
    for other in [
        AddressValue::Other("NamedAddress".to_owned()),
        AddressValue::Hostname("x".to_owned()),
    ] {
        let requested = request(&[ip("192.0.2.7"), other]);
        assert_eq!(requested.ip(), Some([192, 0, 2, 7].into()));
        assert!(matches!(
            problem(&requested, Some(&assigned)),
            Some(FleetProblem::UnsupportedAddress(_))
        ));
    }
}

#[test]
fn an_invalid_ip_is_not_usable() {
    let requested = request(&[AddressValue::InvalidIp("web".to_owned())]);
    let assigned = load_balancer(json!([{ "ip": "192.0.2.7" }]));
    let problem = problem(&requested, Some(&assigned));
    assert!(matches!(problem, Some(FleetProblem::AddressNotUsable(_))));
}

#[test]
fn a_cluster_ip_cannot_be_requested() {
    let mut spec = testing::spec("web");
    spec.parameters.publishing = Some(Publishing::ClusterIp);
    spec.request.addresses = vec![ip("10.0.0.1").into()];
    assert!(matches!(
        problem(&RequestedAddresses::of(&spec), None),
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
        state(&request(&[]), Some(&assigned), None).addresses,
        ["192.0.2.7", "lb.example"].map(FleetAddress::parse)
    );
    let two = AssignedAddresses::of(&json!({
        "spec": { "type": "ClusterIP", "clusterIPs": ["10.0.0.1", "fd00::1"] },
    }));
    assert_eq!(two.addresses.len(), 2);
    let headless = AssignedAddresses::of(&json!({
        "spec": { "type": "ClusterIP", "clusterIPs": ["None"] },
    }));
    assert!(headless.addresses.is_empty());
    assert_eq!(
        AssignedAddresses::of(&json!({ "spec": 3 })),
        AssignedAddresses::default()
    );
}

#[test]
fn each_request_gets_an_address_of_its_routability() {
    let both = requests(&[
        AddressValue::Any.into(),
        routable(AddressValue::Any, "Cluster"),
    ]);
    assert!(both.needs_service() && both.needs_cluster_service());
    let outside = load_balancer(json!([{ "ip": "192.0.2.7" }, { "ip": "192.0.2.8" }]));
    let inside = cluster_ip("10.0.0.9");
    let found = state(&both, Some(&outside), Some(&inside));
    assert_eq!(outcome(&found), "192.0.2.7\n10.0.0.9 Cluster");
    assert_eq!(found.problem, None);

    let inside_only = requests(&[routable(AddressValue::Any, "Cluster")]);
    assert!(!inside_only.needs_service() && inside_only.needs_cluster_service());
    let found = state(&inside_only, Some(&outside), None);
    assert_eq!(
        outcome(&found),
        "spec.addresses[0]: Service ns/s-cluster has no matching address"
    );
    assert!(matches!(
        found.problem,
        Some(FleetProblem::AddressNotAssigned(_))
    ));
}

#[test]
fn addresses_inside_the_cluster_satisfy_only_requests_for_them() {
    let both = requests(&[
        AddressValue::Any.into(),
        routable(AddressValue::Any, "Cluster"),
    ]);
    let pending = load_balancer(json!([]));
    let two = AssignedAddresses::of(&json!({
        "spec": { "type": "ClusterIP", "clusterIPs": ["10.0.0.1", "fd00::1"] },
    }));
    assert_eq!(
        outcome(&state(&both, Some(&pending), Some(&two))),
        "10.0.0.1 Cluster\nspec.addresses[0]: the cluster's load balancer has not assigned an address to Service ns/s yet"
    );
}

/// An unsupported scope must not be replaced with another: it doesn't get a Service.
#[test]
fn an_unsupported_routability_needs_no_service() {
    let other = requests(&[routable(ip("192.0.2.7"), "example.com/internal")]);
    assert!(!other.needs_service() && !other.needs_cluster_service());
    assert_eq!((other.ip(), other.cluster_ip()), (None, None));
}

#[test]
fn cluster_ips_are_reported_as_such() {
    let any = requests(&[]);
    assert_eq!(
        outcome(&state(&any, Some(&cluster_ip("10.0.0.9")), None)),
        "10.0.0.9 Cluster"
    );
    let one = requests(&[AddressValue::Any.into()]);
    assert_eq!(
        outcome(&state(&one, Some(&cluster_ip("10.0.0.9")), None)),
        "10.0.0.9 Cluster"
    );
}

#[test]
fn a_missing_cluster_ip_does_not_affect_other_addresses() {
    let both = requests(&[
        routable(ip("10.0.0.9"), "Cluster"),
        AddressValue::Any.into(),
    ]);
    assert_eq!(
        (both.ip(), both.cluster_ip()),
        (None, Some([10, 0, 0, 9].into()))
    );
    let outside = load_balancer(json!([{ "ip": "192.0.2.7" }]));
    let mut found = FleetState::default();
    let services = Services {
        source: "Service ns/s",
        assigned: Some(&outside),
        cluster_service: "Service ns/s-cluster",
        in_cluster: None,
        failure: Some("the provided IP is not in the valid range"),
    };
    assign(&mut found, &both, services);
    assert_eq!(
        outcome(&found),
        "192.0.2.7\nspec.addresses[0]: 10.0.0.9 is not assigned to Service ns/s-cluster: the provided IP is not in the \
         valid range"
    );
    assert_eq!(found.problem, None);
    assert_eq!(
        outcome(&state(&both, Some(&outside), Some(&cluster_ip("10.0.0.9")))),
        "192.0.2.7\n10.0.0.9 Cluster"
    );
}

#[test]
fn only_the_sentinel_is_supported_among_prefixed_routabilities() {
    let outside = load_balancer(json!([{ "ip": "192.0.2.7" }]));
    let sentinel = requests(&[routable(AddressValue::Any, SENTINEL)]);
    assert_eq!(
        outcome(&state(&sentinel, Some(&outside), None)),
        "192.0.2.7 testing.x-k8s.io/sentinel"
    );
    let other = requests(&[routable(AddressValue::Any, "testing.x-k8s.io/other")]);
    let found = state(&other, Some(&outside), None);
    assert_eq!(
        outcome(&found),
        "spec.addresses[0]: routability testing.x-k8s.io/other is not supported; use Cluster, or omit it"
    );
    assert!(matches!(
        found.problem,
        Some(FleetProblem::AddressNotAssigned(_))
    ));
}

#[test]
fn an_address_has_the_requested_type() {
    let hostname = load_balancer(json!([{ "hostname": "lb.example" }]));
    let named = request(&[AddressValue::Hostname(String::new())]);
    assert_eq!(outcome(&state(&named, Some(&hostname), None)), "lb.example");
    let numbered = request(&[AddressValue::Any]);
    assert!(matches!(
        problem(&numbered, Some(&hostname)),
        Some(FleetProblem::AddressNotAssigned(message)) if message.contains("not assigned another address of this type")
    ));
}
