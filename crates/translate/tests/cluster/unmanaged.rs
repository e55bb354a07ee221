//! One fleet that somebody else runs, for one Gateway.

use serde_json::json;
use sesame_api::Kind;
use sesame_model::FleetId;
use sesame_translate::fleet::FleetState;
use sesame_translate::settings::Mode;

use crate::rig::{Rig, class, gateway, named, route, said, set};

fn oldest() -> Rig {
    Rig::new(Mode::Unmanaged { gateway: None })
}

/// The Gateway that is served.
fn served(rig: &Rig) -> Option<String> {
    let requests: Vec<_> = rig.engine.iter(rig.pipeline.outputs.fleets).collect();
    assert!(
        requests
            .iter()
            .all(|(fleet, _)| **fleet == FleetId::unmanaged())
    );
    assert_eq!(rig.binds().len(), requests.len());
    requests
        .first()
        .map(|(_, request)| request.gateway.name.to_string())
}

fn accepted(rig: &Rig, gateway: &str) -> String {
    said(&rig.gateway(gateway).conditions, "Accepted")
}

#[test]
fn the_oldest_gateway_of_the_oldest_class_is_served_and_others_are_told() {
    let mut rig = oldest();
    rig.put([
        class("young", 2),
        class("old", 1),
        gateway("first-of-all", "young", 3),
        gateway("late", "old", 6),
        gateway("early", "old", 5),
        route("r", &["early", "late"]),
    ]);
    assert_eq!(served(&rig).as_deref(), Some("early"));
    assert_eq!(rig.binds(), ["unmanaged 80 [0.0.0.0:80, [::]:80]"]);
    assert_eq!(accepted(&rig, "early"), "Accepted/Accepted");
    let elsewhere = "not Accepted/NotServed: there is one set of Envoys, and it serves Gateway ns/early, the oldest of the oldest \
                     GatewayClass";
    assert_eq!(accepted(&rig, "late"), elsewhere);
    assert_eq!(accepted(&rig, "first-of-all"), elsewhere);
    let late = rig.gateway("late");
    assert!(said(&late.conditions, "Programmed").starts_with("not Programmed/Invalid"));
    assert_eq!(late.listeners[0].attached_routes, 0);
    assert_eq!(rig.gateway("early").listeners[0].attached_routes, 1);
    let route = rig.route("r");
    assert_eq!(
        said(&route.parents[0].conditions, "Accepted"),
        "Accepted/Accepted"
    );
    assert_eq!(said(&route.parents[1].conditions, "Accepted"), elsewhere);
    let classes =
        ["old", "young"].map(|name| said(&rig.class(name).unwrap().conditions, "Accepted"));
    assert_eq!(classes[0], "Accepted/Accepted");
    assert!(
        classes[1].starts_with("not Accepted/Unsupported: "),
        "{}",
        classes[1]
    );
}

#[test]
fn names_decide_between_the_equally_old() {
    let mut rig = oldest();
    rig.put([
        class("b", 1),
        class("a", 1),
        gateway("y", "a", 2),
        gateway("x", "a", 2),
        gateway("w", "b", 2),
    ]);
    assert_eq!(served(&rig).as_deref(), Some("x"));
}

#[test]
fn the_next_oldest_follows_at_once() {
    let mut rig = oldest();
    rig.put([
        class("old", 1),
        class("young", 2),
        gateway("a", "old", 1),
        gateway("b", "old", 2),
        gateway("c", "young", 3),
        route("of-a", &["a"]),
        route("of-b", &["b"]),
    ]);
    let hosts = rig.pipeline.outputs.virtual_hosts;
    assert_eq!(rig.engine.len(hosts), 1);
    rig.remove(Kind::Gateway, "ns", "a");
    assert_eq!(served(&rig).as_deref(), Some("b"));
    assert_eq!(accepted(&rig, "b"), "Accepted/Accepted");
    assert_eq!(rig.engine.len(hosts), 1);
    // The rule is the class's first: one without Gateways serves none.
    rig.remove(Kind::Gateway, "ns", "b");
    assert_eq!(served(&rig), None);
    assert!(
        accepted(&rig, "c")
            .ends_with("serves a Gateway of the oldest GatewayClass, old, which has none")
    );
    rig.remove(Kind::GatewayClass, "", "old");
    assert_eq!(served(&rig).as_deref(), Some("c"));
    // An older one takes its place.
    rig.put([gateway("d", "young", 1)]);
    assert_eq!(served(&rig).as_deref(), Some("d"));
    rig.remove(Kind::GatewayClass, "", "young");
    assert_eq!(served(&rig), None);
}

