//! Minimal objects generated from a schema, with a given value at a given place.
//!
//! An API server accepts such an object if it accepts that value. For CEL rules, see `fixes.rs`.

use serde_json::{Map, Value, json};

use super::fixes;
use super::schema::{Crd, Path, Step};
use super::text::Text;

/// A complete object with `leaf` at `path`.
pub(crate) fn object(crd: &Crd, path: &Path, leaf: &Value) -> Value {
    let mut object = build(&crd.schema, &path.0, leaf);
    object["apiVersion"] = json!(crd.api_version);
    object["kind"] = json!(crd.kind);
    object["metadata"] = json!({ "name": "a", "namespace": "b" });
    fixes::apply(&crd.kind, path, &mut object);
    object
}

/// A value other than the default, distinct for each `nth` if possible.
pub(crate) fn value(schema: &Value, name: &str, nth: usize) -> Value {
    if let Some(choices) = schema["enum"].as_array() {
        // Unlike a redirect, a mirror may be repeated.
        let repeatable = choices.iter().find(|choice| *choice == "RequestMirror");
        let others: Vec<_> = choices
            .iter()
            .filter(|c| Some(*c) != schema.get("default"))
            .collect();
        let rotated = others.get(nth % others.len().max(1)).copied();
        return repeatable.or(rotated).unwrap_or(&choices[0]).clone();
    }
    match schema["type"].as_str().unwrap_or("object") {
        "object" => minimal(schema),
        "array" => list(
            schema,
            name,
            schema["minItems"].as_u64().unwrap_or(0) as usize,
        ),
        "boolean" => json!(schema["default"] != json!(true)),
        "integer" => number(schema, nth),
        "string" => json!(Text::of(schema).sample(name, nth)),
        other => panic!("{name}: type {other}"),
    }
}

/// A list of `length` distinct entries.
pub(crate) fn list(schema: &Value, name: &str, length: usize) -> Value {
    let items = &schema["items"];
    let keys = schema["x-kubernetes-list-map-keys"].as_array();
    let keys: Vec<&str> = keys
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    let entry = |nth| {
        let mut entry = value(items, name, nth);
        if let Some(fields) = entry.as_object_mut() {
            let properties = items["properties"].as_object();
            for (field, schema) in properties.into_iter().flatten() {
                let differs = keys.contains(&field.as_str())
                    || (["name", "port", "value"].contains(&field.as_str())
                        && fields.contains_key(field));
                if differs && schema.get("enum").is_none() {
                    fields.insert(field.clone(), value(schema, field, nth));
                }
            }
        }
        entry
    };
    (0..length).map(entry).collect()
}

fn number(schema: &Value, nth: usize) -> Value {
    let bound = |name: &str| schema[name].as_i64();
    let value = bound("minimum").unwrap_or(0) + 1 + nth as i64;
    let value = bound("maximum").map_or(value, |maximum| value.min(maximum));
    if schema["default"] == value {
        return json!(value + 1);
    }
    json!(value)
}

/// The smallest valid value.
fn minimal(schema: &Value) -> Value {
    let mut fields = required(schema);
    choose(schema, &mut fields, None);
    Value::Object(fields)
}

fn required(schema: &Value) -> Map<String, Value> {
    let names = schema["required"].as_array().into_iter().flatten();
    // Fields of the object itself, which `object` sets.
    let own: &[&str] = match schema["properties"].get("metadata") {
        Some(_) => &["apiVersion", "kind", "metadata"],
        None => &[],
    };
    names
        .filter_map(Value::as_str)
        .filter(|name| !own.contains(name))
        .map(|name| (name.to_owned(), value(&schema["properties"][name], name, 0)))
        .chain(schema.get("additionalProperties").map(|schema| {
            let key = "example.com/key".to_owned();
            (key, value(schema, "", 0))
        }))
        .collect()
}

fn build(schema: &Value, path: &[Step], leaf: &Value) -> Value {
    match path {
        [] => leaf.clone(),
        [Step::Field(name), rest @ ..] => {
            let mut fields = required(schema);
            let field = build(&schema["properties"][name], rest, leaf);
            fields.insert(name.clone(), field);
            choose(schema, &mut fields, Some(name));
            Value::Object(fields)
        }
        [Step::Item, rest @ ..] => json!([build(&schema["items"], rest, leaf)]),
        [Step::Entry, rest @ ..] => {
            let entry = build(&schema["additionalProperties"], rest, leaf);
            json!({ "example.com/key": entry })
        }
    }
}

/// Makes a union consistent: among the fields named after enum values, keeps only the chosen one and the field
/// `given`.
fn choose(schema: &Value, fields: &mut Map<String, Value>, given: Option<&str>) {
    let Some(properties) = schema["properties"].as_object() else {
        return;
    };
    for (name, discriminator) in properties {
        let Some(choices) = discriminator["enum"].as_array() else {
            continue;
        };
        let member = |choice: &Value| {
            let choice = choice.as_str()?;
            properties
                .keys()
                .find(|name| name.eq_ignore_ascii_case(choice))
        };
        let by_member = choices
            .iter()
            .find(|choice| given.is_some() && member(choice).map(String::as_str) == given);
        if let Some(choice) = by_member {
            fields.insert(name.clone(), choice.clone());
        }
        let chosen = fields.get(name).or(discriminator.get("default")).cloned();
        for choice in choices {
            let Some(member) = member(choice) else {
                continue;
            };
            if Some(choice) != chosen.as_ref() {
                fields.remove(member);
            } else if !fields.contains_key(member) {
                fields.insert(member.clone(), value(&properties[member], member, 0));
            }
        }
    }
    // CEL rules require a port in every reference to a Service.
    if properties
        .get("kind")
        .is_some_and(|kind| kind["default"] == "Service")
        && properties.contains_key("port")
    {
        fields.entry("port").or_insert(json!(80));
    }
}
