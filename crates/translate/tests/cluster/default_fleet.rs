//! The fleet of objects without a Gateway.

use serde_json::{Value, json};
use sesame_api::{Kind, ObjectKey};
use sesame_model::{FleetAddress, FleetId, FleetState};
use sesame_translate::settings::Mode;

use crate::rig::{Rig, class, gateway, set};

fn proxy(fqdn: &str) -> Value {
    json!({
        "apiVersion": "projectsesame.io/v1",
        "kind": "HTTPProxy",
        "metadata": {"name": fqdn, "namespace": "ns"},
        "spec": {"virtualhost": {"fqdn": fqdn}, "routes": [{"services": [{"name": "a", "port": 80}]}]},
    })
}

#[test]
fn a_gateway_with_another_protocol_on_a_port_is_a_problem_of_the_unmanaged_fleet() {
    let mut rig = Rig::new(Mode::Unmanaged { gateway: None });
    let listener = |protocol: &str| {
        let listeners = json!([{"name": "x", "port": 80, "protocol": protocol}]);
        set(gateway("g", "c", 1), "/spec/listeners", listeners)
    };
    rig.put([class("c", 0), listener("TCP"), proxy("a.example")]);
    let conflict = |rig: &Rig| {
        let conflicts = rig.pipeline.outputs.port_conflicts;
        rig.engine.get(conflicts, &FleetId::Unmanaged)
    };
    let expected = "port 80 is not served for Ingresses and HTTPProxies: a listener of Gateway ns/g uses it for another \
                    protocol; change the port of that listener";
    assert_eq!(
        conflict(&rig).as_deref().map(|text| &**text),
        Some(expected)
    );
    rig.put([listener("HTTP")]);
    assert_eq!(conflict(&rig), None);
    rig.put([listener("TCP")]);
    rig.remove(Kind::HTTPProxy, "ns", "a.example");
    assert_eq!(conflict(&rig), None);
}

#[test]
fn statuses_depend_only_on_the_addresses_of_the_fleet() {
    let mut rig = Rig::new(Mode::Managed);
    rig.put(["a.example", "b.example"].map(proxy));
    let ran = |commit: &sesame_engine::Commit| {
        let stage = "http_proxy status";
        let work = commit.work().iter().find(|(name, _)| *name == stage);
        work.map_or(0, |(_, keys)| *keys)
    };
    let mut state = FleetState {
        addresses: vec![FleetAddress::Hostname("lb.example".to_owned())],
        ..FleetState::default()
    };
    let commit = rig.fleet(&FleetId::Default, Some(state.clone()));
    assert_eq!(ran(&commit), 2);
    state.ready = true;
    let commit = rig.fleet(&FleetId::Default, Some(state));
    assert_eq!(ran(&commit), 0);
}

#[test]
fn the_number_of_hosts_is_limited() {
    let mut rig = Rig::new(Mode::Unmanaged { gateway: None });
    let host = |number: usize| format!("h{number}.example.com");
    let rule = |number: usize| json!({"host": host(number)});
    let ingress = |count: usize| {
        json!({
            "apiVersion": "networking.k8s.io/v1", "kind": "Ingress",
            "metadata": {"name": "a", "namespace": "ns"},
            "spec": {
                "ingressClassName": "sesame",
                "defaultBackend": {"service": {"name": "a", "port": {"number": 80}}},
                "rules": Vec::from_iter((0..count).map(rule)),
                "tls": [{"hosts": Vec::from_iter((0..count).map(host)), "secretName": "s"}],
            },
        })
    };
    let errors = |rig: &Rig| {
        let key = ObjectKey::new(Kind::Ingress, "ns", "a");
        let notices = rig.engine.get(rig.pipeline.outputs.notices, &key);
        let notices = notices.expect("the Secret is missing");
        let errors = notices.errors.iter();
        let limits = errors.filter(|error| error.message.contains("divide the Ingress"));
        Vec::from_iter(limits.map(|error| error.field.clone()))
    };
    // The default backend counts as a host.
    rig.put([ingress(255)]);
    assert_eq!(errors(&rig), [""; 0]);
    rig.put([ingress(257)]);
    let expected = ["spec.rules[255].host", "spec.rules[256].host", "spec.tls"];
    assert_eq!(errors(&rig), expected);
}
