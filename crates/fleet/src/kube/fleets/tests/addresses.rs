//! Services and their addresses.

use sesame_model::{AddressRequest, AddressValue, FleetAddress, Publishing, Routability};

use super::*;

fn in_cluster(address: AddressValue) -> AddressRequest {
    AddressRequest {
        address,
        routability: Routability::Cluster,
    }
}

fn requesting(addresses: &[AddressRequest]) -> FleetSpec {
    let mut spec = spec();
    spec.request.addresses = addresses.to_vec();
    spec
}

fn cluster_ip(ip: &str) -> Detail {
    Detail::Addresses(AssignedAddresses::of(&json!({
        "spec": { "type": "ClusterIP", "clusterIPs": [ip] },
    })))
}

#[test]
fn states_report_addresses_readiness_and_removal() {
    let mut fixture = Fixture::new();
    let mut inside = spec();
    inside.parameters.publishing = Some(Publishing::ClusterIp);
    fixture.set_fleet(Some(inside));
    fixture.run_jobs();
    let first = fixture.state().unwrap();
    assert!(matches!(
        first.problem,
        Some(FleetProblem::AddressNotAssigned(_))
    ));
    assert!(!first.ready);
    fixture.change(ObjectKind::Service, |observed| {
        observed.detail = cluster_ip("10.0.0.9");
    });
    fixture.available(ObjectKind::Deployment, 1);
    let second = fixture.state().unwrap();
    assert_eq!(second.problem, None);
    assert!(second.ready);
    assert_eq!(second.addresses, [FleetAddress::parse("10.0.0.9")]);
    // An unchanged state isn't reported again.
    fixture.available(ObjectKind::Deployment, 1);
    assert!(!fixture.fleets.has_state());
    fixture.set_fleet(None);
    assert_eq!(fixture.state(), None);
}

#[test]
fn addresses_inside_the_cluster_have_a_service_of_their_own() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(spec()));
    fixture.run_jobs();
    let any = in_cluster(AddressValue::Any);
    fixture.set_fleet(Some(requesting(&[AddressValue::Any.into(), any.clone()])));
    assert_eq!(fixture.run_jobs(), ["apply Service"]);
    assert!(
        fixture
            .objects
            .contains_key(&(key(), ObjectKind::ClusterService))
    );

    fixture.set_fleet(Some(requesting(&[any])));
    assert_eq!(fixture.run_jobs(), ["delete Service"]);
    assert!(!fixture.objects.contains_key(&(key(), ObjectKind::Service)));
    fixture.set_fleet(Some(spec()));
    assert_eq!(fixture.run_jobs(), ["apply Service", "delete Service"]);
}

#[test]
fn changing_the_cluster_ip_recreates_the_service() {
    let mut fixture = Fixture::new();
    let requesting = |ip: [u8; 4]| requesting(&[in_cluster(AddressValue::Ip(ip.into()))]);
    fixture.set_fleet(Some(requesting([10, 0, 0, 9])));
    fixture.run_jobs();
    fixture.set_fleet(Some(requesting([10, 0, 0, 8])));
    assert_eq!(fixture.run_jobs(), ["delete Service"]);
    fixture.advance(RECREATE_DELAY);
    assert_eq!(fixture.run_jobs(), ["apply Service"]);
}

/// Unlike a missing Service, an outdated one still serves some ports.
#[test]
fn an_outdated_service_is_reported() {
    let mut fixture = Fixture::new();
    let in_cluster = in_cluster(AddressValue::Ip([10, 0, 0, 9].into()));
    let requesting = |port| {
        let mut spec = requesting(std::slice::from_ref(&in_cluster));
        spec.request.ports.insert(Port::tcp(port));
        spec
    };
    fixture.set_fleet(Some(requesting(80)));
    fixture.run_jobs();
    assert_eq!(fixture.state().unwrap().problem, None);
    fixture.refused.insert(ObjectKind::ClusterService);
    fixture.set_fleet(Some(requesting(8443)));
    fixture.run_jobs();
    let problem = fixture.state().unwrap().problem;
    assert_eq!(problem, Some(FleetProblem::NoResources("no".to_owned())));
}

#[test]
fn a_refused_cluster_ip_affects_no_other_address() {
    let mut fixture = Fixture::new();
    fixture.refused.insert(ObjectKind::ClusterService);
    let requests = [in_cluster(AddressValue::Any), AddressValue::Any.into()];
    fixture.set_fleet(Some(requesting(&requests)));
    fixture.run_jobs();
    fixture.change(ObjectKind::Service, |observed| {
        observed.detail = Detail::Addresses(AssignedAddresses::of(&json!({
            "spec": { "type": "LoadBalancer" },
            "status": { "loadBalancer": { "ingress": [{ "ip": "192.0.2.7" }] } },
        })));
    });
    let state = fixture.state().unwrap();
    assert_eq!(state.problem, None);
    assert_eq!(state.addresses, [FleetAddress::parse("192.0.2.7")]);
    assert!(
        state.unassigned[0].starts_with("spec.addresses[0]: ")
            && state.unassigned[0].ends_with(": no")
    );
}
