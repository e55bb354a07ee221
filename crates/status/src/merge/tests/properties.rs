//! For any live and desired status, foreign parts are kept and a single patch suffices.

use proptest::prelude::*;

use super::*;

const OTHERS: &str = "example.com/other";

fn a_condition() -> impl Strategy<Value = Value> {
    let types = ["Accepted", "ResolvedRefs", "example.com/A", "example.com/B"];
    let status = prop::sample::select(vec!["True", "False", "Unknown"]);
    let time = prop::sample::select(vec!["1970-01-01T00:00:00Z", BEFORE]);
    let message = prop::sample::select(vec!["", "m", "ü \"quoted\" \\"]);
    (
        prop::sample::select(types.to_vec()),
        status,
        1..4i64,
        time,
        message,
    )
        .prop_map(|(type_, status, generation, time, message)| {
            let mut condition = condition(type_, status, generation, time);
            condition["message"] = message.into();
            condition
        })
}

/// Conditions with distinct types.
fn conditions() -> impl Strategy<Value = Vec<Value>> {
    prop::collection::vec(a_condition(), 0..5).prop_map(|mut conditions| {
        let mut seen = Vec::new();
        conditions.retain(|condition| {
            let new = !seen.contains(&condition["type"]);
            seen.push(condition["type"].clone());
            new
        });
        conditions
    })
}

/// Conditions as translation produces them: our types, a single generation, no times.
fn desired_conditions() -> impl Strategy<Value = Vec<Value>> {
    conditions().prop_map(|mut conditions| {
        conditions.retain(is_ours);
        for condition in &mut conditions {
            condition["observedGeneration"] = 3.into();
            condition
                .as_object_mut()
                .unwrap()
                .remove("lastTransitionTime");
        }
        conditions
    })
}

fn is_ours(condition: &Value) -> bool {
    !condition["type"].as_str().unwrap().contains('/')
}

fn parents(
    controllers: Vec<&'static str>,
    conditions: impl Strategy<Value = Vec<Value>>,
) -> impl Strategy<Value = Vec<Value>> {
    let name = prop::sample::select(vec!["a", "b", "c"]);
    let section = prop::option::of(prop::sample::select(vec!["s", "t"]));
    let parent = (name, section, prop::sample::select(controllers), conditions).prop_map(
        |(name, section, controller, conditions)| {
            let mut parent = json!({"name": name});
            if let Some(section) = section {
                parent["sectionName"] = section.into();
            }
            json!({"parentRef": parent, "controllerName": controller, "conditions": conditions})
        },
    );
    prop::collection::vec(parent, 0..6)
}

fn listeners(conditions: impl Strategy<Value = Vec<Value>>) -> impl Strategy<Value = Vec<Value>> {
    let names = prop::sample::subsequence(vec!["a", "b", "c"], 0..=3);
    let rest = prop::collection::vec((conditions, 0..3, any::<bool>()), 3);
    (names, rest).prop_map(|(names, rest)| {
        let listeners = names.iter().zip(rest);
        let listeners = listeners.map(|(name, (conditions, routes, kinds))| {
            let kinds = match kinds {
                true => json!([{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute"}]),
                false => json!([]),
            };
            json!({"name": name, "attachedRoutes": routes, "conditions": conditions,
                "supportedKinds": kinds})
        });
        listeners.collect()
    })
}

/// Applies a merge patch (RFC 7396).
fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            apply(target.entry(name).or_insert(Value::Null), value);
        }
    }
}

/// The status after a write, and the patch's text.
fn after(kind: Kind, before: &Value, desired: &Desired) -> (Value, String) {
    let mut status = before.clone();
    let mut body = String::new();
    if let Diff::Patch(patch) = compare(kind, &live(3, &before.to_string()), desired) {
        body = patch.body.get().to_owned();
        let patch: Value = serde_json::from_str(&body).unwrap();
        apply(&mut status, &patch["status"]);
    }
    (status, body)
}

fn foreign(list: &Value, ours: impl Fn(&Value) -> bool) -> Vec<Value> {
    let items = list.as_array().cloned().unwrap_or_default();
    items.into_iter().filter(|item| !ours(item)).collect()
}

/// The transition time is kept if the status is unchanged, and is the current time otherwise.
fn check_times(before: &Value, after: &Value) {
    let before = before.as_array().cloned().unwrap_or_default();
    for condition in after.as_array().unwrap().iter().filter(|c| is_ours(c)) {
        let old = before
            .iter()
            .find(|old| old["type"] == condition["type"] && old["status"] == condition["status"]);
        let old = old.map_or(NOW, |old| old["lastTransitionTime"].as_str().unwrap());
        let time = condition["lastTransitionTime"].as_str().unwrap();
        let is_default = old.starts_with("1970");
        assert!(
            time == old || is_default && time == NOW,
            "{old} became {time}"
        );
    }
}

