//! Managed mode: a fleet of pods for each Gateway.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};

use serde_json::json;
use sesame_api::{self as api, AddressType, GatewayStatusAddress, Kind, Release};
use sesame_model::{FleetAddress, FleetProblem, FleetState, Port, Routability};
use sesame_translate::settings::{Mode, Settings};

use crate::rig::{Rig, class, fleet, gateway, route, said, set};

fn rig() -> Rig {
    let mut rig = Rig::new(Mode::Managed);
    rig.put([class("edge", 0), gateway("web", "edge", 1)]);
    rig
}

fn at(ips: &[[u8; 4]], ready: bool) -> FleetState {
    let ips = ips.iter().map(|ip| IpAddr::from(Ipv4Addr::from(*ip)));
    FleetState {
        addresses: ips.map(FleetAddress::Ip).collect(),
        ready,
        ..FleetState::default()
    }
}

#[test]
fn listeners_do_not_depend_on_the_state_of_the_fleet() {
    let mut rig = rig();
    let listeners = rig.pipeline.outputs.listeners;
    let everywhere = ["ns/web 80 [0.0.0.0:80, [::]:80]"];
    assert_eq!(rig.binds(), everywhere);
    let problem = FleetProblem::AddressNotUsable("no".to_owned());
    let states = [
        Some(at(&[], true)),
        Some(at(&[[192, 0, 2, 1]], true)),
        Some(FleetState {
            problem: Some(problem),
            port_offset: 1_000,
            ports: [(Port::tcp(80), "taken".to_owned())].into(),
            ..at(&[], false)
        }),
        None,
    ];
    for state in states {
        let commit = rig.fleet(&fleet("web"), state);
        assert!(commit.ran(listeners).is_empty());
        assert_eq!(rig.binds(), everywhere);
    }
}

#[test]
fn without_ipv6_no_ipv6_address_is_bound() {
    let mut rig = Rig::with(Settings {
        ipv6: false,
        ..Settings::new(Mode::Managed)
    });
    rig.put([class("edge", 0), gateway("web", "edge", 1)]);
    assert_eq!(rig.binds(), ["ns/web 80 [0.0.0.0:80]"]);
}

#[test]
fn a_gateway_is_programmed_when_its_envoys_are_ready_and_it_has_an_address() {
    let mut rig = rig();
    let programmed = |rig: &Rig| said(&rig.gateway("web").conditions, "Programmed");
    let waiting = "not Programmed/Pending: waiting for Envoy to accept the configuration";
    assert_eq!(programmed(&rig), waiting);
    rig.fleet(&fleet("web"), Some(at(&[[192, 0, 2, 1]], false)));
    assert_eq!(programmed(&rig), waiting);
    rig.fleet(&fleet("web"), Some(at(&[], true)));
    assert!(programmed(&rig).starts_with("not Programmed/AddressNotAssigned: "));
    // Listeners don't depend on addresses.
    let listener = &rig.gateway("web").listeners[0];
    assert_eq!(
        said(&listener.conditions, "Programmed"),
        "Programmed/Programmed"
    );
    rig.fleet(&fleet("web"), Some(at(&[[192, 0, 2, 1]], true)));
    assert_eq!(programmed(&rig), "Programmed/Programmed");
    assert_eq!(
        said(&rig.gateway("web").conditions, "Accepted"),
        "Accepted/Accepted"
    );
}

#[test]
fn the_status_has_addresses_with_their_types() {
    let mut rig = rig();
    let state = FleetState {
        addresses: vec![
            FleetAddress::Hostname("lb.example.com".to_owned()),
            FleetAddress::Ip("2001:db8::1".parse().unwrap()),
        ],
        ready: true,
        ..FleetState::default()
    };
    rig.fleet(&fleet("web"), Some(state));
    let status = rig.gateway("web");
    let reported: Vec<_> = status
        .addresses
        .iter()
        .map(|address| (address.type_.clone(), address.value.as_str()))
        .collect();
    assert_eq!(
        reported,
        [
            (AddressType::Hostname, "lb.example.com"),
            (AddressType::IpAddress, "2001:db8::1")
        ]
    );
}