/// Whose class another controller has may be as old as it likes.
#[test]
fn others_objects_have_no_age() {
    let mut rig = oldest();
    let theirs = set(
        class("theirs", 0),
        "/spec/controllerName",
        json!("example.com/other"),
    );
    rig.put([
        theirs,
        class("ours", 9),
        gateway("t", "theirs", 0),
        gateway("o", "ours", 9),
    ]);
    assert_eq!(served(&rig).as_deref(), Some("o"));
    assert!(rig.class("theirs").is_none());
    let statuses = rig.pipeline.outputs.gateway_status;
    assert!(rig.engine.get(statuses, &named("t")).is_none());
}

/// The turn isn't lost by a mistake: traffic would go to whoever is next.
#[test]
fn the_oldest_gateway_is_the_oldest_even_if_nothing_of_it_is_valid() {
    let mut rig = oldest();
    let listeners = json!([{"name": "x", "port": 1, "protocol": "OTHER"}]);
    let bad = set(gateway("bad", "c", 1), "/spec/listeners", listeners);
    rig.put([class("c", 0), bad, gateway("good", "c", 2)]);
    assert!(rig.binds().is_empty());
    assert!(accepted(&rig, "good").starts_with("not Accepted/NotServed: "));
}

#[test]
fn the_gateway_that_was_named_is_served_whatever_its_age() {
    let mut rig = Rig::new(Mode::Unmanaged {
        gateway: Some(named("mine")),
    });
    rig.put([
        class("old", 1),
        class("young", 2),
        gateway("other", "old", 1),
    ]);
    assert_eq!(served(&rig), None);
    let elsewhere = "not Accepted/NotServed: there is one set of Envoys, and it serves Gateway ns/mine, which Sesame was started \
                     for";
    assert_eq!(accepted(&rig, "other"), elsewhere);
    rig.put([gateway("mine", "young", 9)]);
    assert_eq!(served(&rig).as_deref(), Some("mine"));
    assert_eq!(accepted(&rig, "other"), elsewhere);
    for name in ["old", "young"] {
        let class = rig.class(name).unwrap();
        assert_eq!(said(&class.conditions, "Accepted"), "Accepted/Accepted");
    }
}

/// Its owner knows where the Envoys are.
#[test]
fn an_address_need_not_be_known_and_none_can_be_asked_for() {
    let mut rig = oldest();
    let addresses = json!([{"type": "Hostname", "value": "x.example.com"}, {"type": "IPAddress", "value": "192.0.2.1"}]);
    rig.put([
        class("c", 0),
        set(gateway("g", "c", 1), "/spec/addresses", addresses),
    ]);
    let programmed = |rig: &Rig| said(&rig.gateway("g").conditions, "Programmed");
    assert!(programmed(&rig).starts_with("not Programmed/Pending"));
    let ready = FleetState {
        ready: true,
        ..FleetState::default()
    };
    rig.fleet(&FleetId::unmanaged(), Some(ready));
    assert_eq!(accepted(&rig, "g"), "Accepted/Accepted");
    assert_eq!(programmed(&rig), "Programmed/Programmed");
}

/// An edit asks nobody's age, and a Gateway that comes asks that of Gateways, not of routes.
#[test]
fn who_is_served_is_asked_when_somebody_comes_or_goes() {
    let mut rig = oldest();
    rig.put([class("c", 0)]);
    rig.put((0..20).map(|n| gateway(&format!("g{n}"), "c", n)));
    let statuses = rig.pipeline.outputs.gateway_status;
    let ran = |commit: &sesame_engine::Commit, stage: &str| {
        let work = commit.work().iter().find(|(name, _)| *name == stage);
        work.map_or(0, |(_, keys)| *keys)
    };
    let listeners = json!([{"name": "http", "port": 81, "protocol": "HTTP"}]);
    let commit = rig.put([set(gateway("g7", "c", 7), "/spec/listeners", listeners)]);
    assert_eq!(ran(&commit, "oldest gateway"), 0);
    assert_eq!(commit.ran(statuses), [named("g7")]);
    let commit = rig.put([gateway("new", "c", 30)]);
    assert_eq!(ran(&commit, "oldest gateway"), 1);
    assert_eq!(commit.ran(statuses), [named("new")]);
}
