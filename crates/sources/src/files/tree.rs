//! A document as a tree in which every value knows where it was written.
//!
//! In: what the YAML and JSON readers build. Out: plain JSON for decoding, and the place of any path
//! into it. Nothing here knows Kubernetes.

use serde_json::Number;

/// A byte offset into the text of the file. Files are smaller than 4 GiB (see [`super::Limits`]).
pub(super) type Offset = u32;

/// A value and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Node {
    pub(super) at: Offset,
    pub(super) value: Value,
}

/// JSON's kinds of values. Mappings keep the order in which they were written.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    Null,
    Bool(bool),
    Number(Number),
    String(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// The name of an entry in a mapping.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Key {
    pub(super) at: Offset,
    pub(super) name: String,
}

/// What is wrong with a document, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) at: Offset,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(at: Offset, message: impl Into<String>) -> Self {
        Self {
            at,
            message: message.into(),
        }
    }
}

/// One document of a file.
#[derive(Debug)]
pub(super) struct Document {
    /// The tree, or why there is none. Without it nobody can tell which object was meant.
    pub(super) root: Result<Node, Fault>,
    /// Mistakes beside which the tree could still be built, such as a key written twice. The document
    /// must not be used, but the tree tells which object it is.
    pub(super) faults: Vec<Fault>,
}

/// One step of a path into a tree.
#[derive(Debug, Clone, Copy)]
pub(super) enum Step<'a> {
    Field(&'a str),
    Index(usize),
}

impl Node {
    /// The value of an entry of a mapping.
    pub(super) fn get(&self, name: &str) -> Option<&Node> {
        match &self.value {
            Value::Map(entries) => entries
                .iter()
                .find(|(key, _)| key.name == name)
                .map(|(_, node)| node),
            _ => None,
        }
    }

    pub(super) fn as_str(&self) -> Option<&str> {
        match &self.value {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    pub(super) fn is_null(&self) -> bool {
        matches!(self.value, Value::Null)
    }

    /// Where the value at `path` is; if the path leaves the tree, the last value on the way.
    pub(super) fn locate<'a>(&self, path: impl IntoIterator<Item = Step<'a>>) -> Offset {
        let mut node = self;
        for step in path {
            let next = match (step, &node.value) {
                (Step::Field(name), _) => node.get(name),
                (Step::Index(index), Value::List(items)) => items.get(index),
                _ => None,
            };
            match next {
                Some(next) => node = next,
                None => break,
            }
        }
        node.at
    }

    /// The same as plain JSON. Of entries with the same name the first counts.
    pub(super) fn to_json(&self) -> serde_json::Value {
        match &self.value {
            Value::Null => serde_json::Value::Null,
            Value::Bool(value) => (*value).into(),
            Value::Number(number) => serde_json::Value::Number(number.clone()),
            Value::String(text) => serde_json::Value::String(text.clone()),
            Value::List(items) => items.iter().map(Node::to_json).collect(),
            Value::Map(entries) => {
                let mut map = serde_json::Map::new();
                for (key, node) in entries {
                    if !map.contains_key(&key.name) {
                        map.insert(key.name.clone(), node.to_json());
                    }
                }
                serde_json::Value::Object(map)
            }
        }
    }
}

/// Names that occur twice in a mapping, as faults at the second place.
pub(super) fn duplicate_keys(entries: &[(Key, Node)], faults: &mut Vec<Fault>) {
    let mut order: Vec<&Key> = entries.iter().map(|(key, _)| key).collect();
    order.sort_by(|a, b| (&a.name, a.at).cmp(&(&b.name, b.at)));
    for pair in order.windows(2) {
        if pair[0].name == pair[1].name {
            let message = format!("the key `{}` is written twice", shown(&pair[1].name));
            faults.push(Fault::new(pair[1].at, message));
        }
    }
}

/// Text from a file as it may be repeated in a message: short and on one line.
pub(super) fn shown(text: &str) -> String {
    shortened(text, 80)
}

/// Text of at most `longest` characters, on one line.
pub(super) fn shortened(text: &str, longest: usize) -> String {
    let mut short: String = text
        .chars()
        .take(longest)
        .map(|c| if c.is_control() { '\u{fffd}' } else { c })
        .collect();
    if text.chars().nth(longest).is_some() {
        short.push('…');
    }
    short
}
