//! Gateways of another implementation in front of fleets.

use sesame_model::{CreatedClass, FleetAddress, OuterClass, Publishing};

use super::*;

fn published(class: OuterClass) -> FleetSpec {
    let mut spec = spec();
    spec.parameters.publishing = Some(Publishing::Gateway(class));
    spec
}

fn existing() -> FleetSpec {
    published(OuterClass::Existing("outer".to_owned()))
}

fn created(controller: &str) -> FleetSpec {
    published(OuterClass::Created(CreatedClass {
        controller_name: controller.to_owned(),
        parameters: None,
    }))
}

/// Adds a fleet in another namespace.
fn other(fixture: &mut Fixture, spec: Option<FleetSpec>) {
    let id = FleetId::of_gateway("other", "web");
    fixture.fleets.set_fleet(id, spec);
}

fn classes(fixture: &Fixture) -> usize {
    let kinds = fixture.objects.keys().map(|(_, kind)| *kind);
    kinds
        .filter(|kind| *kind == ObjectKind::GatewayClass)
        .count()
}

#[test]
fn routes_follow_the_ports() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(existing()));
    let mut all = ALL_APPLIED.to_vec();
    all.extend(["apply Gateway", "apply TCPRoute"]);
    assert_eq!(fixture.run_jobs(), all);

    let mut more = existing();
    more.request.ports.extend([Port::tcp(8080), Port::udp(53)]);
    fixture.set_fleet(Some(more.clone()));
    let expected = [
        "apply Service",
        "apply Gateway",
        "apply TCPRoute",
        "apply UDPRoute",
    ];
    assert_eq!(fixture.run_jobs(), expected);
    // A new list after a lost watch changes nothing.
    fixture.list_all();
    assert!(fixture.run_jobs().is_empty());

    more.request.ports.remove(&Port::tcp(80));
    fixture.set_fleet(Some(more.clone()));
    let expected = ["apply Service", "apply Gateway", "delete TCPRoute"];
    assert_eq!(fixture.run_jobs(), expected);
    assert!(
        !fixture
            .objects
            .contains_key(&(key(), ObjectKind::TcpRoute(Some(80))))
    );
    // Without ports, the objects are kept.
    more.request.ports.clear();
    fixture.set_fleet(Some(more));
    assert!(fixture.run_jobs().is_empty());
    fixture.delete(ObjectKind::TcpRoute(Some(8080)));
    fixture.set_fleet(Some(spec()));
    let mut writes = fixture.run_jobs();
    writes.retain(|write| write.starts_with("delete"));
    assert_eq!(writes, ["delete Gateway", "delete UDPRoute"]);
}

#[test]
fn addresses_are_those_of_the_gateway() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(existing()));
    fixture.run_jobs();
    let problem = fixture.state().unwrap().problem;
    let Some(FleetProblem::AddressNotAssigned(message)) = problem else {
        panic!("{problem:?}");
    };
    assert_eq!(
        message,
        format!(
            "{} has no address yet",
            key().description(ObjectKind::Gateway)
        )
    );
    let status = |status: Value| Detail::Addresses(AssignedAddresses::of_gateway(&status));
    fixture.change(ObjectKind::Gateway, |observed| {
        observed.detail = status(json!({"status": {"conditions": [
            {"type": "Other", "status": "False", "message": "unrelated"},
            {"type": "Accepted", "status": "False", "message": "no such thing"},
        ]}}));
    });
    let problem = fixture.state().unwrap().problem;
    assert!(
        matches!(&problem, Some(FleetProblem::AddressNotAssigned(message)) if message.ends_with("yet: no such thing")),
        "{problem:?}"
    );
    fixture.change(ObjectKind::Gateway, |observed| {
        observed.detail = status(json!({"status": {"addresses": [
            {"type": "IPAddress", "value": "192.0.2.1"},
            {"value": "lb.example.com"},
        ]}}));
    });
    let state = fixture.state().unwrap();
    assert_eq!(state.problem, None);
    let addresses = ["192.0.2.1", "lb.example.com"].map(FleetAddress::parse);
    assert_eq!(state.addresses, addresses);
    assert!(state.routability.is_empty());
}

