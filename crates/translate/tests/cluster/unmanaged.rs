//! Unmanaged mode: one fleet outside Sesame, for one Gateway.

use serde_json::json;
use sesame_api::{Kind, ObjectStatus};
use sesame_model::{FleetId, FleetState};
use sesame_translate::settings::{Mode, Settings};

use crate::rig::{Rig, class, gateway, named, route, said, set};
use crate::statuses::{presenting, secured_service};

fn oldest() -> Rig {
    Rig::new(Mode::Unmanaged { gateway: None })
}

/// The served Gateway.
fn served(rig: &Rig) -> Option<String> {
    let requests: Vec<_> = rig.engine.iter(rig.pipeline.outputs.fleets).collect();
    assert!(
        requests
            .iter()
            .all(|(fleet, _)| **fleet == FleetId::Unmanaged)
    );
    assert_eq!(rig.binds().len(), requests.len());
    let statuses = rig.engine.iter(rig.pipeline.outputs.statuses);
    let mut accepted = statuses.filter(|(_, status)| {
        let ObjectStatus::Gateway(status) = &***status else {
            return false;
        };
        let mut conditions = status.conditions.iter();
        conditions.any(|condition| &*condition.type_ == "Accepted" && condition.is_true())
    });
    let served = accepted.next().map(|(name, _)| name.name.to_string());
    assert!(accepted.next().is_none());
    served
}

fn accepted(rig: &Rig, gateway: &str) -> String {
    said(&rig.gateway(gateway).conditions, "Accepted")
}

