//! A Gateway of another implementation in front of a fleet.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sesame_model::{
    ClassParameters, CreatedClass, FleetAddress, FleetProblem, OuterClass, Port, Publishing,
};
use sesame_testkit::api_server::{ApiServer, Channel};

use crate::fixture::{Fixture, spec};

/// The versions of the objects for this Gateway, by kind and name.
async fn versions(fixture: &Fixture) -> BTreeMap<String, Value> {
    let gateway = fixture.get("Gateway").await.unwrap();
    let class = gateway["spec"]["gatewayClassName"].as_str().unwrap();
    let name = fixture.name();
    let mut versions = BTreeMap::new();
    for (kind, name) in [
        ("Gateway", name.clone()),
        ("TCPRoute", format!("{name}-tcp-80")),
        ("TCPRoute", format!("{name}-tcp-443")),
        ("UDPRoute", format!("{name}-udp-443")),
        ("GatewayClass", class.to_owned()),
    ] {
        if let Some(object) = fixture.get_named(kind, &name).await {
            let version = object["metadata"]["resourceVersion"].clone();
            versions.insert(format!("{kind} {name}"), version);
        }
    }
    versions
}

#[tokio::test]
async fn a_gateway_its_routes_and_its_class_are_written_once_and_deleted() {
    let server = ApiServer::shared().await.unwrap();
    server.install_definitions(Channel::Standard).await.unwrap();
    let mut fixture = Fixture::new("outer").await;
    let mut desired = spec();
    desired
        .request
        .ports
        .extend([Port::tcp(443), Port::udp(443)]);
    desired.parameters.publishing = Some(Publishing::Gateway(OuterClass::Created(CreatedClass {
        controller_name: "example.com/lb".to_owned(),
        parameters: Some(ClassParameters {
            group: "example.com".to_owned(),
            kind: "Settings".to_owned(),
            name: "edge".to_owned(),
            namespace: Some("infra".to_owned()),
        }),
    })));
    fixture.set_fleet(Some(desired.clone()));
    fixture.lead();
    fixture.until_exists("Gateway").await;
    fixture
        .until_state(|state| matches!(state.problem, Some(FleetProblem::AddressNotAssigned(_))))
        .await;
    let given =
        json!({ "status": { "addresses": [{ "type": "IPAddress", "value": "192.0.2.7" }] } });
    fixture.status("Gateway", given).await;
    let state = fixture.until_state(|state| state.problem.is_none()).await;
    assert_eq!(state.addresses, [FleetAddress::parse("192.0.2.7")]);
    fixture.settle().await;
    let created = versions(&fixture).await;
    assert_eq!(created.len(), 5, "{created:?}");

    // The API server's defaults are not differences.
    fixture.run_read_only().await;
    fixture.set_fleet(Some(desired));
    fixture.lead();
    fixture.until_state(|_| true).await;
    let next = fixture.states_within_settle_time().await;
    assert!(next.is_empty(), "an unneeded write: {next:?}");
    assert_eq!(versions(&fixture).await, created);

    fixture.allow_writes().await;
    fixture.set_fleet(Some(spec()));
    fixture.until_gone("Gateway").await;
    for object in created.keys() {
        let (kind, name) = object.split_once(' ').unwrap();
        fixture.until_named_gone(kind, name).await;
    }
    let service = fixture
        .until("Service", |service| {
            service["spec"]["type"] == "LoadBalancer"
        })
        .await;
    assert!(service["spec"]["ports"].is_array());
}
