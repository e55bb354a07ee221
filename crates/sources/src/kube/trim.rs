//! Parses JSON text into a value, keeping only some fields.
//!
//! In: the text of an object. Out: a value without unused fields and nulls. These are skipped while parsing, so they
//! don't use memory or affect the fingerprint. In a busy cluster `managedFields` makes up more than half of an object.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};
use sesame_api::Fields;

/// Reads a value, keeping these fields.
pub(super) struct Trim(pub(super) &'static Fields);

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

/// Reads the value of a field, if kept, and inserts it into the map unless it is null.
pub(super) fn put<'de, A: MapAccess<'de>>(
    map: &mut Map<String, Value>,
    field: String,
    fields: &Fields,
    entries: &mut A,
) -> Result<(), A::Error> {
    let Some(kept) = fields.of(&field) else {
        entries.next_value::<IgnoredAny>()?;
        return Ok(());
    };
    let value = entries.next_value_seed(Trim(kept))?;
    if !value.is_null() {
        map.insert(field, value);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sesame_api::Kind;

    use super::*;

    fn trimmed(fields: &'static Fields, text: &str) -> Value {
        let mut json = serde_json::Deserializer::from_str(text);
        Trim(fields).deserialize(&mut json).unwrap()
    }

    #[test]
    fn all_fields_are_kept_by_default() {
        let text = r#"{"a":[1,-2,0.5,"x",true,{"b":{}}],"c":"d"}"#;
        assert_eq!(trimmed(&Fields::ALL, text).to_string(), text);
    }

    #[test]
    fn nulls_are_dropped() {
        assert_eq!(
            trimmed(&Fields::ALL, r#"{"a":null,"b":[null,{"c":null}]}"#),
            json!({"b": [null, {}]})
        );
    }

    #[test]
    fn unused_fields_of_endpoints_are_dropped() {
        let text = r#"{"endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true},
            "nodeName":"n","targetRef":{"kind":"Pod","name":"p"},"zone":"z"}],"ports":[{"port":1}]}"#;
        assert_eq!(
            trimmed(Kind::EndpointSlice.info().kept.body, text),
            json!({"endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}], "ports": [{"port": 1}]})
        );
    }

    #[test]
    fn kubectls_copy_of_the_object_is_dropped() {
        let text = r#"{"name":"a","managedFields":[{"f":{}}],"finalizers":["x"],
            "annotations":{"kubectl.kubernetes.io/last-applied-configuration":"{}","mine":"yes"}}"#;
        assert_eq!(
            trimmed(Kind::Gateway.info().kept.metadata, text),
            json!({"name": "a", "annotations": {"mine": "yes"}})
        );
    }
}