/// GatewayStaticAddresses, including the cluster's feedback.
#[test]
fn requested_addresses_determine_the_conditions() {
    let mut rig = rig();
    let ask = |rig: &mut Rig, addresses| {
        rig.put([set(gateway("web", "edge", 1), "/spec/addresses", addresses)]);
        let status = rig.gateway("web");
        (
            said(&status.conditions, "Accepted"),
            said(&status.conditions, "Programmed"),
        )
    };
    let (bogus, bad, good) = (
        json!({"type": "example.com/other", "value": "x"}),
        json!({"type": "IPAddress", "value": "198.51.100.1"}),
        json!({"type": "IPAddress", "value": "192.0.2.1"}),
    );
    // Before the fleet exists.
    let (accepted, programmed) = ask(&mut rig, json!([bad, bogus, good]));
    assert_eq!(
        accepted,
        "not Accepted/UnsupportedAddress: spec.addresses[1].type: example.com/other is not supported; use IPAddress, or remove \
         spec.addresses"
    );
    assert!(programmed.starts_with("not Programmed/Invalid"));
    assert!(rig.request(&fleet("web")).is_some());

    let not_usable = FleetProblem::AddressNotUsable("198.51.100.1 is not available".to_owned());
    let state = FleetState {
        problem: Some(not_usable),
        ..at(&[[192, 0, 2, 1]], true)
    };
    rig.fleet(&fleet("web"), Some(state));
    let (accepted, programmed) = ask(&mut rig, json!([bad, good]));
    assert_eq!(accepted, "Accepted/Accepted");
    assert_eq!(
        programmed,
        "not Programmed/AddressNotUsable: 198.51.100.1 is not available"
    );

    for (problem, expected) in [
        (
            FleetProblem::AddressNotAssigned("no address pool".to_owned()),
            "not Programmed/AddressNotAssigned: no address pool",
        ),
        (
            FleetProblem::NoResources("pods are forbidden".to_owned()),
            "not Programmed/NoResources: pods are forbidden",
        ),
    ] {
        let state = FleetState {
            problem: Some(problem),
            ..at(&[], true)
        };
        rig.fleet(&fleet("web"), Some(state));
        let conditions = &rig.gateway("web").conditions;
        assert_eq!(said(conditions, "Programmed"), expected);
        assert_eq!(said(conditions, "Accepted"), "Accepted/Accepted");
    }

    rig.fleet(&fleet("web"), Some(at(&[[192, 0, 2, 1]], true)));
    let (_, programmed) = ask(&mut rig, json!([good]));
    assert_eq!(programmed, "Programmed/Programmed");
    // Any address, and any hostname.
    for any in [
        json!([{"type": "IPAddress"}]),
        json!([{"type": "Hostname"}]),
    ] {
        let (accepted, programmed) = ask(&mut rig, any);
        assert_eq!(
            (&*accepted, &*programmed),
            ("Accepted/Accepted", "Programmed/Programmed")
        );
    }
}

/// GatewayAddressRoutability, whose fields only the experimental channel has.
#[test]
fn the_status_has_the_routability_of_addresses() {
    let mut rig = rig();
    let inside = FleetAddress::Ip([10, 0, 0, 9].into());
    let state = |unassigned: &[&str]| FleetState {
        routability: BTreeMap::from([(inside.clone(), Routability::Cluster)]),
        unassigned: unassigned.iter().map(|text| (*text).to_owned()).collect(),
        ..at(&[[192, 0, 2, 1], [10, 0, 0, 9]], true)
    };
    let reported = |rig: &Rig| -> Vec<_> {
        let addresses = rig.gateway("web").addresses.clone();
        let of = |address: GatewayStatusAddress| address.routability;
        addresses.into_iter().map(of).collect()
    };
    let assigned = |rig: &Rig| said(&rig.gateway("web").conditions, "AddressesAssigned");
    rig.fleet(&fleet("web"), Some(state(&[])));
    assert_eq!(reported(&rig), [None, None]);
    let conditions = &rig.gateway("web").conditions;
    assert!(
        conditions
            .iter()
            .all(|condition| condition.type_ != "AddressesAssigned")
    );

    let release = Release {
        version: "v1.7.0".to_owned(),
        experimental: true,
    };
    rig.change(|inputs, batch| inputs.set_release(batch, Some(release)));
    let (outside, cluster) = (api::Routability::Default, api::Routability::Cluster);
    assert_eq!(reported(&rig), [Some(outside), Some(cluster)]);
    assert_eq!(assigned(&rig), "AddressesAssigned/AddressesAssigned");
    rig.fleet(&fleet("web"), Some(state(&["spec.addresses[2]: why"])));
    assert_eq!(
        assigned(&rig),
        "not AddressesAssigned/PartiallyAssigned: spec.addresses[2]: why"
    );
    rig.fleet(&fleet("web"), Some(at(&[], true)));
    assert!(assigned(&rig).starts_with("not AddressesAssigned/NotAssigned: "));
    let features = rig.class("edge").unwrap().supported_features.clone();
    let names: Vec<_> = features
        .iter()
        .map(|feature| feature.name.to_string())
        .collect();
    for feature in [
        "GatewayAddressRoutability",
        "GatewayAddressRoutabilityCluster",
    ] {
        assert!(names.iter().any(|name| name == feature), "{names:?}");
    }
}

