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

/// A condition as it stands there.
fn said(type_: &str, status: &str, generation: i64) -> String {
    condition(type_, status, generation, BEFORE).to_string()
}

fn condition(type_: &str, status: &str, generation: i64, time: &str) -> Value {
    json!({"type": type_, "status": status, "observedGeneration": generation,
        "lastTransitionTime": time, "reason": "R", "message": "m"})
}

/// A condition as it should be, without a time.
fn wanted(type_: &str, status: &str, generation: i64) -> Value {
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

fn route(parents: &[(&str, Value)]) -> Want {
    let parents = parents.iter().map(|(parent, condition)| {
        json!({"parentRef": {"name": parent}, "controllerName": OURS, "conditions": [condition]})
    });
    let status = json!({"parents": parents.collect::<Vec<_>>()});
    Want::Says(ObjectStatus::Route(Arc::new(
        serde_json::from_value(status).unwrap(),
    )))
}

fn gateway_status(status: Value) -> ObjectStatus {
    ObjectStatus::Gateway(Arc::new(serde_json::from_value(status).unwrap()))
}

fn gateway(status: Value) -> Want {
    Want::Says(gateway_status(status))
}

fn verdict(kind: Kind, live: &LiveStatus, want: &Want) -> Verdict {
    patch(OURS, kind, live, want, now())
}

/// The new status in a patch, as text.
#[track_caller]
fn sent(kind: Kind, live: &LiveStatus, want: &Want) -> String {
    match verdict(kind, live, want) {
        Verdict::Write(patch) => {
            let body = patch.body.get();
            let head = r#"{"metadata":{"resourceVersion":"41"},"status":"#;
            body.strip_prefix(head)
                .unwrap()
                .strip_suffix('}')
                .unwrap()
                .to_owned()
        }
        other => panic!("nothing is sent: {other:?}"),
    }
}

#[track_caller]
fn assert_right(kind: Kind, live: &LiveStatus, want: &Want) {
    let verdict = verdict(kind, live, want);
    assert!(matches!(verdict, Verdict::Right), "{verdict:?}");
}

#[test]
fn a_route_that_says_nothing_gets_its_entry_with_the_time_in_whole_seconds() {
    let mut bare = live(1, "{}");
    bare.status = None;
    let want = route(&[("g", wanted("Accepted", "True", 1))]);
    let conditions: Value = condition("Accepted", "True", 1, NOW);
    let body: Value = serde_json::from_str(&sent(Kind::HTTPRoute, &bare, &want)).unwrap();
    let parent = json!({"group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "g"});
    assert_eq!(
        body,
        json!({"parents": [
            {"parentRef": parent, "controllerName": OURS, "conditions": [conditions]}
        ]})
    );
}

#[test]
fn what_is_right_is_left_alone_in_whatever_order_and_since_whenever() {
    let a = entry("a", OURS, &[said("Accepted", "True", 3)]);
    let b = entry("b", OURS, &[said("Accepted", "False", 3)]);
    let foreign = entry("x", "other/controller", &[]);
    let there = live(3, &format!(r#"{{"parents":[{b},{foreign},{a}]}}"#));
    let want = route(&[
        ("a", wanted("Accepted", "True", 3)),
        ("b", wanted("Accepted", "False", 3)),
    ]);
    assert_right(Kind::GRPCRoute, &there, &want);
}

#[test]
fn a_time_changes_with_the_status_and_only_then() {
    let there = |status| {
        let entry = entry("g", OURS, &[said("Accepted", status, 3)]);
        live(4, &format!(r#"{{"parents":[{entry}]}}"#))
    };
    let want = route(&[("g", wanted("Accepted", "True", 4))]);
    let same = sent(Kind::HTTPRoute, &there("True"), &want);
    assert!(same.contains(BEFORE) && !same.contains(NOW), "{same}");
    let flipped = sent(Kind::HTTPRoute, &there("False"), &want);
    assert!(
        flipped.contains(NOW) && !flipped.contains(BEFORE),
        "{flipped}"
    );
}

#[test]
fn entries_of_other_controllers_go_through_as_the_text_that_they_were() {
    let foreign = r#"{ "controllerName":"other\/x", "parentRef" : {"name":"g"},"n":1.50,"é":[ ] }"#;
    let old = entry("g", OURS, &[said("Accepted", "True", 1)]);
    let there = live(2, &format!(r#"{{"parents":[{foreign},{old},{foreign}]}}"#));
    let want = route(&[("g", wanted("Accepted", "True", 2))]);
    let text = sent(Kind::TCPRoute, &there, &want);
    assert!(
        text.starts_with(&format!(r#"{{"parents":[{foreign},"#)),
        "{text}"
    );
    assert!(text.ends_with(&format!(r#",{foreign}]}}"#)), "{text}");
}

#[test]
fn entries_of_parents_that_were_left_are_taken_away_and_no_others() {
    let foreign = entry("x", "other/controller", &[said("Accepted", "True", 1)]);
    let a = entry("a", OURS, &[said("Accepted", "True", 3)]);
    let b = entry("b", OURS, &[said("Accepted", "True", 3)]);
    let there = live(3, &format!(r#"{{"parents":[{a},{foreign},{b}]}}"#));
    let want = route(&[("b", wanted("Accepted", "True", 3))]);
    let text = sent(Kind::HTTPRoute, &there, &want);
    assert_eq!(text, format!(r#"{{"parents":[{foreign},{b}]}}"#));
    let text = sent(Kind::HTTPRoute, &there, &Want::Nothing(None));
    assert_eq!(text, format!(r#"{{"parents":[{foreign}]}}"#));
    let there = live(3, &text);
    assert_right(Kind::HTTPRoute, &there, &Want::Nothing(None));
}

#[test]
fn an_entry_that_is_there_twice_is_there_once_afterwards() {
    let a = entry("a", OURS, &[said("Accepted", "True", 3)]);
    let there = live(3, &format!(r#"{{"parents":[{a},{a}]}}"#));
    let want = route(&[("a", wanted("Accepted", "True", 3))]);
    let text = sent(Kind::HTTPRoute, &there, &want);
    assert_eq!(text, format!(r#"{{"parents":[{a}]}}"#));
}

#[test]
fn conditions_of_other_types_stay_in_entries_of_ours() {
    let foreign = r#"{"type":"example.com/Seen","status":"True","lastTransitionTime":"x"}"#;
    let conditions = [
        said("Accepted", "True", 1),
        foreign.to_owned(),
        said("PartiallyInvalid", "True", 1),
    ];
    let a = entry("a", OURS, &conditions);
    let there = live(2, &format!(r#"{{"parents":[{a}]}}"#));
    let want = route(&[("a", wanted("Accepted", "True", 2))]);
    let text = sent(Kind::HTTPRoute, &there, &want);
    assert!(text.contains(foreign), "{text}");
    assert!(!text.contains("PartiallyInvalid"), "{text}");
}

#[test]
fn policies_have_ancestors() {
    let foreign = r#"{"ancestorRef":{"name":"g"},"controllerName":"other/c","conditions":[]}"#;
    let there = live(1, &format!(r#"{{"ancestors":[{foreign}]}}"#));
    let status = json!({"ancestors": [{"ancestorRef": {"name": "g"}, "controllerName": OURS,
        "conditions": [wanted("Accepted", "True", 1)]}]});
    let status = serde_json::from_value(status).unwrap();
    let want = Want::Says(ObjectStatus::Policy(Arc::new(status)));
    let text = sent(Kind::BackendTLSPolicy, &there, &want);
    assert!(
        text.starts_with(&format!(r#"{{"ancestors":[{foreign},{{"ancestorRef":"#)),
        "{text}"
    );
    let text = sent(
        Kind::BackendTLSPolicy,
        &live(1, &text),
        &Want::Nothing(None),
    );
    assert_eq!(text, format!(r#"{{"ancestors":[{foreign}]}}"#));
}

#[test]
fn of_a_gateway_only_the_fields_that_differ_are_sent() {
    let foreign = r#"{"type":"example.com/Seen","status":"Unknown","observedGeneration":1}"#;
    let ours = said("Accepted", "True", 2);
    let conflicted = said("Conflicted", "False", 2);
    let there = live(
        2,
        &format!(
            r#"{{"addresses":[{{"type":"IPAddress","value":"10.0.0.1"}}],"conditions":[{foreign},{ours}],
            "listeners":[{{"name":"http","attachedRoutes":1,"more":[1],"conditions":[{foreign},{ours},{conflicted}]}}]}}"#
        ),
    );
    let status = |routes: i32| {
        gateway(json!({
            "addresses": [{"type": "IPAddress", "value": "10.0.0.1"}],
            "conditions": [wanted("Accepted", "True", 2)],
            "listeners": [{"name": "http", "attachedRoutes": routes,
                "conditions": [wanted("Accepted", "True", 2), wanted("Conflicted", "False", 2)]}],
        }))
    };
    assert_right(Kind::Gateway, &there, &status(1));
    assert_eq!(
        sent(Kind::Gateway, &there, &status(2)),
        format!(
            r#"{{"listeners":[{{"name":"http","supportedKinds":[],"attachedRoutes":2,"conditions":[{foreign},{ours},{conflicted}],"more":[1]}}]}}"#
        )
    );
}

#[test]
fn a_condition_that_is_ours_and_not_wanted_goes() {
    let there = format!(
        r#"{{"conditions":[{},{}]}}"#,
        said("Accepted", "True", 1),
        said("AddressesAssigned", "True", 1)
    );
    let want = gateway(json!({"conditions": [wanted("Accepted", "True", 1)]}));
    let text = sent(Kind::Gateway, &live(1, &there), &want);
    assert_eq!(
        text,
        format!(r#"{{"conditions":[{}]}}"#, said("Accepted", "True", 1))
    );
}

#[test]
fn the_entry_of_a_listener_that_is_gone_goes_whole() {
    let foreign = r#"{"type":"example.com/Seen","status":"True"}"#;
    let there = format!(
        r#"{{"listeners":[{{"name":"a","attachedRoutes":0,"conditions":[{foreign}]}},{{"name":"b","attachedRoutes":0,"conditions":[]}}]}}"#
    );
    let want = gateway(json!({"listeners": [{"name": "b", "attachedRoutes": 0}]}));
    assert_eq!(
        sent(Kind::Gateway, &live(1, &there), &want),
        r#"{"listeners":[{"name":"b","attachedRoutes":0,"conditions":[]}]}"#
    );
}

#[test]
fn the_times_of_conditions_that_were_put_in_by_default_are_not_kept() {
    let default = condition("Accepted", "Unknown", 1, "1970-01-01T00:00:00Z");
    let there = live(1, &json!({"conditions": [default]}).to_string());
    let mut unknown = wanted("Accepted", "Unknown", 1);
    unknown["message"] = "soon".into();
    let text = sent(
        Kind::Gateway,
        &there,
        &gateway(json!({"conditions": [unknown]})),
    );
    assert!(text.contains(NOW) && !text.contains("1970"), "{text}");
}

#[test]
fn fields_that_are_ours_and_empty_are_removed() {
    let there = live(
        1,
        r#"{"addresses":[{"type":"IPAddress","value":"10.0.0.1"}],"attachedListenerSets":2,"other":1}"#,
    );
    assert_eq!(
        sent(Kind::Gateway, &there, &gateway(json!({}))),
        r#"{"addresses":null,"attachedListenerSets":null}"#
    );
    let class = |features: &[&str]| {
        let features: Vec<_> = features.iter().map(|name| json!({"name": name})).collect();
        let status = serde_json::from_value(json!({"supportedFeatures": features}));
        Want::Says(ObjectStatus::GatewayClass(Arc::new(status.unwrap())))
    };
    let there = live(1, r#"{"supportedFeatures":[{"name":"A"},{"name":"B"}]}"#);
    assert_right(Kind::GatewayClass, &there, &class(&["A", "B"]));
    assert_eq!(
        sent(Kind::GatewayClass, &there, &class(&["A"])),
        r#"{"supportedFeatures":[{"name":"A"}]}"#
    );
    assert_eq!(
        sent(Kind::GatewayClass, &there, &class(&[])),
        r#"{"supportedFeatures":null}"#
    );
}

#[test]
fn a_later_generation_is_never_replaced_by_an_earlier_one() {
    let want = route(&[("g", wanted("Accepted", "False", 4))]);
    let there = |observed| {
        let entry = entry("g", OURS, &[said("Accepted", "True", observed)]);
        live(5, &format!(r#"{{"parents":[{entry}]}}"#))
    };
    let later = verdict(Kind::HTTPRoute, &there(5), &want);
    assert!(matches!(later, Verdict::Behind), "{later:?}");
    // One that there hasn't been says nothing.
    sent(Kind::HTTPRoute, &there(6), &want);
    sent(Kind::HTTPRoute, &there(3), &want);
}

#[test]
fn a_list_that_others_fill_takes_no_more_and_the_rest_is_still_written() {
    let foreign = vec![entry("x", "other/controller", &[]); 31].join(",");
    let there = live(1, &format!(r#"{{"parents":[{foreign}]}}"#));
    let want = route(&[
        ("a", wanted("Accepted", "True", 1)),
        ("b", wanted("Accepted", "True", 1)),
    ]);
    let Verdict::Write(patch) = verdict(Kind::HTTPRoute, &there, &want) else {
        panic!("one has room");
    };
    assert_eq!(patch.left_out, 1);
    let status: Value = serde_json::from_str(patch.body.get()).unwrap();
    let parents = status["status"]["parents"].as_array().unwrap().clone();
    assert_eq!(
        (parents.len(), &parents[31]["parentRef"]["name"]),
        (32, &json!("a"))
    );
    let there = live(1, &status["status"].to_string());
    assert_right(Kind::HTTPRoute, &there, &want);
}

#[test]
fn what_was_said_of_a_gateway_is_taken_back_where_nobody_has_said_else() {
    let said_before = json!({
        "addresses": [{"type": "IPAddress", "value": "10.0.0.1"}],
        "conditions": [wanted("Accepted", "True", 2), wanted("Programmed", "True", 2)],
        "listeners": [{"name": "http", "attachedRoutes": 2,
            "conditions": [wanted("Accepted", "True", 2)]}],
    });
    let want = Want::Nothing(Some(gateway_status(said_before)));
    let theirs = r#"{"type":"Accepted","status":"True","reason":"Theirs","message":""}"#;
    let there = format!(
        r#"{{"addresses":[{{"type":"IPAddress","value":"10.0.0.1"}}],"conditions":[{theirs},{}],
        "listeners":[{{"name":"http","attachedRoutes":7,"conditions":[{}]}}]}}"#,
        said("Programmed", "True", 2),
        said("Accepted", "True", 2),
    );
    let text = sent(Kind::Gateway, &live(2, &there), &want);
    assert_eq!(
        text,
        format!(r#"{{"addresses":null,"conditions":[{theirs}],"listeners":null}}"#)
    );
    let there = live(2, &format!(r#"{{"conditions":[{theirs}]}}"#));
    assert_right(Kind::Gateway, &there, &want);
    assert_right(Kind::Gateway, &there, &Want::Nothing(None));
}