#[test]
fn the_oldest_gateway_of_the_oldest_class_is_served_and_named_in_other_statuses() {
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
    let elsewhere = "not Accepted/NotServed: the unmanaged fleet serves only Gateway ns/early, the oldest Gateway of \
                     the oldest GatewayClass";
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
    // Also for routes to a ListenerSet of a Gateway that isn't served.
    let late = gateway("late", "old", 6);
    rig.put([
        set(
            late,
            "/spec/allowedListeners",
            json!({"namespaces": {"from": "Same"}}),
        ),
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1",
            "kind": "ListenerSet",
            "metadata": {"name": "more", "namespace": "ns"},
            "spec": {
                "parentRef": {"name": "late"},
                "listeners": [{"name": "http", "port": 8080, "protocol": "HTTP"}],
            },
        }),
        set(
            crate::rig::route("r", &[]),
            "/spec/parentRefs",
            json!([{"kind": "ListenerSet", "name": "more"}]),
        ),
    ]);
    let parents = &rig.route("r").parents;
    assert_eq!(said(&parents[0].conditions, "Accepted"), elsewhere);
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
fn equal_ages_are_ordered_by_name() {
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
fn the_next_oldest_gateway_is_served_once_the_oldest_is_removed() {
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
    // The oldest class is selected even without Gateways.
    rig.remove(Kind::Gateway, "ns", "b");
    assert_eq!(served(&rig), None);
    assert!(accepted(&rig, "c").ends_with(
        "serves only Gateways of the oldest GatewayClass, old; that class has no Gateway yet"
    ));
    rig.remove(Kind::GatewayClass, "", "old");
    assert_eq!(served(&rig).as_deref(), Some("c"));
    // An older Gateway replaces it.
    rig.put([gateway("d", "young", 1)]);
    assert_eq!(served(&rig).as_deref(), Some("d"));
    rig.remove(Kind::GatewayClass, "", "young");
    assert_eq!(served(&rig), None);
}

/// The age of other controllers' objects has no effect.
#[test]
fn objects_of_other_controllers_are_ignored() {
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
    let statuses = rig.pipeline.outputs.statuses;
    let key = named("t").of_kind(Kind::Gateway);
    assert!(rig.engine.get(statuses, &key).is_none());
}

/// An invalid edit must not move traffic to another Gateway.
#[test]
fn the_oldest_gateway_is_not_replaced_even_if_it_is_invalid() {
    let mut rig = oldest();
    let listeners = json!([{"name": "x", "port": 1, "protocol": "OTHER"}]);
    let bad = set(gateway("bad", "c", 1), "/spec/listeners", listeners);
    rig.put([class("c", 0), bad, gateway("good", "c", 2)]);
    assert!(rig.binds().is_empty());
    assert!(accepted(&rig, "good").starts_with("not Accepted/NotServed: "));
}

#[test]
fn a_gateway_chosen_by_name_is_served_regardless_of_age() {
    let mut rig = Rig::new(Mode::Unmanaged {
        gateway: Some(named("mine")),
    });
    rig.put([
        class("old", 1),
        class("young", 2),
        gateway("other", "old", 1),
    ]);
    assert_eq!(served(&rig), None);
    let elsewhere = "not Accepted/NotServed: the unmanaged fleet serves only Gateway ns/mine, selected in Sesame's settings";
    assert_eq!(accepted(&rig, "other"), elsewhere);
    rig.put([gateway("mine", "young", 9)]);
    assert_eq!(served(&rig).as_deref(), Some("mine"));
    assert_eq!(accepted(&rig, "other"), elsewhere);
    for name in ["old", "young"] {
        let class = rig.class(name).unwrap();
        assert_eq!(said(&class.conditions, "Accepted"), "Accepted/Accepted");
    }
}

/// The addresses of unmanaged Envoys are outside Sesame's control.
#[test]
fn addresses_are_neither_required_nor_assigned() {
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
    rig.fleet(&FleetId::Unmanaged, Some(ready));
    assert_eq!(accepted(&rig, "g"), "Accepted/Accepted");
    assert_eq!(programmed(&rig), "Programmed/Programmed");
}

/// An edit doesn't compare ages, and a new Gateway is compared only with other Gateways, not with routes.
#[test]
fn only_adding_or_removing_a_gateway_reselects_the_oldest() {
    let mut rig = oldest();
    rig.put([class("c", 0)]);
    rig.put((0..20).map(|n| gateway(&format!("g{n}"), "c", n)));
    let ran = |commit: &sesame_engine::Commit, stage: &str| {
        let work = commit.work().iter().find(|(name, _)| *name == stage);
        work.map_or(0, |(_, keys)| *keys)
    };
    let listeners = json!([{"name": "http", "port": 81, "protocol": "HTTP"}]);
    let commit = rig.put([set(gateway("g7", "c", 7), "/spec/listeners", listeners)]);
    assert_eq!(ran(&commit, "oldest gateway"), 0);
    assert_eq!(ran(&commit, "gateway status"), 1);
    let commit = rig.put([gateway("new", "c", 30)]);
    assert_eq!(ran(&commit, "oldest gateway"), 1);
    assert_eq!(ran(&commit, "gateway status"), 1);
}

#[test]
fn backends_with_a_policy_get_the_gateways_client_certificate_and_others_that_of_the_instance() {
    let mut settings = Settings::new(Mode::Unmanaged { gateway: None });
    settings.ingress.client_certificate = Some(named("own"));
    let mut rig = Rig::with(settings);
    let [service, policy, secret] = secured_service();
    let own = set(secret.clone(), "/metadata/name", json!("own"));
    let proxy = json!({
        "apiVersion": "projectsesame.io/v1", "kind": "HTTPProxy", "metadata": {"name": "web", "namespace": "ns"},
        "spec": {
            "virtualhost": {"fqdn": "web.example.com"},
            "routes": [
                {"services": [{"name": "s", "port": 80}]},
                {"services": [{"name": "s", "port": 80, "protocol": "tls"}], "conditions": [{"prefix": "/tls"}]},
            ],
        },
    });
    let clusters = |rig: &Rig| -> Vec<String> {
        let rows = rig.engine.iter(rig.pipeline.outputs.fleet_clusters);
        rows.map(|((_, cluster), _)| cluster.to_string()).collect()
    };
    rig.put([class("c", 1), service, policy, secret, proxy]);
    assert_eq!(clusters(&rig), [""; 0]);
    rig.put([own]);
    let unverified = "ns/s:80?protocol=http1&tls=unverified&client=ns/own";
    assert_eq!(
        clusters(&rig),
        ["ns/s:80?tls=ns/p&client=ns/own", unverified]
    );
    rig.put([presenting(gateway("web", "c", 1))]);
    assert_eq!(clusters(&rig), ["ns/s:80?tls=ns/p&client=ns/c", unverified]);
    rig.remove(Kind::Secret, "ns", "c");
    assert_eq!(clusters(&rig), [unverified]);
}