/// GEP-5075: Kubernetes releases before 1.37 don't serve ClusterTrustBundles.
#[test]
fn references_to_a_kind_that_is_not_served_are_invalid() {
    let mut rig = rig();
    let frontend = json!({"default": {"validation": {"caCertificateRefs": [
        {"group": "certificates.k8s.io", "kind": "ClusterTrustBundle", "name": "ca"},
    ]}}});
    let listener = json!({"name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "c"}]}});
    let gateway = set(
        gateway("web", "edge", 1),
        "/spec/tls",
        json!({"frontend": frontend}),
    );
    rig.put([set(gateway, "/spec/listeners", json!([listener]))]);
    let resolved = |rig: &Rig| said(&rig.gateway("web").listeners[0].conditions, "ResolvedRefs");
    let claimed = |rig: &Rig| {
        let features = rig.class("edge").unwrap().supported_features.clone();
        features
            .iter()
            .any(|feature| &*feature.name == "ClusterTrustBundle")
    };
    let release = Release {
        version: "v1.7.0".to_owned(),
        experimental: true,
    };
    rig.change(|inputs, batch| inputs.set_release(batch, Some(release)));
    assert!(
        resolved(&rig).ends_with("ClusterTrustBundle ca does not exist"),
        "{}",
        resolved(&rig)
    );
    assert!(claimed(&rig));
    let absent = BTreeSet::from([Kind::ClusterTrustBundle]);
    rig.change(|inputs, batch| inputs.set_absent(batch, absent));
    assert!(
        resolved(&rig).contains("the API server does not serve kind ClusterTrustBundle"),
        "{}",
        resolved(&rig)
    );
    assert!(!claimed(&rig));
}

#[test]
fn a_fleet_request_has_the_infrastructure_and_uid_of_its_gateway() {
    let mut rig = rig();
    let wanted = json!({"labels": {"a": "b"}, "annotations": {"c": "d"}});
    let web = set(gateway("web", "edge", 1), "/spec/infrastructure", wanted);
    rig.put([web]);
    let request = rig.request(&fleet("web")).unwrap();
    let owner = request.owner.as_ref().unwrap();
    assert_eq!(&*owner.name, "web");
    assert_eq!((&*owner.uid, &*owner.class), ("uid-web", "edge"));
    assert_eq!(request.labels["a"], "b");
    assert_eq!(request.annotations["c"], "d");
    assert_eq!(request.ports, [Port::tcp(80)].into());
    assert!(request.parameters.is_some());
    // A Gateway with another UID is another Gateway.
    let again = set(gateway("web", "edge", 1), "/metadata/uid", json!("new"));
    rig.put([again]);
    let request = rig.request(&fleet("web")).unwrap();
    assert_eq!(request.owner.as_ref().unwrap().uid, "new");
    rig.remove(Kind::Gateway, "ns", "web");
    assert_eq!(rig.request(&fleet("web")), None);
}

/// If the port were removed, a late Secret would cost the Service its port and, if it is the last port, its address.
#[test]
fn a_port_stays_until_its_listener_is_removed_even_if_a_certificate_is_missing() {
    let mut rig = rig();
    let secure = json!({
        "name": "https", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "missing"}]},
    });
    let unknown = json!({"name": "other", "port": 9000, "protocol": "OTHER"});
    let listeners = json!([secure, unknown]);
    rig.put([set(gateway("web", "edge", 1), "/spec/listeners", listeners)]);
    assert_eq!(
        rig.request(&fleet("web")).unwrap().ports,
        [Port::tcp(443)].into()
    );
    assert!(rig.binds().is_empty());
    let listeners = json!([unknown]);
    rig.put([set(gateway("web", "edge", 1), "/spec/listeners", listeners)]);
    assert!(rig.request(&fleet("web")).unwrap().ports.is_empty());
}

/// Frequent changes must not cause status writes.
#[test]
fn endpoints_and_repeated_states_change_no_status() {
    let mut rig = rig();
    rig.put([route("r", &["web"])]);
    rig.fleet(&fleet("web"), Some(at(&[[192, 0, 2, 1]], true)));
    let outputs = rig.pipeline.outputs;
    let slice = |ready: bool| {
        json!({
            "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice",
            "metadata": {"name": "s", "namespace": "ns", "labels": {"kubernetes.io/service-name": "s"}},
            "addressType": "IPv4", "ports": [{"port": 8080}],
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": ready}}],
        })
    };
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "s", "namespace": "ns"},
        "spec": {"ports": [{"port": 80, "targetPort": 8080}]},
    });
    let rules = json!([{"backendRefs": [{"name": "s", "port": 80}]}]);
    rig.put([
        service,
        set(route("r", &["web"]), "/spec/rules", rules),
        slice(true),
    ]);
    for ready in [false, true] {
        let commit = rig.put([slice(ready)]);
        assert!(!commit.changes(outputs.endpoints).is_empty());
        assert!(commit.ran(outputs.statuses).is_empty());
    }
    let commit = rig.fleet(&fleet("web"), Some(at(&[[192, 0, 2, 1]], true)));
    assert!(commit.is_empty());
    // Repeated by a relist.
    let commit = rig.put([class("edge", 0), gateway("web", "edge", 1)]);
    assert!(commit.is_empty());
}
