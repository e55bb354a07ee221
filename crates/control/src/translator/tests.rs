use std::collections::BTreeSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::SystemTime;

use serde_json::json;
use sesame_api::{Kind, Object, Release};
use sesame_envoy::Options;
use sesame_fleet::local::ports::PortProblem;
use sesame_sources::change::Change;
use sesame_testkit::certs::{Authority, Identity};
use tokio::sync::broadcast;

use super::*;
use crate::local::ports::{PortProber, Ports};
use crate::local::runner::{FleetCommand, LocalRunner};

/// Either all ports are free, or all are in use.
#[derive(Clone, Default)]
struct FakeProber {
    all_in_use: Arc<AtomicBool>,
}

impl PortProber for FakeProber {
    fn probe(&self, ip: IpAddr, port: Port) -> Result<(), PortProblem> {
        match self.all_in_use.load(Relaxed) && port.number != 0 {
            true => Err(PortProblem::InUse(SocketAddr::new(ip, port.number))),
            false => Ok(()),
        }
    }
}

struct Rig {
    translator: Translator,
    prober: FakeProber,
    events: broadcast::Receiver<RunEvent>,
    desired: watch::Receiver<BTreeSet<FleetId>>,
    commands: mpsc::UnboundedReceiver<FleetCommand>,
}

