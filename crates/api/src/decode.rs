//! From JSON values to objects.
//!
//! Files do not pass an API server, so decoding does what the server would have done: nulls count
//! as absent, defaults are filled in, fields nobody knows are dropped, `stringData` of a Secret is
//! merged, and what the schema refuses is refused, with the path of the field and a message for
//! the person who wrote it.

use std::fmt;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::check;
use crate::key::ObjectKey;
use crate::kind::Kind;
use crate::object::Object;
use crate::strict::Strict;

/// Lists and mappings may be nested this deep. No kind comes near it; a document that does is an
/// attack on the stack.
const MAX_DEPTH: usize = 100;

/// How much of a wrong value an error shows, in characters.
const MAX_FOUND: usize = 100;

/// The longest message of an error, in characters.
const MAX_MESSAGE: usize = 500;

/// What stands between the expected and the found value in an error.
const FOUND: &str = ", found ";

/// kubectl's copy of the whole object; nobody reads it and it would double the memory.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Why an object cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct DecodeError {
    /// The object, as far as its kind and name are known.
    pub key: Option<ObjectKey>,
    /// The field, from the object's root; empty for the object as a whole.
    pub path: Vec<PathSegment>,
    /// What is wrong and what is expected, for a person.
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
    /// Decodes an object. `Ok(None)` when it is of a kind or version that we do not read.
    ///
    /// # Errors
    /// When the value is no object at all, or an object that an API server would refuse.
    pub fn decode(mut value: Value) -> Result<Option<Object>, DecodeError> {
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
            Some(_) => Err(error(None, &[field], "expected a string that is not empty")),
        };
        let Some(kind) = Kind::from_api(text("apiVersion")?, text("kind")?) else {
            return Ok(None);
        };
        let Some(()) = prune(&mut value, MAX_DEPTH) else {
            let message = format!("lists and mappings are nested more than {MAX_DEPTH} deep");
            return Err(error(None, &[], &message));
        };
        let key = check_metadata(kind, &mut value)?;
        let object = decode_kind(kind, value).and_then(|object| match check::object(&object) {
            Ok(()) => Ok(object),
            Err(problem) => Err(refused(&[], problem)),
        });
        object.map(Some).map_err(|mut error| {
            error.key = Some(key);
            error
        })
    }
}

/// Decodes a value that is no object by itself, such as one that stands as text in a ConfigMap, with the same care.
///
/// # Errors
/// When the value is none of its type. The error names no object.
pub fn decode_value<T: DeserializeOwned>(mut value: Value) -> Result<T, DecodeError> {
    let Some(()) = prune(&mut value, MAX_DEPTH) else {
        let message = format!("lists and mappings are nested more than {MAX_DEPTH} deep");
        return Err(error(None, &[], &message));
    };
    typed(value).map(|decoded| *decoded)
}

/// Removes fields that are null. `None` when the value is nested too deep.
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

/// Checks name and namespace, fills in the namespace, and drops what nobody reads.
fn check_metadata(kind: Kind, value: &mut Value) -> Result<ObjectKey, DecodeError> {
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
    check::object_name(kind, name).map_err(|p| refused(&["metadata", "name"], p))?;
    let mut key = ObjectKey::new(kind, "", name);
    if !kind.namespaced() {
        metadata.remove("namespace");
        return Ok(key);
    }
    let namespace = string_field(metadata, "namespace")?.unwrap_or("default");
    check::namespace(namespace).map_err(|p| refused(&["metadata", "namespace"], p))?;
    key.namespace = namespace.into();
    metadata.insert(
        "namespace".to_owned(),
        Value::String(key.namespace.as_ref().to_owned()),
    );
    Ok(key)
}

/// A string of the metadata; empty counts as absent, as for the API server.
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

