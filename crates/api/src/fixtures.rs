//! Test objects from `testdata/`, which uses every field of every kind.

use std::sync::LazyLock;

use serde_json::Value;

use crate::decode::DecodeError;
use crate::kind::Object;

/// Every object, as JSON.
pub(crate) fn all() -> &'static [Value] {
    static ALL: LazyLock<Vec<Value>> = LazyLock::new(parse);
    &ALL
}

fn parse() -> Vec<Value> {
    [
        include_str!("../testdata/gateway.yaml"),
        include_str!("../testdata/route.yaml"),
        include_str!("../testdata/other.yaml"),
        include_str!("../testdata/own.yaml"),
    ]
    .iter()
    .flat_map(|text| serde_saphyr::from_multiple::<Value>(text).unwrap())
    .collect()
}

/// The first object of that kind.
pub(crate) fn one(kind: &str) -> Value {
    all()
        .iter()
        .find(|value| value["kind"] == kind)
        .unwrap()
        .clone()
}

/// The first object of that kind, with the fields at the JSON pointers set. Null removes a field.
pub(crate) fn with(kind: &str, changes: &[(&str, Value)]) -> Value {
    let mut object = one(kind);
    for (pointer, value) in changes {
        let (parent, field) = pointer.rsplit_once('/').unwrap();
        let parent = object.pointer_mut(parent).unwrap();
        match parent {
            Value::Object(map) => drop(map.insert(field.to_owned(), value.clone())),
            Value::Array(list) if field == "-" => list.push(value.clone()),
            Value::Array(list) => list[field.parse::<usize>().unwrap()] = value.clone(),
            other => panic!("no field {field} in {other}"),
        }
    }
    object
}

/// Decodes an object of a supported kind.
pub(crate) fn decode(value: Value) -> Result<Object, DecodeError> {
    Object::decode(value).map(|object| object.unwrap())
}
