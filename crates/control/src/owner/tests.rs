use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use serde_json::json;
use sesame_api::{Kind, Object};
use sesame_envoy::Options;
use sesame_fleet::local::ports::PortProblem;
use tokio::sync::broadcast;

use super::*;
use crate::local::ports::{Machine, Ports};
use crate::local::runner::{LocalRunner, Order};

/// A machine on which every port is free, until another process takes them all.
#[derive(Clone, Default)]
struct Fake {
    taken: Arc<AtomicBool>,
}

impl Machine for Fake {
    fn probe(&self, ip: IpAddr, port: Port) -> Result<(), PortProblem> {
        match self.taken.load(Relaxed) && port.number != 0 {
            true => Err(PortProblem::InUse(SocketAddr::new(ip, port.number))),
            false => Ok(()),
        }
    }
}

struct Rig {
    owner: Owner,
    machine: Fake,
    events: broadcast::Receiver<RunEvent>,
    wanted: watch::Receiver<BTreeSet<FleetId>>,
    orders: mpsc::UnboundedReceiver<Order>,
}

fn rig() -> Rig {
    let (events, receiver) = EventSender::new(100, |_| true);
    let (wanted, to_run) = watch::channel(BTreeSet::new());
    #[expect(clippy::disallowed_methods, reason = "as it is in a local run")]
    let (orders, to_do) = mpsc::unbounded_channel();
    let outputs = Outputs {
        registry: xds::Registry::new(xds::ServerConfig::default()),
        status_store: Arc::default(),
        progress: Arc::default(),
        metrics: Arc::new(Metrics::new()),
        events,
        statuses: None,
        drain: Duration::ZERO,
        ending: CancellationToken::new(),
    };
    let machine = Fake::default();
    let ports = Ports::new(0, Box::new(machine.clone()));
    let runner = LocalRunner::new(ports, wanted, orders);
    Rig {
        owner: Owner::new(
            Core::new(Options::default()),
            Box::new(runner),
            outputs,
            Instant::now(),
        ),
        machine,
        events: receiver,
        wanted: to_run,
        orders: to_do,
    }
}

fn gateway(name: &str) -> Change {
    let value = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": name, "namespace": "ns"},
        "spec": {"gatewayClassName": "sesame", "listeners": [{"name": "web", "port": 80, "protocol": "HTTP"}]},
    });
    Change::Upsert(Object::decode(value).unwrap().unwrap())
}

fn gone(name: &str) -> Change {
    Change::Remove(ObjectKey::new(Kind::Gateway, "ns", name))
}

fn set(changes: Vec<Change>) -> Message {
    Message::Source(ChangeSet {
        changes,
        errors: Vec::new(),
        unsupported: BTreeSet::new(),
        detected: Instant::now(),
    })
}

fn fleet(name: &str) -> FleetId {
    FleetId::of_gateway("ns", name)
}

impl Rig {
    fn events(&mut self) -> Vec<RunEvent> {
        std::iter::from_fn(|| self.events.try_recv().ok()).collect()
    }

    fn orders(&mut self) -> Vec<Order> {
        std::iter::from_fn(|| self.orders.try_recv().ok()).collect()
    }

    fn revision(&self) -> u64 {
        self.owner.core.engine().revision()
    }

    fn published(&self) -> Vec<String> {
        let fleets = self.owner.outputs.registry.fleets();
        fleets.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn nothing_is_made_before_everything_was_read() {
    let mut rig = rig();
    rig.owner.turn(vec![Message::EnvoyServes(fleet("a"))]);
    assert_eq!((rig.revision(), rig.events()), (0, vec![]));
    // An empty set counts as well.
    rig.owner.turn(vec![set(vec![])]);
    assert!(matches!(
        rig.events()[..],
        [RunEvent::Ready { gateways: 0, .. }]
    ));
    assert!(rig.published().is_empty());
}

#[test]
fn what_is_told_early_counts() {
    let mut rig = rig();
    rig.owner
        .turn(vec![Message::Release(Some("v1.3.0".to_owned()))]);
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "edge"},
        "spec": {"controllerName": "projectsesame.io/gateway-controller"},
    });
    let class = Change::Upsert(Object::decode(class).unwrap().unwrap());
    rig.owner.turn(vec![set(vec![class])]);
    let statuses = rig.owner.outputs.status_store.statuses();
    let text = serde_json::to_string(&statuses).unwrap();
    assert!(text.contains("UnsupportedVersion"), "{text}");
}

