//! Decodes JSON values into objects.
//!
//! Decoding does what an API server does: nulls count as absent, defaults are filled in, unknown fields are dropped,
//! and a Secret's `stringData` is merged. Objects from files are also validated; errors have the field's path and a
//! message for the file's author. Objects from an API server are not validated again: its release may have laxer rules.

mod limits;

use std::fmt;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::check;
use crate::fields::LAST_APPLIED;
use crate::key::ObjectKey;
use crate::kind::{Kind, Object};
use crate::strict::Strict;

/// The maximum nesting of lists and mappings. No kind comes close; deeper documents would exhaust the stack.
const MAX_DEPTH: usize = 100;

/// How much of an invalid value an error shows, in characters.
const MAX_FOUND: usize = 100;

/// The longest error message, in characters.
const MAX_MESSAGE: usize = 500;

/// Separates the expected value from the found value in an error.
const FOUND: &str = ", found ";

/// Why an object cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DecodeError {
    /// The object, if its kind and name are known.
    pub key: Option<ObjectKey>,
    /// The field, from the object's root; empty for the object as a whole.
    pub path: Vec<PathSegment>,
    /// What is wrong and what is expected.
    pub message: String,
}

/// One step of a path to a field.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PathSegment {
    /// A field of a mapping.
    Field(String),
    /// An element of a list, from 0.
    Index(usize),
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        if !self.path.is_empty() {
            write!(f, "{}: ", self.path_text())?;
        }
        f.write_str(&self.message)
    }
}

impl DecodeError {
    /// The path as text, such as `spec.rules[0].matches[1].path.value`.
    pub fn path_text(&self) -> String {
        let mut text = String::new();
        for segment in &self.path {
            match segment {
                PathSegment::Field(name) => {
                    if !text.is_empty() {
                        text.push('.');
                    }
                    text.push_str(name);
                }
                PathSegment::Index(index) => text.push_str(&format!("[{index}]")),
            }
        }
        text
    }
}

impl Object {
    /// Decodes and validates an object that no API server has validated, such as one from a file. `Ok(None)` for a kind
    /// or version that Sesame does not read.
    ///
    /// # Errors
    /// If the value is not an object, or an API server would reject it.
    pub fn decode(value: Value) -> Result<Option<Object>, DecodeError> {
        decode(value, Validation::Full)
    }

    /// Decodes an object that an API server has admitted. Bounds, patterns and cross-field rules are not checked again,
    /// so objects stay readable if a later API release relaxes them. An HTTPProxy or Ingress that exceeds [a
    /// limit](crate::HttpProxySpec::exceeded) is decoded without the actions of its routes, or without its routes. `Ok(None)`
    /// for a kind or version that Sesame does not read.
    ///
    /// # Errors
    /// If the value is not an object, a required field is missing, a field has the wrong type, or a spec is too large even
    /// without its routes.
    pub fn decode_admitted(value: Value) -> Result<Option<Object>, DecodeError> {
        decode(value, Validation::Admitted)
    }
}

/// Whether schema rules are checked.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Validation {
    Full,
    /// An API server has already checked them.
    Admitted,
}

fn decode(mut value: Value, validation: Validation) -> Result<Option<Object>, DecodeError> {
    let Some(root) = value.as_object() else {
        return Err(error(
            None,
            &[],
            "expected an object with apiVersion, kind and metadata",
        ));
    };
    let text = |field: &str| match root.get(field) {
        Some(Value::String(text)) if !text.is_empty() => Ok(text.as_str()),
        None | Some(Value::Null) => Err(error(None, &[field], "is required")),
        Some(_) => Err(error(None, &[field], "expected a non-empty string")),
    };
    let Some(kind) = Kind::from_api(text("apiVersion")?, text("kind")?) else {
        return Ok(None);
    };
    let Some(()) = prune(&mut value, MAX_DEPTH) else {
        let message = format!("lists and mappings are nested more than {MAX_DEPTH} levels deep");
        return Err(error(None, &[], &message));
    };
    let key = read_metadata(kind, &mut value, validation)?;
    let decoded = match validation {
        Validation::Full => validated(kind, value),
        Validation::Admitted => limits::decode(kind, value),
    };
    decoded.map(Some).map_err(|error| DecodeError {
        key: Some(key),
        ..error
    })
}

fn validated(kind: Kind, value: Value) -> Result<Object, DecodeError> {
    limits::check_size(kind, &value)?;
    let object = Object::of_kind(kind, value)?;
    let checked = object.resource().check();
    checked.map_err(|problem| invalid(&[], problem))?;
    Ok(object)
}

/// Decodes a value that is not an object, such as YAML in a ConfigMap.
///
/// # Errors
/// If the value is not of type `T`. The error doesn't name an object.
pub fn decode_value<T: DeserializeOwned>(mut value: Value) -> Result<T, DecodeError> {
    let Some(()) = prune(&mut value, MAX_DEPTH) else {
        let message = format!("lists and mappings are nested more than {MAX_DEPTH} levels deep");
        return Err(error(None, &[], &message));
    };
    typed(value).map(|decoded| *decoded)
}

