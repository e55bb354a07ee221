use std::net::Ipv4Addr;

use sesame_model::AddressRequest;

use super::*;

fn ip(value: &str) -> AddressRequest {
    let address = match value.parse() {
        Ok(ip) => AddressValue::Ip(ip),
        Err(_) if value.is_empty() => AddressValue::Any,
        Err(_) => AddressValue::InvalidIp(value.to_owned()),
    };
    address.into()
}

/// Gateways by name, with the addresses and ports that they request.
fn requests(gateways: &[(&str, &[AddressRequest], &[u16])]) -> BTreeMap<FleetId, FleetRequest> {
    gateways
        .iter()
        .map(|(name, addresses, ports)| {
            let request = FleetRequest {
                addresses: addresses.to_vec(),
                ports: ports.iter().copied().map(Port::tcp).collect(),
                ..FleetRequest::new()
            };
            (FleetId::of_gateway("ns", *name), request)
        })
        .collect()
}

/// All addresses are usable except 192.0.2.0/24.
fn plan(
    planner: &mut Planner,
    gateways: &[(&str, &[AddressRequest], &[u16])],
) -> BTreeMap<String, FleetState> {
    let usable = |ip: IpAddr| match ip {
        IpAddr::V4(v4) if v4.octets()[..3] == [192, 0, 2] => {
            Err(format!("{ip} is not on this machine"))
        }
        _ => Ok(()),
    };
    planner
        .plan(&requests(gateways), usable, |_, _| false)
        .into_iter()
        .map(|(fleet, state)| {
            let FleetId::Gateway { name, .. } = fleet else {
                panic!("{fleet}");
            };
            (name.to_string(), state)
        })
        .collect()
}

fn addresses(state: &FleetState) -> Vec<String> {
    state.addresses.iter().map(ToString::to_string).collect()
}

#[test]
fn each_fleet_gets_its_own_loopback_address_and_keeps_it() {
    let mut planner = Planner::new(0);
    let states = plan(&mut planner, &[("b", &[], &[80]), ("c", &[], &[80])]);
    assert_eq!(addresses(&states["b"]), ["127.0.0.1"]);
    assert_eq!(addresses(&states["c"]), ["127.0.0.2"]);
    assert!(
        states
            .values()
            .all(|state| state.ports.is_empty() && !state.ready)
    );
    let states = plan(&mut planner, &[("a", &[], &[80]), ("c", &[], &[80])]);
    assert_eq!(addresses(&states["a"]), ["127.0.0.1"]);
    assert_eq!(addresses(&states["c"]), ["127.0.0.2"]);
}

#[test]
fn requested_addresses_are_not_assigned_to_other_fleets() {
    let states = plan(
        &mut Planner::new(0),
        &[
            ("a", &[], &[80]),
            ("b", &[ip("127.0.0.1"), ip("::1"), ip("127.0.0.1")], &[80]),
            ("c", &[ip("127.0.0.2"), ip("")], &[80]),
        ],
    );
    assert_eq!(addresses(&states["a"]), ["127.0.0.3"]);
    assert_eq!(addresses(&states["b"]), ["127.0.0.1", "::1"]);
    assert_eq!(addresses(&states["c"]), ["127.0.0.2", "127.0.0.4"]);
    assert_eq!(
        states["a"].addresses[0].ip(),
        Some(Ipv4Addr::new(127, 0, 0, 3).into())
    );
}

#[test]
fn fleets_with_an_unsupported_address_type_get_no_address() {
    let states = plan(
        &mut Planner::new(0),
        &[(
            "a",
            &[
                ip("127.0.0.1"),
                AddressValue::Hostname("x.example".to_owned()).into(),
            ],
            &[80],
        )],
    );
    let Some(FleetProblem::UnsupportedAddress(reason)) = &states["a"].problem else {
        panic!("{:?}", states["a"].problem);
    };
    assert!(reason.contains("type Hostname"), "{reason}");
    assert!(states["a"].addresses.is_empty());
}

#[test]
fn unusable_addresses_are_reported_and_the_others_are_used() {
    for bad in ["192.0.2.7", "localhost", "127.0.0.1/8"] {
        let states = plan(
            &mut Planner::new(0),
            &[("a", &[ip(bad), ip("127.0.0.9")], &[80])],
        );
        let Some(FleetProblem::AddressNotUsable(reason)) = &states["a"].problem else {
            panic!("{:?}", states["a"].problem);
        };
        assert!(reason.contains(bad), "{reason}");
        assert_eq!(addresses(&states["a"]), ["127.0.0.9"]);
    }
}

#[test]
fn the_first_fleet_by_name_gets_a_contested_port() {
    let states = plan(
        &mut Planner::new(0),
        &[
            ("b", &[ip("127.0.0.9")], &[80, 81]),
            ("a", &[ip("127.0.0.9")], &[80, 82]),
            ("c", &[ip("0.0.0.0")], &[81]),
            ("d", &[ip("::")], &[81]),
        ],
    );
    assert!(states["a"].ports.is_empty());
    assert_eq!(
        states["b"].ports.keys().collect::<Vec<_>>(),
        [&Port::tcp(80)]
    );
    assert!(states["b"].ports[&Port::tcp(80)].contains("Gateway ns/a"));
    assert!(states["c"].ports[&Port::tcp(81)].contains("Gateway ns/b"));
    assert!(states["d"].ports.is_empty());
}

#[test]
fn a_fleet_keeps_a_port_that_it_holds() {
    let requests = requests(&[
        ("a", &[ip("127.0.0.9")], &[80, 81]),
        ("b", &[ip("127.0.0.9")], &[80, 81]),
    ]);
    let b = FleetId::of_gateway("ns", "b");
    let holds = |fleet: &FleetId, socket| {
        *fleet == b && socket == (Ipv4Addr::new(127, 0, 0, 9).into(), Port::tcp(1080))
    };
    let states = Planner::new(1000).plan(&requests, |_| Ok(()), holds);
    let a = &states[&FleetId::of_gateway("ns", "a")];
    assert_eq!(a.ports.keys().collect::<Vec<_>>(), [&Port::tcp(80)]);
    assert_eq!(
        states[&b].ports.keys().collect::<Vec<_>>(),
        [&Port::tcp(81)]
    );
}

#[test]
fn a_port_above_65535_after_the_offset_is_unavailable() {
    let states = plan(&mut Planner::new(60_000), &[("a", &[], &[80, 8080])]);
    assert_eq!(
        states["a"].ports.keys().collect::<Vec<_>>(),
        [&Port::tcp(8080)]
    );
    assert!(states["a"].ports[&Port::tcp(8080)].contains("--port-offset"));
    assert_eq!(states["a"].port_offset, 60_000);
}

#[test]
fn tcp_and_udp_ports_do_not_conflict() {
    let request = |name: &str, port: Port| {
        let request = FleetRequest {
            addresses: vec![ip("127.0.0.9")],
            ports: [port].into(),
            ..FleetRequest::new()
        };
        (FleetId::of_gateway("ns", name), request)
    };
    let requests = [
        request("a", Port::tcp(53)),
        request("b", Port::udp(53)),
        request("c", Port::udp(53)),
    ];
    let states = Planner::new(0).plan(&requests.into(), |_| Ok(()), |_, _| false);
    let conflicts = |name| &states[&FleetId::of_gateway("ns", name)].ports;
    assert!(conflicts("a").is_empty() && conflicts("b").is_empty());
    assert!(conflicts("c")[&Port::udp(53)].contains("port 53/udp"));
}
