//! Detects whether an object is up to date, without storing the observed or the desired object.
//!
//! The API server records the manager of each field (`metadata.managedFields`). The fields that Sesame manages are cut out of
//! the object and hashed; so is the wanted object. The hashes differ if another client has changed or removed a managed field,
//! or if Sesame wants something else now. Fields that others have added don't count.
//!
//! Format: structured-merge-diff's `FieldsV1`: nested maps whose keys are `f:<field>`, `k:<JSON of the keys of a list's
//! element>`, `v:<JSON of a set's element>` and `.` for the thing itself. A leaf means everything below it.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The field manager of all writes of fleets' objects.
pub(super) const FIELD_MANAGER: &str = "sesame";

/// A hash of the fields that Sesame manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fingerprint(u128);

/// Of an object that is to be applied.
pub(super) fn of_desired(object: &Value) -> Fingerprint {
    let mut said = object.clone();
    if let Some(fields) = said.as_object_mut() {
        // An object's identity has no manager.
        for name in ["apiVersion", "kind"] {
            fields.remove(name);
        }
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            for name in ["name", "namespace", "uid"] {
                metadata.remove(name);
            }
        }
    }
    hash(said)
}

/// Of an object as the API server has it; `managed` is our `FieldsV1`, if there is one.
pub(super) fn of_observed(object: &Value, managed: Option<&Value>) -> Fingerprint {
    let said = managed.and_then(Value::as_object).map_or_else(
        || Value::Object(Map::new()),
        |managed| cut(object, managed, 0),
    );
    hash(said)
}

/// A map in JSON.
type Fields = Map<String, Value>;

/// Nothing of ours is nested deeper than this, and what is deeper is cut off.
const DEEPEST: usize = 64;

/// The part of a value that is managed.
fn cut(value: &Value, managed: &Fields, depth: usize) -> Value {
    let below = managed.keys().any(|key| key != ".");
    if !below || depth > DEEPEST {
        return value.clone();
    }
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(name, value)| {
                let managed = managed.get(&format!("f:{name}"))?.as_object()?;
                Some((name.clone(), cut(value, managed, depth + 1)))
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(elements) => {
            let keys: Vec<(Fields, &Fields)> = managed
                .iter()
                .filter_map(|(key, managed)| {
                    let key = serde_json::from_str::<Fields>(key.strip_prefix("k:")?).ok()?;
                    Some((key, managed.as_object()?))
                })
                .collect();
            elements
                .iter()
                .filter_map(|element| {
                    let of_set = || {
                        let text = serde_json::to_string(element).ok()?;
                        managed
                            .contains_key(&format!("v:{text}"))
                            .then(|| element.clone())
                    };
                    let of_keys = || {
                        let (_, managed) = keys.iter().find(|(key, _)| {
                            key.iter()
                                .all(|(name, value)| element.get(name) == Some(value))
                        })?;
                        Some(cut(element, managed, depth + 1))
                    };
                    of_keys().or_else(of_set)
                })
                .collect()
        }
        other => other.clone(),
    }
}

fn hash(mut value: Value) -> Fingerprint {
    canonical(&mut value);
    // Maps are written sorted by key: serde_json keeps them so.
    let digest = Sha256::digest(value.to_string().as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Fingerprint(u128::from_be_bytes(bytes))
}

/// Lists of objects are sorted: the API server may keep those that have keys in another order.
fn canonical(value: &mut Value) {
    match value {
        Value::Array(elements) => {
            elements.iter_mut().for_each(canonical);
            if elements.iter().all(Value::is_object) {
                elements.sort_by_cached_key(Value::to_string);
            }
        }
        Value::Object(fields) => {
            fields.values_mut().for_each(canonical);
            fields.sort_keys();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn desired() -> Value {
        json!({
            "apiVersion": "v1", "kind": "Service",
            "metadata": {
                "name": "a", "namespace": "b",
                "labels": { "x": "y" },
                "ownerReferences": [{ "uid": "1", "kind": "Gateway" }],
            },
            "spec": {
                "type": "LoadBalancer",
                "selector": { "s": "t" },
                "ports": [
                    { "name": "tcp-80", "port": 80, "protocol": "TCP", "targetPort": 80 },
                    { "name": "udp-80", "port": 80, "protocol": "UDP", "targetPort": 80 },
                ],
                "finalizers": ["one", "two"],
            },
        })
    }

    fn managed() -> Value {
        let port =
            json!({ ".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {} });
        json!({
            "f:metadata": {
                "f:labels": { "f:x": {} },
                "f:ownerReferences": { "k:{\"uid\":\"1\"}": {} },
            },
            "f:spec": {
                "f:type": {},
                "f:selector": {},
                "f:ports": {
                    "k:{\"port\":80,\"protocol\":\"TCP\"}": port,
                    "k:{\"port\":80,\"protocol\":\"UDP\"}": port,
                },
                "f:finalizers": { "v:\"one\"": {}, "v:\"two\"": {} },
            },
        })
    }

    /// As the API server has it: defaults, a status, and what others have added.
    fn observed() -> Value {
        let mut object = desired();
        object["metadata"]["uid"] = json!("u");
        object["metadata"]["labels"]["theirs"] = json!("z");
        object["metadata"]["ownerReferences"]
            .as_array_mut()
            .unwrap()
            .insert(0, json!({ "uid": "2" }));
        object["spec"]["clusterIP"] = json!("10.0.0.1");
        object["spec"]["ports"].as_array_mut().unwrap().reverse();
        object["spec"]["ports"][0]["nodePort"] = json!(30000);
        object["spec"]["ports"]
            .as_array_mut()
            .unwrap()
            .push(json!({ "port": 9, "protocol": "TCP" }));
        object["spec"]["finalizers"] = json!(["theirs", "one", "two"]);
        object["status"] = json!({});
        object
    }

    fn same(object: &Value, managed: &Value) -> bool {
        of_desired(&desired()) == of_observed(object, Some(managed))
    }

    #[test]
    fn what_others_add_is_not_looked_at() {
        assert!(same(&observed(), &managed()));
    }

    #[test]
    fn what_is_overwritten_or_lost_is_noticed() {
        let mut object = observed();
        object["spec"]["selector"]["s"] = json!("other");
        assert!(!same(&object, &managed()));

        let mut object = observed();
        object["spec"]["ports"].as_array_mut().unwrap().remove(0);
        assert!(!same(&object, &managed()));

        // Another manager took the field over, though the value is ours still.
        let mut fields = managed();
        fields["f:spec"].as_object_mut().unwrap().remove("f:type");
        assert!(!same(&observed(), &fields));
        assert_ne!(of_desired(&desired()), of_observed(&observed(), None));
    }

    #[test]
    fn what_we_want_no_more_is_noticed() {
        let mut object = observed();
        object["metadata"]["annotations"] = json!({ "old": "1" });
        assert!(same(&object, &managed()));
        let mut fields = managed();
        fields["f:metadata"]["f:annotations"] = json!({ ".": {}, "f:old": {} });
        assert!(!same(&object, &fields));
    }

    #[test]
    fn any_fields_are_survived() {
        for fields in [
            json!(null),
            json!([]),
            json!({ "f:spec": 3 }),
            json!({ "f:spec": { "f:ports": { "k:{": {}, "k:3": {}, "x": {} } } }),
        ] {
            let _ = of_observed(&observed(), Some(&fields));
        }
    }
}
