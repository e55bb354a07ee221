use std::sync::{Arc, Mutex};

use sesame_model::AddressRequest;

use super::*;

/// A machine with configurable ports in use.
#[derive(Clone, Default)]
struct Fake(Arc<Mutex<BTreeSet<SocketAddr>>>);

impl Fake {
    fn take(&self, socket: &str) {
        self.0.lock().unwrap().insert(socket.parse().unwrap());
    }

    fn free(&self, socket: &str) {
        self.0.lock().unwrap().remove(&socket.parse().unwrap());
    }
}

impl Machine for Fake {
    fn probe(&self, ip: IpAddr, port: Port) -> Result<(), PortProblem> {
        let socket = SocketAddr::new(ip, port.number);
        if !ip.is_loopback() {
            return Err(PortProblem::NotLocal(socket));
        }
        match self.0.lock().unwrap().contains(&socket) {
            true => Err(PortProblem::InUse(socket)),
            false => Ok(()),
        }
    }
}

fn fleet(name: &str) -> FleetId {
    FleetId::of_gateway("ns", name)
}

fn requests(list: &[(&str, &[&str], &[u16])]) -> BTreeMap<FleetId, FleetRequest> {
    list.iter()
        .map(|(name, addresses, ports)| {
            let addresses = addresses
                .iter()
                .map(|value| AddressRequest::Ip(value.parse().unwrap()));
            let request = FleetRequest {
                addresses: addresses.collect(),
                ports: ports.iter().copied().map(Port::tcp).collect(),
                ..FleetRequest::new()
            };
            (fleet(name), request)
        })
        .collect()
}

fn after(start: Instant, ms: u64) -> Instant {
    start + Duration::from_millis(ms)
}

#[test]
fn a_port_in_use_is_told_and_tried_again_with_growing_pauses() {
    let machine = Fake::default();
    machine.take("127.0.0.1:80");
    let mut ports = Ports::new(0, Box::new(machine.clone()));
    let wanted = requests(&[("a", &[], &[80, 81])]);
    let start = Instant::now();
    let state = &ports.plan(&wanted, start)[&fleet("a")];
    assert_eq!(state.ports.keys().collect::<Vec<_>>(), [&Port::tcp(80)]);
    assert!(state.ports[&Port::tcp(80)].contains("in use by another program"));
    assert!(ports.has_any(&fleet("a")));
    assert_eq!(ports.due(), Some(after(start, 100)));
    ports.plan(&wanted, start);
    assert_eq!(ports.due(), Some(after(start, 200)));
    for _ in 0..10 {
        ports.plan(&wanted, start);
    }
    assert_eq!(ports.due(), Some(after(start, 2000)));

    machine.free("127.0.0.1:80");
    assert!(ports.plan(&wanted, start)[&fleet("a")].ports.is_empty());
    assert_eq!(ports.due(), None);
    // Its Envoy has the port now.
    machine.take("127.0.0.1:80");
    assert!(ports.plan(&wanted, start)[&fleet("a")].ports.is_empty());
}

#[test]
fn a_port_of_an_envoy_that_ends_is_given_on_when_it_is_free() {
    let machine = Fake::default();
    let mut ports = Ports::new(0, Box::new(machine.clone()));
    let start = Instant::now();
    ports.plan(&requests(&[("a", &["127.0.0.9"], &[80])]), start);
    machine.take("127.0.0.9:80");
    let wanted = requests(&[("b", &["127.0.0.9"], &[80])]);
    let state = &ports.plan(&wanted, start)[&fleet("b")];
    assert!(
        state.ports[&Port::tcp(80)].contains("the Envoy of Gateway ns/a"),
        "{state:?}"
    );
    assert!(!ports.has_any(&fleet("b")));
    // The same Gateway gets its old port again.
    let again = requests(&[("a", &["127.0.0.9"], &[80])]);
    assert!(ports.plan(&again, start)[&fleet("a")].ports.is_empty());
    ports.plan(&wanted, start);
    machine.free("127.0.0.9:80");
    ports.ended(&fleet("a"));
    assert!(ports.ending.is_empty());
    assert!(ports.plan(&wanted, start)[&fleet("b")].ports.is_empty());
    assert_eq!(ports.due(), None);
}

#[test]
fn a_newcomer_does_not_take_a_port_away() {
    let machine = Fake::default();
    let mut ports = Ports::new(0, Box::new(machine.clone()));
    let start = Instant::now();
    ports.plan(&requests(&[("b", &["127.0.0.9"], &[80])]), start);
    machine.take("127.0.0.9:80");
    let both = requests(&[("a", &["127.0.0.9"], &[80]), ("b", &["127.0.0.9"], &[80])]);
    let states = ports.plan(&both, start);
    assert!(states[&fleet("b")].ports.is_empty());
    assert!(states[&fleet("a")].ports[&Port::tcp(80)].contains("taken by Gateway ns/b"));
}

#[test]
fn an_address_of_another_machine_is_told_and_looked_for_again() {
    let mut ports = Ports::new(0, Box::new(Fake::default()));
    let start = Instant::now();
    let wanted = requests(&[("a", &["192.0.2.1"], &[80]), ("b", &[], &[80])]);
    let states = ports.plan(&wanted, start);
    let Some(FleetProblem::AddressNotUsable(why)) = &states[&fleet("a")].problem else {
        panic!("{states:?}");
    };
    assert!(
        why.contains("192.0.2.1 is not an address of this machine"),
        "{why}"
    );
    assert!(!ports.has_any(&fleet("a")));
    assert!(ports.has_any(&fleet("b")));
    assert!(ports.due().is_some());
}

#[test]
fn a_port_that_was_taken_before_envoy_had_it_is_tried_again() {
    let refused = "cannot bind '127.0.0.9:80': Address already in use";
    let machine = Fake::default();
    let mut ports = Ports::new(0, Box::new(machine.clone()));
    let start = Instant::now();
    let wanted = requests(&[("a", &["127.0.0.9"], &[80, 81])]);
    ports.plan(&wanted, start);
    machine.take("127.0.0.9:80");
    // Another resource, an unknown fleet, or another reason: no change.
    assert!(!ports.refused(&fleet("a"), Port::tcp(82), refused));
    assert!(!ports.refused(&fleet("z"), Port::tcp(80), refused));
    assert!(!ports.refused(&fleet("a"), Port::tcp(80), "duplicate filter chain"));
    assert!(ports.plan(&wanted, start)[&fleet("a")].ports.is_empty());

    assert!(ports.refused(&fleet("a"), Port::tcp(80), refused));
    let state = &ports.plan(&wanted, start)[&fleet("a")];
    assert_eq!(state.ports.keys().collect::<Vec<_>>(), [&Port::tcp(80)]);
    assert!(state.ports[&Port::tcp(80)].contains("in use by another program"));
    assert_eq!(ports.due(), Some(after(start, 100)));
    machine.free("127.0.0.9:80");
    assert!(ports.plan(&wanted, start)[&fleet("a")].ports.is_empty());

    // The port is free again when it is probed: no change, and so no endless loop.
    assert!(ports.refused(&fleet("a"), Port::tcp(80), refused));
    assert!(ports.plan(&wanted, start)[&fleet("a")].ports.is_empty());
    assert_eq!(ports.due(), None);
}
