use std::sync::Arc;

use serde_json::{Value, json};

use super::*;

mod properties;

const OURS: &str = "projectsesame.io/gateway-controller";
const BEFORE: &str = "2026-01-01T00:00:00Z";
const NOW: &str = "2026-02-02T10:20:30Z";

fn now() -> Timestamp {
    "2026-02-02T10:20:30.987Z".parse().unwrap()
}

fn live(generation: i64, status: &str) -> LiveStatus {
    LiveStatus {
        uid: "u".into(),
        resource_version: "41".into(),
        generation,
        status: Some(RawValue::from_string(status.to_owned()).unwrap()),
    }
}

/// A live condition.
fn live_condition(type_: &str, status: &str, generation: i64) -> String {
    condition(type_, status, generation, BEFORE).to_string()
}

fn condition(type_: &str, status: &str, generation: i64, time: &str) -> Value {
    json!({"type": type_, "status": status, "observedGeneration": generation,
        "lastTransitionTime": time, "reason": "R", "message": "m"})
}

/// A desired condition, without a time.
fn desired_condition(type_: &str, status: &str, generation: i64) -> Value {
    let mut condition = condition(type_, status, generation, BEFORE);
    condition
        .as_object_mut()
        .unwrap()
        .remove("lastTransitionTime");
    condition
}

fn entry(parent: &str, controller: &str, conditions: &[String]) -> String {
    let conditions = conditions.join(",");
    format!(
        r#"{{"parentRef":{{"group":"gateway.networking.k8s.io","kind":"Gateway","name":"{parent}"}},"controllerName":"{controller}","conditions":[{conditions}]}}"#
    )
}

fn route(parents: &[(&str, Value)]) -> Desired {
    let parents = parents.iter().map(|(parent, condition)| {
        json!({"parentRef": {"name": parent}, "controllerName": OURS, "conditions": [condition]})
    });
    let status = json!({"parents": parents.collect::<Vec<_>>()});
    Desired::Status(ObjectStatus::Route(Arc::new(
        serde_json::from_value(status).unwrap(),
    )))
}

fn gateway_status(status: Value) -> ObjectStatus {
    ObjectStatus::Gateway(Arc::new(serde_json::from_value(status).unwrap()))
}

fn gateway(status: Value) -> Desired {
    Desired::Status(gateway_status(status))
}

fn compare(kind: Kind, live: &LiveStatus, desired: &Desired) -> Diff {
    diff(OURS, kind, live, desired, now())
}

/// The new status according to a patch, as text.
#[track_caller]
fn patched_status(kind: Kind, live: &LiveStatus, desired: &Desired) -> String {
    match compare(kind, live, desired) {
        Diff::Patch(patch) => {
            let body = patch.body.get();
            let head = r#"{"metadata":{"resourceVersion":"41"},"status":"#;
            body.strip_prefix(head)
                .unwrap()
                .strip_suffix('}')
                .unwrap()
                .to_owned()
        }
        other => panic!("no patch: {other:?}"),
    }
}

#[track_caller]
fn assert_up_to_date(kind: Kind, live: &LiveStatus, desired: &Desired) {
    let diff = compare(kind, live, desired);
    assert!(matches!(diff, Diff::UpToDate), "{diff:?}");
}

#[test]
fn a_route_without_a_status_gets_an_entry_with_a_time_in_whole_seconds() {
    let mut bare = live(1, "{}");
    bare.status = None;
    let desired = route(&[("g", desired_condition("Accepted", "True", 1))]);
    let conditions: Value = condition("Accepted", "True", 1, NOW);
    let body: Value =
        serde_json::from_str(&patched_status(Kind::HTTPRoute, &bare, &desired)).unwrap();
    let parent = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"});
    assert_eq!(
        body,
        json!({"parents": [
            {"parentRef": parent, "controllerName": OURS, "conditions": [conditions]}
        ]})
    );
}