/// Removes null fields. `None` if the value is nested too deeply.
fn prune(value: &mut Value, depth: usize) -> Option<()> {
    match value {
        Value::Object(map) => {
            map.retain(|_, value| !value.is_null());
            map.values_mut()
                .try_for_each(|value| prune(value, depth.checked_sub(1)?))
        }
        Value::Array(list) => list
            .iter_mut()
            .try_for_each(|value| prune(value, depth.checked_sub(1)?)),
        _ => Some(()),
    }
}

/// Reads the name and namespace, fills in a missing namespace, and drops unused metadata.
fn read_metadata(
    kind: Kind,
    value: &mut Value,
    validation: Validation,
) -> Result<ObjectKey, DecodeError> {
    let missing = || error(None, &["metadata"], "is required");
    let metadata = value.get_mut("metadata").ok_or_else(missing)?;
    let Some(metadata) = metadata.as_object_mut() else {
        return Err(error(None, &["metadata"], "expected a mapping"));
    };
    metadata.remove("managedFields");
    if let Some(Value::Object(annotations)) = metadata.get_mut("annotations") {
        annotations.remove(LAST_APPLIED);
    }
    let name = string_field(metadata, "name")?;
    let name = name.ok_or_else(|| error(None, &["metadata", "name"], "is required"))?;
    if validation == Validation::Full {
        check::object_name(kind, name).map_err(|p| invalid(&["metadata", "name"], p))?;
    }
    let mut key = ObjectKey::new(kind, "", name);
    if !kind.namespaced() {
        metadata.remove("namespace");
        return Ok(key);
    }
    let namespace = string_field(metadata, "namespace")?.unwrap_or("default");
    if validation == Validation::Full {
        check::namespace(namespace).map_err(|p| invalid(&["metadata", "namespace"], p))?;
    }
    key.namespace = namespace.into();
    metadata.insert(
        "namespace".to_owned(),
        Value::String(key.namespace.as_ref().to_owned()),
    );
    Ok(key)
}

/// A string field of the metadata; empty counts as absent, as in the API server.
fn string_field<'a>(
    metadata: &'a Map<String, Value>,
    field: &str,
) -> Result<Option<&'a str>, DecodeError> {
    match metadata.get(field) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.as_str()).filter(|text| !text.is_empty())),
        Some(_) => Err(error(None, &["metadata", field], "expected a string")),
    }
}

/// The error without the invalid value.
pub(crate) fn without_found(mut error: DecodeError) -> DecodeError {
    if let Some((expected, _)) = error.message.split_once(FOUND) {
        error.message = expected.to_owned();
    }
    error
}

/// Decodes a type and converts serde's error.
pub(crate) fn typed<T: DeserializeOwned>(value: Value) -> Result<Box<T>, DecodeError> {
    serde_path_to_error::deserialize(Strict(value))
        .map(Box::new)
        .map_err(|error| {
            let mut path = Vec::new();
            for segment in error.path() {
                match segment {
                    serde_path_to_error::Segment::Seq { index } => {
                        path.push(PathSegment::Index(*index));
                    }
                    serde_path_to_error::Segment::Map { key } => {
                        path.push(PathSegment::Field(key.clone()));
                    }
                    serde_path_to_error::Segment::Enum { .. }
                    | serde_path_to_error::Segment::Unknown => {}
                }
            }
            let mut message = humanize(error.inner().to_string(), &mut path);
            // Some messages repeat the value, which may be as long as the file.
            if let Some((end, _)) = message.char_indices().nth(MAX_MESSAGE) {
                message.truncate(end);
                message.push('…');
            }
            DecodeError {
                key: None,
                path,
                message,
            }
        })
}

/// Rewrites serde's messages in the terms of YAML and JSON.
fn humanize(message: String, path: &mut Vec<PathSegment>) -> String {
    if let Some(field) = message
        .strip_prefix("missing field `")
        .and_then(|m| m.strip_suffix('`'))
    {
        path.push(PathSegment::Field(field.to_owned()));
        return "is required".to_owned();
    }
    let found = ["invalid type: ", "invalid value: "]
        .iter()
        .find_map(|p| message.strip_prefix(p));
    let Some((found, expected)) = found.and_then(|rest| rest.split_once(", expected ")) else {
        return message;
    };
    let expected = match expected {
        "u16" => "a whole number from 0 to 65535",
        "u32" => "a whole number from 0 to 4294967295",
        "i32" | "i64" => "a whole number",
        "a map" => "a mapping",
        "a sequence" => "a list",
        "a boolean" => "true or false",
        other if other.starts_with("struct ") => "a mapping",
        other if other.starts_with("enum ") => "a string",
        other => other,
    };
    let found = match found {
        "map" => "a mapping",
        "sequence" => "a list",
        other => other,
    };
    // The value may be as long as the file.
    let found: String = found.chars().take(MAX_FOUND).collect();
    format!("expected {expected}{FOUND}{found}")
}

/// The error for a failed check of the field at `path`.
pub(crate) fn invalid(path: &[&str], problem: check::Problem) -> DecodeError {
    let (inner, message) = problem.into_parts();
    let mut error = error(None, path, &message);
    error.path.extend(inner);
    error
}

/// An error at a path of fields.
fn error(key: Option<ObjectKey>, path: &[&str], message: &str) -> DecodeError {
    let path = path
        .iter()
        .map(|field| PathSegment::Field((*field).to_owned()))
        .collect();
    DecodeError {
        key,
        path,
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
