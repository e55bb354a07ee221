//! The outcome of a translation, in the compact form of the cases.
//!
//! Omits what is the same in every outcome ([`Constants`], pinned in a separate case) and the outcome of the shared
//! objects alone. Nothing else is omitted: fields that this module doesn't handle are shown as they are. Objects are
//! translated as in `sesame translate`, with the fallback certificate `default/wildcard` and the rate limit service
//! `default/limits`, or with the configuration `default/instance` if it is one of the objects.

mod downstream_tls;
mod filters;
mod resources;
mod routes;
mod status;
mod upstream_tls;

use std::collections::BTreeMap;

use serde_json::{Map, Value};
use sesame_api::{NamespacedName, Object, ObjectKey};
use sesame_control::{
    IngressSettings, Mode, Options, RATE_LIMIT_DOMAIN, RateLimitSettings, Settings, Translation,
    translate_with,
};
use sesame_translate::configuration;
use sesame_translate::problem::Notices;

use crate::yaml::Node;

/// The name of the instance's configuration.
const INSTANCE: &str = "instance";

/// The outcome of a translation.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Decoding errors.
    refused: Vec<String>,
    /// The generations of the decoded objects.
    generations: BTreeMap<ObjectKey, i64>,
    translation: Translation,
}

/// Decodes and translates objects. As in a cluster, the generation defaults to 1. If there are objects in Contour's API
/// group, Contour's annotations are read too.
///
/// # Panics
/// If an object is of a kind that Sesame doesn't read.
pub fn of(values: &[Value]) -> Outcome {
    let mut refused = Vec::new();
    let mut objects = Vec::new();
    for value in values {
        match Object::decode(with_generation(value.clone())) {
            Ok(Some(object)) => objects.push(object),
            Ok(None) => panic!("Sesame does not read this kind: {value}"),
            Err(error) => refused.push(error.to_string()),
        }
    }
    if objects
        .iter()
        .any(|object: &Object| object.kind().is_of_contour())
    {
        objects.iter_mut().for_each(Object::adopt_contour);
    }
    refused.sort();
    Outcome {
        refused,
        generations: objects
            .iter()
            .map(|object| (object.key(), object.generation()))
            .collect(),
        translation: {
            let settings = settings(&objects);
            translate_with(objects, settings, Options::default())
        },
    }
}

/// The settings of the instance's configuration. While it is invalid, or without it, they are the same in all cases, and
/// affect only objects that use them.
fn settings(objects: &[Object]) -> Settings {
    let usual = usual_settings();
    let mut configurations = objects.iter().filter_map(|object| match object {
        Object::SesameConfiguration(found) if *found.meta.name == *INSTANCE => Some(found),
        _ => None,
    });
    match configurations.next() {
        Some(found) => configuration::settings(&usual, found).unwrap_or_else(|_| Settings {
            configuration: Some(found.meta.namespaced_name()),
            ..usual
        }),
        None => usual,
    }
}

fn usual_settings() -> Settings {
    let ingress = IngressSettings {
        fallback_certificate: Some(NamespacedName::new("default", "wildcard")),
        rate_limits: Some(RateLimitSettings {
            service: NamespacedName::new("default", "limits"),
            domain: RATE_LIMIT_DOMAIN.into(),
            fail_open: false,
            headers: true,
            resource_exhausted: false,
            default: None,
        }),
        ..IngressSettings::default()
    };
    Settings {
        ingress,
        ..Settings::new(Mode::Local)
    }
}

fn with_generation(mut value: Value) -> Value {
    if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.entry("generation").or_insert_with(|| 1.into());
    }
    value
}