#[test]
fn order_and_times_are_not_differences() {
    let a = entry("a", OURS, &[live_condition("Accepted", "True", 3)]);
    let b = entry("b", OURS, &[live_condition("Accepted", "False", 3)]);
    let foreign = entry("x", "other/controller", &[]);
    let stored = live(3, &format!(r#"{{"parents":[{b},{foreign},{a}]}}"#));
    let desired = route(&[
        ("a", desired_condition("Accepted", "True", 3)),
        ("b", desired_condition("Accepted", "False", 3)),
    ]);
    assert_up_to_date(Kind::GRPCRoute, &stored, &desired);
}

#[test]
fn the_transition_time_changes_only_with_the_status() {
    let stored = |status| {
        let entry = entry("g", OURS, &[live_condition("Accepted", status, 3)]);
        live(4, &format!(r#"{{"parents":[{entry}]}}"#))
    };
    let desired = route(&[("g", desired_condition("Accepted", "True", 4))]);
    let same = patched_status(Kind::HTTPRoute, &stored("True"), &desired);
    assert!(same.contains(BEFORE) && !same.contains(NOW), "{same}");
    let flipped = patched_status(Kind::HTTPRoute, &stored("False"), &desired);
    assert!(
        flipped.contains(NOW) && !flipped.contains(BEFORE),
        "{flipped}"
    );
}

#[test]
fn entries_of_other_controllers_are_kept_byte_for_byte() {
    let foreign = r#"{ "controllerName":"other\/x", "parentRef" : {"name":"g"},"n":1.50,"é":[ ] }"#;
    let old = entry("g", OURS, &[live_condition("Accepted", "True", 1)]);
    let stored = live(2, &format!(r#"{{"parents":[{foreign},{old},{foreign}]}}"#));
    let desired = route(&[("g", desired_condition("Accepted", "True", 2))]);
    let text = patched_status(Kind::TCPRoute, &stored, &desired);
    assert!(
        text.starts_with(&format!(r#"{{"parents":[{foreign},"#)),
        "{text}"
    );
    assert!(text.ends_with(&format!(r#",{foreign}]}}"#)), "{text}");
}

#[test]
fn only_our_entries_of_former_parents_are_removed() {
    let foreign = entry(
        "x",
        "other/controller",
        &[live_condition("Accepted", "True", 1)],
    );
    let a = entry("a", OURS, &[live_condition("Accepted", "True", 3)]);
    let b = entry("b", OURS, &[live_condition("Accepted", "True", 3)]);
    let stored = live(3, &format!(r#"{{"parents":[{a},{foreign},{b}]}}"#));
    let desired = route(&[("b", desired_condition("Accepted", "True", 3))]);
    let text = patched_status(Kind::HTTPRoute, &stored, &desired);
    assert_eq!(text, format!(r#"{{"parents":[{foreign},{b}]}}"#));
    let text = patched_status(Kind::HTTPRoute, &stored, &Desired::Unset);
    assert_eq!(text, format!(r#"{{"parents":[{foreign}]}}"#));
    let stored = live(3, &text);
    assert_up_to_date(Kind::HTTPRoute, &stored, &Desired::Unset);
}

#[test]
fn a_duplicate_entry_is_removed() {
    let a = entry("a", OURS, &[live_condition("Accepted", "True", 3)]);
    let stored = live(3, &format!(r#"{{"parents":[{a},{a}]}}"#));
    let desired = route(&[("a", desired_condition("Accepted", "True", 3))]);
    let text = patched_status(Kind::HTTPRoute, &stored, &desired);
    assert_eq!(text, format!(r#"{{"parents":[{a}]}}"#));
}

#[test]
fn foreign_conditions_in_our_entries_are_kept() {
    let foreign = r#"{"type":"example.com/Seen","status":"True","lastTransitionTime":"x"}"#;
    let conditions = [
        live_condition("Accepted", "True", 1),
        foreign.to_owned(),
        live_condition("PartiallyInvalid", "True", 1),
    ];
    let a = entry("a", OURS, &conditions);
    let stored = live(2, &format!(r#"{{"parents":[{a}]}}"#));
    let desired = route(&[("a", desired_condition("Accepted", "True", 2))]);
    let text = patched_status(Kind::HTTPRoute, &stored, &desired);
    assert!(text.contains(foreign), "{text}");
    assert!(!text.contains("PartiallyInvalid"), "{text}");
}

#[test]
fn policy_entries_are_ancestors() {
    let foreign = r#"{"ancestorRef":{"name":"g"},"controllerName":"other/c","conditions":[]}"#;
    let stored = live(1, &format!(r#"{{"ancestors":[{foreign}]}}"#));
    let status = json!({"ancestors": [{"ancestorRef": {"name": "g"}, "controllerName": OURS,
        "conditions": [desired_condition("Accepted", "True", 1)]}]});
    let status = serde_json::from_value(status).unwrap();
    let desired = Desired::Status(ObjectStatus::Policy(Arc::new(status)));
    let text = patched_status(Kind::BackendTLSPolicy, &stored, &desired);
    assert!(
        text.starts_with(&format!(r#"{{"ancestors":[{foreign},{{"ancestorRef":"#)),
        "{text}"
    );
    let text = patched_status(Kind::BackendTLSPolicy, &live(1, &text), &Desired::Unset);
    assert_eq!(text, format!(r#"{{"ancestors":[{foreign}]}}"#));
}

#[test]
fn only_changed_fields_of_a_gateway_are_sent() {
    let foreign = r#"{"type":"example.com/Seen","status":"Unknown","observedGeneration":1}"#;
    let ours = live_condition("Accepted", "True", 2);
    let conflicted = live_condition("Conflicted", "False", 2);
    let stored = live(
        2,
        &format!(
            r#"{{"addresses":[{{"type":"IPAddress","value":"10.0.0.1"}}],"conditions":[{foreign},{ours}],
            "listeners":[{{"name":"http","attachedRoutes":1,"more":[1],"conditions":[{foreign},{ours},{conflicted}]}}]}}"#
        ),
    );
    let status = |routes: i32| {
        gateway(json!({
            "addresses": [{"type": "IPAddress", "value": "10.0.0.1"}],
            "conditions": [desired_condition("Accepted", "True", 2)],
            "listeners": [{"name": "http", "attachedRoutes": routes,
                "conditions": [desired_condition("Accepted", "True", 2), desired_condition("Conflicted", "False", 2)]}],
        }))
    };
    assert_up_to_date(Kind::Gateway, &stored, &status(1));
    assert_eq!(
        patched_status(Kind::Gateway, &stored, &status(2)),
        format!(
            r#"{{"listeners":[{{"name":"http","supportedKinds":[],"attachedRoutes":2,"conditions":[{foreign},{ours},{conflicted}],"more":[1]}}]}}"#
        )
    );
}

#[test]
fn an_assigned_port_is_written_and_compared() {
    let status = |port: Option<u16>| {
        let mut listener = json!({"name": "a", "attachedRoutes": 0});
        if let Some(port) = port {
            listener["port"] = port.into();
        }
        let status = serde_json::from_value(json!({"listeners": [listener]})).unwrap();
        Desired::Status(ObjectStatus::ListenerSet(Arc::new(status)))
    };
    let text = patched_status(Kind::XListenerSet, &live(1, "{}"), &status(Some(20_000)));
    let stored = live(1, &text);
    assert_up_to_date(Kind::XListenerSet, &stored, &status(Some(20_000)));
    let text = patched_status(Kind::XListenerSet, &stored, &status(Some(20_001)));
    assert!(text.contains(r#""port":20001"#), "{text}");
    // Other kinds don't have this field.
    assert_up_to_date(Kind::ListenerSet, &stored, &status(None));
}

#[test]
fn our_undesired_conditions_are_removed() {
    let stored = format!(
        r#"{{"conditions":[{},{}]}}"#,
        live_condition("Accepted", "True", 1),
        live_condition("AddressesAssigned", "True", 1)
    );
    let desired = gateway(json!({"conditions": [desired_condition("Accepted", "True", 1)]}));
    let text = patched_status(Kind::Gateway, &live(1, &stored), &desired);
    assert_eq!(
        text,
        format!(
            r#"{{"conditions":[{}]}}"#,
            live_condition("Accepted", "True", 1)
        )
    );
}

#[test]
fn a_removed_listeners_entry_is_removed_with_its_foreign_conditions() {
    let foreign = r#"{"type":"example.com/Seen","status":"True"}"#;
    let stored = format!(
        r#"{{"listeners":[{{"name":"a","attachedRoutes":0,"conditions":[{foreign}]}},{{"name":"b","attachedRoutes":0,"conditions":[]}}]}}"#
    );
    let desired = gateway(json!({"listeners": [{"name": "b", "attachedRoutes": 0}]}));
    assert_eq!(
        patched_status(Kind::Gateway, &live(1, &stored), &desired),
        r#"{"listeners":[{"name":"b","attachedRoutes":0,"conditions":[]}]}"#
    );
}

#[test]
fn the_times_of_default_conditions_are_not_kept() {
    let default = condition("Accepted", "Unknown", 1, "1970-01-01T00:00:00Z");
    let stored = live(1, &json!({"conditions": [default]}).to_string());
    let mut unknown = desired_condition("Accepted", "Unknown", 1);
    unknown["message"] = "soon".into();
    let text = patched_status(
        Kind::Gateway,
        &stored,
        &gateway(json!({"conditions": [unknown]})),
    );
    assert!(text.contains(NOW) && !text.contains("1970"), "{text}");
}

#[test]
fn our_empty_fields_are_removed() {
    let stored = live(
        1,
        r#"{"addresses":[{"type":"IPAddress","value":"10.0.0.1"}],"attachedListenerSets":2,"other":1}"#,
    );
    assert_eq!(
        patched_status(Kind::Gateway, &stored, &gateway(json!({}))),
        r#"{"addresses":null,"attachedListenerSets":null}"#
    );
    let class = |features: &[&str]| {
        let features: Vec<_> = features.iter().map(|name| json!({"name": name})).collect();
        let status = serde_json::from_value(json!({"supportedFeatures": features}));
        Desired::Status(ObjectStatus::GatewayClass(Arc::new(status.unwrap())))
    };
    let stored = live(1, r#"{"supportedFeatures":[{"name":"A"},{"name":"B"}]}"#);
    assert_up_to_date(Kind::GatewayClass, &stored, &class(&["A", "B"]));
    assert_eq!(
        patched_status(Kind::GatewayClass, &stored, &class(&["A"])),
        r#"{"supportedFeatures":[{"name":"A"}]}"#
    );
    assert_eq!(
        patched_status(Kind::GatewayClass, &stored, &class(&[])),
        r#"{"supportedFeatures":null}"#
    );
}

fn proxy(status: Value) -> Desired {
    Desired::Status(ObjectStatus::HttpProxy(Arc::new(
        serde_json::from_value(status).unwrap(),
    )))
}

#[test]
fn errors_and_warnings_of_a_condition_are_written_and_compared() {
    let errors = json!([{"type": "RouteError", "status": "True", "reason": "Missing", "message": "no Service"}]);
    let valid = |errors: &Value| {
        let mut condition = desired_condition("Valid", "False", 2);
        condition["errors"] = errors.clone();
        condition
    };
    let status = |condition: Value| json!({"currentStatus": "invalid", "description": "1 error", "conditions": [condition]});
    let desired = proxy(status(valid(&errors)));
    let initial = live(
        2,
        r#"{"currentStatus":"NotReconciled","description":"Waiting"}"#,
    );
    let written = patched_status(Kind::HTTPProxy, &initial, &desired);
    let value: Value = serde_json::from_str(&written).unwrap();
    assert_eq!(value["currentStatus"], "invalid");
    assert_eq!(value["conditions"][0]["errors"], errors);
    assert_eq!(value["conditions"][0]["lastTransitionTime"], NOW);
    assert_up_to_date(Kind::HTTPProxy, &live(2, &written), &desired);
    // Another error in the same condition, whose status and time stay.
    let mut other = errors.clone();
    other[0]["message"] = "no port".into();
    let text = patched_status(
        Kind::HTTPProxy,
        &live(2, &written),
        &proxy(status(valid(&other))),
    );
    assert!(
        text.starts_with(r#"{"conditions":"#) && text.contains("no port"),
        "{text}"
    );
    // No conditions are left.
    let text = patched_status(
        Kind::HTTPProxy,
        &live(2, &written),
        &proxy(status(valid(&json!([])))),
    );
    assert!(!text.contains("errors"), "{text}");
}

#[test]
fn addresses_of_an_ingress_are_removed_from_a_mapping_that_stays() {
    let status = |ingress: Value| {
        let status = serde_json::from_value(json!({"loadBalancer": {"ingress": ingress}}));
        ObjectStatus::Ingress(Arc::new(status.unwrap()))
    };
    let two = json!([{"ip": "192.0.2.7"}, {"hostname": "lb.example.com"}]);
    let empty = live(1, r#"{"loadBalancer":{}}"#);
    assert_up_to_date(Kind::Ingress, &empty, &Desired::Status(status(json!([]))));
    let written = patched_status(Kind::Ingress, &empty, &Desired::Status(status(two.clone())));
    assert_eq!(
        written,
        json!({"loadBalancer": {"ingress": two}}).to_string()
    );
    let stored = live(1, &written);
    assert_up_to_date(Kind::Ingress, &stored, &Desired::Status(status(two)));
    assert_eq!(
        patched_status(Kind::Ingress, &stored, &Desired::Status(status(json!([])))),
        r#"{"loadBalancer":{"ingress":null}}"#
    );
    assert_up_to_date(
        Kind::Ingress,
        &empty,
        &Desired::Retracted(status(json!([]))),
    );
}

#[test]
fn addresses_of_an_http_proxy_stay_while_they_are_unknown() {
    let status = |load_balancer: Value| {
        let conditions = [desired_condition("Valid", "True", 2)];
        proxy(
            json!({"currentStatus": "valid", "loadBalancer": load_balancer, "conditions": conditions}),
        )
    };
    let known = json!({"ingress": [{"ip": "192.0.2.7"}]});
    let initial = live(2, r#"{"currentStatus":"NotReconciled"}"#);
    let written = patched_status(Kind::HTTPProxy, &initial, &status(known.clone()));
    let stored = live(2, &written);
    assert_up_to_date(Kind::HTTPProxy, &stored, &status(known));
    assert_up_to_date(Kind::HTTPProxy, &stored, &status(json!({})));
    // The HTTPProxy no longer serves a host.
    assert_eq!(
        patched_status(Kind::HTTPProxy, &stored, &status(Value::Null)),
        r#"{"loadBalancer":null}"#
    );
}

#[test]
fn a_later_generation_is_never_replaced_by_an_earlier_one() {
    let desired = route(&[("g", desired_condition("Accepted", "False", 4))]);
    let stored = |observed| {
        let entry = entry("g", OURS, &[live_condition("Accepted", "True", observed)]);
        live(5, &format!(r#"{{"parents":[{entry}]}}"#))
    };
    let later = compare(Kind::HTTPRoute, &stored(5), &desired);
    assert!(matches!(later, Diff::Stale), "{later:?}");
    // A generation that doesn't exist yet is ignored.
    patched_status(Kind::HTTPRoute, &stored(6), &desired);
    patched_status(Kind::HTTPRoute, &stored(3), &desired);
}

#[test]
fn entries_beyond_the_limit_are_omitted() {
    let foreign = vec![entry("x", "other/controller", &[]); 31].join(",");
    let stored = live(1, &format!(r#"{{"parents":[{foreign}]}}"#));
    let desired = route(&[
        ("a", desired_condition("Accepted", "True", 1)),
        ("b", desired_condition("Accepted", "True", 1)),
    ]);
    let Diff::Patch(patch) = compare(Kind::HTTPRoute, &stored, &desired) else {
        panic!("no patch");
    };
    assert_eq!(patch.omitted, 1);
    let status: Value = serde_json::from_str(patch.body.get()).unwrap();
    let parents = status["status"]["parents"].as_array().unwrap().clone();
    assert_eq!(
        (parents.len(), &parents[31]["parentRef"]["name"]),
        (32, &json!("a"))
    );
    let stored = live(1, &status["status"].to_string());
    assert_up_to_date(Kind::HTTPRoute, &stored, &desired);
}

#[test]
fn only_unchanged_parts_of_a_retracted_gateway_status_are_removed() {
    let written = json!({
        "addresses": [{"type": "IPAddress", "value": "10.0.0.1"}],
        "conditions": [desired_condition("Accepted", "True", 2), desired_condition("Programmed", "True", 2)],
        "listeners": [{"name": "http", "attachedRoutes": 2,
            "conditions": [desired_condition("Accepted", "True", 2)]}],
    });
    let desired = Desired::Retracted(gateway_status(written));
    let theirs = r#"{"type":"Accepted","status":"True","reason":"Theirs","message":""}"#;
    let stored = format!(
        r#"{{"addresses":[{{"type":"IPAddress","value":"10.0.0.1"}}],"conditions":[{theirs},{}],
        "listeners":[{{"name":"http","attachedRoutes":7,"conditions":[{}]}}]}}"#,
        live_condition("Programmed", "True", 2),
        live_condition("Accepted", "True", 2),
    );
    let text = patched_status(Kind::Gateway, &live(2, &stored), &desired);
    assert_eq!(
        text,
        format!(r#"{{"addresses":null,"conditions":[{theirs}],"listeners":null}}"#)
    );
    let stored = live(2, &format!(r#"{{"conditions":[{theirs}]}}"#));
    assert_up_to_date(Kind::Gateway, &stored, &desired);
    assert_up_to_date(Kind::Gateway, &stored, &Desired::Unset);
}