fn rig() -> Rig {
    let (events, receiver) = EventSender::new(100, |_| true);
    let (desired, desired_receiver) = watch::channel(BTreeSet::new());
    #[expect(clippy::disallowed_methods, reason = "as it is in a local run")]
    let (commands, command_receiver) = mpsc::unbounded_channel();
    let registry = xds::Registry::new(xds::ServerConfig::default());
    let outputs = TranslatorOutputs {
        registry: registry.clone(),
        status_store: Arc::default(),
        progress: Arc::default(),
        metrics: Arc::new(Metrics::new(registry)),
        events,
        statuses: None,
        pod_services: None,
        class_finalizers: None,
        logging: Arc::default(),
        drain: Duration::ZERO,
        shutdown: CancellationToken::new(),
    };
    let prober = FakeProber::default();
    let ports = Ports::new(0, Box::new(prober.clone()));
    let runner = LocalRunner::new(ports, desired, commands);
    Rig {
        translator: Translator::new(
            Core::new(Options::default()),
            Box::new(runner),
            outputs,
            Instant::now(),
        ),
        prober,
        events: receiver,
        desired: desired_receiver,
        commands: command_receiver,
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

fn remove_gateway(name: &str) -> Change {
    Change::Remove(ObjectKey::new(Kind::Gateway, "ns", name))
}

fn set(changes: Vec<Change>) -> Message {
    Message::Changes(ChangeSet {
        changes,
        errors: Vec::new(),
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

    fn commands(&mut self) -> Vec<FleetCommand> {
        std::iter::from_fn(|| self.commands.try_recv().ok()).collect()
    }

    fn revision(&self) -> u64 {
        self.translator.core.engine().revision()
    }

    fn published(&self) -> Vec<String> {
        let fleets = self.translator.outputs.registry.fleets();
        fleets.iter().map(ToString::to_string).collect()
    }
}

#[test]
fn nothing_is_translated_before_all_objects_are_read() {
    let mut rig = rig();
    rig.translator.turn(vec![Message::EnvoyReady(fleet("a"))]);
    assert_eq!((rig.revision(), rig.events()), (0, vec![]));
    // The first set may be empty.
    rig.translator.turn(vec![set(vec![])]);
    assert!(matches!(
        rig.events()[..],
        [RunEvent::Ready { gateways: 0, .. }]
    ));
    assert!(rig.published().is_empty());
}

#[test]
fn inputs_before_the_first_set_are_kept() {
    let mut rig = rig();
    rig.translator.turn(vec![Message::Release(Some(Release {
        version: "v1.3.0".to_owned(),
        experimental: false,
    }))]);
    let class = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "GatewayClass", "metadata": {"name": "edge"},
        "spec": {"controllerName": "projectsesame.io/gateway-controller"},
    });
    let class = Change::Upsert(Object::decode(class).unwrap().unwrap());
    rig.translator.turn(vec![set(vec![class])]);
    let statuses = rig.translator.outputs.status_store.statuses();
    let text = serde_json::to_string(&statuses).unwrap();
    assert!(text.contains("UnsupportedVersion"), "{text}");
}

#[test]
fn queued_messages_become_one_change() {
    let mut rig = rig();
    rig.translator.turn(vec![
        set(vec![gateway("a"), gateway("b")]),
        set(vec![gateway("c"), remove_gateway("b")]),
    ]);
    let events = rig.events();
    let RunEvent::Change { objects, .. } = &events[0] else {
        panic!("{events:?}");
    };
    assert_eq!(objects.len(), 4);
    assert_eq!(rig.published(), ["ns/a", "ns/c"]);
    assert_eq!(
        *rig.desired.borrow_and_update(),
        [fleet("a"), fleet("c")].into()
    );
    // Two commits: the objects, then the addresses of their fleets. Only the second is published.
    assert_eq!(rig.revision(), 2);
    let status = rig
        .translator
        .outputs
        .registry
        .status(&xds_fleet(&fleet("a")));
    assert_eq!(status.unwrap().revision, Some(2));
}

#[test]
fn ready_is_sent_once_every_envoy_has_served_or_failed() {
    let mut rig = rig();
    rig.translator
        .turn(vec![set(vec![gateway("a"), gateway("b")])]);
    rig.translator.turn(vec![Message::EnvoyReady(fleet("a"))]);
    let ready = |events: Vec<RunEvent>| {
        let mut events = events.into_iter();
        events.find_map(|event| match event {
            RunEvent::Ready { gateways, .. } => Some(gateways),
            _ => None,
        })
    };
    assert_eq!(ready(rig.events()), None);
    rig.translator.turn(vec![Message::EnvoyDown(fleet("b"))]);
    assert_eq!(ready(rig.events()), Some(1));
    rig.translator.turn(vec![Message::EnvoyReady(fleet("b"))]);
    assert_eq!(ready(rig.events()), None);
}

fn rejection(message: &str) -> Rejection {
    Rejection {
        message: message.to_owned(),
        body: Bytes::new(),
        last_good: None,
    }
}

#[test]
fn a_removed_fleet_leaves_no_state() {
    let mut rig = rig();
    rig.translator.turn(vec![set(vec![gateway("a")])]);
    // Also records the settings of the new fleet's listeners.
    rig.translator.turn(vec![Message::EnvoyReady(fleet("a"))]);
    let before = rig.translator.core.engine().footprint();
    rig.translator.turn(vec![
        set(vec![gateway("b")]),
        Message::EnvoyReady(fleet("a")),
    ]);
    let rejected = |name: &str| Rejected::listener(fleet(name), Port::tcp(80));
    rig.translator.turn(vec![
        Message::EnvoyReady(fleet("b")),
        Message::Rejection(rejected("b"), Some(rejection("no"))),
        // Unknown fleet.
        Message::Rejection(rejected("z"), Some(rejection("no"))),
    ]);
    assert_eq!(rig.translator.rejected.len(), 1);
    assert_eq!(
        rig.translator.outputs.status_store.rejections(),
        ["an Envoy of ns/b rejected listener 80 and keeps the last good version"]
    );
    rig.translator.turn(vec![set(vec![remove_gateway("b")])]);
    rig.translator.turn(vec![Message::FleetStopped(fleet("b"))]);
    let after = rig.translator.core.engine().footprint();
    assert_eq!((after.rows, after.edges), (before.rows, before.edges));
    assert_eq!(
        rig.translator.outputs.status_store.rejections(),
        Vec::<String>::new()
    );
    assert!(rig.translator.rejected.is_empty() && rig.translator.serving == [fleet("a")].into());
    assert_eq!(rig.published(), ["ns/a"]);
    assert_eq!(*rig.desired.borrow(), [fleet("a")].into());
}

#[test]
fn a_listener_is_removed_while_its_port_is_in_use() {
    let mut rig = rig();
    rig.translator.turn(vec![set(vec![gateway("a")])]);
    let listeners = |rig: &Rig| {
        let all = rig.translator.core.resources(&fleet("a")).unwrap();
        let listeners = all.iter().filter(|r| r.type_url.ends_with(".Listener"));
        listeners.count()
    };
    assert_eq!(listeners(&rig), 1);
    let rejected = Rejected::listener(fleet("a"), Port::tcp(80));
    let rejection =
        |message: Option<&str>| Message::Rejection(rejected.clone(), message.map(rejection));
    rig.prober.all_in_use.store(true, Relaxed);
    rig.translator.turn(vec![rejection(Some("something else"))]);
    assert_eq!(listeners(&rig), 1);
    let in_use = "cannot bind '127.0.0.1:80': Address already in use";
    rig.translator.turn(vec![rejection(Some(in_use))]);
    assert_eq!(listeners(&rig), 0);
    assert!(rig.translator.runner.due().is_some());
    rig.prober.all_in_use.store(false, Relaxed);
    // Any message that triggers a plan, instead of waiting for the backoff.
    rig.translator
        .turn(vec![rejection(None), Message::FleetStopped(fleet("z"))]);
    assert_eq!(listeners(&rig), 1);
    assert_eq!(rig.translator.runner.due(), None);
}

#[test]
fn every_stop_is_sent_even_if_the_start_was_not_received() {
    let mut rig = rig();
    rig.translator.turn(vec![set(vec![gateway("a")])]);
    rig.translator.turn(vec![set(vec![remove_gateway("a")])]);
    rig.translator
        .turn(vec![set(vec![gateway("a"), gateway("b")])]);
    rig.translator.turn(vec![set(vec![remove_gateway("a")])]);
    let [a, b] = ["a", "b"].map(fleet);
    let start = |fleet: &FleetId| FleetCommand::Start(fleet.clone());
    let stop = |fleet: &FleetId| FleetCommand::Stop(fleet.clone());
    assert_eq!(
        rig.commands(),
        [start(&a), stop(&a), start(&a), start(&b), stop(&a)]
    );
    rig.translator.turn(vec![set(vec![remove_gateway("b")])]);
    assert_eq!(rig.commands(), [stop(&b)]);
}

#[test]
fn resources_of_a_replaced_listener_are_removed_after_its_drain() {
    let mut rig = rig();
    let mut few = many_hosts(10);
    few.push(gateway("a"));
    rig.translator.turn(vec![set(few)]);
    let counts = |rig: &Rig| {
        let registry = &rig.translator.outputs.registry;
        let status = registry.status(&xds_fleet(&fleet("a"))).unwrap();
        [xds::ResourceType::ScopedRoute, xds::ResourceType::Route].map(|ty| {
            let found = status.resources.iter().find(|(found, _)| *found == ty);
            found.map_or(0, |(_, count)| *count)
        })
    };
    assert_eq!((counts(&rig), rig.translator.settled_at), ([0, 1], None));
    rig.translator.turn(vec![set(many_hosts(500))]);
    assert_eq!(counts(&rig), [256, 257], "whole and sharded");
    assert!(rig.translator.settled_at.is_some());
    // The drain time is zero in this test.
    rig.translator.turn(vec![]);
    assert_eq!(
        (counts(&rig), rig.translator.settled_at),
        ([256, 256], None)
    );
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

/// Records at each `apply` whether the requests were complete.
struct Recorder {
    complete: bool,
    applied: mpsc::Sender<bool>,
}

impl FleetRunner for Recorder {
    fn plan(
        &mut self,
        _: &Requests,
        _: &BTreeSet<FleetId>,
        _: Instant,
    ) -> Vec<(FleetId, Option<FleetState>)> {
        Vec::new()
    }

    fn apply(&mut self, _: &Requests, _: &BTreeSet<FleetId>) {
        self.applied.try_send(self.complete).unwrap();
    }

    fn requests_complete(&mut self) {
        self.complete = true;
    }

    fn required_for_ready(&self) -> BTreeSet<FleetId> {
        BTreeSet::new()
    }
}

#[test]
fn requests_complete_is_followed_by_apply_even_without_changes() {
    let mut rig = rig();
    let (applied, mut receiver) = mpsc::channel(2);
    rig.translator.runner = Box::new(Recorder {
        complete: false,
        applied,
    });
    rig.translator.turn(vec![set(vec![])]);
    rig.translator.turn(vec![Message::FleetOwnersKnown]);
    assert_eq!(
        (receiver.try_recv(), receiver.try_recv()),
        (Ok(false), Ok(true))
    );
}

/// A Secret whose certificate has expired.
fn expired(name: &str) -> Change {
    let authority = Authority::new().unwrap();
    let [start, end] = [1, 2].map(|day| SystemTime::UNIX_EPOCH + Duration::from_hours(24 * day));
    let identity = authority.issue_client(&["https://a.test"], start, end);
    let Identity { chain, private_key } = identity.unwrap();
    let value = json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": "ns"},
        "type": "kubernetes.io/tls", "stringData": {"tls.crt": chain, "tls.key": private_key},
    });
    Change::Upsert(Object::decode(value).unwrap().unwrap())
}

#[test]
fn a_metric_counts_expired_certificates_in_use() {
    let value = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {"gatewayClassName": "sesame", "listeners": [
            {"name": "web", "port": 443, "protocol": "HTTPS", "tls": {"certificateRefs": [{"name": "used"}]}},
        ]},
    });
    let gateway = Change::Upsert(Object::decode(value).unwrap().unwrap());
    let mut rig = rig();
    let expiring = |rig: &Rig| {
        let text = rig.translator.outputs.metrics.text().unwrap();
        let mut values = text
            .lines()
            .filter_map(|line| line.strip_prefix("sesame_certificates_expiring "));
        values.next().unwrap().to_owned()
    };
    rig.translator
        .turn(vec![set(vec![expired("used"), expired("unused")])]);
    assert_eq!(expiring(&rig), "0");
    rig.translator.turn(vec![set(vec![gateway])]);
    assert_eq!(expiring(&rig), "1");
    rig.translator.turn(vec![set(vec![remove_gateway("a")])]);
    assert_eq!(expiring(&rig), "0");
}