#[test]
fn what_waits_becomes_one_change() {
    let mut rig = rig();
    rig.owner.turn(vec![
        set(vec![gateway("a"), gateway("b")]),
        set(vec![gateway("c"), gone("b")]),
    ]);
    let events = rig.events();
    let RunEvent::Change { objects, .. } = &events[0] else {
        panic!("{events:?}");
    };
    assert_eq!(objects.len(), 4);
    assert_eq!(rig.published(), ["ns/a", "ns/c"]);
    assert_eq!(
        *rig.wanted.borrow_and_update(),
        [fleet("a"), fleet("c")].into()
    );
    // Two commits: objects, then the addresses of their fleets. The state in between is never visible.
    assert_eq!(rig.revision(), 2);
    let status = rig.owner.outputs.registry.status(&xds_fleet(&fleet("a")));
    assert_eq!(status.unwrap().revision, Some(2));
}

#[test]
fn the_end_of_the_beginning_is_told_once_all_have_served_or_failed() {
    let mut rig = rig();
    rig.owner.turn(vec![set(vec![gateway("a"), gateway("b")])]);
    rig.owner.turn(vec![Message::EnvoyServes(fleet("a"))]);
    let ready = |events: Vec<RunEvent>| {
        let mut events = events.into_iter();
        events.find_map(|event| match event {
            RunEvent::Ready { gateways, .. } => Some(gateways),
            _ => None,
        })
    };
    assert_eq!(ready(rig.events()), None);
    rig.owner.turn(vec![Message::EnvoyDown(fleet("b"))]);
    assert_eq!(ready(rig.events()), Some(1));
    rig.owner.turn(vec![Message::EnvoyServes(fleet("b"))]);
    assert_eq!(ready(rig.events()), None);
}

#[test]
fn a_fleet_that_goes_leaves_nothing() {
    let mut rig = rig();
    rig.owner.turn(vec![set(vec![gateway("a")])]);
    let before = rig.owner.core.engine().footprint();
    rig.owner.turn(vec![
        set(vec![gateway("b")]),
        Message::EnvoyServes(fleet("a")),
    ]);
    let rejected = |name: &str| Rejected::listener(fleet(name), Port::tcp(80));
    rig.owner.turn(vec![
        Message::EnvoyServes(fleet("b")),
        Message::Rejection(rejected("b"), Some("no".to_owned())),
        // Of an unknown fleet.
        Message::Rejection(rejected("z"), Some("no".to_owned())),
    ]);
    assert_eq!(rig.owner.rejected.len(), 1);
    rig.owner.turn(vec![set(vec![gone("b")])]);
    rig.owner.turn(vec![Message::FleetEnded(fleet("b"))]);
    let after = rig.owner.core.engine().footprint();
    assert_eq!((after.rows, after.edges), (before.rows, before.edges));
    assert!(rig.owner.rejected.is_empty() && rig.owner.serving == [fleet("a")].into());
    assert_eq!(rig.published(), ["ns/a"]);
    assert_eq!(*rig.wanted.borrow(), [fleet("a")].into());
}

#[test]
fn a_listener_whose_port_was_taken_goes_and_comes_again() {
    let mut rig = rig();
    rig.owner.turn(vec![set(vec![gateway("a")])]);
    let listeners = |rig: &Rig| {
        let all = rig.owner.core.resources(&fleet("a")).unwrap();
        let listeners = all.iter().filter(|r| r.type_url.ends_with(".Listener"));
        listeners.count()
    };
    assert_eq!(listeners(&rig), 1);
    let rejected = Rejected::listener(fleet("a"), Port::tcp(80));
    let said = |message: Option<&str>| {
        Message::Rejection(rejected.clone(), message.map(ToOwned::to_owned))
    };
    rig.machine.taken.store(true, Relaxed);
    rig.owner.turn(vec![said(Some("something else"))]);
    assert_eq!(listeners(&rig), 1);
    let in_use = "cannot bind '127.0.0.1:80': Address already in use";
    rig.owner.turn(vec![said(Some(in_use))]);
    assert_eq!(listeners(&rig), 0);
    assert!(rig.owner.runner.due().is_some());
    rig.machine.taken.store(false, Relaxed);
    // Any reason to probe ports will do; else time has to pass.
    rig.owner
        .turn(vec![said(None), Message::FleetEnded(fleet("z"))]);
    assert_eq!(listeners(&rig), 1);
    assert_eq!(rig.owner.runner.due(), None);
}

