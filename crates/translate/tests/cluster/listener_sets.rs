//! ListenerSets with too many listeners for a golden file.

use serde_json::{Value, json};
use sesame_api::{Kind, ObjectStatus};
use sesame_translate::settings::Mode;

use crate::rig::{Rig, class, gateway, said, set};

/// The ports that Sesame assigns.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

fn listener_set(kind: &str, name: &str, listeners: &Value) -> Value {
    let version = match kind {
        "XListenerSet" => "gateway.networking.x-k8s.io/v1alpha1",
        _ => "gateway.networking.k8s.io/v1",
    };
    json!({
        "apiVersion": version, "kind": kind,
        "metadata": {"name": name, "namespace": "ns", "generation": 1},
        "spec": {"parentRef": {"name": "web"}, "listeners": listeners},
    })
}

#[test]
fn a_listener_without_a_free_port_is_not_served_and_its_set_says_so() {
    let mut rig = Rig::new(Mode::Managed);
    let same = json!({"namespaces": {"from": "Same"}});
    let web = set(gateway("web", "edge", 1), "/spec/allowedListeners", same);
    let ports: Vec<u16> = PORTS.collect();
    let sets = ports.chunks(64).map(|ports| {
        let listeners = ports
            .iter()
            .map(|port| json!({"name": format!("tcp-{port}"), "port": port, "protocol": "TCP"}));
        let listeners = listeners.collect();
        listener_set("ListenerSet", &format!("from-{}", ports[0]), &listeners)
    });
    rig.put([class("edge", 0), web].into_iter().chain(sets));
    let listeners = json!([
        {"name": "unset", "protocol": "HTTP"},
        {"name": "set", "port": 8080, "protocol": "HTTP"},
    ]);
    rig.put([listener_set("XListenerSet", "late", &listeners)]);
    let late = |rig: &Rig| match rig.status(Kind::XListenerSet, "late") {
        ObjectStatus::ListenerSet(status) => status,
        other => panic!("{other:?}"),
    };

    let status = late(&rig);
    let accepted = status.conditions.iter().find(|c| &*c.type_ == "Accepted");
    let accepted = accepted.expect("a condition");
    assert_eq!(
        (&*accepted.reason, &*accepted.message),
        (
            "ListenersNotValid",
            "spec.listeners[0].port: Gateway ns/web has no free port from 20000 to 29999; set a port; invalid \
             listeners: unset; valid listeners: set"
        )
    );
    assert!(accepted.is_true());
    let names = status.listeners.iter().map(|listener| &*listener.name);
    assert_eq!(names.collect::<Vec<_>>(), ["set"]);
    // One for each listener of the sets, and those of the Gateway and of the listener with a port.
    assert_eq!(rig.binds().len(), PORTS.len() + 2);

    // A freed port is assigned.
    rig.remove(Kind::ListenerSet, "ns", "from-20000");
    let status = late(&rig);
    assert_eq!(said(&status.conditions, "Accepted"), "Accepted/Accepted");
    let port = status.listeners[0].port.expect("a port");
    assert!((20_000..20_064).contains(&port), "{port}");
}
