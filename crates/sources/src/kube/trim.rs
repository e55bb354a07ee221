//! JSON text to a JSON value, without what nobody reads.
//!
//! In: the text of an object. Out: a value in which the fields that a [`Rule`] names, and those that are null, have never been:
//! they are skipped while parsing, so that they cost neither memory nor a place in the fingerprint. In a busy cluster more than half
//! of an object is `managedFields`.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use sesame_api::Kind;

/// Which fields of a mapping, or of each mapping of a list, are read.
#[derive(Debug)]
pub(super) struct Rule {
    /// These and no others; `None`: all but those of `without`.
    only: Option<&'static [&'static str]>,
    /// Not these.
    without: &'static [&'static str],
    /// What is read of the values of these.
    within: &'static [(&'static str, &'static Rule)],
}

/// Everything.
pub(super) static ALL: Rule = Rule {
    only: None,
    without: &[],
    within: &[],
};

/// Metadata of Gateway API's kinds. `resourceVersion` is taken out again after it was read.
pub(super) static METADATA: Rule = Rule {
    only: Some(&[
        "name",
        "namespace",
        "labels",
        "annotations",
        "generation",
        "creationTimestamp",
        "deletionTimestamp",
        "uid",
        "resourceVersion",
    ]),
    without: &[],
    within: &[("annotations", &ANNOTATIONS)],
};

/// Metadata of Kubernetes' own kinds. An EndpointSlice has an annotation that changes with every Pod, and nobody reads it.
pub(super) static CORE_METADATA: Rule = Rule {
    only: Some(&["name", "namespace", "labels", "uid", "resourceVersion"]),
    without: &[],
    within: &[],
};

/// kubectl's copy of the whole object.
static ANNOTATIONS: Rule = Rule {
    only: None,
    without: &["kubectl.kubernetes.io/last-applied-configuration"],
    within: &[],
};

/// What stands beside metadata. Of Kubernetes' own kinds nobody reads how a Service is carried out by others, or which Pod on which
/// node an endpoint is.
pub(super) fn body(kind: Kind) -> &'static Rule {
    static SERVICE: Rule = Rule {
        only: None,
        without: &["status"],
        within: &[("spec", &SERVICE_SPEC)],
    };
    static SERVICE_SPEC: Rule = Rule {
        only: None,
        without: &[
            "allocateLoadBalancerNodePorts",
            "clusterIPs",
            "externalTrafficPolicy",
            "healthCheckNodePort",
            "internalTrafficPolicy",
            "ipFamilyPolicy",
            "loadBalancerClass",
            "loadBalancerIP",
            "loadBalancerSourceRanges",
            "selector",
            "sessionAffinity",
            "sessionAffinityConfig",
            "trafficDistribution",
        ],
        within: &[],
    };
    static SLICE: Rule = Rule {
        only: None,
        without: &[],
        within: &[("endpoints", &ENDPOINT)],
    };
    static ENDPOINT: Rule = Rule {
        only: None,
        without: &[
            "deprecatedTopology",
            "hints",
            "hostname",
            "nodeName",
            "targetRef",
            "zone",
        ],
        within: &[],
    };
    static NAMESPACE: Rule = Rule {
        only: Some(&[]),
        without: &[],
        within: &[],
    };
    match kind {
        Kind::Service => &SERVICE,
        Kind::EndpointSlice => &SLICE,
        Kind::Namespace => &NAMESPACE,
        _ => &ALL,
    }
}

impl Rule {
    /// The rule for a field's value; `None`: the field is not read.
    pub(super) fn of(&self, field: &str) -> Option<&'static Rule> {
        let read = match self.only {
            Some(only) => only.contains(&field),
            None => !self.without.contains(&field),
        };
        let rule = || self.within.iter().find(|(name, _)| *name == field);
        read.then(|| rule().map_or(&ALL, |(_, rule)| *rule))
    }
}

/// Reads a value under a rule.
pub(super) struct Trim(pub(super) &'static Rule);

impl<'de> DeserializeSeed<'de> for Trim {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Trim {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(Trim(self.0))? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some(field) = entries.next_key::<String>()? {
            put(&mut map, field, self.0, &mut entries)?;
        }
        Ok(Value::Object(map))
    }
}

/// Reads the value of a field, if the rule says that it is read, and puts it into the map unless it is null.
pub(super) fn put<'de, A: MapAccess<'de>>(
    map: &mut Map<String, Value>,
    field: String,
    rule: &Rule,
    entries: &mut A,
) -> Result<(), A::Error> {
    let Some(rule) = rule.of(&field) else {
        entries.next_value::<IgnoredAny>()?;
        return Ok(());
    };
    let value = entries.next_value_seed(Trim(rule))?;
    if !value.is_null() {
        map.insert(field, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn trimmed(rule: &'static Rule, text: &str) -> Value {
        let mut json = serde_json::Deserializer::from_str(text);
        Trim(rule).deserialize(&mut json).unwrap()
    }

    #[test]
    fn what_no_rule_names_stays() {
        let text = r#"{"a":[1,-2,0.5,"x",true,{"b":{}}],"c":"d"}"#;
        assert_eq!(trimmed(&ALL, text).to_string(), text);
    }

    #[test]
    fn nulls_go() {
        assert_eq!(
            trimmed(&ALL, r#"{"a":null,"b":[null,{"c":null}]}"#),
            json!({"b": [null, {}]})
        );
    }

    #[test]
    fn endpoints_lose_what_nobody_reads() {
        let text = r#"{"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true},
            "nodeName":"n","targetRef":{"kind":"Pod","name":"p"},"zone":"z"}],"ports":[{"port":1}]}"#;
        assert_eq!(
            trimmed(body(Kind::EndpointSlice), text),
            json!({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}], "ports": [{"port": 1}]})
        );
    }

    #[test]
    fn annotations_lose_kubectls_copy_of_the_object() {
        let text = r#"{"name":"a","managedFields":[{"f":{}}],"finalizers":["x"],
            "annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","mine":"yes"}}"#;
        assert_eq!(
            trimmed(&METADATA, text),
            json!({"name": "a", "annotations": {"mine": "yes"}})
        );
    }
}