#[test]
fn every_end_is_ordered_though_nobody_saw_the_beginning() {
    let mut rig = rig();
    rig.owner.turn(vec![set(vec![gateway("a")])]);
    rig.owner.turn(vec![set(vec![gone("a")])]);
    rig.owner.turn(vec![set(vec![gateway("a"), gateway("b")])]);
    rig.owner.turn(vec![set(vec![gone("a")])]);
    let [a, b] = ["a", "b"].map(fleet);
    let start = |fleet: &FleetId| Order::Start(fleet.clone());
    let stop = |fleet: &FleetId| Order::Stop(fleet.clone());
    assert_eq!(
        rig.orders(),
        [start(&a), stop(&a), start(&a), start(&b), stop(&a)]
    );
    rig.owner.turn(vec![set(vec![gone("b")])]);
    assert_eq!(rig.orders(), [stop(&b)]);
}

#[test]
fn unsupported_objects_are_noted_once() {
    let ingress = Unsupported {
        object: "Ingress default/web".to_owned(),
        file: "a.yaml".into(),
        location: (3, 1),
    };
    let mut rig = rig();
    for _ in 0..2 {
        let mut set = set(vec![]);
        if let Message::Source(set) = &mut set {
            set.unsupported.insert(ingress.clone());
        }
        rig.owner.turn(vec![set]);
    }
    let notes: Vec<String> = rig
        .events()
        .into_iter()
        .filter_map(|event| match event {
            RunEvent::Note { message } => Some(message),
            _ => None,
        })
        .collect();
    assert_eq!(
        notes,
        ["not supported yet: Ingress default/web (a.yaml:3:1)"]
    );
}

#[test]
fn what_only_a_replaced_listener_needed_goes_when_it_is_drained() {
    let mut rig = rig();
    let mut few = many_hosts(10);
    few.push(gateway("a"));
    rig.owner.turn(vec![set(few)]);
    let given = |rig: &Rig| {
        let registry = &rig.owner.outputs.registry;
        let status = registry.status(&xds_fleet(&fleet("a"))).unwrap();
        [xds::ResourceType::ScopedRoute, xds::ResourceType::Route].map(|ty| {
            let of = status.resources.iter().find(|(of, _)| *of == ty);
            of.map_or(0, |(_, count)| *count)
        })
    };
    assert_eq!((given(&rig), rig.owner.settled_at), ([0, 1], None));
    rig.owner.turn(vec![set(many_hosts(500))]);
    assert_eq!(given(&rig), [64, 65], "both forms");
    assert!(rig.owner.settled_at.is_some());
    // No other events.
    rig.owner.turn(vec![]);
    assert_eq!((given(&rig), rig.owner.settled_at), ([64, 64], None));
}

/// A route for each of `number` hosts.
fn many_hosts(number: usize) -> Vec<Change> {
    let route = |host: usize| {
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "HTTPRoute",
            "metadata": {"namespace": "ns", "name": format!("r{host}")},
            "spec": {
                "parentRefs": [{"name": "a"}],
                "hostnames": [format!("h{host}.test")],
                "rules": [{}],
            },
        })
    };
    let decode = |value| Object::decode(value).unwrap().unwrap();
    (0..number)
        .map(|host| Change::Upsert(decode(route(host))))
        .collect()
}

/// Records whether `complete` had been called at each `follow`.
struct Listening {
    complete: bool,
    followed: mpsc::Sender<bool>,
}

impl FleetRunner for Listening {
    fn plan(
        &mut self,
        _: &Requests,
        _: &BTreeSet<FleetId>,
        _: Instant,
    ) -> Vec<(FleetId, Option<FleetState>)> {
        Vec::new()
    }

    fn follow(&mut self, _: &Requests, _: &BTreeSet<FleetId>) {
        self.followed.try_send(self.complete).unwrap();
    }

    fn complete(&mut self) {
        self.complete = true;
    }

    fn awaited(&self) -> BTreeSet<FleetId> {
        BTreeSet::new()
    }
}

#[test]
fn a_place_hears_when_all_is_known_even_if_nothing_else_changes() {
    let mut rig = rig();
    let (followed, mut told) = mpsc::channel(2);
    rig.owner.runner = Box::new(Listening {
        complete: false,
        followed,
    });
    rig.owner.turn(vec![set(vec![])]);
    rig.owner.turn(vec![Message::Complete]);
    assert_eq!((told.try_recv(), told.try_recv()), (Ok(false), Ok(true)));
}
