use std::sync::{Arc, Mutex};

use sesame_model::AddressValue;

use super::*;

/// A prober with configurable ports in use.
#[derive(Clone, Default)]
struct FakeProber(Arc<Mutex<BTreeSet<SocketAddr>>>);

impl FakeProber {
    fn occupy(&self, socket: &str) {
        self.0.lock().unwrap().insert(socket.parse().unwrap());
    }

    fn release(&self, socket: &str) {
        self.0.lock().unwrap().remove(&socket.parse().unwrap());
    }
}

impl PortProber for FakeProber {
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
                .map(|value| AddressValue::Ip(value.parse().unwrap()).into());
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
fn a_port_in_use_is_reported_and_probed_again_with_exponential_backoff() {
    let prober = FakeProber::default();
    prober.occupy("127.0.0.1:80");
    let mut ports = Ports::new(0, Box::new(prober.clone()));
    let desired = requests(&[("a", &[], &[80, 81])]);
    let start = Instant::now();
    let state = &ports.plan(&desired, start)[&fleet("a")];
    assert_eq!(state.ports.keys().collect::<Vec<_>>(), [&Port::tcp(80)]);
    assert!(state.ports[&Port::tcp(80)].contains("in use by another program"));
    assert!(ports.has_ports(&fleet("a")));
    assert_eq!(ports.due(), Some(after(start, 100)));
    ports.plan(&desired, start);
    assert_eq!(ports.due(), Some(after(start, 200)));
    for _ in 0..10 {
        ports.plan(&desired, start);
    }
    assert_eq!(ports.due(), Some(after(start, 2000)));

    prober.release("127.0.0.1:80");
    assert!(ports.plan(&desired, start)[&fleet("a")].ports.is_empty());
    assert_eq!(ports.due(), None);
    // Now its Envoy holds the port.
    prober.occupy("127.0.0.1:80");
    assert!(ports.plan(&desired, start)[&fleet("a")].ports.is_empty());
}

#[test]
fn a_port_of_a_stopping_envoy_is_reassigned_once_it_is_free() {
    let prober = FakeProber::default();
    let mut ports = Ports::new(0, Box::new(prober.clone()));
    let start = Instant::now();
    ports.plan(&requests(&[("a", &["127.0.0.9"], &[80])]), start);
    prober.occupy("127.0.0.9:80");
    let desired = requests(&[("b", &["127.0.0.9"], &[80])]);
    let state = &ports.plan(&desired, start)[&fleet("b")];
    assert!(
        state.ports[&Port::tcp(80)].contains("the Envoy of Gateway ns/a"),
        "{state:?}"
    );
    assert!(!ports.has_ports(&fleet("b")));
    // The same Gateway gets its port back.
    let again = requests(&[("a", &["127.0.0.9"], &[80])]);
    assert!(ports.plan(&again, start)[&fleet("a")].ports.is_empty());
    ports.plan(&desired, start);
    prober.release("127.0.0.9:80");
    ports.stopped(&fleet("a"));
    assert!(ports.stopping.is_empty());
    assert!(ports.plan(&desired, start)[&fleet("b")].ports.is_empty());
    assert_eq!(ports.due(), None);
}

#[test]
fn a_new_gateway_does_not_get_an_assigned_port() {
    let prober = FakeProber::default();
    let mut ports = Ports::new(0, Box::new(prober.clone()));
    let start = Instant::now();
    ports.plan(&requests(&[("b", &["127.0.0.9"], &[80])]), start);
    prober.occupy("127.0.0.9:80");
    let both = requests(&[("a", &["127.0.0.9"], &[80]), ("b", &["127.0.0.9"], &[80])]);
    let states = ports.plan(&both, start);
    assert!(states[&fleet("b")].ports.is_empty());
    assert!(states[&fleet("a")].ports[&Port::tcp(80)].contains("already used by Gateway ns/b"));
}

#[test]
fn an_address_of_another_machine_is_reported_and_probed_again() {
    let mut ports = Ports::new(0, Box::new(FakeProber::default()));
    let start = Instant::now();
    let desired = requests(&[("a", &["192.0.2.1"], &[80]), ("b", &[], &[80])]);
    let states = ports.plan(&desired, start);
    let Some(FleetProblem::AddressNotUsable(reason)) = &states[&fleet("a")].problem else {
        panic!("{states:?}");
    };
    assert!(
        reason.contains("192.0.2.1 is not a local address"),
        "{reason}"
    );
    assert!(!ports.has_ports(&fleet("a")));
    assert!(ports.has_ports(&fleet("b")));
    assert!(ports.due().is_some());
}

#[test]
fn a_port_taken_between_probe_and_listen_is_probed_again() {
    let in_use = "cannot bind '127.0.0.9:80': Address already in use";
    let prober = FakeProber::default();
    let mut ports = Ports::new(0, Box::new(prober.clone()));
    let start = Instant::now();
    let desired = requests(&[("a", &["127.0.0.9"], &[80, 81])]);
    ports.plan(&desired, start);
    prober.occupy("127.0.0.9:80");
    // Another resource, an unknown fleet or another reason doesn't change anything.
    assert!(!ports.listener_rejected(&fleet("a"), Port::tcp(82), in_use));
    assert!(!ports.listener_rejected(&fleet("z"), Port::tcp(80), in_use));
    assert!(!ports.listener_rejected(&fleet("a"), Port::tcp(80), "duplicate filter chain"));
    assert!(ports.plan(&desired, start)[&fleet("a")].ports.is_empty());

    assert!(ports.listener_rejected(&fleet("a"), Port::tcp(80), in_use));
    let state = &ports.plan(&desired, start)[&fleet("a")];
    assert_eq!(state.ports.keys().collect::<Vec<_>>(), [&Port::tcp(80)]);
    assert!(state.ports[&Port::tcp(80)].contains("in use by another program"));
    assert_eq!(ports.due(), Some(after(start, 100)));
    prober.release("127.0.0.9:80");
    assert!(ports.plan(&desired, start)[&fleet("a")].ports.is_empty());

    // The port is free again when probed, so nothing changes and no retry is scheduled.
    assert!(ports.listener_rejected(&fleet("a"), Port::tcp(80), in_use));
    assert!(ports.plan(&desired, start)[&fleet("a")].ports.is_empty());
    assert_eq!(ports.due(), None);
}