#[test]
fn an_invalid_configuration_leaves_the_settings_of_listeners() {
    let configuration = |listeners: &str| {
        let value = json!({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "tuned", "namespace": "ns"},
            "data": {"configuration.yaml": format!("listeners: {{{listeners}}}")},
        });
        Change::Upsert(Object::decode(value).unwrap().unwrap())
    };
    let value = json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
        "metadata": {"name": "a", "namespace": "ns"},
        "spec": {
            "gatewayClassName": "sesame",
            "infrastructure": {"parametersRef": {"group": "", "kind": "ConfigMap", "name": "tuned"}},
            "listeners": [{"name": "web", "port": 80, "protocol": "HTTP"}],
        },
    });
    let gateway = Change::Upsert(Object::decode(value).unwrap().unwrap());
    let mut rig = rig();
    rig.translator
        .turn(vec![set(vec![gateway, configuration("trustedHops: 1")])]);
    for (listeners, hops) in [
        ("trustedHops: many", Some(1)),
        ("trustedHops: 2", Some(2)),
        ("proxyProtocol: Sometimes", Some(2)),
        ("", None),
    ] {
        rig.translator
            .turn(vec![set(vec![configuration(listeners)])]);
        let core = &rig.translator.core;
        let row = core
            .engine()
            .get(core.outputs().listener_settings, &fleet("a"));
        assert_eq!(row.unwrap().trusted_hops, hops, "{listeners}");
    }
}