proptest! {
    #[test]
    fn foreign_route_entries_are_kept_and_one_patch_suffices(
        before in parents(vec![OURS, OTHERS], conditions()),
        desired_entries in parents(vec![OURS], desired_conditions()),
        has_status in any::<bool>(),
    ) {
        let before = json!({"parents": before, "other": 1.5});
        let mut desired_entries = desired_entries;
        let mut seen = Vec::new();
        desired_entries.retain(|entry| {
            let new = !seen.contains(&entry["parentRef"]);
            seen.push(entry["parentRef"].clone());
            new
        });
        let desired = match has_status {
            true => {
                let status = serde_json::from_value(json!({"parents": desired_entries}));
                Desired::Status(ObjectStatus::Route(Arc::new(status.unwrap())))
            }
            false => Desired::Unset,
        };
        let (status, body) = after(Kind::HTTPRoute, &before, &desired);
        let ours = |entry: &Value| entry["controllerName"] == OURS;
        prop_assert_eq!(foreign(&status["parents"], ours), foreign(&before["parents"], ours));
        for entry in foreign(&before["parents"], ours) {
            prop_assert!(body.is_empty() || body.contains(&entry.to_string()));
        }
        prop_assert_eq!(&status["other"], &before["other"]);
        let ours_after = status["parents"].as_array().unwrap();
        let ours_after: Vec<_> = ours_after.iter().filter(|entry| ours(entry)).collect();
        prop_assert_eq!(ours_after.len(), if has_status { desired_entries.len() } else { 0 });
        for entry in &desired_entries {
            let Some(now) = ours_after.iter().find(|now| {
                now["parentRef"]["name"] == entry["parentRef"]["name"]
                    && now["parentRef"]["sectionName"] == entry["parentRef"]["sectionName"]
            }) else {
                prop_assert!(!has_status);
                continue;
            };
            let old = before["parents"].as_array().unwrap().iter().find(|old| {
                ours(old) && old["parentRef"] == entry["parentRef"]
            });
            let old = old.map_or(&Value::Null, |old| &old["conditions"]);
            prop_assert_eq!(
                foreign(&now["conditions"], is_ours),
                foreign(old, is_ours)
            );
            check_times(old, &now["conditions"]);
            let count = now["conditions"].as_array().unwrap().iter().filter(|c| is_ours(c)).count();
            prop_assert_eq!(count, entry["conditions"].as_array().unwrap().len());
        }
        assert_up_to_date(Kind::HTTPRoute, &live(3, &status.to_string()), &desired);
    }

    #[test]
    fn foreign_gateway_conditions_are_kept_and_one_patch_suffices(
        conditions_before in conditions(),
        listeners_before in listeners(conditions()),
        desired_conditions_of_gateway in desired_conditions(),
        desired_listeners in listeners(desired_conditions()),
        addresses in prop::collection::vec(0..3u8, 0..3),
        sets in prop::option::of(0..2i64),
    ) {
        let before = json!({"conditions": conditions_before, "listeners": listeners_before,
            "addresses": [{"type": "IPAddress", "value": "10.0.0.1"}], "other": {"a": null}});
        let addresses: Vec<_> = addresses.iter()
            .map(|n| json!({"type": "IPAddress", "value": format!("10.0.0.{n}")})).collect();
        let desired = gateway(json!({"conditions": desired_conditions_of_gateway, "listeners": desired_listeners,
            "addresses": addresses, "attachedListenerSets": sets}));
        let (status, _) = after(Kind::Gateway, &before, &desired);
        prop_assert_eq!(
            foreign(&status["conditions"], is_ours),
            foreign(&before["conditions"], is_ours)
        );
        prop_assert_eq!(&status["other"], &before["other"]);
        prop_assert_eq!(status["attachedListenerSets"].as_i64(), sets);
        prop_assert_eq!(foreign(&status["addresses"], |_| false), addresses);
        check_times(&before["conditions"], &status["conditions"]);
        let listeners_after = foreign(&status["listeners"], |_| false);
        prop_assert_eq!(listeners_after.len(), desired_listeners.len());
        for desired in &desired_listeners {
            let of_name = |list: &Value| {
                let list = foreign(list, |_| false);
                list.into_iter().find(|listener| listener["name"] == desired["name"])
            };
            let now = of_name(&status["listeners"]).unwrap();
            prop_assert_eq!(&now["attachedRoutes"], &desired["attachedRoutes"]);
            prop_assert_eq!(&now["supportedKinds"], &desired["supportedKinds"]);
            let old = of_name(&before["listeners"]).unwrap_or_default();
            prop_assert_eq!(
                foreign(&now["conditions"], is_ours),
                foreign(&old["conditions"], is_ours)
            );
            check_times(&old["conditions"], &now["conditions"]);
        }
        assert_up_to_date(Kind::Gateway, &live(3, &status.to_string()), &desired);
    }

    #[test]
    fn any_live_status_yields_a_patch(text in ".{0,40}", junk in "[\\[\\]{}\",:a-z0-9]{0,40}") {
        let desired = route(&[("g", desired_condition("Accepted", "True", 1))]);
        let text = json!({"parents": text, "conditions": [text, {"type": 1}], "listeners": [[]]});
        let is_patched = |live: LiveStatus| {
            matches!(compare(Kind::HTTPRoute, &live, &desired), Diff::Patch(_))
        };
        prop_assert!(is_patched(live(1, &text.to_string())));
        if let Ok(raw) = RawValue::from_string(junk) {
            prop_assert!(is_patched(live(1, raw.get())));
        }
    }
}