fn decode_kind(kind: Kind, mut value: Value) -> Result<Object, DecodeError> {
    Ok(match kind {
        Kind::GatewayClass => Object::GatewayClass(typed(value)?),
        Kind::Gateway => Object::Gateway(typed(value)?),
        Kind::ListenerSet => Object::ListenerSet(typed(value)?),
        Kind::HTTPRoute => Object::HTTPRoute(typed(value)?),
        Kind::GRPCRoute => Object::GRPCRoute(typed(value)?),
        Kind::TLSRoute => {
            drop_backend_filters(&mut value);
            Object::TLSRoute(typed(value)?)
        }
        Kind::TCPRoute => {
            drop_backend_filters(&mut value);
            drop_hostnames(&mut value);
            Object::TCPRoute(typed(value)?)
        }
        Kind::UDPRoute => {
            drop_backend_filters(&mut value);
            drop_hostnames(&mut value);
            Object::UDPRoute(typed(value)?)
        }
        Kind::ReferenceGrant => Object::ReferenceGrant(typed(value)?),
        Kind::BackendTLSPolicy => Object::BackendTLSPolicy(typed(value)?),
        Kind::Namespace => Object::Namespace(typed(value)?),
        Kind::Service => Object::Service(typed(value)?),
        Kind::EndpointSlice => Object::EndpointSlice(typed(value)?),
        Kind::Secret => {
            join_base64_lines(&mut value, "data");
            Object::Secret(merge_string_data(typed(value).map_err(without_content)?))
        }
        Kind::ConfigMap => {
            join_base64_lines(&mut value, "binaryData");
            Object::ConfigMap(typed(value)?)
        }
    })
}

/// Our type for backends has filters, these kinds have none: there it is a field nobody knows.
fn drop_backend_filters(value: &mut Value) {
    let rules = value
        .pointer_mut("/spec/rules")
        .and_then(Value::as_array_mut);
    for rule in rules.into_iter().flatten() {
        let backends = rule.get_mut("backendRefs").and_then(Value::as_array_mut);
        for backend in backends
            .into_iter()
            .flatten()
            .filter_map(Value::as_object_mut)
        {
            backend.remove("filters");
        }
    }
}

/// Likewise for the hostnames of kinds that have none.
fn drop_hostnames(value: &mut Value) {
    if let Some(spec) = value.get_mut("spec").and_then(Value::as_object_mut) {
        spec.remove("hostnames");
    }
}

/// Base64 may be broken into lines, as command line tools print it.
fn join_base64_lines(value: &mut Value, field: &str) {
    let data = value.get_mut(field).and_then(Value::as_object_mut);
    for entry in data.into_iter().flat_map(Map::values_mut) {
        if let Value::String(text) = entry {
            text.retain(|c| c != '\n' && c != '\r');
        }
    }
}

/// An error in a Secret must not show what is in it.
fn without_content(mut error: DecodeError) -> DecodeError {
    if let Some((expected, _)) = error.message.split_once(FOUND) {
        error.message = expected.to_owned();
    }
    error
}

/// What an API server does when it stores a Secret.
fn merge_string_data(mut secret: Box<Secret>) -> Box<Secret> {
    if let Some(strings) = secret.string_data.take() {
        let data = secret.data.get_or_insert_default();
        for (key, text) in strings {
            data.insert(key, ByteString(text.into_bytes()));
        }
    }
    secret
}

/// Decodes one type and turns serde's error into ours.
fn typed<T: DeserializeOwned>(value: Value) -> Result<Box<T>, DecodeError> {
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
            // Some repeat what they found, which may be as long as the file.
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

/// Says what serde says in words for somebody who has never heard of serde.
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
        other if other.starts_with("enum ") => "a word",
        other => other,
    };
    let found = match found {
        "map" => "a mapping",
        "sequence" => "a list",
        other => other,
    };
    // The text may be as long as the file.
    let found: String = found.chars().take(MAX_FOUND).collect();
    format!("expected {expected}{FOUND}{found}")
}

/// A problem found by a check of the field at `path`.
fn refused(path: &[&str], problem: check::Problem) -> DecodeError {
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
