//! Detects whether an object is up to date without storing it.
//!
//! The API server records the manager of each field (`metadata.managedFields`). A fingerprint is a hash of the fields
//! that Sesame manages. The observed and the desired object's fingerprints differ if another client has changed or
//! removed such a field, or if the desired state has changed. Fields added by other clients don't count.
//!
//! The format is `FieldsV1` of structured-merge-diff: nested maps whose keys are `f:<field>`, `k:<JSON of a list
//! element's keys>`, `v:<JSON of a set's element>`, and `.` for the value itself. An empty map stands for the whole
//! value.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// The field manager for all writes to fleets' objects.
pub(super) const FIELD_MANAGER: &str = "sesame";

/// A hash of the fields that Sesame manages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Fingerprint(u128);

/// The fingerprint of an object that is to be applied.
pub(super) fn of_desired(object: &Value) -> Fingerprint {
    let mut managed_part = object.clone();
    if let Some(fields) = managed_part.as_object_mut() {
        // These fields identify the object, so they have no manager.
        for name in ["apiVersion", "kind"] {
            fields.remove(name);
        }
        if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
            for name in ["name", "namespace", "uid"] {
                metadata.remove(name);
            }
        }
    }
    hash(managed_part)
}

/// The fingerprint of an object on the API server. `managed` is our `FieldsV1`, if any.
pub(super) fn of_observed(object: &Value, managed: Option<&Value>) -> Fingerprint {
    let managed_part = managed.and_then(Value::as_object).map_or_else(
        || Value::Object(Map::new()),
        |managed| extract(object, managed, 0),
    );
    hash(managed_part)
}

/// A JSON object.
type Fields = Map<String, Value>;

/// Values nested deeper than this are treated as a whole. Ours aren't nested that deeply.
const MAX_DEPTH: usize = 64;

/// The managed part of a value.
fn extract(value: &Value, managed: &Fields, depth: usize) -> Value {
    let has_children = managed.keys().any(|key| key != ".");
    if !has_children || depth > MAX_DEPTH {
        return value.clone();
    }
    match value {
        Value::Object(fields) => fields
            .iter()
            .filter_map(|(name, value)| {
                let managed = managed.get(&format!("f:{name}"))?.as_object()?;
                Some((name.clone(), extract(value, managed, depth + 1)))
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
                    let in_set = || {
                        let text = serde_json::to_string(element).ok()?;
                        managed
                            .contains_key(&format!("v:{text}"))
                            .then(|| element.clone())
                    };
                    let by_keys = || {
                        let (_, managed) = keys.iter().find(|(key, _)| {
                            key.iter()
                                .all(|(name, value)| element.get(name) == Some(value))
                        })?;
                        Some(extract(element, managed, depth + 1))
                    };
                    by_keys().or_else(in_set)
                })
                .collect()
        }
        other => other.clone(),
    }
}

fn hash(mut value: Value) -> Fingerprint {
    canonicalize(&mut value);
    // Objects are serialized in key order, and `canonicalize` has sorted the keys.
    let digest = Sha256::digest(value.to_string().as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    Fingerprint(u128::from_be_bytes(bytes))
}

/// Sorts lists of objects, since the API server may store keyed lists in another order.
fn canonicalize(value: &mut Value) {
    match value {
        Value::Array(elements) => {
            elements.iter_mut().for_each(canonicalize);
            if elements.iter().all(Value::is_object) {
                elements.sort_by_cached_key(Value::to_string);
            }
        }
        Value::Object(fields) => {
            fields.values_mut().for_each(canonicalize);
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

    /// The object as the API server stores it: with defaults, a status, and fields added by other clients.
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

    fn matches(object: &Value, managed: &Value) -> bool {
        of_desired(&desired()) == of_observed(object, Some(managed))
    }

    #[test]
    fn fields_added_by_others_are_ignored() {
        assert!(matches(&observed(), &managed()));
    }

    #[test]
    fn overwritten_and_removed_fields_are_detected() {
        let mut object = observed();
        object["spec"]["selector"]["s"] = json!("other");
        assert!(!matches(&object, &managed()));

        let mut object = observed();
        object["spec"]["ports"].as_array_mut().unwrap().remove(0);
        assert!(!matches(&object, &managed()));

        // Another manager owns the field now, although the value is unchanged.
        let mut fields = managed();
        fields["f:spec"].as_object_mut().unwrap().remove("f:type");
        assert!(!matches(&observed(), &fields));
        assert_ne!(of_desired(&desired()), of_observed(&observed(), None));
    }

    #[test]
    fn fields_no_longer_desired_are_detected() {
        let mut object = observed();
        object["metadata"]["annotations"] = json!({ "old": "1" });
        assert!(matches(&object, &managed()));
        let mut fields = managed();
        fields["f:metadata"]["f:annotations"] = json!({ ".": {}, "f:old": {} });
        assert!(!matches(&object, &fields));
    }

    #[test]
    fn malformed_managed_fields_do_not_panic() {
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