impl Outcome {
    /// The part of this outcome that isn't in `shared`, the outcome of the shared objects.
    pub fn beyond(&self, shared: &Outcome, constants: &mut Constants) -> Node {
        let mut out = Vec::new();
        if !self.refused.is_empty() {
            let refused = self.refused.iter().map(Node::text).collect();
            out.push(("refused".to_owned(), Node::List(refused)));
        }
        out.push(("status".to_owned(), status::all(self, shared, constants)));
        out.push(("notices".to_owned(), notices(&self.translation)));
        out.push(("envoy".to_owned(), resources::all(self, shared, constants)));
        out.retain(|(_, node)| !node.is_empty());
        Node::Map(out)
    }
}

/// Errors and warnings for objects whose status can't report them.
fn notices(translation: &Translation) -> Node {
    let of_object = |notices: &Notices| {
        let lists = [("errors", &notices.errors), ("warnings", &notices.warnings)];
        let lists = lists.into_iter().map(|(name, list)| {
            let list = list.iter().map(|notice| Node::text(notice.to_string()));
            (name.to_owned(), Node::List(list.collect()))
        });
        Node::Map(lists.filter(|(_, list)| !list.is_empty()).collect())
    };
    let objects = translation.notices.iter();
    Node::Map(
        objects
            .map(|(key, notices)| (key.to_string(), of_object(notices)))
            .collect(),
    )
}

/// Values that are the same in every outcome, by name.
#[derive(Clone, Debug, Default)]
pub struct Constants {
    values: BTreeMap<&'static str, Value>,
    known: bool,
}

impl Constants {
    /// The constants in the outcome of these objects.
    pub fn in_outcome_of(values: &[Value]) -> Self {
        let mut constants = Self::default();
        of(values).beyond(&of(&[]), &mut constants);
        constants.known = true;
        constants
    }

    /// The form in which the constants are pinned.
    pub fn to_node(&self) -> Node {
        Node::from(Value::Object(
            self.values
                .iter()
                .map(|(&name, value)| (name.to_owned(), value.clone()))
                .collect(),
        ))
    }

    /// The constant with this name; null if there is none.
    fn get(&self, name: &str) -> Value {
        self.values.get(name).cloned().unwrap_or_default()
    }

    /// Whether a value equals the constant with this name.
    fn is(&mut self, name: &'static str, value: &Value) -> bool {
        if !self.known {
            self.values.entry(name).or_insert_with(|| value.clone());
        }
        self.values.get(name) == Some(value)
    }
}

/// Fields of a JSON object, removed one by one so that the rest can be shown as it is.
struct Fields(Map<String, Value>);

impl Fields {
    fn of(value: Value) -> Self {
        match value {
            Value::Object(mut fields) => {
                fields.remove("@type");
                Self(fields)
            }
            other => panic!("expected fields, got {other}"),
        }
    }

    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name)
    }

    fn text(&mut self, name: &str) -> String {
        match self.take(name) {
            Some(Value::String(text)) => text,
            other => panic!("expected a string under {name}, got {other:?}"),
        }
    }

    fn list(&mut self, name: &str) -> Vec<Value> {
        match self.take(name) {
            None => Vec::new(),
            Some(Value::Array(list)) => list,
            Some(other) => panic!("expected a list under {name}, got {other}"),
        }
    }

    /// Removes these fields and returns them as an object.
    fn take_all(&mut self, names: &[&str]) -> Value {
        Value::Object(
            names
                .iter()
                .filter_map(|&name| Some((name.to_owned(), self.take(name)?)))
                .collect(),
        )
    }

    /// Appends the remaining fields.
    fn rest(self, out: &mut Vec<(String, Node)>) {
        if let Node::Map(fields) = Node::from(Value::Object(self.0)) {
            out.extend(fields);
        }
    }
}

/// A mapping, or a list of single-field mappings if there are duplicate names.
fn pairs(pairs: Vec<(String, Node)>) -> Node {
    let mut names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    if names.windows(2).any(|pair| pair[0] == pair[1]) {
        Node::List(
            pairs
                .into_iter()
                .map(|pair| Node::Map(vec![pair]))
                .collect(),
        )
    } else {
        Node::Map(pairs)
    }
}