#[test]
fn fleets_share_a_created_class() {
    let mut fixture = Fixture::new();
    fixture.set_fleet(Some(created("example.com/lb")));
    other(&mut fixture, Some(created("example.com/lb")));
    let writes = fixture.run_jobs();
    let count = |writes: &[String], write: &str| writes.iter().filter(|of| *of == write).count();
    assert_eq!(count(&writes, "apply GatewayClass"), 1);
    assert_eq!(count(&writes, "apply Gateway"), 2);

    other(&mut fixture, Some(spec()));
    let writes = fixture.run_jobs();
    assert_eq!(count(&writes, "delete Gateway"), 1);
    assert_eq!(classes(&fixture), 1);

    // A changed spec is another class.
    fixture.set_fleet(Some(created("example.com/new")));
    let writes = fixture.run_jobs();
    assert_eq!(count(&writes, "apply GatewayClass"), 1);
    assert_eq!(count(&writes, "delete GatewayClass"), 1);
    assert_eq!(count(&writes, "apply Gateway"), 1);

    fixture.set_fleet(None);
    let writes = fixture.run_jobs();
    assert_eq!(count(&writes, "delete GatewayClass"), 1);
    assert!(fixture.fleets.class_users.is_empty());
    other(&mut fixture, None);
    fixture.run_jobs();
    assert!(fixture.objects.is_empty() && fixture.fleets.fleets.is_empty());
}

#[test]
fn an_orphaned_class_is_deleted_once_all_fleets_are_known() {
    let mut before = Fixture::new();
    before.set_fleet(Some(created("example.com/old")));
    before.run_jobs();
    let mut fixture = Fixture::unsynced();
    fixture.objects = before.objects;
    fixture.version = before.version;
    fixture.list_all();
    assert!(fixture.run_jobs().is_empty());
    fixture.set_fleet(Some(existing()));
    assert_eq!(fixture.run_jobs(), ["apply Gateway"]);
    fixture.fleets.mark_complete();
    assert_eq!(fixture.run_jobs(), ["delete GatewayClass"]);
}

#[test]
fn a_fleet_reports_the_problem_of_its_class() {
    let mut fixture = Fixture::new();
    fixture.refused = BTreeSet::from([ObjectKind::GatewayClass]);
    fixture.set_fleet(Some(created("example.com/lb")));
    fixture.run_jobs();
    let problem = fixture.state().unwrap().problem;
    assert_eq!(problem, Some(FleetProblem::NoResources("no".to_owned())));
    fixture.refused.clear();
    fixture.advance(Duration::from_secs(60));
    assert_eq!(fixture.run_jobs(), ["apply GatewayClass"]);
    let problem = fixture.state().unwrap().problem;
    assert!(
        matches!(problem, Some(FleetProblem::AddressNotAssigned(_))),
        "{problem:?}"
    );
}

#[test]
fn a_class_of_fleets_that_are_not_managed_is_not_written() {
    let mut fixture = Fixture::new();
    let mut unmanaged = created("example.com/lb");
    unmanaged.parameters.managed = Some(false);
    fixture.set_fleet(Some(unmanaged.clone()));
    assert!(fixture.run_jobs().is_empty());
    other(&mut fixture, Some(created("example.com/lb")));
    assert!(
        fixture
            .run_jobs()
            .contains(&"apply GatewayClass".to_owned())
    );
    other(&mut fixture, Some(unmanaged));
    fixture.run_jobs();
    assert_eq!(classes(&fixture), 1);
}

/// The CRDs of the Gateway API may be missing.
#[test]
fn missing_crds_affect_only_the_fleets_that_need_them() {
    let mut fixture = Fixture::unsynced();
    fixture.set_fleet(Some(spec()));
    other(&mut fixture, Some(existing()));
    for kind in ObjectKind::ALL {
        let event = match kind.is_custom() {
            true => ObjectEvent::Unwatchable(kind, None, "absent".to_owned()),
            false => ObjectEvent::Listed(kind, None, Vec::new()),
        };
        fixture.fleets.handle_event(event, fixture.now);
    }
    let mut problems = BTreeMap::new();
    while let Some((fleet, state)) = fixture.fleets.next_state() {
        problems.insert(fleet, state.unwrap().problem);
    }
    let absent = FleetProblem::NoResources("absent".to_owned());
    assert_eq!(problems[&FleetId::of_gateway("other", "web")], Some(absent));
    assert!(matches!(
        problems[&id()],
        Some(FleetProblem::AddressNotAssigned(_))
    ));
    let writes = fixture.run_jobs();
    assert!(writes.contains(&"apply Deployment".to_owned()));
}
